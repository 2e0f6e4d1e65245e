"""Host rows that are open at the start of a window, with those of deep threads in a file.

The open rows of a thread are a stack: each starts after and ends before the one below it. Only the top of a
deep stack is kept in memory. A window needs a lower row only if one of its own rows, or an event, reaches
beyond the end of all rows above; that row then covers them for later windows, so they are never read again.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np

from tracekit.ingest.link.nesting_windows import NOTHING_OPEN, Bools, Inherited, Ints, Open

HELD = 1 << 16
"""Rows in memory after a window, of all threads."""
LEAST = 16
"""Rows in memory of each thread."""


class _Block(msgspec.Struct, frozen=True):
    """Location of the rows of one thread in the file."""

    offset: int
    rows: int


class Stacks:
    """The stacks of all threads."""

    def __init__(self, path: Path) -> None:
        """Create empty stacks.

        Args:
            path: File for rows that are not kept in memory.
        """
        self._path = path
        self._top = NOTHING_OPEN
        self._below: defaultdict[int, list[_Block]] = defaultdict(list)

    def around(self, thread: Ints, reach: Ints) -> Open:
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
        rows = _open([np.concatenate(column) for column in zip(*map(_columns, pieces), strict=True)])
        return _some(rows, np.lexsort((rows.row, rows.thread)))

    def _lower(self, thread: int, reach: Ints) -> list[Open]:
        """Read a thread's rows from the file until one ends after all `reach`, which are sorted."""
        found: list[Open] = []
        lowest = self._top.end[self._top.thread == thread][:1]
        while self._below[thread] and not (lowest > reach[-1]).any():
            block = self._read(self._below[thread].pop())
            lowest = block.end[:1]
            found.append(_enclosing(block, reach) if lowest[0] <= reach[-1] else block)
        if not self._below[thread]:
            del self._below[thread]
        return found

    def keep(self, rows: Open) -> None:
        """Replace the open rows that `around` has returned."""
        self._top = rows
        if len(rows.row) <= 2 * HELD:
            return
        _, first, lane, count = np.unique(
            rows.thread, return_index=True, return_inverse=True, return_counts=True
        )
        above = count[lane] - (np.arange(len(rows.row)) - first[lane])
        low = above > max(LEAST, HELD // len(first))
        for thread in np.unique(rows.thread[low]).tolist():
            self._write(thread, _some(rows, low & (rows.thread == thread)))
        self._top = _some(rows, ~low)

    def _write(self, thread: int, rows: Open) -> None:
        with self._path.open("ab") as file:
            self._below[thread].append(_Block(file.tell(), len(rows.row)))
            np.stack(_columns(rows), dtype=np.int64).tofile(file)

    def _read(self, block: _Block) -> Open:
        count = len(_columns(NOTHING_OPEN))
        read = np.fromfile(self._path, np.int64, count * block.rows, offset=block.offset)
        return _open(list(read.reshape(count, block.rows)))


def _enclosing(block: Open, reach: Ints) -> Open:
    """Return the rows of a block that can be the innermost around an interval or instant.

    All rows of the block end within the window, or are covered by a row of it: others are not needed again.
    """
    wanted = np.unique(np.concatenate((reach, reach + 1)))  # the end of an empty one is after its start
    place = np.searchsorted(block.end[::-1], wanted)
    return _some(block, len(block.end) - 1 - np.unique(place[place < len(block.end)])[::-1])


def _columns(rows: Open) -> list[Ints]:
    return [rows.thread, rows.start, rows.end, rows.row, rows.depth, *rows.inherited.columns]


def _open(columns: list[Ints]) -> Open:
    thread, start, end, row, depth, *inherited = columns
    return Open(thread=thread, start=start, end=end, row=row, depth=depth, inherited=Inherited(*inherited))


def _some(rows: Open, chosen: Ints | Bools) -> Open:
    return _open([column[chosen] for column in _columns(rows)])
