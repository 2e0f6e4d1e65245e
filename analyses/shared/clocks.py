"""Offsets between the clocks of ranks, by the ends of collectives that all ranks end together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C

from .collective_kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from .collectives import (
    END_TOLERANCE_NS,
    END_TOLERANCE_SHARE,
    MatchedCollectives,
    match_collectives,
    read_collectives,
)
from .common import percentile

SYNCHRONIZING = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)
"""Kinds that no rank ends before all have arrived. The root of a broadcast or a sender may end earlier."""
MIN_AGREEING = 0.5
"""Share of the collectives of two ranks that must end together once their clocks are aligned."""


@dataclass(frozen=True)
class ClockOffset:
    """Offset of the clock of a rank."""

    rank: int  # the rank
    offset_ns: int  # its clock minus that of the reference, which is the lowest of these ranks
    spread_ns: int  # median distance of a collective from the offset
    collectives: int  # number of collectives that the offset is the median of; 0 for the reference


def clock_offsets(run: Run) -> tuple[ClockOffset, ...]:
    """Return the offsets of the ranks whose collectives are matched, by rank; empty without any.

    Ranks that share no process group with the reference are related to it by ranks between them. Ranks that
    are not related to it at all are left out.
    """
    if len(run.ranks) < 2:
        return ()
    rows = read_collectives(run)
    peers = rows[C.SRC_RANK].notna() | rows[C.DST_RANK].notna()
    matched, _ = match_collectives(rows[rows[C.KIND].isin(SYNCHRONIZING) & ~peers])
    return relate_ranks(matched)


def relate_ranks(matched: list[MatchedCollectives]) -> tuple[ClockOffset, ...]:
    """Return the offsets of ranks from their matched collectives, by rank; see `clock_offsets`."""
    neighbors: dict[int, list[tuple[int, ClockOffset]]] = {}
    for (first, other), clock in _compare_pairs(matched).items():
        back = ClockOffset(first, -clock.offset_ns, clock.spread_ns, clock.collectives)
        neighbors.setdefault(first, []).append((other, clock))
        neighbors.setdefault(other, []).append((first, back))
    if not neighbors:
        return ()
    reference = min(neighbors)
    offsets = {reference: ClockOffset(reference, 0, 0, 0)}
    border = [reference]
    while border:  # breadth first: each rank over as few others as possible, since errors add up
        reached: dict[int, ClockOffset] = {}
        for known in (offsets[rank] for rank in border):
            for other, clock in neighbors[known.rank]:
                best = reached.get(other)
                if other not in offsets and (best is None or best.collectives < clock.collectives):
                    offset, spread = known.offset_ns + clock.offset_ns, known.spread_ns + clock.spread_ns
                    reached[other] = ClockOffset(other, offset, spread, clock.collectives)
        offsets |= reached
        border = sorted(reached)
    return tuple(offsets[rank] for rank in sorted(offsets))


def _compare_pairs(matched: list[MatchedCollectives]) -> Mapping[tuple[int, int], ClockOffset]:
    """Return the offset of a rank from the first one of its group, by pair; only those that are sure."""
    differences: dict[tuple[int, int], list[Ints]] = {}
    tolerances: dict[tuple[int, int], list[Ints]] = {}
    for collectives in matched:
        end = pd.DataFrame(collectives.start + collectives.dur)
        # A rank with several devices has one clock; its last kernel ends the collective.
        ranks = [rank for rank, _ in collectives.places]
        ends = end.T.groupby(np.array(ranks)).max().T
        longest = collectives.dur.max(axis=1)
        for rank in ends.columns[1:]:
            pair = int(ends.columns[0]), int(rank)
            differences.setdefault(pair, []).append((ends[rank] - ends[pair[0]]).to_numpy(np.int64))
            tolerances.setdefault(pair, []).append(
                np.maximum(longest // END_TOLERANCE_SHARE, END_TOLERANCE_NS)
            )
    sure = {}
    for pair, parts in differences.items():
        difference = np.concatenate(parts)
        offset = percentile(difference, 50)
        distance = np.abs(difference - offset)
        if (distance <= np.concatenate(tolerances[pair])).mean() >= MIN_AGREEING:
            sure[pair] = ClockOffset(pair[1], offset, percentile(distance, 50), len(difference))
    return sure
