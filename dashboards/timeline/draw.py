"""What a range of time looks like: the intervals themselves where they are few, else what each pixel has."""

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
"""Intervals in the whole answer up to which each of them is sent."""
SOME = 100
"""A lane with no more than these is sent exactly in any answer."""
FULL = 255
LEVELS = "levels"


@dataclass(frozen=True, kw_only=True)
class Window:
    """A range of time and the pixel columns it is drawn in.

    Column `c` of `width` is from `start + c · (end − start) // width` up to the start of the next.
    """

    start: int
    end: int
    width: int

    @property
    def edges(self) -> Ints:
        """Start of each column, and the end of the last."""
        span = self.end - self.start
        whole, rest = divmod(span, self.width)
        column = np.arange(self.width + 1, dtype=np.int64)
        return self.start + column * whole + column * rest // self.width


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One lane as it is drawn.

    Attributes:
        lane: Its number.
        mode: What the arrays are of: `exact` of intervals, `density` of pixel columns, `levels` of memory.
        arrays: By the names that the wire format gives them; `name` holds numbers of all names of the run.
    """

    lane: int
    mode: str
    arrays: dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Columns of several lanes in which something is: lane, column, first and last position, busy."""

    lane: Ints
    column: Ints
    first: Ints
    last: Ints
    busy: Ints


def drawing(index: Index, levels: Sequence[Levels], wanted: Sequence[int], window: Window) -> list[Drawn]:
    """Lanes of intervals and, numbered after them, those of memory, in the order asked for."""
    count = len(index.lanes)
    bars = draw(index, [index.lanes[one] for one in wanted if one < count], window)
    found = {one.lane: one for one in bars}
    for one in wanted:
        if one >= count:
            found[one] = Drawn(lane=one, mode=LEVELS, arrays=memory.drawn(levels[one - count], window))
    return [found[one] for one in wanted]


def draw(index: Index, lanes: Sequence[Lane], window: Window) -> list[Drawn]:
    """Lanes in a window, in the order asked for.

    Every interval is sent when the lanes hold `EXACT` or fewer in the window. Otherwise a lane is sent
    exactly when it holds no more than its part of these (`EXACT` over the number of lanes), or than `SOME`.
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
            **_told(index, at),
        },
    )


def _told(index: Index, at: Ints) -> dict[str, Array]:
    """Row, name and category of the intervals at positions."""
    label = index.labels(at)
    return {
        "row": index.row[at],
        "name": index.names.name_of[label],
        "category": index.names.category_of[label],
    }


def _dense(index: Index, lanes: Sequence[Lane], window: Window) -> dict[int, Drawn]:
    """Pixel columns of lanes, by lane; all at once, since each step costs about the same for few and many."""
    found = _columns(index, lanes, window)
    longest = peaks.longest(index.peaks, index.duration, found.first, found.last)
    arrays: dict[str, Array] = {
        "column": found.column.astype(np.uint16),
        "busy": found.busy.astype(np.uint8),
        **_told(index, longest),
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
    """Which columns of which lanes show something, which intervals touch them, and how busy they are."""
    edges = window.edges
    begun = np.stack(
        [lane.at + np.searchsorted(index.start[lane.at : lane.at + lane.rows], edges) for lane in lanes]
    )
    lowest = np.array([[lane.at] for lane in lanes])
    covered, running = _covered(index, begun, lowest, edges)
    first, last = begun[:, :-1] - running[:, :-1], begun[:, 1:] - 1
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


def _covered(index: Index, begun: Ints, lowest: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """How much of each lane is covered before each edge, and whether an interval runs across the edge."""
    before = np.maximum(begun - 1, lowest)
    over = np.where(begun > lowest, index.start[before] + index.duration(before) - edges, 0)
    over = np.maximum(over, 0)
    return index.total[begun] - over, (over > 0).astype(np.int64)
