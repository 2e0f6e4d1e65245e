"""Profiled steps, phases, and the host rows of a trace window by window with their links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec import structs

from tracekit.ingest.link import serving
from tracekit.ingest.link.nesting import Bools, Ints, Nest
from tracekit.ingest.link.nesting_windows import Inherited, NestedWindow, Stacks, Threads
from tracekit.ingest.link.serving import Batch
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.rows import NONE, Rows, allocation_order, concatenate_rows, host_order
from tracekit.ingest.spool.text_columns import LATEST_NS, NO_STRINGS, Strings
from tracekit.ingest.spool.window_reader import SortedColumns, Window, windows
from tracekit.runs.range_names import MARKERS
from tracekit.schema import ALLOCATIONS, HOST_INTERVALS, C, HostKind, Phase

_WANTED = (C.START_NS, C.DUR_NS, C.KIND, C.NAME, C.PID, C.TID, C.EXTERNAL_ID, C.CORRELATION_ID)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Profiled steps of one process, by start: number, name, interval, and batch of an inference server.

    `renumbered` is the number of the last steps that had numbers of earlier ones, `pause_ns` the time before
    each step at which numbers start again, since the end of the one before.
    """

    number: Ints
    name: list[str]
    start: Ints
    end: Ints
    batches: Sequence[Batch] = ()
    renumbered: int = 0
    pause_ns: int = 0

    def at(self, times: Ints) -> Ints:
        """Return the number of the step that covers each of some sorted instants, -1 if none."""
        if not len(self.start) or not len(times):
            return np.full(len(times), NONE, np.int64)
        earlier, stop = np.searchsorted(self.start, times[[0, -1]], side="right")
        first = max(earlier - 1, 0)  # only steps of these times are searched, as a trace can have a million
        begin = np.searchsorted(times, self.start[first:stop])
        index = np.repeat(np.arange(first - 1, stop), np.diff(begin, prepend=0, append=len(times)))
        inside = (index >= 0) & (times < self.end[index])
        return np.where(inside, self.number[index], NONE)


def find_steps(host: SpooledTable, named: str = "", added: tuple[str, ...] = ()) -> Steps:
    """Find the steps that host rows mark; if several threads do, those of the thread with the most.

    The first of these that the trace has: ranges of the given name; ranges of an inference server, of nested
    ones the outermost, also within the steps of the profiler; steps of the profiler; ranges like `step 3`.

    Args:
        host: The host rows.
        named: Name of the ranges that are the steps, numbered in order; empty for the markers.
        added: Patterns of ranges of an inference server, beside the built-in ones.
    """
    names = host.texts.get(C.NAME, NO_STRINGS)
    matching = names.matching(named.__eq__ if named else partial(serving.read, added=added))
    rows = _find_ranges(host, matching, [HostKind.ANNOTATION, HostKind.OP])
    if rows is not None:
        steps = _outermost_steps(rows, names)
        return steps if named else _describe_batches(steps, added)
    for marker in () if named else MARKERS:
        rows = _find_ranges(host, names.matching(marker.match), [HostKind.ANNOTATION])
        if rows is not None:
            matches = [marker.match(names.values[code]) for code in rows.integers(C.NAME)]
            numbers = np.array([int(match[1]) for match in matches if match], np.int64)
            return _numbered_steps(rows, numbers, names)
    empty = np.empty(0, np.int64)
    return Steps(number=empty, name=[], start=empty, end=empty)


def _outermost_steps(rows: Rows, names: Strings) -> Steps:
    """Return the outermost ranges of the thread with the most of them, or its first, as steps from 0."""
    thread = Threads().of(rows.integers(C.PID), rows.integers(C.TID))
    _, first, lane, count = np.unique(thread, return_index=True, return_inverse=True, return_counts=True)
    mine = np.flatnonzero(lane == np.lexsort((first, -count))[0])
    start = rows.integers(C.START_NS)[mine]
    end = start + rows.integers(C.DUR_NS)[mine]
    outer = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    code = rows.integers(C.NAME)[mine][outer]
    return Steps(
        number=np.arange(len(code)),
        name=[names.values[number] for number in code],
        start=start[outer],
        end=end[outer],
    )


def _describe_batches(steps: Steps, added: tuple[str, ...]) -> Steps:
    """Describe the steps of an inference server; they have their own numbers if these differ."""
    batches = serving.read_steps(steps.name, added)
    step_numbers = [batch.step for batch in batches if batch.step is not None]
    numbers = np.array(step_numbers, np.int64) if len(set(step_numbers)) == len(batches) else steps.number
    return structs.replace(steps, batches=batches, number=numbers)


