"""Rows of one instant that are too many for a window: an external sort divides them.

Damaged clocks and hostile traces have millions of rows of one time. Each part's rows of the instant are
sorted and spooled again, as a run. Marks, sampled from all runs, divide every run into slices: the rows
between two marks are few, and those that equal a mark keep the order of the file: they can be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest import spool
from tracekit.ingest.rows import Batch, Rows, joined
from tracekit.ingest.spool import Span, SpooledTable

if TYPE_CHECKING:
    from tracekit.ingest.outline import Ordered


def count(spans: Sequence[Span]) -> int:
    """Return the number of rows of spans.

    Example:
        >>> count([Span(part=0, first=2, stop=5), Span(part=1, first=0, stop=1)])
        4
    """
    return sum(span.stop - span.first for span in spans)


def at(table: Ordered, spans: Sequence[Span], instant: int) -> tuple[list[Span], list[Span]]:
    """Divide spans that start at an instant, or after it, into the rows at the instant and those after it."""
    here, later = [], []
    for span in spans:
        times = table.table.spooled.times(span.part)[span.first : span.stop]
        end = span.first + int(np.searchsorted(times, instant, side="right"))
        here += _span(span.part, span.first, end)
        later += _span(span.part, end, span.stop)
    return here, later


def _span(part: int, first: int, stop: int) -> list[Span]:
    return [Span(part=part, first=first, stop=stop)] if first < stop else []


def pieces(table: Ordered, spans: Sequence[Span], instant: int, size: int) -> Iterator[Rows]:
    """Yield the rows of an instant in their final order, about `size` of them at a time.

    Args:
        table: The table.
        spans: The rows of the instant.
        instant: The instant, which names the runs in the spool.
        size: Approximate number of rows of a piece.
    """
    if table.order is None:
        yield from map(table.read, _cut(spans, size))
    elif count(spans) <= size:
        yield from [table.read(spans)] if spans else []
    else:
        runs, marks = _runs(table, spans, instant, size)
        for some in _slices([_edges(table, runs, part, marks) for part in runs.parts], size):
            yield table.sorted(runs.read(some, table.columns, {}))


def _cut(spans: Sequence[Span], size: int) -> Iterator[list[Span]]:
    """Cut spans into lists of `size` rows, without changing their order."""
    piece: list[Span] = []
    for span in spans:
        first = span.first
        while first < span.stop:
            stop = min(span.stop, first + size - count(piece))
            piece.append(Span(part=span.part, first=first, stop=stop))
            first = stop
            if count(piece) == size:
                yield piece
                piece = []
    if piece:
        yield piece


def _runs(table: Ordered, spans: Sequence[Span], instant: int, size: int) -> tuple[SpooledTable, Rows]:
    """Spool the rows of each span again, sorted; return these runs, and the marks."""
    spooled, stride = table.table.spooled, table.table.stride
    name = f"{spooled.name}@{instant}"
    samples = []
    for number, span in enumerate(spans):
        rows = table.read([span])
        spool.write_batches(spooled.directory, number, {name: Batch(rows)})
        samples.append(rows.take(np.arange(number % stride, rows.count, stride)))
    sampled = table.sorted(joined(samples))
    every = max(1, size // stride)
    return spool.Index(spooled.directory).table(name), sampled.take(np.arange(every, sampled.count, every))


def _edges(table: Ordered, runs: SpooledTable, part: int, marks: Rows) -> list[int]:
    """Return where a run is cut: at its start, before and after the rows that equal each mark, at its end."""
    rows = runs.read([Span(part=part, first=0, stop=runs.heads[part].rows)], table.columns, {})
    assert table.order  # noqa: S101 (otherwise nothing is sorted)
    order = table.order(joined([marks, rows, marks]))  # equal rows keep their order: between the marks
    is_row = (order >= marks.count) & (order < marks.count + rows.count)
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(is_row)
    cuts = np.stack((before[: marks.count], before[marks.count + rows.count :]), axis=1).ravel()
    edges: list[int] = np.maximum.accumulate(np.concatenate(([0], cuts, [rows.count]))).tolist()
    return edges


def _slices(edges: Sequence[list[int]], size: int) -> Iterator[list[Span]]:
    """Yield the spans of each slice of all runs, in order."""
    for place in range(len(edges[0]) - 1):
        spans = list(chain(*(_span(part, own[place], own[place + 1]) for part, own in enumerate(edges))))
        equal = place % 2 == 1
        yield from _cut(spans, size) if equal else [spans] if spans else []
