"""Clocks of ranks aligned: the same index, lanes, notes and rows, with the offset of each rank subtracted.

Everything that goes by position reads the shifted arrays, so drawing, searching and summing need no offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np
from tracekit.analyses.shared.clocks import ClockOffset, clock_offsets

from tracekit.runs.run import Run
from tracekit.schema import C

from ..site import Results, parse_row
from .index import Index
from .interval_notes import Note
from .levels import Levels

Offsets: TypeAlias = Mapping[int, int]
"""Offset in ns by rank; ranks without one are not shifted."""
MAX_ALIGNED = 2
"""Maximum aligned indexes that are kept; one of 5 million intervals takes 40 MB."""


@dataclass(frozen=True)
class Clocks:
    """Offsets and aligned indexes of runs."""

    _offsets: Results = field(default_factory=lambda: Results(capacity=16))
    _indexes: Results = field(default_factory=lambda: Results(capacity=MAX_ALIGNED))

    def of(self, run: Run) -> tuple[ClockOffset, ...]:
        """Return the offsets of a run's ranks; empty if no collectives are matched."""
        return self._offsets.get(run.path, lambda: clock_offsets(run))

    def offsets(self, run: Run) -> Offsets:
        """Return the offsets by rank."""
        return {clock.rank: clock.offset_ns for clock in self.of(run)}

    def align(self, run: Run, index: Index) -> Index:
        """Return the index of a run with aligned clocks."""
        return self._indexes.get(run.path, lambda: align_index(index, self.offsets(run)))

    def describe(self, run: Run) -> dict[str, Any]:
        """Return the offsets as sent to clients."""
        clocks = self.of(run)
        known = {clock.rank for clock in clocks}
        without = [rank for rank in run.ranks if rank not in known] if clocks else []
        return {"ranks": [msgspec.to_builtins(clock) for clock in clocks], "without": without}


def align_index(index: Index, offsets: Offsets) -> Index:
    """Return an index with the offset of its rank subtracted from each start."""
    start = np.array(index.start)
    for lane in index.lanes:  # a lane is of one rank, so its order stays
        start[lane.at : lane.at + lane.rows] -= offsets.get(lane.track.rank, 0)
    return replace(index, start=start)


def align_levels(levels: Sequence[Levels], offsets: Offsets) -> tuple[Levels, ...]:
    """Return lanes of memory and counters with the offset of their rank subtracted from each time."""
    return tuple(
        lane if lane.rank is None else replace(lane, t_ns=lane.t_ns - offsets.get(lane.rank, 0))
        for lane in levels
    )


def shift_note(note: Note, index: Index, offsets: Offsets, *, sign: int) -> Note:
    """Return a note on an interval at the place where it is shown (`sign` -1) or recorded (1).

    Other notes are about times of the reference, which is not shifted.
    """
    row = parse_row(note.row)
    position = int(index.position(row[0], np.array([row[1]]))[0]) if row else -1
    if position < 0:
        return note
    lane = index.lanes[int(index.lane_at(np.array([position]))[0])]
    by = sign * offsets.get(lane.track.rank, 0)
    return msgspec.structs.replace(note, from_ns=note.from_ns + by, to_ns=note.to_ns + by)


def align_step(step: Mapping[Any, Any], offsets: Offsets) -> int:
    """Return the start of a row of `steps`."""
    return int(step[C.START_NS]) - offsets.get(int(step[C.RANK]), 0)
