"""Advice on idle devices, by cause. Waits get theirs from `sync_points`, which knows each call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule, Severity
from tracekit.savings import CONFIDENT, LEAST_SHARE, budget
from tracekit.schema import C

from ._common import LAUNCH_PATTERN
from ._idle import Cause
from ._idle_rows import ANCHOR_ROW, CALL, CAUSE, HOST_NS, OP, SOURCE, WAIT_ROW, total, worst_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from tracekit.run import Run
    from tracekit.savings import Budget

LEAST_IDLE = 0.05
"""A device that is busy for more than 95 % of its time gets no advice on the rest."""
COMPUTES_NS = 200_000
"""Dispatching one op takes up to some tens of µs; ten times that is other work of the host."""
LEAST_SMALL = 0.05
_MEMORY = r"(?i)malloc|free|hostalloc"
NAMED = 3
LEAST_NAMED = 0.01
ONE_OFF = 0.5
"""From this share on, one gap alone decides, and whether it recurs is the question."""

LAUNCHES = Rule(
    "idle_launch_bound",
    states="gaps of the cause launch_bound in which the host took under 200 µs sum to 1 % of the steps or "
    "more, on a device that is idle for 5 % of its time or more",
    why="such a gap is the dispatch of one or a few ops: fewer launches remove it, faster kernels do not",
)
COMPUTES = Rule(
    "idle_host_work",
    states="gaps of the cause launch_bound in which the host took 200 µs or more, most of it outside of "
    "runtime calls, sum to 1 % of the steps or more, on a device that is idle for 5 % of its time or more",
    why="no dispatch of an op takes 200 µs: the host did other work that the device waited for",
)
CALLS = Rule(
    "idle_slow_call",
    states="gaps of the cause launch_bound in which the host took 200 µs or more, most of it inside of one "
    "runtime call, sum to 1 % of the steps or more, on a device that is idle for 5 % of its time or more",
    why="a launch call takes some µs: one of 200 µs loads code, allocates memory or waits for a lock",
)
LOADING = Rule(
    "idle_dataload",
    states="gaps of the cause dataload sum to 1 % of the steps or more, on a device that is idle for 5 % of "
    "its time or more",
    why="the device waits for a batch; workers can prepare the next one meanwhile",
)
DEPENDS = Rule(
    "idle_stream_dependency",
    states="gaps of the cause stream_dependency sum to 1 % of the steps or more, on a device that is idle "
    "for 5 % of its time or more",
    why="a device starts queued work within a few µs, so it waited for something else",
)
SMALL = Rule(
    "idle_between_kernels",
    states="gaps of the cause kernel_to_kernel sum to 5 % of the steps or more",
    why="below that neither fewer nor fused kernels would show; it informs and puts no number on the saving",
)
RULES = (LAUNCHES, COMPUTES, CALLS, LOADING, DEPENDS, SMALL)

_HOW = "Σ of these gaps before work of profiled steps, on the device of each rank that waits most, {per}"
_PROFILED = "; the profiler slows the host, so without it the gaps are shorter"


def findings(run: Run, gaps: pd.DataFrame, summary: pd.DataFrame) -> tuple[Finding, ...]:
    """Advice on the gaps that count: of idle devices, and inside the profiled steps where there are any."""
    allowed = budget(run)
    idle = summary[summary["idle_share"] >= LEAST_IDLE]
    own = gaps.merge(idle[[C.RANK, C.DEVICE]], on=[C.RANK, C.DEVICE])
    if allowed.marked:
        own = own[own[C.STEP].notna()]
    late = own[own[CAUSE] == Cause.LAUNCH_BOUND]
    long = (late[HOST_NS] >= COMPUTES_NS).to_numpy(bool)
    calling = long & (late[CALL] != "").to_numpy(bool)
    rules: tuple[tuple[pd.DataFrame, Callable[[pd.DataFrame, Budget], Finding], float], ...] = (
        (late[~long], _launches, LEAST_SHARE),
        (late[long & ~calling], _computes, LEAST_SHARE),
        (late[calling], _calls, LEAST_SHARE),
        (own[own[CAUSE] == Cause.DATALOAD], _loading, LEAST_SHARE),
        (own[own[CAUSE] == Cause.STREAM_DEPENDENCY], _depends, LEAST_SHARE),
        (own[own[CAUSE] == Cause.KERNEL_TO_KERNEL], _small, LEAST_SMALL),
    )
    found = []
    for rows, rule, least in rules:
        worst = worst_devices(rows)
        if allowed.matters(total(worst), least=least):
            found.append(rule(worst, allowed))
    return tuple(found)


def _launches(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        LAUNCHES,
        rows,
        allowed,
        title=f"the device waits for launches {_amount(rows, allowed)}",
        advice=(
            f"{_weightiest(rows)}. The host launches more slowly than the device runs: launch less often "
            "(torch.compile, CUDA graphs, foreach or fused variants), or give each launch more work (a "
            "larger batch)"
        ),
    )


def _computes(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        COMPUTES,
        rows,
        allowed,
        title=f"the device waits for work of the host {_amount(rows, allowed)}",
        advice=(
            f"{_weightiest(rows)}. The host works there and launches nothing: move that work to the device "
            f"or out of the step, or launch the next work before it{_one_off(rows)}"
        ),
    )


def _calls(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        CALLS,
        rows,
        allowed,
        title=f"the device waits for slow runtime calls {_amount(rows, allowed)}",
        advice=f"{_weightiest(rows, [CALL, OP, SOURCE])}. {_on_call(rows)}{_one_off(rows)}",
    )


def _on_call(rows: pd.DataFrame) -> str:
    """What is known of the call that takes most of the time."""
    call = str(rows.groupby(CALL, observed=True)[C.DUR_NS].sum().idxmax())
    if re.search(_MEMORY, call):
        return (
            "Calls that allocate or free memory may also wait for the device and should not recur in a step: "
            "find out why the allocator or library asks for memory each time"
        )
    if re.search(LAUNCH_PATTERN, call):
        return (
            "A slow launch mostly loads its kernel's code or uploads its graph, which only a first one does "
            "(`slowest` of `launch_latency` tells): warm up before recording"
        )
    return "Find out what the call does there, and keep it out of the step"


def _one_off(rows: pd.DataFrame) -> str:
    """A caution where one gap decides."""
    longest = int(rows[C.DUR_NS].max()) / total(rows)
    if longest < ONE_OFF:
        return ""
    amount = "It is one gap" if len(rows) == 1 else f"One gap alone is {longest:.0%} of it"
    return f". {amount}: if it happens once, leave it out by warm-up steps"


def _loading(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        LOADING,
        rows,
        allowed,
        title=f"the device waits for data {_amount(rows, allowed)}",
        advice=(
            f"{_weightiest(rows)}. Load in the background: DataLoader(num_workers=..., prefetch_factor=..., "
            "pin_memory=True, persistent_workers=True); if workers are already used, add more or make the "
            "transforms cheaper"
        ),
    )


def _depends(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return _finding(
        DEPENDS,
        rows,
        allowed,
        title=f"the device is idle with work queued {_amount(rows, allowed)}",
        advice=(
            f"{_weightiest(rows)}. The launch was made in time, so the device waited for something else: an "
            "event of another device or stream, a host function in the stream, another process on the "
            "device, or work that is missing from the trace. The trace does not say which: a system trace "
            "(nsys) of all ranks would"
        ),
        confidence=0.6,
    )


def _small(rows: pd.DataFrame, allowed: Budget) -> Finding:
    return Finding(
        code=SMALL.code,
        severity=Severity.INFO,
        title=f"short gaps between queued kernels {_amount(rows, allowed)}",
        advice=(
            f"{_weightiest(rows)}. The work was queued in time: only fewer kernels (fusion, torch.compile) "
            "or cheaper starts (CUDA graphs) shorten these gaps"
        ),
        how=f"no saving is given: how much of {total(rows) / 1e6:.3f} ms fusion removes is not known",
        confidence=CONFIDENT,
        evidence=_evidence(rows),
    )


def _finding(
    rule: Rule,
    rows: pd.DataFrame,
    allowed: Budget,
    *,
    title: str,
    advice: str,
    confidence: float = CONFIDENT,
) -> Finding:
    idle = total(rows)
    return Finding(
        code=rule.code,
        severity=allowed.severity(idle),
        title=title,
        advice=advice,
        saving_ns_per_step=allowed.per_step(idle),
        basis=Basis.MEASURED,
        how=_HOW.format(per=allowed.per) + ("" if rule is DEPENDS else _PROFILED),
        confidence=confidence,
        evidence=_evidence(rows),
    )


def _amount(rows: pd.DataFrame, allowed: Budget) -> str:
    """How much of a step it is, for a person."""
    idle = total(rows)
    size = f"{allowed.share(idle):.0%} of the time ({allowed.per_step(idle) / 1e6:.3f} ms {allowed.per})"
    return f"{size}, in {len(rows):,} gap{'s' if len(rows) > 1 else ''}"


def _weightiest(rows: pd.DataFrame, keys: Sequence[str] = (OP, SOURCE)) -> str:
    """The ops with most of the idle time, with their lines."""
    sums = rows.groupby([*keys], observed=True)[C.DUR_NS].sum().reset_index()
    first = sums.sort_values([C.DUR_NS, *keys], ascending=[False, *(True for _ in keys)])[:NAMED]
    shares = first[C.DUR_NS] / total(rows)
    parts = [
        f"{_place([str(row[key]) for key in keys])} ({part:.0%})"
        for (_, row), part in zip(first.iterrows(), shares, strict=True)
        if part >= LEAST_NAMED
    ]
    return f"Most of it: {', '.join(parts)}" if parts else f"It is spread over {len(sums):,} ops and lines"


def _place(names: list[str]) -> str:
    """`call in op at line`, without what is unknown or said already."""
    *names, line = names
    text = " in ".join(names)
    return text if not line or line in text else f"{text} at {line}"


def _evidence(rows: pd.DataFrame) -> dict[str, list[int]]:
    """The longest gaps, and what the host did in them."""
    host = rows[WAIT_ROW].fillna(rows[ANCHOR_ROW]).fillna(rows[C.LAUNCH_ROW]).dropna().drop_duplicates()
    found = {"device_intervals": [int(row) for row in rows[C.ROW_ID][:EVIDENCE_ROWS]]}
    if len(host):
        found["host_intervals"] = [int(row) for row in host[:EVIDENCE_ROWS]]
    return found
