"""The host's rows in their final order, a window at a time, with what encloses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit.ingest.link.lanes import NOTHING_OPEN, Inherited, Lanes, Threads
from tracekit.ingest.link.marks import Marks, phases
from tracekit.ingest.order import allocation_order, host_order
from tracekit.ingest.rows import NONE
from tracekit.ingest.texts import NO_STRINGS
from tracekit.ingest.windows import windows
from tracekit.schema import ALLOCATIONS, HOST_INTERVALS, C

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tracekit.ingest.link.lanes import Open
    from tracekit.ingest.link.steps import Steps
    from tracekit.ingest.nesting import Nest
    from tracekit.ingest.outline import Outline
    from tracekit.ingest.rows import Rows
    from tracekit.ingest.windows import Window

    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

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
