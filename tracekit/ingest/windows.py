"""Rows of parked tables in order of time, a window at a time, however their parts lie.

Every part is sorted by time, so the rows of a window are one slice of each part that reaches into it. Borders
come from times sampled in every part; all rows of one instant are in one window.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tracekit.ingest.order import distinct
from tracekit.ingest.spool import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tracekit.ingest.outline import Outline

    Ints = npt.NDArray[np.int64]

ROWS = 1 << 16
"""About how many rows a window has."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of some tables between two instants.

    Attributes:
        spans: For each table, which rows of which parts these are.
        until: The first instant that is too late; None in the last window.
    """

    spans: tuple[list[Span], ...]
    until: int | None


def windows(tables: Sequence[Outline]) -> Iterator[Window]:
    """Windows over tables that are read beside each other, in order of time; none when they have no rows."""
    if not any(table.rows for table in tables):
        return
    borders = _borders(tables)
    cut = [_cut(table, borders) for table in tables]
    for number, until in enumerate([*borders.tolist(), None]):
        yield Window(spans=tuple(spans.pop(number, []) for spans in cut), until=until)


def _borders(tables: Sequence[Outline]) -> Ints:
    """First instants of the windows behind the first one."""
    if sum(table.rows for table in tables) <= ROWS:
        return np.empty(0, np.int64)
    every = max(1, ROWS // tables[0].stride)
    return distinct(np.sort(np.concatenate([table.sampled for table in tables]))[every::every])


def _cut(table: Outline, borders: Ints) -> defaultdict[int, list[Span]]:
    """The spans of each window that has any."""
    found: defaultdict[int, list[Span]] = defaultdict(list)
    begin = np.searchsorted(borders, table.first, side="right").tolist()
    end = np.searchsorted(borders, table.last, side="right").tolist()
    for part, (first, last) in enumerate(zip(begin, end, strict=True)):
        if first == last:
            found[first].append(table.whole(part))
            continue
        inner = np.searchsorted(table.parked.times(part), borders[first:last]).tolist()
        edges = [0, *inner, table.lengths[part]]
        for window, start, stop in zip(range(first, last + 1), edges, edges[1:], strict=False):
            if start < stop:
                found[window].append(Span(part=part, first=start, stop=stop))
    return found
