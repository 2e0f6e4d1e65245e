"""Idle intervals of a device: the intervals before and after, their launches, and waits for the device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C, DeviceKind, HostKind, Memory

from .common import NO_PARENT, PLACE, contains, ints, is_kind, overlap_by, spans, values_at
from .groups import rows_by_number
from .host_columns import HostColumns

SYNCHRONOUS_COPY = r"(?i)^(?:cuda|hip|cu)_?memcpy(?!.*async)"
"""Copies that block by their name: `cudaMemcpy`, `hipMemcpyWithStream`, `cuMemcpyDtoH_v2`."""
WAIT_COLUMNS = (C.KIND, C.START_NS, C.DUR_NS, C.LAUNCH_ROW, C.SRC_MEMORY, C.DST_MEMORY)
"""Columns of `device_intervals` needed to decide whether a copy blocked."""
MAX_NEAR_NS = 30_000
"""Maximum distance of the next linked interval whose launch is used for an unlinked one of its stream."""
_READ = dict.fromkeys((*WAIT_COLUMNS, C.ROW_ID, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.OP_ROW, C.STEP))
_LATE = np.iinfo(np.int64).max
AFTER, BEFORE, LAUNCH, EARLIER = "after", "before", "launch", "earlier"


def read_occupying(run: Run) -> pd.DataFrame:
    """Intervals that occupy a device, with the columns needed by the analyses of idle time."""
    return busy(run, [*_READ])


def read_gaps(run: Run, device: pd.DataFrame, host: HostColumns) -> pd.DataFrame:
    """One row per idle interval, sorted by rank, device and start, with positions of its neighbors.

    `before` and `after` are positions in the table of intervals that occupy a device: those that end at the
    start of the gap and start at its end. `launch` is the host position of the call that launched the
    interval after, `earlier` of the one before; `replayed` means that an earlier interval has the same
    launch (a CUDA graph). The step is that of the work after the gap, else the one in which the gap begins.
    """
    columns = [C.ROW_ID, *PLACE, C.START_NS, C.DUR_NS, C.STEP]
    idle = run.table("device_intervals", columns=columns, where=is_kind(DeviceKind.IDLE))
    idle = idle.sort_values([*PLACE, C.START_NS], ignore_index=True)
    call = host.positions(device[C.LAUNCH_ROW])
    neighbors = {name: np.full(len(idle), NO_PARENT, np.int64) for name in (AFTER, BEFORE, LAUNCH, EARLIER)}
    replayed = np.zeros(len(idle), np.bool_)
    rows_of = device.groupby(PLACE, sort=True).indices
    for key, gaps in idle.groupby(PLACE, sort=True).indices.items():
        order = _DeviceOrder(device, np.asarray(rows_of[key]), call, host)
        start, end = spans(idle.iloc[gaps])
        last = np.searchsorted(order.ends, start, side="right") - 1
        neighbors[BEFORE][gaps] = order.by_end[np.maximum(last, 0)]
        neighbors[AFTER][gaps], linked_row = order.starting_at(end)
        neighbors[LAUNCH][gaps] = np.where(linked_row >= 0, call[linked_row], NO_PARENT)
        replayed[gaps] = order.replayed[linked_row] & (linked_row >= 0)
    neighbors[EARLIER] = (
        np.where(neighbors[BEFORE] >= 0, call[neighbors[BEFORE]], NO_PARENT) if len(call) else call
    )
    delayed = device[C.STEP].astype("Int64").iloc[neighbors[AFTER]].set_axis(idle.index)
    idle[C.STEP] = delayed.fillna(idle[C.STEP].astype("Int64"))
    return idle.assign(**neighbors, replayed=replayed)


def inside_steps(gaps: pd.DataFrame, windows: pd.DataFrame) -> Ints:
    """Length of each gap inside the `step_windows` of its rank; time between steps does not count."""
    steps = ints(windows, C.START_NS), ints(windows, END_NS)
    return overlap_by(ints(windows, C.RANK), steps, ints(gaps, C.RANK), spans(gaps))


class _DeviceOrder:
    """Intervals that occupy one device, in an order independent of the order of rows."""

    def __init__(self, device: pd.DataFrame, rows: Ints, call: Ints, host: HostColumns) -> None:
        of_device = device.iloc[rows]
        start, end = spans(of_device)
        row_id = ints(of_device, C.ROW_ID)
        launched = values_at(host.start, call[rows], _LATE)
        by_start = np.lexsort((row_id, launched, start))
        by_end = np.lexsort((row_id, -launched, start, end))
        self.rows, self.start, self.call = rows[by_start], start[by_start], call[rows][by_start]
        self.stream = of_device[C.STREAM].fillna(NO_PARENT).to_numpy(np.int64)[by_start]
        self.ends, self.by_end = end[by_end], rows[by_end]
        repeated = pd.Series(self.call).duplicated().to_numpy() & (self.call >= 0)
        self.replayed = np.zeros(len(device), np.bool_)
        self.replayed[self.rows[repeated]] = True

    def starting_at(self, times: Ints) -> tuple[Ints, Ints]:
        """Interval that starts at each instant, and the linked one whose launch is used for it, or -1."""
        first = np.minimum(np.searchsorted(self.start, times), len(self.start) - 1)
        linked = np.where(self.call >= 0, np.arange(len(self.call)), len(self.call) - 1)
        linked_row = np.minimum.accumulate(linked[::-1])[::-1][first]
        near = (self.start[linked_row] - times <= MAX_NEAR_NS) & (
            self.stream[linked_row] == self.stream[first]
        )
        usable = (self.call[linked_row] >= 0) & ((linked_row == first) | near)
        return self.rows[first], np.where(usable, self.rows[linked_row], NO_PARENT)


def find_waits(host: HostColumns, device: pd.DataFrame) -> Ints:
    """Positions of the rows in which a thread waits for the device, by thread and start.

    These are the rows of kind `sync`, and copy calls that returned no earlier than the copy was done on the
    device, if they are synchronous by name or one end of the copy is pageable memory. The intervals of the
    device have the columns of `WAIT_COLUMNS`.
    """
    copies = device[device[C.KIND].astype(str) == DeviceKind.MEMCPY]
    call = host.positions(copies[C.LAUNCH_ROW])
    _, done = spans(copies)
    launched = call >= 0
    call, done = call[launched], done[launched]
    ends = copies[[C.SRC_MEMORY, C.DST_MEMORY]].astype(object)
    pageable = (ends == Memory.PAGEABLE).any(axis=1).to_numpy(bool)
    blocked = host.end[call] >= done
    named = host.name.matches(SYNCHRONOUS_COPY)
    blocking = call[blocked & (pageable[launched] | named[call])]
    synchronized = np.flatnonzero(host.kind.is_any_of(HostKind.SYNC))
    return np.union1d(blocking, synchronized).astype(np.int64)


def find_waits_on_device(run: Run, host: HostColumns) -> pd.DataFrame:
    """Waits of the host that are recorded as rows of devices, where its own calls are not.

    A stream that waits for an event does not hold the host.
    """
    columns = [C.RANK, C.NAME, C.START_NS, C.DUR_NS]
    rows = run.table("device_intervals", columns=columns, where=is_kind(DeviceKind.SYNC))
    recorded = host.of_kind(HostKind.SYNC).any()
    return rows.head(0) if recorded else rows[~contains(rows[C.NAME], "Wait Event")]


def first_ending_after(host: HostColumns, rows: Ints, thread: Ints, times: Ints) -> Ints:
    """The first of these waits that ends after each instant on its thread, -1 if none does.

    `rows` are positions of waits, ascending.
    """
    first = np.full(len(times), -1, np.int64)
    waits = dict(rows_by_number(host.thread[rows]))
    for number, queries in rows_by_number(thread):
        if number in waits:
            of_thread = rows[waits[number]]
            reach = np.maximum.accumulate(host.end[of_thread])
            place = np.searchsorted(reach, times[queries], side="right")
            last = np.minimum(place, len(of_thread) - 1)
            first[queries] = np.where(place < len(of_thread), of_thread[last], -1)
    return first
