"""Read spooled tables in order of time, window by window.

Every part is sorted by time, so the rows of a window are one range of each overlapping part. Borders of
windows come from times sampled in every part, so all rows of one instant are in one window. Only if they are
too many for one are they divided.

Damaged clocks and hostile traces have millions of rows of one time. Each part's rows of the instant are
sorted and spooled again, as a run. Marks, sampled from all runs, divide every run into slices: the rows
between two marks are few, and those that equal a mark keep the order of the file: they can be cut anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.part_files import RowRange, SpooledTable
from tracekit.ingest.spool.rows import AnyInts, Batch, Ints, Rows, concatenate_rows, distinct

WINDOW_ROWS = 1 << 16
"""Approximate number of rows of a window."""
MAX_WINDOWS = 2
"""Limit of the rows of a window, as a multiple of `WINDOW_ROWS`."""
_STRIDE = 64  # rows of a part per sampled time, if windows are large


class SortedColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a table to be read in their final order.

    A window has the rows that start in a stretch of time. Without an `order` they are not sorted by time, but
    come part by part, as they were spooled.
    """

    table: SpooledTable
    columns: Sequence[str]  # the columns; those that were not spooled are left out
    # positions that sort rows, by time first; None if the order of a window's rows is irrelevant
    order: Callable[[Rows], AnyInts] | None = None

    def read(self, ranges: Sequence[RowRange]) -> Rows:
        """Read ranges of rows, and sort them."""
        return self.sort(self.table.read(ranges, self.columns))

    def sort(self, rows: Rows) -> Rows:
        """Sort rows; equal ones keep their order."""
        return rows if self.order is None else rows.take(self.order(rows))


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The next rows of some tables."""

    rows: tuple[Rows, ...]  # the rows of each table
    until: int | None  # instant in ns before which no later row starts; None in the last window


def windows(tables: Sequence[SortedColumns]) -> Iterator[Window]:
    """Yield windows over tables that are read together, in order of time; none if they have no rows.

    If an instant is divided, the rows of each table precede those of the tables after it.
    """
    max_rows = MAX_WINDOWS * WINDOW_ROWS
    if not any(columns.table.rows for columns in tables):
        return
    borders = _borders([columns.table for columns in tables])
    ranges_by_window = [_ranges_by_window(columns.table, borders) for columns in tables]
    begins = [None, *borders.tolist()]
    for number, (begin, until) in enumerate(zip(begins, [*begins[1:], None], strict=True)):
        ranges = [by_window.pop(number, []) for by_window in ranges_by_window]
        if begin is not None and sum(map(_count, ranges)) > max_rows:
            for place, columns in enumerate(tables):
                equal, ranges[place] = _split_at(columns, ranges[place], begin)
                for rows in _sorted_chunks(columns, equal, begin, WINDOW_ROWS):
                    nothing = Rows(count=0, columns={})
                    of_tables = (rows if number == place else nothing for number in range(len(tables)))
                    yield Window(rows=tuple(of_tables), until=begin)
        yield Window(rows=tuple(map(SortedColumns.read, tables, ranges)), until=until)


def _stride() -> int:
    return max(1, min(_STRIDE, WINDOW_ROWS // _STRIDE))


def _borders(tables: Sequence[SpooledTable]) -> Ints:
    """Return the starts of the windows after the first."""
    if sum(table.rows for table in tables) <= WINDOW_ROWS:
        return np.empty(0, np.int64)
    stride = _stride()
    # other offsets in each part, so that samples of interleaved parts differ; a view would keep all times
    sampled = [table.times(part)[part % stride :: stride].copy() for table in tables for part in table.parts]
    interval = max(1, WINDOW_ROWS // stride)
    return distinct(np.sort(np.concatenate(sampled))[interval::interval])


def _ranges_by_window(table: SpooledTable, borders: Ints) -> defaultdict[int, list[RowRange]]:
    """Return the ranges of each window that has rows, by its number."""
    ranges: defaultdict[int, list[RowRange]] = defaultdict(list)
    for part, extent in enumerate(table.extents):
        first, last = np.searchsorted(borders, [extent.first, extent.last], side="right").tolist()
        if first == last:
            ranges[first].append(table.whole_part(part))
            continue
        inner = np.searchsorted(table.times(part), borders[first:last]).tolist()
        edges = [0, *inner, extent.rows]
        for window, start, stop in zip(range(first, last + 1), edges, edges[1:], strict=False):
            if start < stop:
                ranges[window].append(RowRange(part=part, first=start, stop=stop))
    return ranges


def _count(ranges: Sequence[RowRange]) -> int:
    """Return the number of rows of ranges."""
    return sum(rows.stop - rows.first for rows in ranges)


def _split_at(
    columns: SortedColumns, ranges: Sequence[RowRange], instant: int
) -> tuple[list[RowRange], list[RowRange]]:
    """Divide ranges of rows that start at an instant or after it into those at it and those after it."""
    equal, later = [], []
    for rows in ranges:
        times = columns.table.times(rows.part)[rows.first : rows.stop]
        end = rows.first + int(np.searchsorted(times, instant, side="right"))
        equal += _range(rows.part, rows.first, end)
        later += _range(rows.part, end, rows.stop)
    return equal, later


def _range(part: int, first: int, stop: int) -> list[RowRange]:
    return [RowRange(part=part, first=first, stop=stop)] if first < stop else []


def _sorted_chunks(
    columns: SortedColumns, ranges: Sequence[RowRange], instant: int, size: int
) -> Iterator[Rows]:
    """Yield the rows of an instant in their final order, about `size` of them at a time."""
    if columns.order is None:
        yield from map(columns.read, _cut(ranges, size))
    elif _count(ranges) <= size:
        yield from [columns.read(ranges)] if ranges else []
    else:
        runs, marks = _spool_runs(columns, ranges, instant, size)
        cut_points = [_cut_points(columns, runs, part, marks) for part in runs.parts]
        for chunk in _slices(cut_points, size):
            yield columns.sort(runs.read(chunk, columns.columns))


def _cut(ranges: Sequence[RowRange], size: int) -> Iterator[list[RowRange]]:
    """Cut ranges into lists of `size` rows, without changing their order."""
    chunk: list[RowRange] = []
    for rows in ranges:
        first = rows.first
        while first < rows.stop:
            stop = min(rows.stop, first + size - _count(chunk))
            chunk.append(RowRange(part=rows.part, first=first, stop=stop))
            first = stop
            if _count(chunk) == size:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _spool_runs(
    columns: SortedColumns, ranges: Sequence[RowRange], instant: int, size: int
) -> tuple[SpooledTable, Rows]:
    """Spool the rows of each range again, sorted; return these runs, and the marks."""
    table, stride = columns.table, _stride()
    name = f"{table.name}@{instant}"
    samples = []
    for number, rows in enumerate(ranges):
        run = columns.read([rows])
        part_files.write_batches(table.directory, number, {name: Batch(run)})
        samples.append(run.take(np.arange(number % stride, run.count, stride)))
    sampled = columns.sort(concatenate_rows(samples))
    interval = max(1, size // stride)
    marks = sampled.take(np.arange(interval, sampled.count, interval))
    return SpooledTable(table.directory, name), marks


def _cut_points(columns: SortedColumns, runs: SpooledTable, part: int, marks: Rows) -> list[int]:
    """Return where a run is cut: at its start, before and after the rows that equal each mark, at its end."""
    rows = runs.read([runs.whole_part(part)], columns.columns)
    assert columns.order  # noqa: S101 (otherwise nothing is sorted)
    # a stable sort keeps rows that equal a mark between its two copies, so their positions are the cuts
    order = columns.order(concatenate_rows([marks, rows, marks]))
    is_row = (order >= marks.count) & (order < marks.count + rows.count)
    rows_before = np.empty(len(order), np.int64)
    rows_before[order] = np.cumsum(is_row)
    cuts = np.stack((rows_before[: marks.count], rows_before[marks.count + rows.count :]), axis=1).ravel()
    points: list[int] = np.maximum.accumulate(np.concatenate(([0], cuts, [rows.count]))).tolist()
    return points


def _slices(cut_points: Sequence[list[int]], size: int) -> Iterator[list[RowRange]]:
    """Yield the ranges of each slice of all runs, in order; every second slice has rows that equal a mark."""
    for number, bounds in enumerate(zip(*map(pairwise, cut_points), strict=True)):
        ranges = [rows for part, (first, stop) in enumerate(bounds) for rows in _range(part, first, stop)]
        equal_to_mark = number % 2 == 1
        yield from _cut(ranges, size) if equal_to_mark else [ranges] if ranges else []
