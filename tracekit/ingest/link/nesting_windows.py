"""Nesting of host rows, window by window.

The rows of a window are preceded by those that are open at its start. These carry their inherited values, so
earlier windows are not needed.

The open rows of a thread are a stack: each starts after and ends before the one below it. Only the top of a
deep stack is kept in memory, the rest in a file. A window needs a lower row only if one of its own rows, or
an event, reaches beyond the end of all rows above; that row then covers them for later windows, so they are
never read again.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tracekit.ingest.link import nesting
from tracekit.ingest.link.nesting import Bools, Ints, Nest
from tracekit.ingest.spool.rows import NONE


class Inherited(NamedTuple):
    """Columns of values of rows, or inherited from enclosing rows; -1 for none."""

    op: Ints  # row id of the innermost op
    phase: Ints  # index of the phase of the innermost marker
    forward: Ints  # 0 below a marker of the forward pass
    module: Ints  # code of the name of the innermost module call


class OpenRows(NamedTuple):
    """Columns of the rows that are open at a border, by thread and start; the last four are inherited values.

    Attributes:
        thread: Number of the thread.
        start: Start, ns.
        end: End, ns.
        row: Row id.
        depth: Number of enclosing rows.
    """

    thread: Ints
    start: Ints
    end: Ints
    row: Ints
    depth: Ints
    op: Ints
    phase: Ints
    forward: Ints
    module: Ints

    @property
    def inherited(self) -> Inherited:
        """The inherited values."""
        return Inherited(self.op, self.phase, self.forward, self.module)

    def select(self, chosen: Ints | Bools) -> OpenRows:
        """Return the rows at positions, or of a mask."""
        return OpenRows(*(column[chosen] for column in self))


_N_COLUMNS = len(OpenRows._fields)


class Threads:
    """Numbers the threads of a process tree from 0, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: defaultdict[int, int] = defaultdict(count().__next__)

    def of(self, pid: Ints, tid: Ints) -> Ints:
        """Return the number of each row's thread."""
        threads = (pid << 32) ^ tid
        # consecutive rows often have the same thread
        turns = np.append(0, np.flatnonzero(threads[1:] != threads[:-1]) + 1)[: len(threads)]
        numbers = [self._numbers[thread] for thread in threads[turns].tolist()]
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
        values_of_rows: Inherited,
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
            values_of_rows: Values of the window's rows, in their final order.
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
        pairs = zip(carried.inherited, values_of_rows, strict=True)
        self.parent, self.depth, values = nest(
            self._thread, self._start, self._end, carried.depth, [np.concatenate(pair) for pair in pairs]
        )
        self.inherited = Inherited(*values)

    def of_window(self, column: Ints) -> Ints:
        """Return the values of a column for the window's rows."""
        return column[self._carried :]

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
        rows = OpenRows(self._thread, self._start, self._end, self.row, self.depth, *self.inherited)
        return rows.select(open_)


MAX_HELD_ROWS = 1 << 16
"""Rows in memory after a window, of all threads."""
MIN_ROWS_PER_THREAD = 16
"""Rows in memory of each thread."""


class _Block(NamedTuple):
    """Location of the rows of one thread in the file."""

    offset: int
    rows: int


class Stacks:
    """The stacks of all threads."""

    def __init__(self, path: Path) -> None:
        """Create empty stacks, with a file for rows that are not kept in memory."""
        self._path = path
        self._top = OpenRows(*[np.empty(0, np.int64)] * _N_COLUMNS)
        self._below: defaultdict[int, list[_Block]] = defaultdict(list)

    def open_rows(self, thread: Ints, reach: Ints) -> OpenRows:
        """Return the open rows that a window can need, by thread and row id.

        Args:
            thread: Thread of each of its rows and events.
            reach: End of each row; the instant of each event.
        """
        if not self._below:
            return self._top
        pieces = [self._top]
        for number in np.intersect1d(thread, list(self._below)).tolist():
            pieces += self._lower(number, np.unique(reach[thread == number]))
        rows = OpenRows(*map(np.concatenate, zip(*pieces, strict=True)))
        return rows.select(np.lexsort((rows.row, rows.thread)))

    def _lower(self, thread: int, reach: Ints) -> list[OpenRows]:
        """Read a thread's rows from the file until one ends after all `reach`, which are sorted."""
        blocks: list[OpenRows] = []
        lowest = self._top.end[self._top.thread == thread][:1]
        while self._below[thread] and not (lowest > reach[-1]).any():
            block = self._read(self._below[thread].pop())
            lowest = block.end[:1]
            blocks.append(_rows_around(block, reach) if lowest[0] <= reach[-1] else block)
        if not self._below[thread]:
            del self._below[thread]
        return blocks

    def replace_open(self, rows: OpenRows) -> None:
        """Replace the open rows that `open_rows` has returned."""
        self._top = rows
        if len(rows.row) <= 2 * MAX_HELD_ROWS:
            return
        _, first, lane, count = np.unique(
            rows.thread, return_index=True, return_inverse=True, return_counts=True
        )
        above = count[lane] - (np.arange(len(rows.row)) - first[lane])
        low = above > max(MIN_ROWS_PER_THREAD, MAX_HELD_ROWS // len(first))
        for thread in np.unique(rows.thread[low]).tolist():
            self._write(thread, rows.select(low & (rows.thread == thread)))
        self._top = rows.select(~low)

    def _write(self, thread: int, rows: OpenRows) -> None:
        with self._path.open("ab") as file:
            self._below[thread].append(_Block(file.tell(), len(rows.row)))
            np.stack(rows, dtype=np.int64).tofile(file)

    def _read(self, block: _Block) -> OpenRows:
        read = np.fromfile(self._path, np.int64, _N_COLUMNS * block.rows, offset=block.offset)
        return OpenRows(*read.reshape(_N_COLUMNS, block.rows))


def _rows_around(block: OpenRows, reach: Ints) -> OpenRows:
    """Return the rows of a block that can be the innermost around an interval or instant."""
    # All rows of the block end within the window, or are covered by a row of it: others are not needed again.
    wanted = np.unique(np.concatenate((reach, reach + 1)))  # the end of an empty one is after its start
    place = np.searchsorted(block.end[::-1], wanted)
    return block.select(len(block.end) - 1 - np.unique(place[place < len(block.end)])[::-1])
