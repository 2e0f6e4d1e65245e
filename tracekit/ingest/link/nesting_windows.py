"""Nesting of host rows, window by window.

The rows of a window are preceded by those that are open at its start. These carry their inherited values, so
earlier windows are not needed.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tracekit.ingest.link import nesting
from tracekit.ingest.link.nesting import Ints, Nest
from tracekit.ingest.spool.rows import NONE


def _none() -> Ints:
    return np.empty(0, np.int64)


class Inherited(msgspec.Struct, frozen=True):
    """Values of rows, or inherited from enclosing rows; -1 for none.

    Attributes:
        op: Row id of the innermost op.
        phase: Index of the phase of the innermost marker.
        forward: 0 below a marker of the forward pass.
        module: Code of the name of the innermost module call.
    """

    op: Ints
    phase: Ints
    forward: Ints
    module: Ints

    @property
    def columns(self) -> list[Ints]:
        """The columns, in order."""
        return list(msgspec.structs.astuple(self))


class OpenRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that are open at a border, by thread and start.

    Attributes:
        thread: Number of the thread.
        start: Start, ns.
        end: End, ns.
        row: Row id.
        depth: Number of enclosing rows.
        inherited: Inherited values.
    """

    thread: Ints
    start: Ints
    end: Ints
    row: Ints
    depth: Ints
    inherited: Inherited


NO_OPEN_ROWS = OpenRows(
    thread=_none(),
    start=_none(),
    end=_none(),
    row=_none(),
    depth=_none(),
    inherited=Inherited(op=_none(), phase=_none(), forward=_none(), module=_none()),
)


class Threads:
    """Numbers the threads of a process tree from 0, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, pid: Ints, tid: Ints) -> Ints:
        """Return the number of each row's thread."""
        threads = (pid << 32) ^ tid
        # consecutive rows often have the same thread
        turns = np.append(0, np.flatnonzero(threads[1:] != threads[:-1]) + 1)[: len(threads)]
        known = self._numbers
        numbers = [known.setdefault(thread, len(known)) for thread in threads[turns].tolist()]
        return np.repeat(np.array(numbers, np.intp), np.diff(turns, append=len(threads)))


class NestedWindow:
    """Nesting of the rows of a window and of those that are open at its start.

    Attributes:
        row: Row ids: of the open rows, then of the window's rows; the other columns are in the same order.
        parent: Position of the innermost enclosing row, -1 at the top.
        depth: Number of enclosing rows.
        inherited: Values of rows, or of enclosing rows.
    """

    def __init__(
        self,
        carried: OpenRows,
        own: Inherited,
        *,
        thread: Ints,
        start: Ints,
        end: Ints,
        first: int,
        nest: Nest,
    ) -> None:
        """Compute the nesting of a window.

        Args:
            carried: Rows that are open at its start.
            own: Values of the window's rows, in their final order.
            thread: Thread of each row.
            start: Their starts.
            end: Their ends.
            first: Row id of the window's first row.
            nest: Algorithm for nesting.
        """
        self._carried = len(carried.row)
        self._thread = np.concatenate((carried.thread, thread))
        self._start, self._end = np.concatenate((carried.start, start)), np.concatenate((carried.end, end))
        self.row = np.concatenate((carried.row, np.arange(first, first + len(start))))
        pairs = zip(carried.inherited.columns, own.columns, strict=True)
        self.parent, self.depth, values = nest.nest_rows(
            self._thread, self._start, self._end, carried.depth, [np.concatenate(pair) for pair in pairs]
        )
        self.inherited = Inherited(*values)

    def of_window(self, column: Ints) -> Ints:
        """Return the values of a column for the window's rows."""
        return column[self._carried :]

    def parent_rows(self) -> Ints:
        """Return the row id of the parent of each row of the window, -1 at the top."""
        parent: Ints = np.append(self.row, NONE).take(self.of_window(self.parent))
        return parent

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """Return the position of the innermost row that covers each instant on a thread, -1 if none."""
        latest = np.full(len(times), NONE)
        for lane in np.flatnonzero(np.bincount(thread)):
            rows, mask = np.flatnonzero(self._thread == lane), thread == lane
            started = np.searchsorted(self._start.take(rows), times[mask], side="right")
            latest[mask] = np.append(NONE, rows)[started]
        return nesting.find_covering(self._end, self.parent, latest, times)

    def open_at(self, until: int) -> OpenRows:
        """Return the rows that are open at an instant after all starts."""
        late = np.flatnonzero(self._end > until)
        late = late[np.argsort(self._thread[late], kind="stable")][::-1]
        # ends as ranks, above those of the previous threads: one running maximum for all threads
        _, rank = np.unique(self._end[late], return_inverse=True)
        thread = np.cumsum(np.append(True, self._thread[late[1:]] != self._thread[late[:-1]])[: len(late)])
        reach = rank + thread * (len(late) + 1)
        outlasts = np.append(True, reach[1:] > np.maximum.accumulate(reach)[:-1])[: len(late)]
        open_ = late[outlasts][::-1]
        return OpenRows(
            thread=self._thread[open_],
            start=self._start[open_],
            end=self._end[open_],
            row=self.row[open_],
            depth=self.depth[open_],
            inherited=Inherited(*[column[open_] for column in self.inherited.columns]),
        )
