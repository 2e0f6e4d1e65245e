"""Driver calls that allocate or free device memory, and their cost in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Basis, Column, Finding, Rule
from tracekit.kernel_names import matches
from tracekit.savings import Budget, budget
from tracekit.schema import C, HostKind

from .._shared.common import RANK, ints, spans, union_by
from .._shared.hosts import NO_OP, host_rows, source_lines, texts
from .._shared.idle_time import idle_by_rank
from .._shared.units import duration, percent

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.run import Run

    Flags = npt.NDArray[np.bool_]

PATTERN = (
    r"^(?:cuda|hip)(?:Malloc|Free)(?:_v\d+)?$"
    r"|^(?:cu|hip)Mem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess)(?:_v\d+)?$"
)
"""Calls of the allocator for device memory, without pinned memory and stream-ordered pools."""
FREES = r"Free|Release|Unmap"
EMPTY_CACHE = r"\bempty_cache$"
CONFIDENCE = 0.6
"""The host time in the calls was measured; the effect on the step was not."""
FEWEST_STEPS = 2
FEWEST_FREES = 50
"""Minimum frees without marked steps: a starting program allocates often, but rarely frees."""

LATER = "later"
COLUMNS = (
    RANK,
    Column("call", "", "call of the runtime or the driver"),
    Column("later_ns", "ns", "its time in steps after the first; in the second half if none are marked"),
    Column("later_count", "count", "its calls in the same part"),
    Column("later_steps", "count", "steps after the first with such calls"),
    Column("sum_ns", "ns", "Σ of durations on the host, whole capture"),
    Column("count", "count", "calls, whole capture"),
)
PEAK_COLUMNS = (
    Column(C.SOURCE, "", "source of the measurement"),
    Column(C.DEVICE, "", "device index; missing for the process on the host"),
    Column("measure", "", "measured quantity"),
    Column("size", "bytes", "peak"),
)
RULES = (
    Rule(
        "allocator_churn",
        "in at least two steps after the first, the host allocates or frees device memory at the driver "
        "(cudaMalloc, cudaFree and similar calls) for at least 1% of a step, and the device is idle for as "
        "long; if no steps are marked, at least 50 calls free memory in the second half of the capture",
        "a caching allocator needs no calls after the first step; each call blocks the host, and cudaFree "
        "waits for the device; a single step may be an evaluation; without steps, start-up cannot be "
        "distinguished from a loop, but start-up rarely frees memory",
    ),
)


def read(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Read the calls, with a flag for those after warm-up: in a step after its rank's first.

    If no steps are marked, in the second half of the capture.
    """
    columns = [C.ROW_ID, C.NAME, C.RANK, C.TID, C.START_NS, C.DUR_NS, C.STEP, C.PARENT_ROW]
    kinds = pc.field(C.KIND).isin([str(HostKind.RUNTIME), str(HostKind.SYNC)])
    rows = run.table("host_intervals", columns=columns, where=kinds)
    edges = ints(rows, C.START_NS)
    middle = (int(edges.min()) + int(edges.max())) / 2 if len(edges) else 0
    rows = rows[matches(rows[C.NAME], PATTERN)].reset_index(drop=True)
    return rows.assign(**{LATER: _later(rows, steps, middle)})


def _later(rows: pd.DataFrame, steps: pd.DataFrame, middle: float) -> Flags:
    """Whether each call is after warm-up."""
    if steps.empty:
        return ints(rows, C.START_NS) >= middle
    first_steps = steps.drop_duplicates(C.RANK).set_index(C.RANK)[C.STEP]
    first = rows[C.RANK].map(first_steps)
    return (rows[C.STEP].notna() & (rows[C.STEP] != first).fillna(value=False)).to_numpy(bool)


