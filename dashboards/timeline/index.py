"""The index of a run's intervals: by lane and start, ready to be searched, 27 bytes an interval.

An interval takes 8 bytes for its start, 8 for the sum of the durations before it (its duration is the
difference to the next), 4 for its row, 4 for its label and 2.9 for the pyramid of longest intervals. The
arrays are in memory or mapped from files; either way they are never written once the index is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracekit.schema import C

from .lanes import IDLE, TABLES, Lane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.intervals import Ints

    from .causes import Causes
    from .peaks import Peaks

    Numbers = npt.NDArray[np.uint32]

NOWHERE = np.uint32(0xFFFF_FFFF)


@dataclass(frozen=True, kw_only=True)
class Names:
    """Distinct names, and the labels that pair them with categories.

    Attributes:
        texts: The names.
        name_of: The name of each label.
        category_of: The category of each label.
        idle: The label of idle time of each cause.
    """

    texts: list[str]
    name_of: npt.NDArray[np.uint32]
    category_of: npt.NDArray[np.uint8]
    idle: dict[str, int]

    @cached_property
    def lowered(self) -> list[str]:
        """The names as they are searched."""
        return [text.casefold() for text in self.texts]


@dataclass(frozen=True, kw_only=True)
class Index:
    """All intervals of a run that are in a lane.

    Attributes:
        lanes: In the order in which they are shown.
        names: Names and labels.
        start: Start of each interval; those of a lane lie together, by start.
        total: Sum of the durations before each interval, and at the end of all.
        row: Row of each interval in its table; of a step its place there.
        label: Label of each interval; of idle time the cause is in `causes`.
        peaks: The pyramid over the durations.
        causes: Why the devices were idle, once that is known.
        left_out: Intervals for which there was no lane.
    """

    lanes: tuple[Lane, ...]
    names: Names
    start: Ints
    total: Ints
    row: Numbers
    label: Numbers
    peaks: Peaks
    causes: Causes
    left_out: int = 0

    def duration(self, at: Ints) -> Ints:
        """Durations at positions."""
        lengths: Ints = self.total[at + 1] - self.total[at]
        return lengths

    def labels(self, at: Ints) -> Numbers:
        """Labels at positions, with the causes of idle time as far as they are known."""
        return self.causes.over(self.label[at], at)

    @cached_property
    def span(self) -> tuple[int, int]:
        """First start and last end; the same twice without any interval."""
        firsts = [int(self.start[lane.at]) for lane in self.lanes]
        lasts = [self.interval(lane.at + lane.rows - 1)[1] for lane in self.lanes]
        return (min(firsts), max(lasts)) if firsts else (0, 0)

    def interval(self, at: int) -> tuple[int, int]:
        """Start and end of one interval."""
        start = int(self.start[at])
        return start, start + int(self.total[at + 1] - self.total[at])

    def within(self, lane: Lane, start: int, end: int) -> tuple[int, int]:
        """Positions of the lane's first interval in a range of time and after its last one.

        An interval is in the range when they share an instant; one of no length when it starts in it.
        """
        own = self.start[lane.at : lane.at + lane.rows]
        first, after = (lane.at + int(place) for place in np.searchsorted(own, [start, end]))
        if first > lane.at and self.interval(first - 1)[1] > start:
            first -= 1
        return first, after

    def lane_at(self, at: Ints) -> Ints:
        """Lane of each position."""
        bounds, lanes = self._bounds
        return lanes[np.searchsorted(bounds, at, side="right") - 1]

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        stored = sorted(self.lanes, key=lambda lane: lane.at)
        return np.array([lane.at for lane in stored], np.int64), np.array([lane.id for lane in stored])

    def stored(self, table: str) -> Iterator[Lane]:
        """Lanes of a table's rows, by position."""
        return (lane for lane in sorted(self.lanes, key=lambda lane: lane.at) if lane.table == table)

    def position(self, table: str, rows: Ints) -> Ints:
        """Position of each row of a table; -1 for rows that are in no lane."""
        lookup = self._positions.get(table)
        if lookup is None:
            return np.full(len(rows), -1, np.int64)
        inside = (rows >= 0) & (rows < len(lookup))
        found = lookup[np.where(inside, rows, 0)]
        return np.where(inside & (found != NOWHERE), found.astype(np.int64), -1)

    @cached_property
    def _positions(self) -> dict[str, Numbers]:
        found: dict[str, Numbers] = {}
        for table in set(TABLES.values()):
            parts = [range(lane.at, lane.at + lane.rows) for lane in self.stored(table)]
            if not parts:
                continue
            first, after = parts[0].start, parts[-1].stop  # lanes of a table lie together
            rows = self.row[first:after]
            found[table] = np.full(int(rows.max()) + 1, NOWHERE, np.uint32)
            found[table][rows] = np.arange(first, after, dtype=np.uint32)
        return found

    def reference(self, at: int) -> dict[str, Any]:
        """One interval as clients are told of it: where it is, what it is called, when it was."""
        start, end = self.interval(at)
        lane = self.lanes[int(self.lane_at(np.array([at]))[0])]
        label = int(self.labels(np.array([at]))[0])
        name, category = self.names.name_of[label], self.names.category_of[label]
        place = {"table": lane.table, "row": int(self.row[at]), "lane": lane.id}
        told = {"name": self.names.texts[int(name)], "category": int(category)}
        return {**place, **told, C.START_NS: start, "end_ns": end, C.DUR_NS: end - start}

    @property
    def idle(self) -> range:
        """Positions of the idle intervals, which lie together."""
        found = [lane for lane in self.stored(TABLES[IDLE]) if lane.track.kind == IDLE]
        return range(found[0].at, found[-1].at + found[-1].rows) if found else range(0)
