"""Breakdown of each device's time into compute, data movement, opaque graphs and idle.

Opaque graphs are nonzero only if a profiler records a graph replay as one interval. In `per_step` an interval
counts by its part inside the window, whichever step launched it, so windows of steps that overlap on the
device share time; `profiled_steps` counts that time once.

Sources: TorchBench (Hao et al., 2023), figures 1 and 2, table 2; HTA's temporal breakdown without its
rounding.

Example:
    >>> tracekit.analyze(run, "gpu_breakdown").tables["whole"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, ByRank, Column, Result, TableSpec
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, overlap_lengths
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, measured_from, step_windows
from tracekit.schema import C, DeviceKind

from .shared.common import (
    DEVICE,
    NO_STEPS,
    PLACE,
    RANK,
    STEP,
    absent_device_note,
    concat_by_name,
    concat_tables,
    extent,
    ints,
    share,
    spans,
)
from .shared.host_rows import COLUMNS, host_time_by_op
from .shared.intervals_by_class import (
    cut_overruns,
    find_overruns,
    find_searches,
    intervals_by_class,
    overrun_notes,
)

OPAQUE_GRAPHS = (
    "some CUDA graphs were recorded as one interval each: their time is graph_ns, neither active nor idle; "
    "record graph nodes to see the kernels inside (nsys: --cuda-graph-trace=node)"
)

MEASURES = (
    Column("window_ns", "ns", "length of the window"),
    Column("active_ns", "ns", "|K|: at least one kernel runs"),
    Column("movement_ns", "ns", "|(C∪S)∖K|: a copy or memset runs and no kernel does"),
    Column("idle_ns", "ns", "window − |K∪C∪S∪G|: nothing runs"),
    Column("copies_union_ns", "ns", "|C∪S|: at least one copy or memset runs, overlapped or not"),
    Column("kernels", "count", "kernels that start in the window"),
    Column("memcpys", "count", "memcpys that start in the window"),
    Column("memsets", "count", "memsets that start in the window"),
    Column(
        "kernel_sum_ns",
        "ns",
        "Σ of the kernels' durations inside the window, overlaps counted twice, overruns not",
    ),
    Column("active_share", "share", "active over window"),
    Column("movement_share", "share", "movement over window"),
    Column("idle_share", "share", "idle over window"),
    Column("memcpy_sum_ns", "ns", "Σ of the memcpys' durations inside the window"),
    Column("memset_sum_ns", "ns", "Σ of the memsets' durations inside the window"),
    Column("memcpy_union_ns", "ns", "|C|: at least one memcpy runs"),
    Column("overlapped_ns", "ns", "|(C∪S)∩K|: copies and memsets overlapped with kernels"),
    Column("communication_ns", "ns", "|N|: a communication kernel (identified by name) runs"),
    Column("communication_exposed_ns", "ns", "|N∖(K∖N)|: exposed communication (no other kernel runs)"),
    Column("communication_overlapped_ns", "ns", "communication overlapped with other kernels"),
    Column("graph_ns", "ns", "|G∖(K∪C∪S)|: an opaque graph runs and nothing else"),
    Column("overrun_ns", "ns", "active only by overruns, after the next work of their stream began"),
    Column("search_ns", "ns", "active only by kernels that search for the fastest algorithm of convolutions"),
)
_TABLES = ("whole", "after_warm_up", "per_step", "profiled_steps")


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks."""

    # their rows of the tables; empty if they have no device
    tables: dict[str, pd.DataFrame]
    opaque: bool  # whether a graph was recorded as one interval
    overruns: int = 0  # kernels that are in no sum because their durations are wrong