def _find_ranges(host: SpooledTable, matches: Bools, wanted: list[HostKind]) -> Rows | None:
    """Return the finished rows of some kinds with one of these names, in final order; None without one."""
    kinds = host.texts.get(C.KIND, NO_STRINGS)
    is_wanted = kinds.among(wanted)
    chunks = []
    for part in host.parts:
        if matches[host.texts[C.NAME].recode[part]].any():
            rows = host.read([host.whole_part(part)], (*_WANTED, C.UNFINISHED))
            is_range = matches[rows.integers(C.NAME)] & is_wanted[rows.integers(C.KIND)]
            chunks.append(rows.take(np.flatnonzero(is_range)))
    ranges = _drop_unfinished(concatenate_rows(chunks)) if chunks else None
    return ranges.take(host_order(ranges, kinds)) if ranges and ranges.count else None


def _drop_unfinished(ranges: Rows) -> Rows:
    """Leave out unfinished ranges, whose end is not known; if all are, keep those until the capture's end."""
    is_open = ranges.integers(C.UNFINISHED) == 1
    is_kept = ~is_open | (is_open.all() & (ranges.integers(C.DUR_NS) > 0))
    return ranges.take(np.flatnonzero(is_kept))


def _numbered_steps(rows: Rows, numbers: Ints, names: Strings) -> Steps:
    """Return the steps of the thread with the most marks, and those of others that it has not.

    Where numbers start again, as with a second session of the profiler, later steps are numbered on.
    """
    thread = Threads().of(rows.integers(C.PID), rows.integers(C.TID))
    start = rows.integers(C.START_NS)
    end = start + rows.integers(C.DUR_NS)
    _, lane, count = np.unique(thread, return_inverse=True, return_counts=True)
    chosen, is_chosen = np.empty(0, np.int64), np.zeros(len(start), bool)
    for number in np.argsort(-count, kind="stable"):
        mine = np.flatnonzero(lane == number)
        is_first = np.zeros(len(mine), bool)
        is_first[np.unique(numbers[mine], return_index=True)[1]] = True
        is_apart = np.append(True, start[mine][1:] >= np.maximum.accumulate(end[mine])[:-1])
        overlaps = end[mine].max() > start[chosen].min(initial=LATEST_NS)
        overlaps &= start[mine].min() < end[chosen].max(initial=-LATEST_NS)
        is_new = is_first & ~np.isin(numbers[mine], numbers[chosen])
        # Threads at the same time mark the same steps; at another time a number is that of another step.
        is_chosen[mine[is_new if overlaps else is_first | is_apart]] = True
        chosen = np.flatnonzero(is_chosen)
    number = _number_on(numbers[chosen])
    return Steps(
        number=number,
        name=[names.values[code] for code in rows.integers(C.NAME)[chosen]],
        start=start[chosen],
        end=end[chosen],
        renumbered=int((number != numbers[chosen]).sum()),
        pause_ns=_pause_ns(numbers[chosen], start[chosen], end[chosen]),
    )


def _pause_ns(numbers: Ints, start: Ints, end: Ints) -> int:
    """Return the time between sessions of the profiler, each of which counts its steps from a lower number.

    Example:
        >>> _pause_ns(np.array([2, 3, 2]), np.array([0, 10, 50]), np.array([10, 20, 60]))
        30
    """
    again = np.flatnonzero(np.diff(numbers) <= 0) + 1
    return int(np.maximum(start[again] - np.maximum.accumulate(end)[again - 1], 0).sum())


def _number_on(numbers: Ints) -> Ints:
    """Return distinct numbers: from the first that was there before, each is one more than the largest.

    Example:
        >>> _number_on(np.array([2, 3, 2, 3])).tolist()
        [2, 3, 4, 5]
    """
    _, first = np.unique(numbers, return_index=True)
    is_again = np.ones(len(numbers), bool)
    is_again[first] = False
    if not is_again.any():
        return numbers
    kept = int(is_again.argmax())
    return np.append(numbers[:kept], int(numbers[:kept].max()) + 1 + np.arange(len(numbers) - kept))


MODULE_MARKER = "nn.Module: "
PHASES = tuple(Phase)

_PHASE_MARKERS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.ZERO_GRAD, re.compile(r".*zero_grad")),
    (Phase.OPTIMIZER, re.compile(r"Optimizer\.step#")),
    (Phase.DATALOAD, re.compile(r"enumerate\(DataLoader\)")),
    (Phase.BACKWARD, re.compile(r"autograd::engine::evaluate_function|\w+Backward\d*$")),
)


def phases(inherited: Inherited) -> Ints:
    """Index into `PHASES` of each row, -1 where the trace does not say.

    The innermost marker decides; forward is what has or is nested in an autograd sequence number of the
    forward pass, or under a module's call, outside of the other phases.
    """
    forward = (inherited.phase == NONE) & (inherited.forward != NONE)
    return np.where(forward, PHASES.index(Phase.FORWARD), inherited.phase)


