"""The host side of the critical path: what each thread of a rank did at every instant, as arrays.

Every thread is cut at the starts and ends of its intervals. A *slice* lies between two neighbouring cuts and
belongs to the innermost interval that covers it, so the slices of a thread partition its time exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit.ingest import nesting
from tracekit.kernel_names import matches
from tracekit.schema import C, HostKind, Phase
from tracekit.step_names import MARKER

from .._shared.common import HOST_FUNCTION_PATTERN, LAUNCH_PATTERN, Places, ints
from .._shared.hosts import NO_OP

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

Bools: TypeAlias = npt.NDArray[np.bool_]
Small: TypeAlias = npt.NDArray[np.integer[Any]]
"""Numbers that need no 8 bytes: there are millions of rows."""

LAUNCH, RUNTIME, SYNC, OP, OUTSIDE, PROFILER = (
    "launch call",
    "runtime call",
    "sync call",
    "host op",
    "host outside ops",
    "profiler overhead",
)
KINDS = (LAUNCH, RUNTIME, SYNC, OP, OUTSIDE, PROFILER)
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$"
_WAIT_EVENT = r"(?i)StreamWaitEvent"
_ASYNC = r"(?i)async"
_FREE = r"^(?:cuda|hip)Free(?:Host)?$"
"""Calls that wait for the device where it has work, without saying so in their name."""
_READ = (C.ROW_ID, C.KIND, C.NAME, C.PID, C.TID, C.START_NS, C.DUR_NS, C.PHASE)
_KIND_CODES = {
    HostKind.RUNTIME: KINDS.index(RUNTIME),
    HostKind.SYNC: KINDS.index(SYNC),
    HostKind.OP: KINDS.index(OP),
    HostKind.OVERHEAD: KINDS.index(PROFILER),
}


@dataclass(frozen=True)
class Host:
    """Rows of one rank by thread, start and falling end; positions count them in this order.

    Attributes:
        row_id: Id of each row.
        thread: Number of its thread.
        start: Starts.
        end: Ends.
        parent: Position of the innermost enclosing row, -1 at the top.
        kind: Index into `KINDS`.
        label: Index into `labels` of the innermost op or annotation at the row.
        labels: Names of ops and annotations; the last is `NO_OP`.
        waits: Which rows let a stream wait for an event.
        frees: Which rows are calls that free memory, which waits for the device.
        asynchronous: Which rows are calls that say they do not wait.
        backward: Which threads run the backward pass.
        main: The thread that marks the steps, else the one that launches most outside of the backward pass.
    """

    row_id: Ints
    thread: Small
    start: Ints
    end: Ints
    parent: Small
    kind: Small
    label: Small
    labels: list[str]
    waits: Bools
    frees: Bools
    asynchronous: Bools
    backward: Bools
    main: int

    @cached_property
    def slices(self) -> Slices:
        """What every thread did at every instant."""
        return _sliced(self)

    @cached_property
    def _places(self) -> Places:
        return Places(self.row_id)

    def position(self, row_ids: Ints) -> Ints:
        """Where rows with these ids stand, -1 for those that are not there."""
        return self._places.of(row_ids)


@dataclass(frozen=True)
class Slices:
    """The slices of all threads, thread by thread: slice `i` ends where `i + 1` of its thread starts.

    Attributes:
        bounds: First slice of each thread, and the number of slices at the end.
        start: Starts.
        end: Ends; the first of a thread reaches back and its last reaches on without bound.
        row: Position of the innermost row, -1 where the thread is in none.
    """

    bounds: Ints
    start: Ints
    end: Ints
    row: Small

    def at(self, thread: Small, times: Ints) -> Ints:
        """The slice of a thread that covers each instant; the earlier one at a cut's very end is not it."""
        found = np.zeros(len(times), np.int64)
        for lane in present(thread):
            low, high = self.bounds[lane], self.bounds[lane + 1]
            asked = thread == lane
            inner = np.searchsorted(self.start[low:high], times[asked], side="right") - 1
            found[asked] = low + np.maximum(inner, 0)
        return found


def present(thread: Small) -> list[int]:
    """Numbers of the threads that occur, without sorting; -1 stands for none.

    Example:
        >>> present(np.array([3, -1, 0, 3]))
        [0, 3]
    """
    return [int(lane) for lane in np.flatnonzero(np.bincount(thread + 1)) - 1 if lane >= 0]


FAR = 1 << 61
"""Before and after everything: slices without bound end here, and sums with it do not overflow."""


