"""Findings on idle devices, by cause. Findings on waits are those of `sync_points`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.analysis import Basis, Finding, Severity
from tracekit.savings import CONFIDENT, LEAST_SHARE, budget
from tracekit.schema import C
from tracekit.windows import END_NS, step_windows

from .._shared import gaps as shared_gaps
from .._shared.common import LAUNCH_PATTERN, ints, share
from .._shared.units import duration
from .causes import Cause
from .rows import (
    ANCHOR_ROW,
    BETWEEN,
    CALL,
    CAUSE,
    HOST_NS,
    OP,
    RESTING,
    SOURCE,
    WAIT_ROW,
    of_places,
    total,
    worst_devices,
)
from .rules import CALLS, COMPUTES, COMPUTES_NS, DEPENDS, LAUNCHES, LEAST_IDLE, LEAST_SMALL, LOADING, SMALL
from .words import amount, evidence, largest_part, one_off

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pandas as pd

    from tracekit.analysis import Rule
    from tracekit.run import Run
    from tracekit.savings import Budget

    Flags = npt.NDArray[np.bool_]

_NEEDED = [
    *(C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.ROW_ID, C.LAUNCH_ROW),
    *(CAUSE, OP, CALL, SOURCE, HOST_NS, RESTING, WAIT_ROW, ANCHOR_ROW),
]
_BETWEEN = BETWEEN[:-1]
"""Prefix of labels of gaps in which no host row covers most of the host's part."""
_MEMORY = r"(?i)malloc|free|hostalloc"

_HOW = "Σ of these gaps{inside}, on the device of each rank with most idle time, {per}"
_AT_MOST = "; an upper bound, because it is unknown what the device waited for"
_PROFILED = "; the profiler slows the host, so gaps are shorter without it"


def findings(run: Run, gaps: pd.DataFrame, summary: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on the gaps of idle devices, inside the profiled steps if there are any."""
    allowed = budget(run)
    own = _of_idle_devices(run, gaps[_NEEDED], summary)
    late = (own[CAUSE] == Cause.LAUNCH_BOUND).to_numpy(bool)
    long = (own[HOST_NS] >= COMPUTES_NS).fillna(value=False).to_numpy(bool)
    calling = (own[CALL] != "").to_numpy(bool)
    rules: tuple[tuple[Flags, Callable[[pd.DataFrame, Budget], Finding], float], ...] = (
        (late & ~long, _launches, LEAST_SHARE),
        (late & long & ~calling, _computes, LEAST_SHARE),
        (late & long & calling, _calls, LEAST_SHARE),
        ((own[CAUSE] == Cause.DATALOAD).to_numpy(bool), _loading, LEAST_SHARE),
        ((own[CAUSE] == Cause.STREAM_DEPENDENCY).to_numpy(bool), _depends, LEAST_SHARE),
        ((own[CAUSE] == Cause.KERNEL_TO_KERNEL).to_numpy(bool), _small, LEAST_SMALL),
    )
    found = []
    for chosen, rule, least in rules:
        worst = worst_devices(own[chosen])
        if allowed.matters(total(worst), least=least):
            found.append(rule(worst, allowed))
    return tuple(found)


def _of_idle_devices(run: Run, gaps: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Gaps of devices with idle time above `LEAST_IDLE`, with their lengths inside the steps if any."""
    windows = step_windows(run)
    places = summary[[C.RANK, C.DEVICE, "window_ns"]]
    if len(windows):
        lengths = {
            rank: intervals.length(intervals.union(ints(own, C.START_NS), ints(own, END_NS)))
            for rank, own in windows.groupby(C.RANK)
        }
        places = places.assign(window_ns=places[C.RANK].map(lengths).fillna(0).to_numpy(np.int64))
        gaps = gaps.assign(**{C.DUR_NS: shared_gaps.inside_steps(gaps, windows)})
        gaps = gaps[gaps[C.DUR_NS] > 0]
    idle = gaps.groupby([C.RANK, C.DEVICE], as_index=False)[C.DUR_NS].sum().merge(places)
    idle = idle[share(idle[C.DUR_NS], ints(idle, "window_ns")) >= LEAST_IDLE]
    return gaps[of_places(gaps, idle)]


def _launches(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        LAUNCHES,
        rows,
        allowed,
        title=f"GPU is launch-bound {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. The host launches more slowly than the device runs: launch less often "
            "(torch.compile, CUDA graphs, foreach or fused variants), or do more work per launch (a larger "
            "batch)"
        ),
    )