_HOST = tuple(column.name for column in HOST_INTERVALS.columns)
_ALLOCATIONS = (C.PID, C.TID, *(column.name for column in ALLOCATIONS.columns))


class HostWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Host rows of a window in their final order, with its allocator events."""

    first: int  # row id of the first row
    rows: Rows
    # columns that linking adds, -1 for null: row id, step, parent, depth, index of the phase into `PHASES`,
    # and code of the name of the innermost module call
    columns: dict[str, Ints]
    op: Ints  # row id of the innermost op, of the row itself if it is one; -1 if none
    is_op: Bools  # mask of ops
    is_call: Bools  # mask of calls of the device's runtime or driver
    allocations: Rows  # allocator events, in their final order
    allocating: Ints  # row id of the op around each event


class Host:
    """Host rows and allocator events of one trace."""

    def __init__(self, host: SpooledTable, allocations: SpooledTable, steps: Steps, nest: Nest) -> None:
        self._host, self._allocations, self._steps, self._nest = host, allocations, steps, nest
        self._threads = Threads()
        names, self._kinds = (host.texts.get(name, NO_STRINGS) for name in (C.NAME, C.KIND))
        self._is_op = self._kinds.among([HostKind.OP])
        self._is_call = self._kinds.among([HostKind.RUNTIME, HostKind.SYNC])
        self._is_module = names.matching(lambda name: name.startswith(MODULE_MARKER))
        self._phase = np.full(len(names.values) + 1, NONE)
        for phase, pattern in _PHASE_MARKERS:
            self._phase[names.matching(pattern.match)] = PHASES.index(phase)

    def windows(self, first: int) -> Iterator[HostWindow]:
        """Yield the windows in order of time; `first` is the id of the first row."""
        stacks = Stacks(self._host.directory / "open.rows")
        hosts = SortedColumns(table=self._host, columns=_HOST, order=partial(host_order, kinds=self._kinds))
        events = SortedColumns(table=self._allocations, columns=_ALLOCATIONS, order=allocation_order)
        for window in windows([hosts, events]):
            linked = self._link(window, stacks, first)
            first += linked.rows.count
            yield linked

    def _link(self, window: Window, stacks: Stacks, first: int) -> HostWindow:
        rows, events = window.rows
        nested = self._nest_window(rows, events, stacks, first)
        if window.until is not None:
            stacks.replace_open(nested.open_at(window.until))
        inherited = Inherited(*map(nested.of_window, nested.inherited))
        around = nested.innermost(self._thread(events), events.integers(C.T_NS))
        return HostWindow(
            first=first,
            rows=rows,
            columns={
                C.ROW_ID: np.arange(first, first + rows.count),
                C.STEP: self._steps.at(rows.integers(C.START_NS)),
                C.PARENT_ROW: np.append(nested.row, NONE).take(nested.of_window(nested.parent)),
                C.DEPTH: nested.of_window(nested.depth),
                C.PHASE: phases(inherited),
                C.MODULE: inherited.module,
            },
            op=inherited.op,
            is_op=self._is_op.take(rows.integers(C.KIND)),
            is_call=self._is_call.take(rows.integers(C.KIND)),
            allocations=events,
            allocating=np.append(nested.inherited.op, NONE)[around],
        )

    def _nest_window(self, rows: Rows, events: Rows, stacks: Stacks, first: int) -> NestedWindow:
        start, thread = rows.integers(C.START_NS), self._thread(rows)
        end = start + rows.integers(C.DUR_NS)
        threads = np.concatenate((thread, self._thread(events)))
        return NestedWindow(
            stacks.open_rows(threads, np.concatenate((end, events.integers(C.T_NS)))),
            self._values(rows, first),
            thread=thread,
            start=start,
            end=end,
            first=first,
            nest=self._nest,
        )

    def _values(self, rows: Rows, first: int) -> Inherited:
        """Return the values of rows that enclosed rows inherit."""
        name, kind = rows.integers(C.NAME), rows.integers(C.KIND)
        module = self._is_module.take(name)
        # an op of the backward pass has the sequence number of its forward op, but names a forward thread
        forward = (rows.integers(C.SEQUENCE) >= 0) & (rows.integers(C.FWD_TID) <= 0)
        return Inherited(
            op=np.where(self._is_op.take(kind), np.arange(first, first + rows.count), NONE),
            phase=self._phase.take(name),
            forward=np.where(forward | module, 0, NONE),
            module=np.where(module, name, NONE),
        )

    def _thread(self, rows: Rows) -> Ints:
        return self._threads.of(rows.integers(C.PID), rows.integers(C.TID))
