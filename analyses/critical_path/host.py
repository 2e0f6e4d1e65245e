"""Host side of the critical path: the activity of each thread of a rank over time, as arrays.

Every thread is cut at the starts and ends of its intervals. A *slice* is the time between two neighboring
cuts and belongs to the innermost interval that covers it, so the slices of a thread partition its time
exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.ingest.link import nesting
from tracekit.runs.intervals import Ints
from tracekit.runs.range_names import MARKER
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind, Phase

from ..shared.common import HOST_FUNCTION_PATTERN, LAUNCH_PATTERN, NO_PARENT, Bools, RowIndex, Small
from ..shared.groups import search_by
from ..shared.host_columns import (
    BACKWARD,
    Coded,
    LazyColumns,
    map_equal_runs,
    order_by_thread,
    reorder,
    take,
)
from ..shared.host_rows import NO_OP

LAUNCH, RUNTIME, SYNC, OP, OUTSIDE, PROFILER = (
    "launch call",
    "runtime call",
    "sync call",
    "CPU op",
    "CPU outside ATen ops",
    "profiler overhead",
)
KINDS = (LAUNCH, RUNTIME, SYNC, OP, OUTSIDE, PROFILER)
_FREE = r"^(?:cuda|hip)Free(?:Host)?$"
"""Calls that wait for a busy device, although they are not named sync calls."""
_READ = (C.ROW_ID, C.KIND, C.NAME, C.PID, C.TID, C.START_NS, C.DUR_NS, C.PHASE)
_KIND_CODES = {
    HostKind.RUNTIME: KINDS.index(RUNTIME),
    HostKind.SYNC: KINDS.index(SYNC),
    HostKind.OP: KINDS.index(OP),
    HostKind.OVERHEAD: KINDS.index(PROFILER),
}
_BLOCK = 1 << 18
"""Starts per block that are merged with ends, so that arrays fit the CPU cache."""


@dataclass(frozen=True)
class Host:
    """Rows of one rank by thread, start and descending end; positions refer to this order."""

    row_id: Ints  # id of each row
    thread: Small  # number of its thread
    start: Ints
    end: Ints
    parent: Small  # position of the innermost enclosing row, -1 at the top
    kind: Small  # index into `KINDS`
    label: Small  # index into `labels` of the innermost op or annotation at the row
    labels: list[str]  # names of ops and annotations; the last is `NO_OP`
    waits: Bools  # whether each row is a stream-wait-event call
    frees: Bools  # whether each row is a call that frees memory, which waits for the device
    asynchronous: Bools  # whether each row is an asynchronous call by name
    backward: Bools  # whether each thread runs the backward pass
    main: int  # the thread that marks the steps, else the one with most launches outside the backward pass

    @cached_property
    def slices(self) -> Slices:
        """Slices of all threads."""
        return _slice_threads(self)

    @cached_property
    def _places(self) -> RowIndex:
        return RowIndex(self.row_id)

    def position(self, row_ids: Ints) -> Ints:
        """Positions of rows with these ids, -1 for absent ones."""
        return self._places.of(row_ids)


@dataclass(frozen=True)
class Slices:
    """The slices of all threads, thread by thread: slice `i` ends where `i + 1` of its thread starts."""

    bounds: Ints  # first slice of each thread, and the number of slices at the end
    thread: Small  # number of the thread of each slice
    cuts: Ints  # starts, `-FAR` for the first of a thread, and an additional `-FAR` after the last
    row: Small  # position of the innermost row, -1 if there is none

    def at(self, thread: Small, times: Ints) -> Ints:
        """Slice of a thread that covers each instant; ends are exclusive."""
        return np.maximum(search_by(self.thread, self.cuts[:-1], thread, times), 0)

    def starts(self, number: Small) -> Ints:
        """Starts of slices, unbounded for the first of a thread."""
        return self.cuts[number]

    def ends(self, number: Small) -> Ints:
        """Ends of slices, unbounded for the last of a thread."""
        following = self.cuts[number + 1]
        return np.where(following == -FAR, FAR, following)


FAR = 1 << 61
"""Time beyond all others, for unbounded slices; sums with it do not overflow."""


def read_host(run: Run, rank: int) -> Host:
    """Read the host rows of one rank."""
    others = None if run.ranks == (rank,) else pc.field(C.RANK) == rank
    columns = LazyColumns(run, "host_intervals", _READ, where=others)
    thread = map_equal_runs(_threads, columns.table(C.PID, C.TID))
    start, length, row_id = (columns.numbers(name) for name in (C.START_NS, C.DUR_NS, C.ROW_ID))
    order = _order(thread, start, length, row_id)
    thread = thread[order]
    start, row_id, end = reorder(order, [start, row_id, length])
    end += start
    del length
    kinds, names = (columns.coded(name)[order] for name in (C.KIND, C.NAME))
    backward = columns.coded(C.PHASE).is_any_of(Phase.BACKWARD)[order]
    del order
    parent = nesting.parents(thread, start, end)
    kind, own_label, labels = _kinds_and_labels(kinds, names)
    nearest = nesting.nearest(parent, own_label >= 0)
    backward |= names.matches(BACKWARD)
    runs_backward = np.zeros(_count(thread), np.bool_)
    runs_backward[thread[backward]] = True
    main = _main(thread, names.matches(MARKER), kind == KINDS.index(LAUNCH), runs_backward)
    runs_backward[main] = False
    return Host(
        row_id=row_id,
        thread=thread,
        start=start,
        end=end,
        parent=parent,
        kind=kind,
        label=take(np.append(own_label, own_label.dtype.type(len(labels) - 1)), nearest),
        labels=labels,
        waits=names.matches(r"(?i)StreamWaitEvent"),
        frees=names.matches(_FREE),
        asynchronous=names.matches(r"(?i)async"),
        backward=runs_backward,
        main=main,
    )


def _order(thread: Small, start: Ints, length: Ints, row_id: Ints) -> Ints:
    """Order by thread, start, descending end and id."""
    return order_by_thread(
        thread, lambda rows: start[rows], lambda rows: -length[rows], lambda rows: row_id[rows]
    )


def _threads(pid: Ints, tid: Ints) -> Small:
    """A small number for each thread of each process."""
    thread, distinct = pd.factorize((pid << 32) ^ tid, sort=True)
    codes: Small = thread.astype(np.min_scalar_type(-1 - len(distinct)))
    return codes


def _kinds_and_labels(kinds: Coded, names: Coded) -> tuple[Small, Small, list[str]]:
    """Kind and label of each row, -1 for a row without its own label, and the label names."""
    kind = np.full(len(kinds.codes), KINDS.index(OUTSIDE), np.int8)
    for value, code in _KIND_CODES.items():
        kind[kinds.is_any_of(value)] = code
    launch = names.matches(LAUNCH_PATTERN) & ~names.matches(HOST_FUNCTION_PATTERN)
    kind[launch & (kind == KINDS.index(RUNTIME))] = KINDS.index(LAUNCH)
    labelled = kinds.is_any_of(HostKind.OP, HostKind.ANNOTATION, HostKind.OVERHEAD)
    labelled &= ~names.matches(MARKER)
    label = np.where(labelled, names.codes, names.codes.dtype.type(-1))
    return kind, label, [*names.texts, NO_OP]


def _count(thread: Small) -> int:
    """Number of threads, at least 1."""
    return int(thread[-1]) + 1 if len(thread) else 1


def _main(thread: Small, marks: Bools, launches: Bools, backward: Bools) -> int:
    for chosen in (marks, launches & ~backward[thread], launches, np.ones(len(thread), np.bool_)):
        if chosen.any():
            return int(np.bincount(thread[chosen]).argmax())
    return 0


def _slice_threads(host: Host) -> Slices:
    size = 2 * len(host.start) + _count(host.thread) + 1
    cuts, row, thread = np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, host.thread.dtype)
    filled = 0
    for time, inside, on_thread in _cuts(host):
        is_again = filled and (thread[filled - 1], cuts[filled - 1]) == (on_thread[0], time[0])
        filled -= int(is_again)  # no empty slices
        for column, values in ((cuts, time), (row, inside), (thread, on_thread)):
            column[filled : filled + len(time)] = values
        filled += len(time)
    cuts[filled] = -FAR
    bounds = np.append(np.flatnonzero(cuts[:filled] == -FAR), filled)
    return Slices(bounds=bounds, thread=thread[:filled], cuts=cuts[: filled + 1], row=row[:filled])


def _cuts(host: Host) -> Iterator[tuple[Ints, Small, Small]]:
    """Yield the distinct cuts of all threads in blocks: time, innermost row after the cut, and thread.

    Each thread begins with a cut at `-FAR`. At equal times starts come after ends; of starts the inner one,
    of ends the outer one is last.
    """
    start, end, thread = host.start, host.end, host.thread
    by_end = _sort_by_thread(np.argsort(end, kind="stable"), thread)
    begins = np.append(True, thread[1:] != thread[:-1])
    if not len(start):
        yield np.array([-FAR]), np.array([NO_PARENT], np.int32), np.zeros(1, thread.dtype)
    passed = 0
    for block in range(0, len(start), _BLOCK):
        rest = block + _BLOCK
        reached = len(end)
        if rest < len(start):
            up_to = thread[rest], start[rest]
            reached = bisect_right(by_end, up_to, lo=passed, key=lambda row: (thread[row], end[row]))
        ending, starting = by_end[passed:reached], np.arange(block, min(rest, len(start)))
        first = starting[begins[starting]]
        ending = ending[end[ending] > start[ending]]
        starting = starting[end[starting] > start[starting]]
        ending = ending[_changes(end[ending], thread[ending], before=True)]
        time = np.concatenate((np.full(len(first), -FAR), end[ending], start[starting]))
        into = np.concatenate((np.full(len(first), NO_PARENT), host.parent[ending], starting))
        on_thread = thread[np.concatenate((first, ending, starting))]
        order = _sort_by_thread(np.argsort(time, kind="stable"), on_thread)
        order = order[_changes(time[order], on_thread[order], before=False)]
        if len(order):
            yield time[order], into[order], on_thread[order]
        passed = reached


def _sort_by_thread(order: Ints, thread: Small) -> Ints:
    """Sort positions by the thread of each, otherwise in the order given."""
    on_thread = thread[order]
    is_sorted = bool((on_thread[1:] >= on_thread[:-1]).all())
    return order if is_sorted else order[np.argsort(on_thread, kind="stable")]


def _changes(times: Ints, thread: Small, *, before: bool) -> Bools:
    """Whether each of these times, sorted by thread, differs from the previous or the next one."""
    differs = (times[1:] != times[:-1]) | (thread[1:] != thread[:-1])
    parts = ([True], differs) if before else (differs, [True])
    changes: Bools = np.concatenate(parts)[: len(times)].astype(np.bool_, copy=False)
    return changes
