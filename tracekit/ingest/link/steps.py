"""Profiled steps: found among the few rows that mark them, before any other row is looked at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit import schema
from tracekit.ingest.link.lanes import NOTHING_OPEN, Inherited, Lanes, Threads
from tracekit.ingest.outline import windows
from tracekit.ingest.rows import NONE, allocation_order, host_order, joined
from tracekit.ingest.texts import NO_STRINGS
from tracekit.schema import ALLOCATIONS, HOST_INTERVALS, C, HostKind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tracekit.ingest.link.lanes import Open
    from tracekit.ingest.nesting import Nest
    from tracekit.ingest.outline import Outline, Window
    from tracekit.ingest.rows import Rows
    from tracekit.ingest.texts import Strings


if TYPE_CHECKING:
    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

_WANTED = (C.START_NS, C.DUR_NS, C.KIND, C.NAME, C.PID, C.TID, C.EXTERNAL_ID, C.CORRELATION_ID)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Profiled steps of one process, by start: number, name and interval."""

    number: Ints
    name: list[str]
    start: Ints
    end: Ints

    def at(self, times: Ints) -> Ints:
        """Number of the step that covers each of some rising instants, -1 if none does."""
        if not len(self.start):
            return np.full(len(times), NONE, np.int64)
        begin = np.searchsorted(times, self.start)
        index = np.repeat(np.arange(-1, len(begin)), np.diff(begin, prepend=0, append=len(times)))
        inside = (index >= 0) & (times < self.end[index])
        return np.where(inside, self.number[index], NONE)


def find_steps(host: Outline) -> Steps:
    """Steps that the host marked; where several threads did, the one that marked most of them counts."""
    names = host.texts.get(C.NAME, NO_STRINGS)
    for marker in schema.MARKERS:
        rows = _marked(host, names.matching(marker.match))
        if rows is not None:
            found = [marker.match(names.values[code]) for code in rows.integers(C.NAME)]
            return _steps(rows, np.array([int(each[1]) for each in found if each], np.int64), names)
    none = np.empty(0, np.int64)
    return Steps(number=none, name=[], start=none, end=none)


def _marked(host: Outline, matches: Bools) -> Rows | None:
    """Annotations with one of these names, in their final order; None without any."""
    kinds = host.texts.get(C.KIND, NO_STRINGS)
    annotation = kinds.among([HostKind.ANNOTATION])
    found = []
    for part in host.parked.parts:
        if matches[host.texts[C.NAME].recode[part]].any():
            rows = host.read([host.whole(part)], _WANTED)
            marked = matches[rows.integers(C.NAME)] & annotation[rows.integers(C.KIND)]
            found.append(rows.take(np.flatnonzero(marked)))
    marking = joined(found) if found else None
    return marking.take(host_order(marking, kinds)) if marking and marking.count else None


def _steps(rows: Rows, numbers: Ints, names: Strings) -> Steps:
    thread = Threads().of(rows.integers(C.PID), rows.integers(C.TID))
    _, lane, marked = np.unique(thread, return_inverse=True, return_counts=True)
    preferred = np.argsort(-marked[lane], kind="stable")
    _, found = np.unique(numbers[preferred], return_index=True)
    first = np.sort(preferred[found])
    start = rows.integers(C.START_NS)[first]
    return Steps(
        number=numbers[first],
        name=[names.values[code] for code in rows.integers(C.NAME)[first]],
        start=start,
        end=start + rows.integers(C.DUR_NS)[first],
    )


MODULE_MARKER = "nn.Module: "
PHASES = tuple(Phase)

_PHASE_MARKERS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.ZERO_GRAD, re.compile(r".*zero_grad")),
    (Phase.OPTIMIZER, re.compile(r"Optimizer\.step#")),
    (Phase.DATALOAD, re.compile(r"enumerate\(DataLoader\)")),
    (Phase.BACKWARD, re.compile(r"autograd::engine::evaluate_function|\w+Backward\d*$")),
)


