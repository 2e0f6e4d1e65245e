"""Index of a run's intervals by lane and start; 27 bytes per interval.

An interval takes 8 bytes for its start, 8 for the sum of the durations before it (its duration is the
difference to the next), 4 for its row, 4 for its label and 2.9 for the pyramid of longest intervals. The
arrays are in memory or memory-mapped, and read-only.

Causes of idle time are of the `idle_gaps` analysis, which takes seconds on millions of rows: until it has
finished, idle intervals have no cause.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis.kernel_names import family
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from .peaks import Peaks
from .tracks import IDLE, LANE_TABLES, Lane

Numbers = npt.NDArray[np.uint32]

ANALYSIS, TABLE = "idle_gaps", "gaps"
NONE = -1


@dataclass(frozen=True, kw_only=True)
class IdleCauses:
    """Causes by idle interval, in index order."""

    first: int  # position of the first idle interval in the index
    label: Numbers  # label with the cause
    # blocking op as an index into `ops`; `NONE` if the analysis does not list the gap
    op: npt.NDArray[np.int32]
    host: Ints  # row of that op, or of the next op or launch, in `host_intervals`; `NONE` if unknown
    launch: Ints  # row of the next launch in `host_intervals`; `NONE` if unknown
    ops: list[str]  # names of blocking ops
    # source line of that op as an index into `sources`; `NONE` if it was not recorded
    source: npt.NDArray[np.int32]
    sources: list[str]  # source lines

    def arrays(self) -> dict[str, Any]:
        """Return the arrays to save."""
        texts = {name: np.frombuffer(json.dumps(getattr(self, name)).encode(), np.uint8) for name in _TEXTS}
        return {name: getattr(self, name) for name in _NUMBERS} | texts


_NUMBERS = ("label", "op", "host", "launch", "source")
_TEXTS = ("ops", "sources")


class CausesHolder:
    """Holder of a run's causes; empty until they are set, or if they are unavailable."""

    def __init__(self) -> None:
        self.explained: IdleCauses | None = None
        self.final = threading.Event()
        """Set when the causes are final."""

    def set_final(self, explained: IdleCauses | None) -> None:
        """Set the final causes; None if they are unavailable."""
        self.explained = explained
        self.final.set()

    def with_causes(self, labels: Numbers, positions: Ints) -> Numbers:
        """Replace labels of idle intervals by those with causes."""
        explained = self.explained
        if explained is None or not len(explained.label):
            return labels
        place = positions - explained.first
        idle = (place >= 0) & (place < len(explained.label))
        return np.where(idle, explained.label[np.where(idle, place, 0)], labels).astype(np.uint32)


def restore_causes(first: int, saved: dict[str, Any]) -> IdleCauses:
    """Restore the saved causes of the idle intervals that start at a position of the index."""
    texts = {name: json.loads(saved[name].tobytes()) for name in _TEXTS}
    return IdleCauses(first=first, **{name: saved[name] for name in _NUMBERS}, **texts)


NOWHERE = np.uint32(0xFFFF_FFFF)


@dataclass(frozen=True, kw_only=True)
class Names:
    """Distinct names, and labels (pairs of name and category)."""

    texts: list[str]  # the names
    name_of: npt.NDArray[np.uint32]  # name of each label
    category_of: npt.NDArray[np.uint8]  # category of each label
    idle: dict[str, int]  # label of idle time by cause

    @cached_property
    def lowered(self) -> list[str]:
        """Case-folded names, for searching."""
        return [text.casefold() for text in self.texts]

    @cached_property
    def families(self) -> list[str]:
        """Kernel family of each name, for searching."""
        return [family(text) for text in self.texts]