def table(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls by rank and name, sorted by time in later steps."""
    own = ints(calls, C.DUR_NS)
    later = calls[LATER].to_numpy(bool)
    frame = pd.DataFrame(
        {
            C.RANK: calls[C.RANK],
            "call": calls[C.NAME].astype(object),
            "later_ns": np.where(later, own, 0),
            "later_count": later.astype(np.int64),
            "sum_ns": own,
            "count": 1,
        }
    )
    sums = frame.groupby([C.RANK, "call"], sort=True, as_index=False).sum()
    distinct = frame.assign(step=calls[C.STEP])[later].groupby([C.RANK, "call"])["step"].nunique()
    places = pd.MultiIndex.from_frame(sums[[C.RANK, "call"]])
    sums["later_steps"] = distinct.reindex(places, fill_value=0).to_numpy(np.int64)
    order = ["later_ns", "sum_ns", C.RANK, "call"]
    sums = sums.sort_values(order, ascending=[False, False, True, True], ignore_index=True)
    return sums[[column.name for column in COLUMNS]]


def findings(run: Run, calls: pd.DataFrame) -> list[Finding]:
    """Findings on recurring calls."""
    later = calls[calls[LATER]]
    if not len(later):
        return []
    spent = budget(run)
    if spent.marked:
        recurs = int(later.groupby(C.RANK)[C.STEP].nunique().max()) >= FEWEST_STEPS
    else:
        recurs = int(matches(later[C.NAME], FREES).sum()) >= FEWEST_FREES
    blocked = _blocked(later)
    total = int(blocked.sum())
    if not (recurs and spent.matters(total)):
        return []
    saved = int(blocked.clip(upper=idle_by_rank(run, blocked.index)).sum())
    return [_finding(run, later, total, saved, spent)] if spent.matters(saved) else []


def _blocked(calls: pd.DataFrame) -> pd.Series:
    """Time in the calls by rank, on the thread with most of it."""
    threads = calls.groupby([C.RANK, C.TID], sort=True)
    codes = threads.ngroup().to_numpy().astype(np.int64)
    index = threads.size().index
    by_thread = pd.Series(union_by(codes, len(index), *spans(calls)), index=index)
    return by_thread.groupby(level=0).max()


def _finding(run: Run, calls: pd.DataFrame, total: int, saved: int, spent: Budget) -> Finding:
    longest = calls.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(EVIDENCE_ROWS)
    count, steps = len(calls), len(calls[[C.RANK, C.STEP]].drop_duplicates())
    when = f"{steps:,} steps after the first" if spent.marked else "the second half of the capture"
    return Finding(
        code="allocator_churn",
        severity=spent.severity(saved),
        title=(
            f"Device memory is allocated or freed at the driver {count:,} times in {when}: "
            f"{duration(spent.per_step(total))} of host time {spent.per}, "
            f"{percent(spent.share(total))} of it"
        ),
        advice=f"{_where(run, calls)} {_cause(run, calls)}",
        saving_ns_per_step=spent.per_step(saved),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: host time in these calls on the thread of each rank with most of it, at most the "
            "idle time of the rank's busiest device"
        ),
        confidence=CONFIDENCE,
        evidence={"host_intervals": [int(row) for row in longest[C.ROW_ID]]},
    )


def _where(run: Run, calls: pd.DataFrame) -> str:
    """Op with most of the time, and the source line of its longest call."""
    ops = texts(host_rows(run, calls[C.PARENT_ROW], [C.NAME])[C.NAME], NO_OP)
    sums = calls.groupby(ops, sort=True)[C.DUR_NS].sum()
    op, part = str(sums.idxmax()), int(sums.max()) / max(int(sums.sum()), 1)
    longest = calls[ops == op].sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(1)
    line = str(source_lines(run, longest[C.ROW_ID].astype("Int64")).iloc[0])
    place = "outside recorded ops" if op == NO_OP else f"inside {op}"
    return f"{percent(part)} of that time is {place}{f' at {line}' if line else ''}."


def _cause(run: Run, calls: pd.DataFrame) -> str:
    """Likely cause of such calls."""
    library = "or a library allocates its workspace at the driver, which the ops above would show"
    if not matches(calls[C.NAME], FREES).any():
        return (
            f"Memory is only allocated: the allocator's cache cannot serve some sizes, {library}. Give "
            "inputs few distinct shapes (pad or bucket them), run the largest batch first, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
    where = pc.field(C.KIND) == str(HostKind.PYTHON)
    frames = run.table("host_intervals", columns=[C.NAME], where=where)[C.NAME]
    if matches(frames, EMPTY_CACHE).any():
        return "The program calls empty_cache, which frees the cache: remove that call from the loop."
    return (
        "Memory is freed and allocated again: either allocations fail and are retried after emptying the "
        "cache  (`torch.cuda.memory_stats()['num_alloc_retries']` above zero; then use less memory "
        "or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or the program calls empty_cache (stacks "
        f"would show it), {library}."
    )
