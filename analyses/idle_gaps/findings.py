"""Rules of `idle_gaps` and their thresholds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import LINE, brief
from tracekit.analysis.savings import CONFIDENT, LEAST_SHARE, WARN_SHARE, Budget, budget
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.runs.step_times import unprofiled
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C

from ..shared.common import LAUNCH_PATTERN, duration, ints, percent, share
from ..shared.host_rows import NO_OP, blocking_calls
from ..shared.idle_neighbors import AFTER, inside_steps
from ..steps import profiled_steps
from .causes import (
    ALLOCATING,
    ANCHOR_ROW,
    ASIDE,
    BETWEEN,
    CALL,
    CAUSE,
    HOST_NS,
    NAMED,
    OP,
    RESTING,
    SOURCE,
    STARTING,
    WAIT_ROW,
    Cause,
    of_places,
    total,
    worst_devices,
)

LEAST_IDLE = 0.05
"""Minimum idle share of the steps (of the capture without any) for findings on a device."""
LEAST_SMALL = 0.05
"""Minimum share of the steps of the gaps between kernels."""
_ON_IDLE = f"on a device that is idle for at least {LEAST_IDLE:.0%} of the steps"

LAUNCHES = Rule(
    "idle_launch_bound",
    states=f"launch_bound gaps sum to at least {LEAST_SHARE:.0%} of the steps, {_ON_IDLE}; without a "
    "saving if at most one step is marked and the host was late only before it got ahead",
    why="such a gap is the dispatch of one or a few ops: fewer launches remove it, faster kernels do not",
    bound=Bottleneck.LAUNCH,
)
COMPUTES = Rule(
    "idle_host_work",
    states=f"host_work gaps sum to at least {WARN_SHARE:.0%} of the steps, {_ON_IDLE}; "
    "without a saving where it was not recorded what the host did, or, with at most "
    "one step marked, was late only before it got ahead",
    why="dispatching an op does not take that long: the host did other work, or waited",
    bound=Bottleneck.LAUNCH,
)
CALLS = Rule(
    "idle_slow_call",
    states=f"slow_call gaps sum to at least {LEAST_SHARE:.0%} of the steps, {_ON_IDLE}; launches of "
    "graphs are not counted, and memory calls that occur less than 3 times have no saving",
    why="a launch call takes some µs: one of 200 µs loads code, allocates memory or waits for a lock; a "
    "graph's launch takes longer while each of its kernels is recorded",
    bound=Bottleneck.LAUNCH,
)
FIRST_CALLS = Rule(
    "idle_first_calls",
    states=f"first_call gaps sum to at least {LEAST_SHARE:.0%} of the steps, {_ON_IDLE}",
    why="the first call with a shape loads code, chooses an algorithm or allocates a workspace",
    bound=Bottleneck.LAUNCH,
)
LOADING = Rule(
    "idle_dataload",
    states=f"dataload gaps sum to at least {LEAST_SHARE:.0%} of the steps, {_ON_IDLE}",
    why="the device waits for a batch; workers can prepare the next one concurrently",
    bound=Bottleneck.INPUT,
)
DEPENDS = Rule(
    "idle_stream_dependency",
    states=f"stream_dependency gaps sum to at least {LEAST_SHARE:.0%} of the steps, {_ON_IDLE}",
    why="a device starts queued work within a few µs, so it waited for something else",
    bound=Bottleneck.QUEUED,
)
SMALL = Rule(
    "idle_between_kernels",
    states=f"kernel_to_kernel gaps sum to at least {LEAST_SMALL:.0%} of the steps",
    why="below that fewer or fused kernels make no visible difference; savings are not estimated",
    bound=Bottleneck.QUEUED,
)
RULES = (LAUNCHES, COMPUTES, CALLS, FIRST_CALLS, LOADING, DEPENDS, SMALL)


MOST_NAMED = 3
LEAST_NAMED = 0.01
ONE_OFF = 0.5
"""Share of a single gap from which the advice warns that it may be a one-time event."""


def one_off(rows: pd.DataFrame) -> str:
    """Warn if one gap makes up most of the idle time."""
    longest = int(rows[C.DUR_NS].max()) / total(rows)
    if longest < ONE_OFF:
        return ""
    amount = "It is a single gap" if len(rows) == 1 else f"A single gap is {percent(longest)} of it"
    return f". {amount}: if it happens only once, exclude it with warm-up steps"


def amount(rows: pd.DataFrame, allowed: Budget) -> str:
    """Text: share of the time, amount per step and number of gaps."""
    idle = total(rows)
    size = f"{percent(allowed.share(idle))} of the time: {duration(allowed.per_step(idle))} {allowed.per}"
    return f"{size}, in {len(rows):,} gap{'s' if len(rows) > 1 else ''}"


def largest_part(rows: pd.DataFrame, keys: Sequence[str] = (OP, SOURCE)) -> str:
    """Text: the ops with most idle time and their source lines."""
    sums = rows.groupby([*keys], observed=True)[C.DUR_NS].sum().reset_index()
    first = sums.sort_values([C.DUR_NS, *keys], ascending=[False, *(True for _ in keys)])[:MOST_NAMED]
    shares = first[C.DUR_NS] / total(rows)
    parts = [
        f"{_place([str(row[key]) for key in keys])} ({100 * part:.0f}%)"
        for (_, row), part in zip(first.iterrows(), shares, strict=True)
        if part >= LEAST_NAMED
    ]
    if (rows[OP] == BETWEEN).all() and not (rows[SOURCE] != "").any():
        return "No op or source line was recorded for these gaps"
    verb = "is" if len(parts) == 1 else "are"
    if parts:
        return f"The largest part{'s' if len(parts) > 1 else ''} {verb} {', '.join(parts)}"
    return f"It is spread over {len(sums):,} ops and lines"


def _place(names: list[str]) -> str:
    """Text `call in op at line`, without unknown or repeated parts."""
    *names, line = names
    text = " in ".join(brief(name) for name in names)
    return text if not line or line in names else f"{text} at {brief(line, LINE)}"


def evidence(rows: pd.DataFrame) -> dict[str, list[int]]:
    """Row ids of the longest gaps, and of the host rows responsible."""
    host = rows[WAIT_ROW].fillna(rows[ANCHOR_ROW]).fillna(rows[C.LAUNCH_ROW]).dropna().drop_duplicates()
    found = {"device_intervals": [int(row) for row in rows[C.ROW_ID][:EVIDENCE_ROWS]]}
    if len(host):
        found["host_intervals"] = [int(row) for row in host[:EVIDENCE_ROWS]]
    return found


if TYPE_CHECKING:
    Flags = npt.NDArray[np.bool_]

_NEEDED = [
    *(C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.ROW_ID, C.LAUNCH_ROW),
    *(CAUSE, OP, CALL, SOURCE, HOST_NS, RESTING, ALLOCATING, WAIT_ROW, ANCHOR_ROW),
    *(ASIDE, STARTING, NAMED, AFTER),
]
_BETWEEN = BETWEEN[:-1]
"""Prefix of labels of gaps in which no host row covers most of the host's part."""
_MEMORY = r"(?i)malloc|free|hostalloc"
_GRAPH_LAUNCH = r"(?i)graphlaunch"
_COMPILED = "CompiledFxGraph"
RECURS = 3
"""Minimum number of gaps from which calls that allocate or free memory recur."""