class Marks:
    """What host rows say of themselves."""

    def __init__(self, texts: dict[str, Strings]) -> None:
        names, kinds = texts.get(C.NAME, NO_STRINGS), texts.get(C.KIND, NO_STRINGS)
        self._phase = np.full(len(names.values) + 1, NONE)
        for phase, pattern in _PHASE_MARKERS:
            self._phase[names.matching(pattern.match)] = PHASES.index(phase)
        self._module = names.matching(lambda name: name.startswith(MODULE_MARKER))
        self._op = kinds.among([HostKind.OP])
        self._call = kinds.among([HostKind.RUNTIME, HostKind.SYNC])

    def is_op(self, rows: Rows) -> Bools:
        """Which rows are ops."""
        return self._op.take(rows.integers(C.KIND))

    def is_call(self, rows: Rows) -> Bools:
        """Which rows are calls of the device's runtime or driver."""
        return self._call.take(rows.integers(C.KIND))

    def own(self, rows: Rows, first: int) -> Inherited:
        """What rows hand on to those that they enclose.

        Args:
            rows: Rows of the host.
            first: Row id of the first of them.
        """
        name = rows.integers(C.NAME)
        module = self._module.take(name)
        forward = (rows.integers(C.SEQUENCE) >= 0) & (rows.integers(C.FWD_TID) <= 0)
        return Inherited(
            op=np.where(self.is_op(rows), np.arange(first, first + rows.count), NONE),
            phase=self._phase.take(name),
            forward=np.where(forward | module, 0, NONE),
            module=np.where(module, name, NONE),
        )


def phases(inherited: Inherited) -> Ints:
    """Index into `PHASES` of each row, -1 where the trace does not say.

    The innermost marker decides; forward is what carries or lies under an autograd sequence number of the
    forward pass, or under a module's call, outside of the other phases.
    """
    forward = (inherited.phase == NONE) & (inherited.forward != NONE)
    return np.where(forward, PHASES.index(Phase.FORWARD), inherited.phase)


_HOST = tuple(column.name for column in HOST_INTERVALS.columns)
_ALLOCATIONS = (C.PID, C.TID, *(column.name for column in ALLOCATIONS.columns))


class HostWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the host in their final order, and allocator events of the same time.

    Attributes:
        first: Row id of the first row.
        rows: The rows.
        step: Step of each, -1 if none; so are all that follow.
        parent: Row id of the innermost enclosing row.
        depth: Number of enclosing rows.
        op: Row id of the innermost op, itself if it is one.
        phase: Index into `marks.PHASES`.
        module: Code of the name of the innermost module call.
        is_op: Which rows are ops.
        is_call: Which rows are calls of the device's runtime or driver.
        allocations: The events, in their final order.
        allocating: Row id of the op that each of them happened in.
    """

    first: int
    rows: Rows
    step: Ints
    parent: Ints
    depth: Ints
    op: Ints
    phase: Ints
    module: Ints
    is_op: Bools
    is_call: Bools
    allocations: Rows
    allocating: Ints


class Host:
    """Rows of one process's host and its allocator events."""

    def __init__(self, host: Outline, allocations: Outline, steps: Steps, nest: Nest) -> None:
        self._host, self._allocations, self._steps, self._nest = host, allocations, steps, nest
        self._kinds = host.texts.get(C.KIND, NO_STRINGS)
        self._marks = Marks(host.texts)
        self._threads = Threads()

    def windows(self, first: int) -> Iterator[HostWindow]:
        """Its rows in order of time.

        Args:
            first: Row id of the first one.
        """
        carried = NOTHING_OPEN
        for window in windows([self._host, self._allocations]):
            linked, carried = self._linked(window, carried, first)
            first += linked.rows.count
            yield linked

    def _linked(self, window: Window, carried: Open, first: int) -> tuple[HostWindow, Open]:
        rows = self._host.read(window.spans[0], _HOST)
        rows = rows.take(host_order(rows, self._kinds))
        lanes = self._lanes(rows, carried, first)
        events = self._allocations.read(window.spans[1], _ALLOCATIONS)
        events = events.take(allocation_order(events))
        found = Inherited(*[lanes.of_window(column) for column in lanes.inherited.columns])
        linked = HostWindow(
            first=first,
            rows=rows,
            step=self._steps.at(rows.integers(C.START_NS)),
            parent=lanes.parent_rows(),
            depth=lanes.of_window(lanes.depth),
            op=found.op,
            phase=phases(found),
            module=found.module,
            is_op=self._marks.is_op(rows),
            is_call=self._marks.is_call(rows),
            allocations=events,
            allocating=self._allocating(events, lanes),
        )
        return linked, carried if window.until is None else lanes.open_at(window.until)

    def _lanes(self, rows: Rows, carried: Open, first: int) -> Lanes:
        start = rows.integers(C.START_NS)
        return Lanes(
            carried,
            self._marks.own(rows, first),
            thread=self._threads.of(rows.integers(C.PID), rows.integers(C.TID)),
            start=start,
            end=start + rows.integers(C.DUR_NS),
            first=first,
            nest=self._nest,
        )

    def _allocating(self, events: Rows, lanes: Lanes) -> Ints:
        thread = self._threads.of(events.integers(C.PID), events.integers(C.TID))
        inside = lanes.innermost(thread, events.integers(C.T_NS))
        op: Ints = np.append(lanes.inherited.op, NONE)[inside]
        return op
