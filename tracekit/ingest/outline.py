"""Read spooled tables in order of time, window by window.

Every part is sorted by time, so the rows of a window are one slice of each overlapping part. Borders of
windows come from times sampled in every part, so all rows of one instant are in one window. Only if they are
too many for one are they divided: see `crowded`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.ingest import crowded
from tracekit.ingest.rows import AnyInts, Rows, distinct
from tracekit.ingest.spool import Span, SpooledTable
from tracekit.ingest.text_columns import Collected, Strings

if TYPE_CHECKING:
    Ints = npt.NDArray[np.int64]

ROWS = 1 << 16
"""Approximate number of rows of a window."""


CROWDED = 2
"""Limit of the rows of a window, as a multiple of `ROWS`."""


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a table to be read in their final order.

    Attributes:
        table: The table.
        columns: The columns; those that were not spooled are left out.
        order: Positions that sort rows, by time first; None if the order of a window's rows is irrelevant.
    """

    table: Outline
    columns: Sequence[str]
    order: Callable[[Rows], AnyInts] | None = None

    def read(self, spans: Sequence[Span]) -> Rows:
        """Read spans of rows, and sort them."""
        return self.sorted(self.table.read(spans, self.columns))

    def sorted(self, rows: Rows) -> Rows:
        """Sort rows; equal ones keep their order."""
        return rows if self.order is None else rows.take(self.order(rows))


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The next rows of some tables.

    Attributes:
        rows: The rows of each table.
        until: Instant before which no later row starts; None in the last window.
    """

    rows: tuple[Rows, ...]
    until: int | None


def windows(tables: Sequence[Ordered]) -> Iterator[Window]:
    """Yield windows over tables that are read together, in order of time; none if they have no rows.

    If an instant is divided, the rows of each table precede those of the tables after it.
    """
    outlines = [each.table for each in tables]
    if not any(table.rows for table in outlines):
        return
    borders = _borders(outlines)
    cut = [_cut(table, borders) for table in outlines]
    begins = [None, *borders.tolist()]
    for number, (begin, until) in enumerate(zip(begins, [*begins[1:], None], strict=True)):
        spans = [held.pop(number, []) for held in cut]
        if begin is not None and sum(map(crowded.count, spans)) > CROWDED * ROWS:
            for place, table in enumerate(tables):
                here, spans[place] = crowded.at(table, spans[place], begin)
                for rows in crowded.pieces(table, here, begin, ROWS):
                    yield Window(rows=_only(tables, place, rows), until=begin)
        yield Window(rows=tuple(map(Ordered.read, tables, spans)), until=until)


def _only(tables: Sequence[Ordered], place: int, rows: Rows) -> tuple[Rows, ...]:
    return tuple(rows if at == place else table.read([]) for at, table in enumerate(tables))


def _borders(tables: Sequence[Outline]) -> Ints:
    """Return the starts of the windows after the first."""
    if sum(table.rows for table in tables) <= ROWS:
        return np.empty(0, np.int64)
    every = max(1, ROWS // tables[0].stride)
    return distinct(np.sort(np.concatenate([table.sampled for table in tables]))[every::every])


def _cut(table: Outline, borders: Ints) -> defaultdict[int, list[Span]]:
    """Yield the spans of each window that has rows."""
    found: defaultdict[int, list[Span]] = defaultdict(list)
    begin = np.searchsorted(borders, table.first, side="right").tolist()
    end = np.searchsorted(borders, table.last, side="right").tolist()
    for part, (first, last) in enumerate(zip(begin, end, strict=True)):
        if first == last:
            found[first].append(table.whole(part))
            continue
        inner = np.searchsorted(table.spooled.times(part), borders[first:last]).tolist()
        edges = [0, *inner, table.lengths[part]]
        for window, start, stop in zip(range(first, last + 1), edges, edges[1:], strict=False):
            if start < stop:
                found[window].append(Span(part=part, first=start, stop=stop))
    return found


_STRIDE = 64
"""Rows of a part per sampled time, if windows are large."""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A spooled table with its texts and sampled times.

    Attributes:
        spooled: The spooled table.
        texts: Its text columns.
        lengths: Rows of each part.
        first: First time of each part.
        last: Last time of each part.
        sampled: Time of every `stride`-th row.
        stride: Rows per sampled time.
    """

    spooled: SpooledTable
    texts: dict[str, Strings]
    lengths: list[int]
    first: Ints
    last: Ints
    sampled: Ints
    stride: int

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(self.lengths)

    def whole(self, part: int) -> Span:
        """Return the span of all rows of a part."""
        return Span(part=part, first=0, stop=self.lengths[part])

    def read(self, spans: Sequence[Span], columns: Sequence[str]) -> Rows:
        """Read spans of rows; columns that were not spooled are left out."""
        return self.spooled.read(spans, columns, self.texts)


def outlined(spooled: SpooledTable, *, texts: Sequence[str] | None = None) -> Outline:
    """Read the texts and sampled times of a spooled table.

    Args:
        spooled: The spooled table.
        texts: The text columns that will be read; all of them by default.
    """
    chosen = [name for name in spooled.texts if texts is None or name in texts]
    stride = max(1, min(_STRIDE, ROWS // _STRIDE))
    collected = {name: Collected() for name in chosen}
    sampled = [np.empty(0, np.int64)]
    for part in spooled.parts:
        own = spooled.texts_of(part) if chosen else {}
        for name in chosen:
            collected[name].add(own.get(name, []))
        # other offsets in each part, so that samples of interleaved parts differ; a view keeps all times
        sampled.append(spooled.times(part)[part % stride :: stride].copy())
    return Outline(
        spooled=spooled,
        texts={name: each.strings() for name, each in collected.items()},
        lengths=[head.rows for head in spooled.heads],
        first=np.array([head.first for head in spooled.heads], np.int64),
        last=np.array([head.last for head in spooled.heads], np.int64),
        sampled=np.concatenate(sampled),
        stride=stride,
    )
