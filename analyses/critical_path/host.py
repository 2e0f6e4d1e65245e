"""Host side of the critical path: the activity of each thread of a rank over time, as arrays.

Every thread is cut at the starts and ends of its intervals. A *slice* is the time between two neighboring
cuts and belongs to the innermost interval that covers it, so the slices of a thread partition its time
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.ingest.link import nesting
from tracekit.runs.intervals import Ints
from tracekit.runs.range_names import MARKER
from tracekit.runs.run import Run
from tracekit.schema import HostKind, Phase

from ..shared.common import HOST_FUNCTION_PATTERN, LAUNCH_PATTERN, NO_PARENT, Bools, Small
from ..shared.groups import search_by
from ..shared.host_columns import BACKWARD, Coded, HostColumns, read_host_columns, take
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
_KIND_CODES = {
    HostKind.RUNTIME: KINDS.index(RUNTIME),
    HostKind.SYNC: KINDS.index(SYNC),
    HostKind.OP: KINDS.index(OP),
    HostKind.OVERHEAD: KINDS.index(PROFILER),
}
_BLOCK = 1 << 15  # starts per block that are merged with ends, so that arrays fit the CPU cache


@dataclass(frozen=True)
class Host:
    """Rows of one rank and what the path needs of them; positions refer to their order."""

    rows: HostColumns
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


def read_host(run: Run) -> Host:
    """Read the host rows of a run of one rank."""
    rows = read_host_columns(run)
    thread, names = rows.thread, rows.name
    kind, own_label, labels = _kinds_and_labels(rows.kind, names)
    nearest = nesting.nearest(rows.parent, own_label >= 0)
    runs_backward = np.zeros(_count(thread), np.bool_)
    runs_backward[thread[rows.phase.is_any_of(Phase.BACKWARD) | names.matches(BACKWARD)]] = True
    main = _main(thread, names.matches(MARKER), kind == KINDS.index(LAUNCH), runs_backward)
    runs_backward[main] = False
    return Host(
        rows=rows,
        kind=kind,
        label=take(np.append(own_label, own_label.dtype.type(len(labels) - 1)), nearest),
        labels=labels,
        waits=names.matches(r"(?i)StreamWaitEvent"),
        frees=names.matches(_FREE),
        asynchronous=names.matches(r"(?i)async"),
        backward=runs_backward,
        main=main,
    )


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
    threads = host.rows.rows_of_thread.values()
    size = 2 * len(host.rows.start) + len(threads) + 2
    cuts, row = np.empty(size, np.int64), np.empty(size, np.int32)
    cuts[0], row[0], bounds = -FAR, NO_PARENT, [0]
    for rows in threads:
        filled = bounds[-1] + 1
        for time, inside in _cuts(host.rows, rows):
            filled -= int(time[0] == cuts[filled - 1])  # no empty slices
            for column, values in ((cuts, time), (row, inside)):
                column[filled : filled + len(time)] = values
            filled += len(time)
        cuts[filled], row[filled] = -FAR, NO_PARENT
        bounds.append(filled)
    if not threads:  # time in no row
        cuts[1] = -FAR
        bounds.append(1)
    thread = np.arange(len(bounds) - 1, dtype=np.min_scalar_type(len(bounds)))
    return Slices(
        bounds=np.array(bounds),
        thread=np.repeat(thread, np.diff(bounds)),
        cuts=cuts[: bounds[-1] + 1],
        row=row[: bounds[-1]],
    )


def _cuts(host: HostColumns, rows: slice) -> Iterator[tuple[Ints, Small]]:
    """Yield the distinct cuts of a thread in blocks: time, and innermost row after the cut.

    At equal times starts come after ends; of starts the inner one, of ends the outer one counts.
    """
    start, end = host.start[rows], host.end[rows]
    ending, starting = np.argsort(end, kind="stable").astype(np.int32), np.arange(len(end), dtype=np.int32)
    if not (is_cut := end > start).all():
        ending, starting, start = ending[is_cut[ending]], starting[is_cut], start[is_cut]
    end = end[ending]
    outer, passed = np.append(True, end[1:] != end[:-1])[: len(end)], 0
    ending, end = ending[outer], end[outer]
    into = host.parent[rows][ending]
    for block in range(0, len(start), _BLOCK):
        part = slice(block, block + _BLOCK)
        reached = np.searchsorted(end, start[part.stop]) if part.stop < len(start) else len(end)
        time = np.concatenate((end[passed:reached], start[part]))
        inside = np.concatenate((into[passed:reached], starting[part] + np.int32(rows.start)))
        order = np.argsort(time, kind="stable")
        time = time[order]
        last = np.append(time[1:] != time[:-1], True)
        yield time[last], inside[order[last]]
        passed = reached
