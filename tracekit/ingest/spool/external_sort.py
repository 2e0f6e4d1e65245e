"""External sort of the rows of one instant that are too many for a window.

Damaged clocks and hostile traces have millions of rows of one time. Each part's rows of the instant are
sorted and spooled again, as a run. Marks, sampled from all runs, divide every run into slices: the rows
between two marks are few, and those that equal a mark keep the order of the file: they can be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.part_files import RowRange, SpooledTable
from tracekit.ingest.spool.rows import Batch, Rows, concatenate_rows
from tracekit.ingest.spool.table_index import SortedColumns


def count(ranges: Sequence[RowRange]) -> int:
    """Return the number of rows of ranges.

    Example:
        >>> count([RowRange(part=0, first=2, stop=5), RowRange(part=1, first=0, stop=1)])
        4
    """
    return sum(rows.stop - rows.first for rows in ranges)


def split_at(
    columns: SortedColumns, ranges: Sequence[RowRange], instant: int
) -> tuple[list[RowRange], list[RowRange]]:
    """Divide ranges into the rows at an instant and those after it.

    Args:
        columns: Columns of the table.
        ranges: Rows that start at the instant, or after it.
        instant: The instant, ns.
    """
    equal, later = [], []
    for rows in ranges:
        times = columns.table.spooled.times(rows.part)[rows.first : rows.stop]
        end = rows.first + int(np.searchsorted(times, instant, side="right"))
        equal += _range(rows.part, rows.first, end)
        later += _range(rows.part, end, rows.stop)
    return equal, later


def _range(part: int, first: int, stop: int) -> list[RowRange]:
    return [RowRange(part=part, first=first, stop=stop)] if first < stop else []


def sorted_chunks(
    columns: SortedColumns, ranges: Sequence[RowRange], instant: int, size: int
) -> Iterator[Rows]:
    """Yield the rows of an instant in their final order, about `size` of them at a time.

    Args:
        columns: Columns of the table.
        ranges: The rows of the instant.
        instant: The instant in ns, which names the runs in the spool.
        size: Approximate number of rows of a chunk.
    """
    if columns.order is None:
        yield from map(columns.read, _cut(ranges, size))
    elif count(ranges) <= size:
        yield from [columns.read(ranges)] if ranges else []
    else:
        runs, marks = _spool_runs(columns, ranges, instant, size)
        cut_points = [_cut_points(columns, runs, part, marks) for part in runs.parts]
        for chunk in _slices(cut_points, size):
            yield columns.sort(runs.read(chunk, columns.columns, {}))


def _cut(ranges: Sequence[RowRange], size: int) -> Iterator[list[RowRange]]:
    """Cut ranges into lists of `size` rows, without changing their order."""
    chunk: list[RowRange] = []
    for rows in ranges:
        first = rows.first
        while first < rows.stop:
            stop = min(rows.stop, first + size - count(chunk))
            chunk.append(RowRange(part=rows.part, first=first, stop=stop))
            first = stop
            if count(chunk) == size:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _spool_runs(
    columns: SortedColumns, ranges: Sequence[RowRange], instant: int, size: int
) -> tuple[SpooledTable, Rows]:
    """Spool the rows of each range again, sorted; return these runs, and the marks."""
    spooled, stride = columns.table.spooled, columns.table.stride
    name = f"{spooled.name}@{instant}"
    samples = []
    for number, rows in enumerate(ranges):
        run = columns.read([rows])
        part_files.write_batches(spooled.directory, number, {name: Batch(run)})
        samples.append(run.take(np.arange(number % stride, run.count, stride)))
    sampled = columns.sort(concatenate_rows(samples))
    every = max(1, size // stride)
    marks = sampled.take(np.arange(every, sampled.count, every))
    return SpooledTable(spooled.directory, name), marks


def _cut_points(columns: SortedColumns, runs: SpooledTable, part: int, marks: Rows) -> list[int]:
    """Return where a run is cut: at its start, before and after the rows that equal each mark, at its end."""
    rows = runs.read([RowRange(part=part, first=0, stop=runs.extents[part].rows)], columns.columns, {})
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
