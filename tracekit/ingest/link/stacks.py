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

from tracekit.ingest.link.nesting import Bools, Ints
from tracekit.ingest.link.nesting_windows import NO_OPEN_ROWS, Inherited, OpenRows

MAX_HELD_ROWS = 1 << 16
"""Rows in memory after a window, of all threads."""
MIN_ROWS_PER_THREAD = 16
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
        self._top = NO_OPEN_ROWS
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
        rows = _from_columns([np.concatenate(column) for column in zip(*map(_columns, pieces), strict=True)])
        return _select(rows, np.lexsort((rows.row, rows.thread)))

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
            self._write(thread, _select(rows, low & (rows.thread == thread)))
        self._top = _select(rows, ~low)

    def _write(self, thread: int, rows: OpenRows) -> None:
        with self._path.open("ab") as file:
            self._below[thread].append(_Block(file.tell(), len(rows.row)))
            np.stack(_columns(rows), dtype=np.int64).tofile(file)

    def _read(self, block: _Block) -> OpenRows:
        count = len(_columns(NO_OPEN_ROWS))
        read = np.fromfile(self._path, np.int64, count * block.rows, offset=block.offset)
        return _from_columns(list(read.reshape(count, block.rows)))


def _rows_around(block: OpenRows, reach: Ints) -> OpenRows:
    """Return the rows of a block that can be the innermost around an interval or instant.

    All rows of the block end within the window, or are covered by a row of it: others are not needed again.
    """
    wanted = np.unique(np.concatenate((reach, reach + 1)))  # the end of an empty one is after its start
    place = np.searchsorted(block.end[::-1], wanted)
    return _select(block, len(block.end) - 1 - np.unique(place[place < len(block.end)])[::-1])


def _columns(rows: OpenRows) -> list[Ints]:
    return [rows.thread, rows.start, rows.end, rows.row, rows.depth, *rows.inherited.columns]


def _from_columns(columns: list[Ints]) -> OpenRows:
    thread, start, end, row, depth, *inherited = columns
    return OpenRows(
        thread=thread, start=start, end=end, row=row, depth=depth, inherited=Inherited(*inherited)
    )


def _select(rows: OpenRows, chosen: Ints | Bools) -> OpenRows:
    return _from_columns([column[chosen] for column in _columns(rows)])
