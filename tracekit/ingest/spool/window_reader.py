"""Read spooled tables in order of time, window by window.

Every part is sorted by time, so the rows of a window are one range of each overlapping part. Borders of
windows come from times sampled in every part, so all rows of one instant are in one window. Only if they are
too many for one are they divided: see `external_sort`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tracekit.ingest.spool import external_sort, table_index
from tracekit.ingest.spool.part_files import RowRange
from tracekit.ingest.spool.rows import Ints, Rows, distinct
from tracekit.ingest.spool.table_index import SortedColumns, TableIndex

MAX_WINDOWS = 2
"""Limit of the rows of a window, as a multiple of `table_index.WINDOW_ROWS`."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The next rows of some tables.

    Attributes:
        rows: The rows of each table.
        until: Instant in ns before which no later row starts; None in the last window.
    """

    rows: tuple[Rows, ...]
    until: int | None


def windows(tables: Sequence[SortedColumns]) -> Iterator[Window]:
    """Yield windows over tables that are read together, in order of time; none if they have no rows.

    If an instant is divided, the rows of each table precede those of the tables after it.
    """
    indexes, max_rows = [columns.table for columns in tables], MAX_WINDOWS * table_index.WINDOW_ROWS
    if not any(index.rows for index in indexes):
        return
    borders = _borders(indexes)
    ranges_by_window = [_ranges_by_window(index, borders) for index in indexes]
    begins = [None, *borders.tolist()]
    for number, (begin, until) in enumerate(zip(begins, [*begins[1:], None], strict=True)):
        ranges = [by_window.pop(number, []) for by_window in ranges_by_window]
        if begin is not None and sum(map(external_sort.count, ranges)) > max_rows:
            for place, columns in enumerate(tables):
                equal, ranges[place] = external_sort.split_at(columns, ranges[place], begin)
                for rows in external_sort.sorted_chunks(columns, equal, begin, table_index.WINDOW_ROWS):
                    yield Window(rows=_rows_of_one(tables, place, rows), until=begin)
        yield Window(rows=tuple(map(SortedColumns.read, tables, ranges)), until=until)


def _rows_of_one(tables: Sequence[SortedColumns], place: int, rows: Rows) -> tuple[Rows, ...]:
    return tuple(rows if number == place else columns.read([]) for number, columns in enumerate(tables))


def _borders(indexes: Sequence[TableIndex]) -> Ints:
    """Return the starts of the windows after the first."""
    if sum(index.rows for index in indexes) <= table_index.WINDOW_ROWS:
        return np.empty(0, np.int64)
    every = max(1, table_index.WINDOW_ROWS // indexes[0].stride)
    return distinct(np.sort(np.concatenate([index.sampled for index in indexes]))[every::every])


def _ranges_by_window(index: TableIndex, borders: Ints) -> defaultdict[int, list[RowRange]]:
    """Return the ranges of each window that has rows, by its number."""
    ranges: defaultdict[int, list[RowRange]] = defaultdict(list)
    first_windows = np.searchsorted(borders, index.first, side="right").tolist()
    last_windows = np.searchsorted(borders, index.last, side="right").tolist()
    for part, (first, last) in enumerate(zip(first_windows, last_windows, strict=True)):
        if first == last:
            ranges[first].append(index.whole_part(part))
            continue
        inner = np.searchsorted(index.spooled.times(part), borders[first:last]).tolist()
        edges = [0, *inner, index.lengths[part]]
        for window, start, stop in zip(range(first, last + 1), edges, edges[1:], strict=False):
            if start < stop:
                ranges[window].append(RowRange(part=part, first=start, stop=stop))
    return ranges
