"""Draw a time range: exact intervals if there are few, else a summary per pixel column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from . import memory, peaks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints

    from .index import Index
    from .lanes import Lane
    from .memory import Levels

    Array: TypeAlias = npt.NDArray[np.generic]

EXACT = 4_000
"""Maximum intervals in a response that are all sent exactly."""
SOME = 100
"""Lanes with up to this many intervals are always sent exactly."""
FULL = 255
LEVELS = "levels"


@dataclass(frozen=True, kw_only=True)
class Window:
    """A time range divided into pixel columns.

    Column `c` of `width` is from `start + c · (end − start) // width` up to the start of the next.
    """

    start: int
    end: int
    width: int

    @property
    def edges(self) -> Ints:
        """Start of each column, and end of the last."""
        span = self.end - self.start
        whole, rest = divmod(span, self.width)
        column = np.arange(self.width + 1, dtype=np.int64)
        return self.start + column * whole + column * rest // self.width


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A drawn lane.

    Attributes:
        lane: Lane number.
        mode: `exact` (intervals), `density` (pixel columns) or `levels` (memory).
        arrays: Arrays by their names in the wire format; `name` is an index into all names of the run.
    """

    lane: int
    mode: str
    arrays: dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Non-empty columns of several lanes: lane, column, first and last position, busy level."""

    lane: Ints
    column: Ints
    first: Ints
    last: Ints
    busy: Ints


def drawing(index: Index, levels: Sequence[Levels], wanted: Sequence[int], window: Window) -> list[Drawn]:
    """Draw interval lanes and memory lanes (numbered after them), in the requested order."""
    count = len(index.lanes)
    bars = draw(index, [index.lanes[one] for one in wanted if one < count], window)
    found = {one.lane: one for one in bars}
    for one in wanted:
        if one >= count:
            found[one] = Drawn(lane=one, mode=LEVELS, arrays=memory.drawn(levels[one - count], window))
    return [found[one] for one in wanted]


def draw(index: Index, lanes: Sequence[Lane], window: Window) -> list[Drawn]:
    """Draw interval lanes in a window, in the requested order.

    All lanes are exact if they have at most `EXACT` intervals in the window together. Otherwise a lane is
    exact if it has at most `EXACT` divided by the number of lanes, or `SOME`.
    """
    places = [index.within(lane, window.start, window.end) for lane in lanes]
    counts = [after - first for first, after in places]
    most = EXACT if sum(counts) <= EXACT else max(SOME, EXACT // len(lanes))
    dense = [lane for lane, count in zip(lanes, counts, strict=True) if count > most]
    columns = _dense(index, dense, window) if dense else {}
    return [
        columns.get(lane.id) or _exact(index, lane, first, after)
        for lane, (first, after) in zip(lanes, places, strict=True)
    ]


def _exact(index: Index, lane: Lane, first: int, after: int) -> Drawn:
    at = np.arange(first, after)
    return Drawn(
        lane=lane.id,
        mode="exact",
        arrays={
            "start": index.start[first:after].astype(np.float64),
            "dur": np.diff(index.total[first : after + 1]).astype(np.float64),
            **_attributes(index, at),
        },
    )


def _attributes(index: Index, at: Ints) -> dict[str, Array]:
    """Return row, name and category arrays of the intervals at positions."""
    label = index.labels(at)
    return {
        "row": index.row[at],
        "name": index.names.name_of[label],
        "category": index.names.category_of[label],
    }


def _dense(index: Index, lanes: Sequence[Lane], window: Window) -> dict[int, Drawn]:
    """Draw the pixel columns of several lanes at once, which is faster than one by one."""
    found = _columns(index, lanes, window)
    longest = peaks.longest(index.peaks, index.duration, found.first, found.last)
    arrays: dict[str, Array] = {
        "column": found.column.astype(np.uint16),
        "busy": found.busy.astype(np.uint8),
        **_attributes(index, longest),
        "count": (found.last - found.first + 1).astype(np.uint32),
    }
    bounds = np.searchsorted(found.lane, np.arange(len(lanes) + 1))
    return {
        lane.id: Drawn(
            lane=lane.id,
            mode="density",
            arrays={name: array[bounds[place] : bounds[place + 1]] for name, array in arrays.items()},
        )
        for place, lane in enumerate(lanes)
    }


def _columns(index: Index, lanes: Sequence[Lane], window: Window) -> _Columns:
    """Compute the non-empty columns, the intervals that touch them, and their busy levels."""
    edges = window.edges
    after_starts = np.stack(
        [lane.at + np.searchsorted(index.start[lane.at : lane.at + lane.rows], edges) for lane in lanes]
    )
    lowest = np.array([[lane.at] for lane in lanes])
    covered, running = _covered(index, after_starts, lowest, edges)
    first, last = after_starts[:, :-1] - running[:, :-1], after_starts[:, 1:] - 1
    lane, column = np.nonzero(last >= first)
    widths = np.diff(edges)[column]
    busy = np.diff(covered, axis=1)[lane, column]
    level = np.where(widths > 0, -(-busy * FULL // np.maximum(widths, 1)), FULL)
    return _Columns(
        lane=lane,
        column=column,
        first=first[lane, column],
        last=last[lane, column],
        busy=np.clip(level, 1, FULL),
    )


def _covered(index: Index, after_starts: Ints, lowest: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """Return the covered time before each edge, and whether an interval crosses the edge."""
    before = np.maximum(after_starts - 1, lowest)
    overhang = np.where(after_starts > lowest, index.start[before] + index.duration(before) - edges, 0)
    overhang = np.maximum(overhang, 0)
    return index.total[after_starts] - overhang, (overhang > 0).astype(np.int64)
