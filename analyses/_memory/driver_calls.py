"""Calls that take device memory from the driver or give it back, and what they cost inside steps."""

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
"""Calls of the allocator for blocks of device memory; pinned memory and stream-ordered pools are others."""
GIVES_BACK = r"Free|Release|Unmap"
EMPTY_CACHE = r"\bempty_cache$"
CONFIDENCE = 0.6
"""The host's time in the calls was measured; that the step would be shorter by it was not."""
FEWEST_STEPS = 2
FEWEST_RETURNS = 50
"""Where no steps are marked: a program that starts takes memory many times, but hardly gives it back."""

LATER = "later"
COLUMNS = (
    RANK,
    Column("call", "", "call of the runtime or the driver"),
    Column("later_ns", "ns", "its time in steps after the first; in the second half where none are marked"),
    Column("later_count", "count", "its calls there"),
    Column("later_steps", "count", "such steps with such calls"),
    Column("sum_ns", "ns", "Σ of durations on the host, whole capture"),
    Column("count", "count", "calls, whole capture"),
)
PEAK_COLUMNS = (
    Column(C.SOURCE, "", "who measured it"),
    Column(C.DEVICE, "", "device index; missing for the process on the host"),
    Column("measure", "", "what was measured"),
    Column("size", "bytes", "most of it at once"),
)
RULES = (
    Rule(
        "allocator_churn",
        "in two or more steps after the first, the host takes device memory from the driver or gives it back "
        "(cudaMalloc, cudaFree and their like), for 1% of a step or more, and the device idles for as long; "
        "where no steps are marked, 50 or more calls give it back in the second half of the capture",
        "a caching allocator has what it needs after the first step; each call blocks the host, and cudaFree "
        "waits for the device; once may be an evaluation; without steps a start cannot be told from a loop, "
        "but a start hardly gives memory back",
    ),
)


def read(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """The calls, and whether each is after the warm-up: in a step after its rank's first.

    Where no steps are marked, in the second half of the capture.
    """
    columns = [C.ROW_ID, C.NAME, C.RANK, C.TID, C.START_NS, C.DUR_NS, C.STEP, C.PARENT_ROW]
    kinds = pc.field(C.KIND).isin([str(HostKind.RUNTIME), str(HostKind.SYNC)])
    rows = run.table("host_intervals", columns=columns, where=kinds)
    edges = ints(rows, C.START_NS)
    middle = (int(edges.min()) + int(edges.max())) / 2 if len(edges) else 0
    rows = rows[matches(rows[C.NAME], PATTERN)].reset_index(drop=True)
    return rows.assign(**{LATER: _later(rows, steps, middle)})


def _later(rows: pd.DataFrame, steps: pd.DataFrame, middle: float) -> Flags:
    """Whether each call comes after the warm-up."""
    if steps.empty:
        return ints(rows, C.START_NS) >= middle
    firsts = steps.drop_duplicates(C.RANK).set_index(C.RANK)[C.STEP]
    first = rows[C.RANK].map(firsts)
    return (rows[C.STEP].notna() & (rows[C.STEP] != first).fillna(value=False)).to_numpy(bool)


def table(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls by rank and name, those that cost most in later steps first."""
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
    """Calls that come again and again."""
    later = calls[calls[LATER]]
    if not len(later):
        return []
    spent = budget(run)
    if spent.marked:
        again = int(later.groupby(C.RANK)[C.STEP].nunique().max()) >= FEWEST_STEPS
    else:
        again = int(matches(later[C.NAME], GIVES_BACK).sum()) >= FEWEST_RETURNS
    blocked = _blocked(later)
    total = int(blocked.sum())
    if not (again and spent.matters(total)):
        return []
    saved = int(blocked.clip(upper=idle_by_rank(run, blocked.index)).sum())
    return [_finding(run, later, total, saved, spent)] if spent.matters(saved) else []


def _blocked(calls: pd.DataFrame) -> pd.Series:
    """Time in the calls by rank, on the thread of it that has most."""
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
            f"Device memory is taken from the driver or given back {count:,} times in {when}: "
            f"{duration(spent.per_step(total))} of the host's time {spent.per}, "
            f"{percent(spent.share(total))} of it"
        ),
        advice=f"{_where(run, calls)} {_cause(run, calls)}",
        saving_ns_per_step=spent.per_step(saved),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: the host's time in these calls, on the thread of each rank that has most, and at "
            "most the idle time of the rank's busiest device, which work that is queued would hide"
        ),
        confidence=CONFIDENCE,
        evidence={"host_intervals": [int(row) for row in longest[C.ROW_ID]]},
    )


def _where(run: Run, calls: pd.DataFrame) -> str:
    """The op with most of the time, and the line of its longest call."""
    ops = texts(host_rows(run, calls[C.PARENT_ROW], [C.NAME])[C.NAME], NO_OP)
    sums = calls.groupby(ops, sort=True)[C.DUR_NS].sum()
    op, part = str(sums.idxmax()), int(sums.max()) / max(int(sums.sum()), 1)
    longest = calls[ops == op].sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(1)
    line = str(source_lines(run, longest[C.ROW_ID].astype("Int64")).iloc[0])
    place = "outside of recorded ops" if op == NO_OP else f"inside {op}"
    return f"{percent(part)} of that time is {place}{f' at {line}' if line else ''}."


def _cause(run: Run, calls: pd.DataFrame) -> str:
    """What such calls come from, as far as it was seen."""
    library = "or a library takes its workspace from the driver itself, which the ops above would show"
    if not matches(calls[C.NAME], GIVES_BACK).any():
        return (
            f"Memory is only taken: sizes come up that the allocator's cache cannot serve, {library}. Give "
            "inputs few distinct shapes (pad or bucket them), run the largest batch first, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
    where = pc.field(C.KIND) == str(HostKind.PYTHON)
    frames = run.table("host_intervals", columns=[C.NAME], where=where)[C.NAME]
    if matches(frames, EMPTY_CACHE).any():
        return "The program calls empty_cache, which gives the cache back: remove that call from the loop."
    return (
        "Memory is given back and taken again: either allocations fail and are tried again once the cache is "
        "emptied (`torch.cuda.memory_stats()['num_alloc_retries']` above zero says so; then use less memory "
        "or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or the program calls empty_cache (stacks "
        f"would show it), {library}."
    )