_HOW = "Σ of these gaps{inside}, on the device of each rank with most idle time, {per}"
_AT_MOST = "; an upper bound, because it is unknown what the device waited for"
_START = (
    "saving not estimated: the queue was empty when the capture began, and at its end the host is further "
    "ahead than it was late in all: the gaps recur only if the program waits for the device after each round"
)
_PROFILED = "; the profiler slows the host, so gaps are shorter without it"
_UNPROFILED = (
    "; of the {gaps} per step in this profile, at most the idle time of an un-profiled step: {step}, of "
    "which the device is busy for {busy}"
)
_NEVER = "saving not estimated: un-profiled steps take {step}, and the device is busy for {busy} of them"


def findings(run: Run, gaps: pd.DataFrame, summary: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on the gaps of idle devices, inside the profiled steps if there are any."""
    allowed = budget(run)
    own = _of_idle_devices(run, gaps[_NEEDED], summary)
    own = own[~own[ASIDE]]
    known = own[NAMED].to_numpy(bool)
    replays = own[CALL].astype(str).str.contains(_GRAPH_LAUNCH).to_numpy(bool)
    caused = {cause: (own[CAUSE] == cause).to_numpy(bool) for cause in Cause}
    rules: tuple[tuple[Flags, Callable[[pd.DataFrame, Budget], Finding], float], ...] = (
        (
            caused[Cause.LAUNCH_BOUND],
            partial(_launches, waits=blocking_calls(run, marked=allowed.marked)),
            LEAST_SHARE,
        ),
        (caused[Cause.HOST_WORK] & known, _computes, WARN_SHARE),
        (caused[Cause.HOST_WORK] & ~known, _unexplained, WARN_SHARE),
        (caused[Cause.SLOW_CALL] & ~replays, _calls, LEAST_SHARE),
        (caused[Cause.FIRST_CALL], _first_calls, LEAST_SHARE),
        (caused[Cause.DATALOAD], _loading, LEAST_SHARE),
        (caused[Cause.STREAM_DEPENDENCY], _depends, LEAST_SHARE),
        (caused[Cause.KERNEL_TO_KERNEL], _small, LEAST_SMALL),
    )
    found = []
    for chosen, rule, least in rules:
        worst = worst_devices(own[chosen])
        if allowed.matters(total(worst), least=least):
            recurs = rule not in _AT_FIRST
            starting = recurs and allowed.steps <= len(run.ranks) and _mostly(worst, worst[STARTING])
            one = rule(worst, allowed)
            found.append(_without_saving(one, _START) if starting else one)
    return _bounded(run, found, allowed)


def _bounded(run: Run, found: list[Finding], allowed: Budget) -> tuple[Finding, ...]:
    """Lower savings to the idle time of a step without the profiler, which lengthens gaps, if it is known."""
    timed = unprofiled(run.meta.timings)
    if timed is None or not allowed.marked or not found:
        return tuple(found)
    on_device = profiled_steps(run)["device_busy_ns"]
    busy_ns = int(on_device.sum()) // len(on_device)
    most = timed.median_ns - busy_ns
    text = {"step": duration(timed.median_ns), "busy": duration(busy_ns)}
    return tuple(_at_most(one, most, allowed, text) for one in found)


def _at_most(found: Finding, most: int, allowed: Budget, text: dict[str, str]) -> Finding:
    saving = found.saving_ns_per_step
    if saving is None or saving <= most:
        return found
    if not allowed.matters(most * allowed.steps):
        return _without_saving(found, _NEVER.format(**text))
    return replace(
        found,
        severity=allowed.severity(most * allowed.steps),
        saving_ns_per_step=most,
        basis=Basis.ESTIMATED,
        how=found.how.removesuffix(_PROFILED) + _UNPROFILED.format(gaps=duration(saving), **text),
    )


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
        gaps = gaps.assign(**{C.DUR_NS: inside_steps(gaps, windows)})
        gaps = gaps[gaps[C.DUR_NS] > 0]
    idle = gaps.groupby([C.RANK, C.DEVICE], as_index=False)[C.DUR_NS].sum().merge(places)
    idle = idle[share(idle[C.DUR_NS], ints(idle, "window_ns")) >= LEAST_IDLE]
    return gaps[of_places(gaps, idle)]


def _after_waits(waits: pd.DataFrame, rows: pd.DataFrame, allowed: Budget) -> str:
    """Sentence on waits before these gaps that take longer: without them the host could run ahead."""
    last = waits[C.RANK].map((rows[C.START_NS] + rows[C.DUR_NS]).groupby(rows[C.RANK]).max())
    own = waits[waits[C.START_NS] + waits[C.DUR_NS] < last.fillna(-1)]
    by_thread = own.groupby([C.RANK, C.PID, C.TID])[C.DUR_NS].sum()
    if by_thread.empty or by_thread.max() < total(rows):
        return ""
    where = str(own.groupby("op")[C.DUR_NS].sum().idxmax())
    most = "" if where == NO_OP else f", most in {brief(where)}"
    waited = duration(allowed.per_step(int(by_thread.max())))
    return (
        f". The host also waits for the device, {waited} {allowed.per}{most}, and launches into an empty "
        "queue afterwards: avoid these waits first"
    )


def _launches(rows: pd.DataFrame, allowed: Budget, *, waits: pd.DataFrame) -> Finding:
    return _finding(
        LAUNCHES,
        rows,
        allowed,
        title=f"GPU is launch-bound {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. The host launches more slowly than the device runs: launch less often "
            "(torch.compile, CUDA graphs, foreach or fused variants), or do more work per launch (a larger "
            f"batch){_after_waits(waits, rows, allowed)}"
        ),
    )


def _computes(rows: pd.DataFrame, allowed: Budget) -> Finding:
    found = _finding(
        COMPUTES,
        rows,
        allowed,
        title=f"GPU idle: CPU busy outside kernel launches {amount(rows, allowed)}",
        advice=f"{largest_part(_with_kernels(rows))}. {_on_host(rows)}{one_off(rows)}",
    )
    if not _mostly(rows, rows[RESTING]):
        return found
    return _without_saving(found, "saving not estimated: without work the device has to be idle")


def _without_saving(found: Finding, reason: str) -> Finding:
    return replace(found, severity=Severity.INFO, saving_ns_per_step=None, basis=None, how=reason)


def _unexplained(rows: pd.DataFrame, allowed: Budget) -> Finding:
    found = _finding(
        COMPUTES,
        rows,
        allowed,
        title=f"GPU idle while the CPU activity is unknown {amount(rows, allowed)}",
        advice=f"{largest_part(rows)}. {_on_host(rows)}{one_off(rows)}",
    )
    return _without_saving(found, "saving not estimated: it was not recorded what the host did")


def _first_calls(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        FIRST_CALLS,
        rows,
        allowed,
        title=f"GPU idle during first calls of ops {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. These calls took at least 10 times as long as the other calls of the op, "
            "because they load code, choose an algorithm or allocate a workspace for a shape: run each shape "
            "before recording (`tracekit collect --warmup`), and in production before the first request"
        ),
    )


def _with_kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """Gaps with the next kernel as label where the responsible range is named only by a compiled graph."""
    labels = rows[OP].astype(str)
    compiled = labels.str.contains(_COMPILED, regex=False)
    return rows.assign(**{OP: labels.mask(compiled, "compiled graph before " + rows[AFTER].astype(str))})


def _on_host(rows: pd.DataFrame) -> str:
    """Advice by what is known of the host's activity: waiting, not recorded, or busy."""
    if _mostly(rows, rows[RESTING]):
        return (
            "The host waits there for a request, a lock or another process: fine if there is no work, else "
            "prepare the next work earlier"
        )
    if _mostly(rows, rows[ALLOCATING]):
        return (
            "Most of it is in calls that allocate or free memory of the host or the device, which also "
            "initialize it: allocate buffers once and reuse them"
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
    found = _finding(
        CALLS,
        rows,
        allowed,
        title=f"GPU idle during slow runtime calls {amount(rows, allowed)}",
        advice=f"{largest_part(rows, [CALL, OP, SOURCE])}. {_on_call(rows)}{one_off(rows)}",
    )
    once = len(rows) == 1 and allowed.marked and allowed.steps > 1
    if once or (len(rows) < RECURS and re.search(_MEMORY, _main_call(rows))):
        return _without_saving(found, "saving not estimated: the call does not recur")
    return found


def _main_call(rows: pd.DataFrame) -> str:
    """The call with most idle time."""
    return str(rows.groupby(CALL, observed=True)[C.DUR_NS].sum().idxmax())


def _on_call(rows: pd.DataFrame) -> str:
    """Advice on the call that takes most of the time."""
    call = _main_call(rows)
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


_AT_FIRST = (_calls, _first_calls)
"""Rules whose advice is to warm up, which is right of the start of a capture too."""


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
        title=f"GPU idle on a stream dependency, with work queued, {amount(rows, allowed)}",
        advice=(
            f"{largest_part(rows)}. The work was launched in time, so the device waited for something "
            "else: an event of another device or stream, a host function in the stream, another process "
            "on the device, work that is missing from the trace, or on Windows (WDDM) the driver, which "
            "submits launches in batches. Record a system trace (nsys) of all ranks to find out which"
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