def read(run: Run, rank: int) -> Host:
    """The host rows of one rank."""
    frame = run.table("host_intervals", columns=_READ, where=pc.field(C.RANK) == rank)
    start, row_id, length = (ints(frame, name) for name in (C.START_NS, C.ROW_ID, C.DUR_NS))
    thread = _threads(frame)
    order = np.lexsort((row_id, -length, start, thread))
    kind, label, labels = _described(frame)
    name, by_phase = frame[C.NAME], (frame[C.PHASE] == Phase.BACKWARD).to_numpy(bool)
    del frame
    start, thread, kind = start[order], thread[order], kind[order]
    end = start + length[order]
    parent = nesting.parents(thread, start, end)
    own = label[order]
    nearest = nesting.nearest(parent, own >= 0)
    backward = (matches(name, _BACKWARD).to_numpy(bool) | by_phase)[order]
    marks = matches(name, MARKER).to_numpy(bool)[order]
    runs_backward = np.bincount(thread, backward, minlength=1) > 0
    main = _main(thread, marks, (kind == KINDS.index(LAUNCH)), runs_backward)
    runs_backward[main] = False
    return Host(
        row_id=row_id[order],
        thread=thread,
        start=start,
        end=end,
        parent=parent,
        kind=kind,
        label=np.where(nearest >= 0, own[nearest], np.int32(len(labels) - 1)) if len(own) else own,
        labels=labels,
        waits=matches(name, _WAIT_EVENT).to_numpy(bool)[order],
        frees=matches(name, _FREE).to_numpy(bool)[order],
        asynchronous=matches(name, _ASYNC).to_numpy(bool)[order],
        backward=runs_backward,
        main=main,
    )


def _threads(frame: pd.DataFrame) -> Small:
    """A small number for each thread of each process."""
    codes = (frame[C.PID].to_numpy(np.int64) << 32) ^ frame[C.TID].to_numpy(np.int64)
    thread, _ = pd.factorize(codes, sort=True)
    found: Small = thread.astype(np.int32)
    return found


def _described(frame: pd.DataFrame) -> tuple[Small, Small, list[str]]:
    """Kind and label of each row, -1 for a row that gives no label of its own, and the labels' names."""
    kind = np.full(len(frame), KINDS.index(OUTSIDE), np.int8)
    for value, code in _KIND_CODES.items():
        kind[(frame[C.KIND] == value).to_numpy(bool)] = code
    launch = matches(frame[C.NAME], LAUNCH_PATTERN) & ~matches(frame[C.NAME], HOST_FUNCTION_PATTERN)
    kind[launch.to_numpy(bool) & (kind == KINDS.index(RUNTIME))] = KINDS.index(LAUNCH)
    names = frame[C.NAME].cat
    labelled = frame[C.KIND].isin([HostKind.OP, HostKind.ANNOTATION, HostKind.OVERHEAD])
    labelled &= ~matches(frame[C.NAME], MARKER)
    label = np.where(labelled.to_numpy(bool), names.codes.to_numpy(np.int32), np.int32(-1))
    return kind, label, [*names.categories.astype(str), NO_OP]


def _main(thread: Small, marks: Bools, launches: Bools, backward: Bools) -> int:
    for chosen in (marks, launches & ~backward[thread], launches, np.ones(len(thread), np.bool_)):
        if chosen.any():
            return int(np.bincount(thread[chosen]).argmax())
    return 0


def _sliced(host: Host) -> Slices:
    solid = host.end > host.start
    kept = np.flatnonzero(solid).astype(np.int32)
    threads = int(host.thread.max()) + 1 if len(host.thread) else 1
    order, start, lane = _cuts(host, kept, threads)
    row = _after(host, solid, kept, threads)[order]
    del order
    end = np.append(start[1:], FAR)
    end[np.append(lane[1:] != lane[:-1], [True])] = FAR
    solid = end > start
    row = row[solid]
    return Slices(
        bounds=np.searchsorted(lane[solid], np.arange(threads + 1, dtype=np.int32)),
        start=start[solid],
        end=end[solid],
        row=np.where(row >= 0, kept[row], np.int32(-1)) if len(kept) else row,
    )


def _cuts(host: Host, kept: Small, threads: int) -> tuple[Ints, Ints, Small]:
    """All starts and ends of these rows in the order of threads and time; their time and their thread."""
    place, lanes = np.arange(len(kept), dtype=np.int32), np.arange(threads, dtype=np.int32)
    thread = host.thread[kept].astype(np.int32, copy=False)
    time = np.concatenate((np.full(threads, -FAR), host.end[kept], host.start[kept]))
    lane = np.concatenate((lanes, thread, thread))
    tie = np.concatenate((np.full(threads, -1, np.int32), -place - 1, place))  # ends first, the inner before
    order = np.lexsort((tie, time, lane))
    return order, time[order], lane[order]


def _after(host: Host, solid: Bools, kept: Small, threads: int) -> Small:
    """The row, among these rows, that each cut leads into: the one around it, or the one that starts."""
    local = np.cumsum(solid, dtype=np.int32) - 1
    above = host.parent[kept]  # whoever encloses something is not empty
    above = np.where(above >= 0, local[above], np.int32(-1))
    return np.concatenate((np.full(threads, -1, np.int32), above, np.arange(len(kept), dtype=np.int32)))
