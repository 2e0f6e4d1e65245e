"""The longest path to every node: intervals in one pass over their chains, the rest one by one.

Neighbours on a stream that wait for nothing else, and were launched after the same wait of the host, form a
chain. With A the sum of what its intervals take up to one of them, and B the most that any launch of theirs
leads to from that wait, the time of an interval is the later of the time before the chain plus A and the
time of that wait plus B. So only chains, and the waits of the host, are gone through one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .host import FAR

if TYPE_CHECKING:
    from tracekit.intervals import Ints

    from .host import Bools, Small

Three = tuple["Ints", "Ints", "Ints"]


@dataclass(frozen=True, kw_only=True)
class Longest:
    """Nodes with what each depends on: first the intervals, lane by lane, then others, the root and never.

    Attributes:
        intervals: Number of intervals.
        lane: Lane of each interval.
        place: Place of each node but the last two in the order in which they are worked out.
        recorded: Recorded time of every node; what comes later in the order counts with that.
        sources: What each node but the last two depends on. Of an interval: what its launch follows, the
            interval before it, and the one its stream was told to wait for.
    """

    intervals: int
    lane: Ints
    place: Ints
    recorded: Ints
    sources: Three

    @property
    def never(self) -> int:
        """The node that lies before everything."""
        return len(self.recorded) - 1

    @cached_property
    def _launch(self) -> Ints:
        """What each interval's launch follows; where none is known, that of the interval before."""
        own = self.sources[0][: self.intervals]
        known = np.where(own == self.never, 0, np.arange(self.intervals))
        return own[np.maximum.accumulate(known)]

    @cached_property
    def _first(self) -> Bools:
        """Which intervals begin a chain."""
        count = self.intervals
        place, before = self.place[:count], np.arange(count) - 1
        earlier, asked = np.append(self.place, [-1, -1]), self._asked
        first: Bools = self.sources[1][:count] != before
        first |= self.sources[2][:count] != self.never
        first |= self._launch != self._launch[before]
        first |= (self.lane != self.lane[before]) | asked[before] | (place <= place[before])
        late = earlier[self._launch] >= place
        first |= late | late[before]
        first[:1] = True
        return first

    @cached_property
    def _asked(self) -> Bools:
        """Which intervals something else depends on than their neighbour."""
        count = self.intervals
        asked = np.zeros(len(self.recorded), np.bool_)
        apart = self.sources[1][:count] != np.arange(count) - 1
        asked[self.sources[1][:count][apart]] = True
        asked[self.sources[2][:count]] = True
        for sources in self.sources:
            asked[sources[count:]] = True
        return asked[:count]

    @cached_property
    def _chain(self) -> Small:
        """The chain of each interval."""
        return np.cumsum(self._first, dtype=np.int32) - 1

    @cached_property
    def _heads(self) -> Ints:
        return np.flatnonzero(self._first)

    @cached_property
    def _lasts(self) -> Ints:
        return np.append(self._heads[1:], self.intervals)[: len(self._heads)] - 1

    @cached_property
    def _nodes(self) -> Ints:
        """What is gone through: the first of each chain, and all that is no interval."""
        return np.concatenate((self._heads, np.arange(self.intervals, len(self.place))))

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.place[self._nodes], kind="stable")

    @cached_property
    def _slots(self) -> Ints:
        """Where the time of a node is kept: a chain's is that of its last interval."""
        slots = np.full(len(self.recorded), len(self._nodes) + 1, np.int64)
        slots[self._lasts] = np.arange(len(self._heads))
        slots[self.intervals :] = len(self._heads) + np.arange(len(self.recorded) - self.intervals)
        return slots

    def times(self, weights: Three, cost: Ints, waited: Ints) -> tuple[Ints, Ints]:
        """The time of every interval, and that of every other node with the root and never behind them.

        Args:
            weights: The time from each dependence to its node.
            cost: What each node takes.
            waited: The third of the sources, where it is another now: none for some nodes but intervals.
        """
        chains, count = len(self._heads), self.intervals
        sums, best = self._inside(weights, cost)
        launch, before, told = self.sources[0], self.sources[1], waited
        behind = sums[self._lasts]
        after_wait = weights[2][self._heads] - weights[1][self._heads]
        rest = slice(count, None)
        edges = (
            (self._launch[self._heads], launch[rest], best[self._lasts], weights[0][rest]),
            (before[self._heads], before[rest], behind, weights[1][rest]),
            (told[self._heads], told[rest], behind + after_wait, weights[2][rest]),
        )
        spent = np.concatenate((np.zeros(chains, np.int64), cost[rest]))
        sources = [np.concatenate((head, other)) for head, other, _, _ in edges]
        lengths = [np.concatenate((inside, other)) + spent for _, _, inside, other in edges]
        kept, froms = self._gone_through(sources, lengths)
        chain = self._chain
        first, second, third = (kept[one[:chains]] for one in froms)
        found = np.maximum(first[chain] + best, np.maximum(second, third + after_wait)[chain] + sums)
        return found, kept[chains : chains + len(self.recorded) - count]

    def _inside(self, weights: Three, cost: Ints) -> tuple[Ints, Ints]:
        """For each interval the time from before its chain, and the most from the wait before it."""
        count = self.intervals
        taken = weights[1][:count] + cost[:count]
        total = np.cumsum(taken)
        sums: Ints = total - (total - taken)[self._heads][self._chain]
        known = self.sources[0][:count] != self.never
        reach = np.where(known, weights[0][:count] + cost[:count] - sums, -FAR)
        best = pd.Series(reach).groupby(self._chain, sort=False).cummax()
        return sums, sums + np.asarray(best, np.int64)

    def _gone_through(self, sources: list[Ints], lengths: list[Ints]) -> tuple[Ints, list[Ints]]:
        """The time in every slot, and the slot each source is in; recorded times lie behind the slots."""
        order, place = self._order, np.append(self.place, [-1, -1])
        late = [place[one] >= self.place[self._nodes] for one in sources]
        fixed = np.concatenate([one[is_late] for one, is_late in zip(sources, late, strict=True)])
        kept = np.zeros(len(self._nodes), np.int64).tolist()
        kept += [*self.recorded[-2:].tolist(), *self.recorded[fixed].tolist()]
        froms, used = [self._slots[one] for one in sources], len(self._nodes) + 2
        for one, is_late in zip(froms, late, strict=True):
            one[is_late] = used + np.arange(int(is_late.sum()))
            used += int(is_late.sum())
        edges = [part for pair in zip(froms, lengths, strict=True) for part in pair]
        for slot, one, to_one, two, to_two, three, to_three in zip(
            order.tolist(), *(part[order].tolist() for part in edges), strict=True
        ):
            time = kept[one] + to_one
            other = kept[two] + to_two
            if other > time:
                time = other
            other = kept[three] + to_three
            kept[slot] = other if other > time else time
        return np.array(kept, np.int64), froms
