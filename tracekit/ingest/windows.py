"""Rows of parked tables in order of time, a window at a time, however their parts lie.

Every part is sorted by time, so the rows of a window are one slice of each part that reaches into it. Borders
come from times sampled in every part; all rows of one instant are in one window.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.spool import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tracekit.ingest.spool import Parked

    Ints = npt.NDArray[np.int64]

ROWS = 1 << 18
"""About how many rows a window has."""
_SAMPLES = 1 << 17


@dataclass(frozen=True, kw_only=True)
class Window:
    """The rows of some tables between two instants.

    Attributes:
        spans: For each table, which rows of which parts these are.
        until: The first instant that is too late; None in the last window.
    """

    spans: tuple[list[Span], ...]
    until: int | None


def windows(tables: Sequence[Parked]) -> Iterator[Window]:
    """Windows over tables that are read beside each other, in order of time; none when they have no rows."""
    if not any(table.rows for table in tables):
        return
    borders = _borders(tables)
    cut = [_cut(table, borders) for table in tables]
    for number, until in enumerate([*borders.tolist(), None]):
        yield Window(spans=tuple(spans.pop(number, []) for spans in cut), until=until)


def _borders(tables: Sequence[Parked]) -> Ints:
    """First instants of the windows behind the first one."""
    rows = sum(table.rows for table in tables)
    if rows <= ROWS:
        return np.empty(0, np.int64)
    stride = max(1, min(rows // _SAMPLES, ROWS))
    sampled = [table.times(number)[::stride] for table in tables for number in table.parts]
    every = max(1, ROWS // stride)
    return np.unique(np.sort(np.concatenate(sampled))[every::every])


def _cut(table: Parked, borders: Ints) -> defaultdict[int, list[Span]]:
    """The spans of each window that has any."""
    found: defaultdict[int, list[Span]] = defaultdict(list)
    for number in table.parts:
        if not len(borders):
            found[0].append(table.whole(number))
            continue
        edges = [0, *np.searchsorted(table.times(number), borders).tolist(), table.lengths[number]]
        for window in np.flatnonzero(np.diff(edges)).tolist():
            found[window].append(Span(part=number, first=edges[window], stop=edges[window + 1]))
    return found