def _computes(rows: pd.DataFrame, allowed: Budget) -> Finding:
    found = _finding(
        COMPUTES,
        rows,
        allowed,
        title=f"GPU idle: CPU busy outside kernel launches {amount(rows, allowed)}",
        advice=f"{largest_part(rows)}. {_on_host(rows)}{one_off(rows)}",
    )
    if not _mostly(rows, rows[RESTING]):
        return found
    none = "saving not estimated: without work the device has to be idle"
    return replace(found, severity=Severity.INFO, saving_ns_per_step=None, basis=None, how=none)


def _on_host(rows: pd.DataFrame) -> str:
    """Advice by what is known of the host's activity: waiting, not recorded, or busy."""
    if _mostly(rows, rows[RESTING]):
        return (
            "The host waits there for a request, a lock or another process: fine if there is no work, else "
            "prepare the next work earlier"
        )
    if _mostly(rows, rows[OP].astype(str).str.startswith(_BETWEEN)):
        return (
            "The host's activity there was not recorded: Python between ops, or a wait for something other "
            "than the device (a request, data, a lock). Record stacks (`tracekit collect --stacks`) to find "
            "it; move work out of the step or launch the next kernels before it"
        )
    return (
        "The host is busy there without launching: move that work to the device or out of the step, or "
        "launch the next kernels before it"
    )


def _mostly(rows: pd.DataFrame, chosen: pd.Series) -> bool:
    """Whether more than half of the time is in these gaps."""
    return bool(2 * rows[C.DUR_NS][chosen].sum() > total(rows))


def _calls(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        CALLS,
        rows,
        allowed,
        title=f"GPU idle during slow runtime calls {amount(rows, allowed)}",
        advice=f"{largest_part(rows, [CALL, OP, SOURCE])}. {_on_call(rows)}{one_off(rows)}",
    )


def _on_call(rows: pd.DataFrame) -> str:
    """Advice on the call that takes most of the time."""
    call = str(rows.groupby(CALL, observed=True)[C.DUR_NS].sum().idxmax())
    if re.search(_MEMORY, call):
        return (
            "Calls that allocate or free memory may also wait for the device and should not recur in a step: "
            "find out why the allocator or library requests memory each time"
        )
    if re.search(LAUNCH_PATTERN, call):
        return (
            "A slow launch usually loads the kernel's code or uploads the graph, on first use only (see "
            "`slowest` of `launch_latency`): warm up before recording"
        )
    return "Find out why the call is slow, and keep it out of the step"


def _loading(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        LOADING,
        rows,
        allowed,
        title=f"GPU idle during data loading {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. Load in the background: DataLoader(num_workers=..., prefetch_factor=..., "
            "pin_memory=True, persistent_workers=True); if workers are already used, add more or make the "
            "transforms cheaper"
        ),
    )


def _depends(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        DEPENDS,
        rows,
        allowed,
        title=f"GPU idle with work queued {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. The work was launched in time, so the device waited for something "
            "else: an event of another device or stream, a host function in the stream, another process "
            "on the device, or work that is missing from the trace. Record a system trace (nsys) of all "
            "ranks to find out which"
        ),
        basis=Basis.ESTIMATED,
        confidence=0.6,
    )


def _small(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return Finding(
        code=SMALL.code,
        severity=Severity.INFO,
        title=f"Short gaps between queued kernels take {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. The work was queued in time: only fewer kernels (fusion, "
            "torch.compile) or CUDA graphs shorten these gaps"
        ),
        how=f"saving not estimated: how much of {duration(total(rows))} fusion removes is unknown",
        confidence=CONFIDENT,
        evidence=evidence(rows),
    )


def _finding(
    rule: Rule,
    rows: pd.DataFrame,
    allowed: Budget,
    *,
    title: str,
    advice: str,
    basis: Basis = Basis.MEASURED,
    confidence: float = CONFIDENT,
) -> Finding:
    idle = total(rows)
    return Finding(
        code=rule.code,
        severity=allowed.severity(idle),
        title=title,
        advice=advice,
        saving_ns_per_step=allowed.per_step(idle),
        basis=basis,
        how=_HOW.format(inside=" inside the profiled steps" if allowed.marked else "", per=allowed.per)
        + (_AT_MOST if rule is DEPENDS else _PROFILED),
        confidence=confidence,
        evidence=evidence(rows),
    )