def measure(run: Run) -> Partial:
    """Break down the time of each device."""
    frame = busy(run, [C.ROW_ID, C.RANK, C.DEVICE, C.STREAM, C.KIND, C.NAME, C.START_NS, C.DUR_NS, C.STEP])
    if frame.empty:
        return Partial(tables={}, opaque=False)
    windows, overruns, searches = step_windows(run), find_overruns(run), find_searches(run)
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in _TABLES}
    for (rank, device), rows in frame.groupby(PLACE, sort=True):
        unions = _DeviceUnions(run, rows, overruns, searches)
        key = {C.RANK: rank, C.DEVICE: device}
        parts["whole"].append(_with_shares(_amounts(unions, *extent(rows), last=1), key))
        if (first := measured_from(run).get(int(str(rank)))) is not None:
            window = np.array([first]), np.maximum(extent(rows)[1], first)
            parts["after_warm_up"].append(_with_shares(_amounts(unions, *window, last=1), key))
        steps_of_rank = windows[windows[C.RANK] == rank]
        if len(steps_of_rank):
            start, end = ints(steps_of_rank, C.START_NS), ints(steps_of_rank, END_NS)
            amounts = _amounts(unions, start, end)
            parts["per_step"].append(_with_shares(amounts, {**key, C.STEP: steps_of_rank[C.STEP].to_numpy()}))
            merged = _amounts(unions, *intervals.union(start, end))
            sums = {name: values.sum(keepdims=True) for name, values in merged.items()}
            parts["profiled_steps"].append(_with_shares(sums, key))
    opaque = bool((frame[C.KIND] == DeviceKind.GRAPH).any())
    tables = {name: concat_tables(rows) for name, rows in parts.items() if rows}
    return Partial(tables=tables, opaque=opaque, overruns=len(overruns))


def combine(run: Run, partials: Sequence[Partial]) -> Result:
    """Combine the devices of all ranks; without device intervals, return host time by op."""
    tables = concat_by_name([partial.tables for partial in partials], _TABLES)
    if not tables:
        return Result({"host": host_time_by_op(run)}, notes=(absent_device_note(run),))
    notes = [] if "per_step" in tables else [NO_STEPS]
    opaque = any(partial.opaque for partial in partials)
    notes += overrun_notes(sum(partial.overruns for partial in partials))
    return Result(tables, notes=(*notes, *((OPAQUE_GRAPHS,) if opaque else ())))


class _DeviceUnions:
    """Intervals of one device by kind, and their unions."""

    def __init__(self, run: Run, rows: pd.DataFrame, overruns: Ints, searches: Ints) -> None:
        self.spans = {kind: spans(rows[rows[C.KIND] == kind]) for kind in _SUMMED}
        wrong = np.isin(ints(rows, C.ROW_ID), overruns)
        rightful = rows[~wrong]
        self.summed = {kind: spans(rightful[rightful[C.KIND] == kind]) for kind in _SUMMED}
        self.by_class = intervals_by_class(rows)
        self.credible = _union_of_cut(run, rows) if wrong.any() else None
        self.others = _without_searches(rows, searches)
        self.copies = intervals.union(*self.spans[DeviceKind.MEMCPY])
        is_movement = rows[C.KIND].isin([str(DeviceKind.MEMCPY), str(DeviceKind.MEMSET)])
        self.movement = intervals.union(*spans(rows[is_movement]))
        self.recorded = intervals.union(*spans(rows[rows[C.KIND] != DeviceKind.GRAPH]))


def _union_of_cut(run: Run, rows: pd.DataFrame) -> Union:
    """Union of the kernels, of which those with a wrong end stop where the next of their stream starts."""
    kernels = rows[rows[C.KIND] == DeviceKind.KERNEL]
    return intervals.union(ints(kernels, C.START_NS), cut_overruns(run, kernels))


def _without_searches(rows: pd.DataFrame, searches: Ints) -> Union | None:
    """Union of the kernels that search for no algorithm; None if none does."""
    searching = np.isin(ints(rows, C.ROW_ID), searches)
    if not searching.any():
        return None
    return intervals.union(*spans(rows[(rows[C.KIND] == DeviceKind.KERNEL) & ~searching]))


_SUMMED = (DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.MEMSET)


