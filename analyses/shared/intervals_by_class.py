"""Unions of the intervals of a device by class, kernels with a wrong end, and searches for algorithms.

A kernel whose recorded end is wrong lasts beyond whole later work of its stream. ROCm's profiler writes them
where the time of an end arrives late; the sum of all durations then exceeds the capture. With programmatic
dependent launch kernels of one stream overlap by tens of microseconds, and nodes of a graph may run at once
on one: neither is an error. A copy or memset never begins before the kernel in front of it has ended, if both
are of one stream: CUPTI writes that of copies, Kineto writes 0 for all copies on ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis import Remark
from tracekit.analysis.kernel_names import COMMUNICATION, MAX_SEARCHED, family
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C, DeviceKind, HostKind

from .common import PLACE, Bools, extent, ints, is_kind, map_texts, medians, spans
from .groups import number_by
from .host_rows import fill_missing_text, host_rows
from .thread_ranges import ranges_by_name


@dataclass(frozen=True)
class IntervalsByClass:
    """Unions of one device's intervals."""

    kernels: Union  # K, all kernels
    communication: Union  # N, the communication kernels
    computation: Union  # union of the other kernels
    occupied: Union  # all intervals that occupy the device


def is_communication(rows: pd.DataFrame) -> Bools:
    """Whether each row is a communication kernel."""
    names = rows[C.NAME].cat
    by_name = np.array([*map(_is_of_communication, names.categories), False])  # the last one: no name
    communicates: Bools = by_name[names.codes] & (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    return communicates


@lru_cache(maxsize=1 << 16)
def _is_of_communication(name: str) -> bool:
    """Whether a kernel of this name communicates; the pattern is long, and several analyses ask."""
    return re.compile(COMMUNICATION).search(name, 0, MAX_SEARCHED) is not None


def intervals_by_class(rows: pd.DataFrame) -> IntervalsByClass:
    """The unions of the rows of one device."""
    kernel = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    communication = is_communication(rows)
    start, end = spans(rows)

    def union(selected: Bools) -> Union:
        return intervals.union(start[selected], end[selected])

    return IntervalsByClass(
        union(kernel), union(communication), union(kernel & ~communication), union(np.ones(len(rows), bool))
    )


def measured_window(rows: pd.DataFrame, windows: pd.DataFrame) -> Union:
    """Measured windows of the rows of one device: the profiled steps, else from first start to last end."""
    if len(windows):
        return intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    return intervals.union(*extent(rows))


def idle_by_rank(run: Run, ranks: Iterable[int]) -> pd.Series:
    """Idle time of each rank's busiest device, in its profiled steps, or the capture if none are marked.

    For a rank without device intervals all of its time counts.
    """
    windows, rows = step_windows(run), busy(run, [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
    idle = {
        int(rank): _idle(run, int(rank), rows[rows[C.RANK] == rank], windows[windows[C.RANK] == rank])
        for rank in ranks
    }
    return pd.Series(idle, dtype="int64")


def _idle(run: Run, rank: int, rows: pd.DataFrame, windows: pd.DataFrame) -> int:
    if rows.empty:
        on_rank = pc.field(C.RANK) == rank
        on_host = run.table("host_intervals", columns=[C.START_NS, C.DUR_NS], where=on_rank)
        return intervals.length(measured_window(on_host, windows))
    inside = measured_window(rows, windows)
    busy_ns = [
        intervals.length(intervals.intersect(intervals.union(*spans(of_device)), inside))
        for _, of_device in rows.groupby(C.DEVICE, sort=True)
    ]
    return intervals.length(inside) - max(busy_ns)


MAX_OVERLAP_NS = 100_000
"""Overlap of a kernel with later work of its stream that it outlasts, from which its duration is wrong."""
_STREAM = (*PLACE, C.CONTEXT, C.STREAM)
"""What identifies a stream: contexts of one process number theirs each from the same number on."""
_READ = (C.ROW_ID, C.KIND, *_STREAM, C.START_NS, C.DUR_NS, C.GRAPH_ID, C.LAUNCH_ROW)
_IN_ORDER = re.compile(r"cu(?!.*Graph)")
"""Begin of the calls whose copies have their stream: those of CUDA, without launches of graphs."""


@dataclass(frozen=True)
class _Overruns:
    """Kernels whose recorded end is wrong, in the order of row ids."""

    row_ids: Ints
    next_ns: Ints  # start of the next row of each one's stream


def find_overruns(run: Run) -> Ints:
    """Row ids of the kernels whose recorded end is wrong."""
    return run.compute_once(_find).row_ids


def cut_overruns(run: Run, rows: pd.DataFrame) -> Ints:
    """Ends of device rows, which need a row id; a wrong one is where the next row of the stream starts."""
    overruns, (_, end) = run.compute_once(_find), spans(rows)
    _, place, number = np.intersect1d(ints(rows, C.ROW_ID), overruns.row_ids, return_indices=True)
    cut = end.copy()
    cut[place] = overruns.next_ns[number]
    return cut


def _find(run: Run) -> _Overruns:
    kinds = is_kind(DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.MEMSET)
    rows = run.table("device_intervals", columns=_READ, where=kinds)
    rows = rows[rows[C.GRAPH_ID].isna() & rows[C.STREAM].notna()]
    found, copies = _find_among(rows), rows[rows[C.KIND] != DeviceKind.KERNEL]
    if len(found.row_ids) and len(copies):
        unordered = copies.index[~_are_in_order(run, copies)]
        found = _find_among(rows.drop(unordered)) if len(unordered) else found
    return found


def _are_in_order(run: Run, copies: pd.DataFrame) -> Bools:
    """Whether each copy or memset has the stream in which it runs."""
    calls = host_rows(run, copies[C.LAUNCH_ROW], [C.NAME])[C.NAME]
    return np.array([isinstance(call, str) and bool(_IN_ORDER.match(call)) for call in calls], bool)


def _find_among(rows: pd.DataFrame) -> _Overruns:
    stream, _ = number_by(rows, _STREAM)
    order = np.lexsort((ints(rows, C.START_NS), stream))
    start, end = (times[order] for times in spans(rows))
    kernel = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)[order]
    over = kernel[:-1] & (np.diff(stream[order]) == 0) & (end[:-1] - start[1:] > MAX_OVERLAP_NS)
    if over.any():
        launched = rows[C.LAUNCH_ROW].notna().to_numpy()[order]
        over &= _outlasts_later(stream[order], end, launched)
    row_ids = ints(rows, C.ROW_ID)[order[:-1][over]]
    by_id = np.argsort(row_ids)
    return _Overruns(row_ids[by_id], start[1:][over][by_id])


def _outlasts_later(stream: Ints, end: Ints, launched: Bools) -> Bools:
    """Whether each row but the last, by stream and start, ends after a later one of its stream.

    A kernel without a launch inside of one with a launch may be launched by that, which waits for it.
    """
    ends, rank = np.unique(end, return_inverse=True)
    key = stream * len(ends) + rank  # that of any kernel of a later stream is larger
    later = np.minimum.accumulate(key[::-1])[::-1][1:]
    later_launched = np.minimum.accumulate(np.where(launched, key, key.max())[::-1])[::-1][1:]
    outlasts: Bools = key[:-1] > np.where(launched[:-1], later_launched, later)
    return outlasts


def drop_overruns(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Device rows, which need a row id, without the kernels of `find_overruns`, numbered anew."""
    wrong = find_overruns(run)
    return rows[~np.isin(ints(rows, C.ROW_ID), wrong)].reset_index(drop=True) if len(wrong) else rows


def note_overruns(run: Run) -> tuple[Remark, ...]:
    """Note on the kernels of a run that `drop_overruns` leaves out, if there are any."""
    return overrun_notes(len(find_overruns(run)))


def overrun_notes(count: int) -> tuple[Remark, ...]:
    """Note on kernels that are left out of sums, if there are any."""
    if not count:
        return ()
    kernels = "1 kernel runs over" if count == 1 else f"{count:,} kernels run over"
    what = "whole later work of a stream, so the end is wrong: left out of sums of durations"
    return (Remark(f"{kernels} {what}"),)


MIN_SEARCH_KERNELS, MIN_SEARCH_FAMILIES, MIN_SEARCH_RATIO = 8, 4, 3
_CONVOLUTION = r"(?i)conv"


def find_searches(run: Run) -> Ints:
    """Row ids of the kernels with which convolutions search for the fastest algorithm.

    With `torch.backends.cudnn.benchmark`, and by MIOpen's find, the first call for a shape runs every
    algorithm. Such a call launches at least `MIN_SEARCH_KERNELS` kernels of `MIN_SEARCH_FAMILIES`
    families, and `MIN_SEARCH_RATIO` times as many as the median of the calls with the same shapes;
    without other calls it is unknown.
    """
    return run.compute_once(_find_searches)


def _find_searches(run: Run) -> Ints:
    nothing = np.empty(0, np.int64)
    convolutions = ints(ranges_by_name(run, _CONVOLUTION, (HostKind.OP,)), C.ROW_ID)
    if not len(convolutions):
        return nothing
    launched = is_kind(DeviceKind.KERNEL) & pc.field(C.OP_ROW).isin(pa.array(convolutions))
    columns = [C.ROW_ID, C.RANK, C.NAME, C.OP_ROW]
    kernels = run.table("device_intervals", columns=columns, where=launched)
    calls, first = number_by(kernels, [C.OP_ROW])
    counts = np.bincount(calls)
    if counts.max(initial=0) < MIN_SEARCH_KERNELS:
        return nothing
    families = map_texts(kernels[C.NAME], family).groupby(calls).nunique().to_numpy()
    ops = host_rows(run, kernels[C.OP_ROW].iloc[first], [C.NAME, C.INPUT_SHAPES])
    ops[C.INPUT_SHAPES] = fill_missing_text(ops[C.INPUT_SHAPES], "")
    ops[C.RANK] = ints(kernels, C.RANK)[first]
    alike, first_alike = number_by(ops, [C.RANK, C.NAME, C.INPUT_SHAPES])
    median = medians(alike, len(first_alike), counts)[alike]
    searches = (counts >= MIN_SEARCH_KERNELS) & (families >= MIN_SEARCH_FAMILIES)
    searches &= counts >= MIN_SEARCH_RATIO * median
    found: Ints = ints(kernels, C.ROW_ID)[searches[calls]]
    return found
