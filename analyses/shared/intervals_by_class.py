"""Unions of the intervals of a device by class: kernels, communication, computation, all work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import COMMUNICATION
from tracekit.runs import intervals
from tracekit.runs.intervals import Union
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C, DeviceKind

from .common import Bools, extent, ints, spans


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
    return re.search(COMMUNICATION, name) is not None


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
