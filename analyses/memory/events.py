"""Allocator events of a device: totals, pairs of allocation and free, growth; and calls of the driver.

The slope is the median of the slopes between all pairs of steps; the 95% confidence interval follows from the
variance of Kendall's statistic. Neither assumes normal noise. After a single jump, or growth that ends, the
interval includes zero, while least squares would report growth. With 4 steps the interval covers all slopes,
with an exact confidence of 92%.

Sources: Sen, Estimates of the regression coefficient based on Kendall's tau, 1968; Hollander and Wolfe,
Nonparametric statistical methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import floor, sqrt

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.analysis.kernel_names import matches
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import HOST_DEVICE, C, HostKind

from ..shared.common import RANK, Bools, ints, is_kind, select
from ..shared.groups import Groups, rows_by_device
from ..shared.host_rows import NO_OP, host_texts

OP = "op"
NEVER = np.iinfo(np.int64).max
"""Index of the free of an allocation that is not freed in the capture."""
RECORDED = "recorded"
RELATIVE = "since the capture's start"
_READ = (C.T_NS, C.RANK, C.DEVICE, C.BYTES, C.ADDRESS, C.TOTAL_ALLOCATED, C.TOTAL_RESERVED, C.OP_ROW)


@dataclass(frozen=True)
class Events:
    """The allocator events of one rank and device, in order."""

    rank: int
    device: int  # the device; -1 is the host
    frame: pd.DataFrame  # the events with the name of the allocating op

    @cached_property
    def key(self) -> dict[str, int]:
        """Key columns of its rows."""
        return {C.RANK: self.rank, C.DEVICE: self.device}

    @cached_property
    def t_ns(self) -> Ints:
        """Times."""
        return ints(self.frame, C.T_NS)

    @cached_property
    def bytes(self) -> Ints:
        """Allocated bytes, negative for frees."""
        return ints(self.frame, C.BYTES)

    @cached_property
    def recorded(self) -> bool:
        """Whether the profiler wrote running totals."""
        return bool(self.frame[C.TOTAL_ALLOCATED].notna().all())

    @cached_property
    def level(self) -> Ints:
        """Bytes allocated after each event; since the capture's start if no totals were recorded."""
        return ints(self.frame, C.TOTAL_ALLOCATED) if self.recorded else np.cumsum(self.bytes)

    @cached_property
    def start(self) -> int:
        """Bytes allocated before the first event."""
        return int(self.level[0] - self.bytes[0]) if self.recorded else 0

    @cached_property
    def reserved(self) -> Ints | None:
        """Bytes reserved after each event; None if unknown and on the host, which has no reservation."""
        total = self.frame[C.TOTAL_RESERVED]
        if self.device == HOST_DEVICE or total.isna().any() or not (total > 0).any():
            return None
        return ints(self.frame, C.TOTAL_RESERVED)

    @cached_property
    def peak_at(self) -> int:
        """Index of the event at the peak of allocated bytes; -1 if the peak is before the first event."""
        place = int(np.argmax(self.level))
        return place if self.level[place] > self.start else -1

    @cached_property
    def freed_at(self) -> Ints | None:
        """Index of the event that frees each allocation, `NEVER` without one and for frees.

        An address that is allocated again was freed by then. None if addresses are missing.
        """
        if self.frame[C.ADDRESS].isna().any():
            return None
        address = ints(self.frame, C.ADDRESS)
        order = np.argsort(address, kind="stable")
        is_allocation = self.bytes[order] > 0
        paired = is_allocation[:-1] & (address[order][:-1] == address[order][1:])
        freed = np.full(len(address), NEVER, np.int64)
        freed[order[:-1][paired]] = order[1:][paired]
        return freed

    @cached_property
    def unfreed(self) -> Bools | None:
        """Whether each event is an allocation that is not freed within the capture."""
        return None if self.freed_at is None else (self.bytes > 0) & (self.freed_at == NEVER)

    @cached_property
    def live_at_peak(self) -> Bools | None:
        """Whether each event is an allocation that is in use at the peak."""
        if self.freed_at is None:
            return None
        place = np.arange(len(self.bytes))
        return (self.bytes > 0) & (place <= self.peak_at) & (self.freed_at > self.peak_at)


def read_events(run: Run) -> list[Events]:
    """The allocator events of a run by rank and device, the host last; events of 0 bytes are omitted."""
    frame = run.table("allocations", columns=_READ)
    frame = frame[frame[C.BYTES] != 0].reset_index(drop=True)
    if frame.empty:
        return []
    frame = frame.assign(**{OP: host_texts(run, frame[C.OP_ROW], {C.NAME: NO_OP})[C.NAME]})
    devices = [
        Events(rank, device, frame.iloc[rows].reset_index(drop=True))
        for (rank, device), rows in rows_by_device(frame).items()
    ]
    return sorted(devices, key=lambda of_rank: (of_rank.rank, of_rank.device == HOST_DEVICE, of_rank.device))