def _amounts(unions: _DeviceUnions, start: Ints, end: Ints, *, last: int = 0) -> dict[str, Ints]:
    """Amounts of each window; `last` extends the end of the windows in which starts are counted."""

    def inside(union: Union) -> Ints:
        return overlap_lengths(union, start, end)

    by_class, recorded, movement = unions.by_class, inside(unions.recorded), inside(unions.movement)
    active, occupied, communication, computation = (
        inside(union)
        for union in (by_class.kernels, by_class.occupied, by_class.communication, by_class.computation)
    )
    exposed = active - computation
    return {
        "window_ns": end - start,
        "active_ns": active,
        "movement_ns": recorded - active,
        "idle_ns": end - start - occupied,
        "copies_union_ns": movement,
        "memcpy_union_ns": inside(unions.copies),
        "overlapped_ns": movement - (recorded - active),
        "communication_ns": communication,
        "communication_exposed_ns": exposed,
        "communication_overlapped_ns": communication - exposed,
        "graph_ns": occupied - recorded,
        "overrun_ns": active - (active if unions.credible is None else inside(unions.credible)),
        "search_ns": active - (active if unions.others is None else inside(unions.others)),
        **{f"{kind}_sum_ns": _sum_inside(*unions.summed[kind], start, end) for kind in _SUMMED},
        **{f"{kind}s": _count_starts(unions.spans[kind][0], start, end + last) for kind in _SUMMED},
    }


def _with_shares(amounts: dict[str, Ints], key: dict[str, object]) -> pd.DataFrame:
    for part in ("active", "movement", "idle"):
        amounts[f"{part}_share"] = share(amounts[f"{part}_ns"], amounts["window_ns"])  # type: ignore[assignment]
    return pd.DataFrame({**key, **{column.name: amounts[column.name] for column in MEASURES}})


def _count_starts(starts: Ints, low: Ints, high: Ints) -> Ints:
    """Count the intervals that start in each window."""
    ordered = np.sort(starts)
    return (np.searchsorted(ordered, high) - np.searchsorted(ordered, low)).astype(np.int64)


def _sum_inside(starts: Ints, ends: Ints, low: Ints, high: Ints) -> Ints:
    """Sum the parts of possibly overlapping intervals inside each window."""
    return (
        _sum_elapsed(starts, high)
        - _sum_elapsed(ends, high)
        - _sum_elapsed(starts, low)
        + _sum_elapsed(ends, low)
    )


def _sum_elapsed(points: Ints, moments: Ints) -> Ints:
    """Sum the time from each earlier point to each moment."""
    if not len(points):
        return np.zeros(len(moments), np.int64)
    origin = int(points.min())  # sums of small numbers cannot overflow
    ordered = np.sort(points) - origin
    before = np.searchsorted(ordered, moments - origin)
    return before * (moments - origin) - np.concatenate(([0], np.cumsum(ordered)))[before]


_BY_RANK = ByRank(map=measure, combine=combine)
ANALYSIS = Analysis(
    name="gpu_breakdown",
    title="GPU time breakdown",
    question="How much of the time was each device computing, moving data, or idle?",
    definition=(
        "active = |K|; movement = |(C∪S)∖K|; graph = |G∖(K∪C∪S)|; idle = window − |K∪C∪S∪G|, with K kernels, "
        "C memcpys, S memsets, G opaque graphs of one device and |X| the length of the union of X; the four "
        "sum exactly to the window. Windows: first start to last end on the device (whole), without what is "
        "before the end of marked warm-up if no steps are marked (after_warm_up); step start to "
        "the later of its end on the host and the end of the last interval launched in it on any device of "
        "the rank (per_step); the union of those (profiled_steps). Intervals count by their part inside the "
        "window."
    ),
    tables=(
        TableSpec("whole", "Whole capture, per device", (RANK, DEVICE, *MEASURES)),
        TableSpec("after_warm_up", "Capture after marked warm-up", (RANK, DEVICE, *MEASURES)),
        TableSpec("profiled_steps", "Union of the profiled steps, per device", (RANK, DEVICE, *MEASURES)),
        TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, STEP, *MEASURES)),
        TableSpec("host", "Host time by op (no device in this capture)", COLUMNS),
    ),
    sources=("TorchBench, Fig. 1, 2 and Table 2", "HTA temporal breakdown"),
    order=10,
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
)