@dataclass(frozen=True, kw_only=True)
class Index:
    """All intervals of a run that have a lane."""

    lanes: tuple[Lane, ...]  # lanes in display order
    names: Names  # names and labels
    start: Ints  # start of each interval; contiguous per lane and sorted
    total: Ints  # sum of the durations before each interval, plus the overall sum
    row: Numbers  # row id of each interval in its table; row number for steps
    label: Numbers  # label of each interval; causes of idle time are in `causes`
    peaks: Peaks  # range-maximum pyramid over the durations
    causes: CausesHolder  # causes of idle time, once known
    left_out: int = 0  # number of intervals without a lane

    def duration(self, positions: Ints) -> Ints:
        """Return durations at positions."""
        lengths: Ints = self.total[positions + 1] - self.total[positions]
        return lengths

    def labels(self, positions: Ints) -> Numbers:
        """Return labels at positions, including known causes of idle time."""
        return self.causes.with_causes(self.label[positions], positions)

    @cached_property
    def span(self) -> tuple[int, int]:
        """First start and last end; (0, 0) without intervals."""
        firsts = [int(self.start[lane.at]) for lane in self.lanes]
        lasts = [self.interval(lane.at + lane.rows - 1)[1] for lane in self.lanes]
        return (min(firsts), max(lasts)) if firsts else (0, 0)

    def interval(self, position: int) -> tuple[int, int]:
        """Return start and end of an interval."""
        start = int(self.start[position])
        return start, start + int(self.total[position + 1] - self.total[position])

    def within(self, lane: Lane, start: int, end: int) -> tuple[int, int]:
        """Return the half-open range of positions of a lane's intervals in a time range.

        An interval is in the range if they overlap; an empty one if it starts in the range.

        Args:
            lane: The lane.
            start: Start of the range, in ns.
            end: End of the range, in ns.
        """
        starts = self.start[lane.at : lane.at + lane.rows]
        first, after = (lane.at + int(place) for place in np.searchsorted(starts, [start, end]))
        # intervals of a lane do not overlap: of those before, only the last can reach into the range
        if first > lane.at and self.interval(first - 1)[1] > start:
            first -= 1
        return first, after

    def lane_at(self, positions: Ints) -> Ints:
        """Return the lane of each position."""
        bounds, lanes = self._bounds
        return lanes[np.searchsorted(bounds, positions, side="right") - 1]

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        stored = sorted(self.lanes, key=lambda lane: lane.at)
        return np.array([lane.at for lane in stored], np.int64), np.array([lane.id for lane in stored])

    def lanes_of_table(self, table: str) -> Iterator[Lane]:
        """Return the lanes of a table, by position."""
        return (lane for lane in sorted(self.lanes, key=lambda lane: lane.at) if lane.table == table)

    def position(self, table: str, rows: Ints) -> Ints:
        """Return the position of each row of a table; -1 for rows without a lane."""
        lookup = self._positions.get(table)
        if lookup is None:
            return np.full(len(rows), -1, np.int64)
        inside = (rows >= 0) & (rows < len(lookup))
        positions = lookup[np.where(inside, rows, 0)]
        return np.where(inside & (positions != NOWHERE), positions.astype(np.int64), -1)

    @cached_property
    def _positions(self) -> dict[str, Numbers]:
        lookups: dict[str, Numbers] = {}
        for table in set(LANE_TABLES.values()):
            parts = [range(lane.at, lane.at + lane.rows) for lane in self.lanes_of_table(table)]
            if not parts:
                continue
            first, after = parts[0].start, parts[-1].stop  # lanes of a table are contiguous
            rows = self.row[first:after]
            lookups[table] = np.full(int(rows.max()) + 1, NOWHERE, np.uint32)
            lookups[table][rows] = np.arange(first, after, dtype=np.uint32)
        return lookups

    def reference(self, position: int) -> dict[str, Any]:
        """Return an interval as sent to clients."""
        start, end = self.interval(position)
        lane = self.lanes[int(self.lane_at(np.array([position]))[0])]
        label = int(self.labels(np.array([position]))[0])
        name, category = self.names.name_of[label], self.names.category_of[label]
        place = {"table": lane.table, "row": int(self.row[position]), "lane": lane.id}
        attributes = {"name": self.names.texts[int(name)], "category": int(category)}
        return {**place, **attributes, C.START_NS: start, "end_ns": end, C.DUR_NS: end - start}

    @property
    def idle(self) -> range:
        """Positions of the idle intervals, which are contiguous."""
        idle_lanes = [lane for lane in self.lanes_of_table(LANE_TABLES[IDLE]) if lane.track.kind == IDLE]
        return range(idle_lanes[0].at, idle_lanes[-1].at + idle_lanes[-1].rows) if idle_lanes else range(0)

    def causes_of(self, gaps: pd.DataFrame | None) -> IdleCauses:
        """Map the gaps of `idle_gaps` to the idle intervals."""
        idle = self.idle
        label = np.array(self.label[idle.start : idle.stop])
        op, source = np.full(len(idle), NONE, np.int32), np.full(len(idle), NONE, np.int32)
        host, launch = np.full(len(idle), NONE), np.full(len(idle), NONE)
        ops: list[str] = []
        sources: list[str] = []
        if gaps is not None and len(gaps):
            places = self.position("device_intervals", gaps[C.ROW_ID].to_numpy(np.int64)) - idle.start
            listed = (places >= 0) & (places < len(idle))
            gaps, places = gaps[listed], places[listed]
            label[places] = gaps["cause"].map(self.names.idle).fillna(label[0]).to_numpy(np.uint32)
            texts = gaps["op"].astype("category")
            op[places], ops = texts.cat.codes, [str(text) for text in texts.cat.categories]
            lines = gaps["source_line"].replace("", None).astype("category")
            source[places], sources = lines.cat.codes, [str(text) for text in lines.cat.categories]
            host[places] = gaps["host_row"].astype("Int64").fillna(NONE).to_numpy(np.int64)
            launch[places] = gaps[C.LAUNCH_ROW].astype("Int64").fillna(NONE).to_numpy(np.int64)
        numbers = {"label": label, "op": op, "host": host, "launch": launch, "source": source}
        return IdleCauses(first=idle.start, **numbers, ops=ops, sources=sources)