def thin_events(events: Events, most: int) -> Ints:
    """Indices of at most `most` events, including the extremes of consecutive groups.

    These are the maximum and minimum of allocated bytes and the maximum of reserved bytes of each group.
    """
    count = len(events.level)
    if count <= most:
        return np.arange(count, dtype=np.int64)
    groups = (np.arange(count, dtype=np.int64) * (most // 3)) // count
    series = [events.level, -events.level]
    series += [events.reserved] if events.reserved is not None else []
    consecutive = Groups(groups, np.flatnonzero(np.diff(groups, prepend=-1)))
    return np.unique(np.concatenate([consecutive.place_of_largest(values) for values in series]))


def extremes(events: Events, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Bytes allocated within windows: at the start, at the end, minimum and maximum."""
    levels = np.concatenate(([events.start], events.level))
    first = np.searchsorted(events.t_ns, start, side="left")
    last = np.maximum(first, np.searchsorted(events.t_ns, end, side="left"))
    edges = np.ravel(np.column_stack((first, last + 1)))
    padded = np.append(levels, levels[-1])
    least = np.minimum.reduceat(padded, edges)[::2]
    most = np.maximum.reduceat(padded, edges)[::2]
    return levels[first], levels[last], least, most


WARMUP_STEPS, MIN_FLOORS = 1, 4
"""Steps that do not count for growth, and minimum number of the others."""
NORMAL_95 = 1.959964
MAX_POINTS = 1_000
"""Maximum number of points, evenly sampled, since the number of pairs is quadratic."""


@dataclass(frozen=True)
class Slope:
    """Growth per step in bytes, with the bounds of its 95% confidence interval."""

    slope: int
    low: int
    high: int


def theil_sen(values: Ints) -> Slope:
    """Slope of at least two values over their indices.

    Example:
        >>> theil_sen(np.array([0, 10, 20, 30, 40, 50]))
        Slope(slope=10, low=10, high=10)
        >>> theil_sen(np.array([0, 10, 20, 20, 20, 20, 20, 20, 20]))
        Slope(slope=0, low=0, high=3)
    """
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAX_POINTS)).astype(np.int64))
    before, after = np.triu_indices(len(chosen), k=1)
    rise = values[chosen[after]] - values[chosen[before]]
    slopes = np.sort(rise / (chosen[after] - chosen[before]))
    count = len(chosen)
    reach = NORMAL_95 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    below = max(0, floor((len(slopes) - reach) / 2))
    ends = slopes[below], slopes[len(slopes) - 1 - below]
    return Slope(*(round(float(value)) for value in (np.median(slopes), *ends)))


PATTERN = (
    r"^(?:cuda|hip)(?:Malloc|Free)(?:_v\d+)?$"
    r"|^(?:cu|hip)Mem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess)(?:_v\d+)?$"
)
"""Calls of the allocator for device memory, without pinned memory and stream-ordered pools."""
FREES = r"Free|Release|Unmap"
AFTER_WARMUP = "later"
COLUMNS = (
    RANK,
    Column("call", "", "call of the runtime or the driver"),
    Column("later_ns", "ns", "its time in steps after the first; in the second half if none are marked"),
    Column("later_count", "count", "its calls in the same part"),
    Column("later_steps", "count", "steps after the first with such calls"),
    Column("sum_ns", "ns", "Σ of durations on the host, whole capture"),
    Column("count", "count", "calls, whole capture"),
)


def read_driver_calls(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Read the calls, with a flag for those after warm-up: in a step after its rank's first.

    If no steps are marked, in the second half of the capture.
    """
    columns = [C.ROW_ID, C.NAME, C.RANK, C.TID, C.START_NS, C.DUR_NS, C.STEP, C.PARENT_ROW]
    rows = run.table("host_intervals", columns=columns, where=is_kind(HostKind.RUNTIME, HostKind.SYNC))
    edges = ints(rows, C.START_NS)
    middle = (int(edges.min()) + int(edges.max())) / 2 if len(edges) else 0
    rows = rows[matches(rows[C.NAME], PATTERN)].reset_index(drop=True)
    return rows.assign(**{AFTER_WARMUP: _is_after_warmup(rows, steps, middle)})


def _is_after_warmup(rows: pd.DataFrame, steps: pd.DataFrame, middle: float) -> Bools:
    """Whether each call is after warm-up."""
    if steps.empty or rows.empty:
        return ints(rows, C.START_NS) >= middle
    first_steps = steps.drop_duplicates(C.RANK).set_index(C.RANK)[C.STEP]
    first = rows[C.RANK].map(first_steps)
    return (rows[C.STEP].notna() & (rows[C.STEP] != first).fillna(value=False)).to_numpy(bool)


def driver_call_table(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls by rank and name, sorted by time in later steps."""
    durations = ints(calls, C.DUR_NS)
    later = calls[AFTER_WARMUP].to_numpy(bool)
    frame = pd.DataFrame(
        {
            C.RANK: calls[C.RANK],
            "call": calls[C.NAME].astype(object),
            "later_ns": np.where(later, durations, 0),
            "later_count": later.astype(np.int64),
            "sum_ns": durations,
            "count": 1,
        }
    )
    sums = frame.groupby([C.RANK, "call"], sort=True, as_index=False).sum()
    distinct = frame.assign(step=calls[C.STEP])[later].groupby([C.RANK, "call"])["step"].nunique()
    places = pd.MultiIndex.from_frame(sums[[C.RANK, "call"]])
    sums["later_steps"] = distinct.reindex(places, fill_value=0).to_numpy(np.int64)
    return select(sums, COLUMNS, "-later_ns", "-sum_ns", C.RANK, "call")
