"""Longest path to every node of a graph of device intervals and host waits.

Device intervals are processed as chains, other nodes individually.

Neighboring intervals on a stream without other dependencies, launched after the same host wait, form a chain.
Let A be the sum of durations in the chain up to an interval, and B the maximum path length from that wait
through any launch in the chain up to it. The time of the interval is the maximum of the time before the chain
plus A and the time of the wait plus B. Only chains and host waits are processed sequentially.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from tracekit.runs.intervals import Ints

from ..shared.common import Bools, Small
from .host import FAR

Three = tuple["Ints", "Ints", "Ints"]


@dataclass(frozen=True, kw_only=True)
class LongestPath:
    """Nodes with their dependencies: first intervals by lane, then others, the root and `never`."""

    intervals: int
    lane: Ints  # lane of each interval
    place: Ints  # position of each node except the last two in the processing order
    recorded: Ints  # recorded time of every node, used for dependencies later in the order
    # dependencies of each node except the last two. For an interval: the predecessor of its launch, the
    # previous interval, and the interval its stream waited for
    sources: Three

    @property
    def never(self) -> int:
        """Node of absent dependencies, before all times."""
        return len(self.recorded) - 1

    @cached_property
    def _launch(self) -> Ints:
        """Predecessor of each interval's launch; if unknown, that of the previous interval."""
        launches = self.sources[0][: self.intervals]
        last_known = np.where(launches == self.never, 0, np.arange(self.intervals))
        return launches[np.maximum.accumulate(last_known)]

    @cached_property
    def _first(self) -> Bools:
        """Whether each interval starts a chain."""
        count = self.intervals
        place, before = self.place[:count], np.arange(count) - 1
        earlier, has_dependents = np.append(self.place, [-1, -1]), self._has_dependents
        first: Bools = self.sources[1][:count] != before
        first |= self.sources[2][:count] != self.never
        first |= self._launch != self._launch[before]
        first |= (self.lane != self.lane[before]) | has_dependents[before] | (place <= place[before])
        late = earlier[self._launch] >= place
        first |= late | late[before]
        first[:1] = True
        return first

    @cached_property
    def _has_dependents(self) -> Bools:
        """Whether nodes other than its neighbor depend on each interval."""
        count = self.intervals
        result = np.zeros(len(self.recorded), np.bool_)
        separate = self.sources[1][:count] != np.arange(count) - 1
        result[self.sources[1][:count][separate]] = True
        result[self.sources[2][:count]] = True
        for sources in self.sources:
            result[sources[count:]] = True
        return result[:count]

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
        """Sequentially processed nodes: the first of each chain, and all that are not intervals."""
        return np.concatenate((self._heads, np.arange(self.intervals, len(self.place))))

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.place[self._nodes], kind="stable")

    @cached_property
    def _slots(self) -> Ints:
        """Slot of the time of each node; that of a chain is the time of its last interval."""
        slots = np.full(len(self.recorded), len(self._nodes) + 1, np.int64)
        slots[self._lasts] = np.arange(len(self._heads))
        slots[self.intervals :] = len(self._heads) + np.arange(len(self.recorded) - self.intervals)
        return slots

    def times(self, weights: Three, cost: Ints, waited: Ints) -> tuple[Ints, Ints]:
        """Times of all intervals, and times of all other nodes followed by root and never.

        Args:
            weights: Time from each dependency to its node.
            cost: Duration of each node.
            waited: Third source, which may be removed for nodes other than intervals.
        """
        chains, count = len(self._heads), self.intervals
        sums, best = self._inside(weights, cost)
        launch, before, third_source = self.sources[0], self.sources[1], waited
        chain_sum = sums[self._lasts]
        after_wait = weights[2][self._heads] - weights[1][self._heads]
        rest = slice(count, None)
        edges = (
            (self._launch[self._heads], launch[rest], best[self._lasts], weights[0][rest]),
            (before[self._heads], before[rest], chain_sum, weights[1][rest]),
            (third_source[self._heads], third_source[rest], chain_sum + after_wait, weights[2][rest]),
        )
        spent = np.concatenate((np.zeros(chains, np.int64), cost[rest]))
        sources = [np.concatenate((head, other)) for head, other, _, _ in edges]
        lengths = [np.concatenate((inside, other)) + spent for _, _, inside, other in edges]
        slots, froms = self._process(sources, lengths)
        chain = self._chain
        first, second, third = (slots[source[:chains]] for source in froms)
        ends = np.maximum(first[chain] + best, np.maximum(second, third + after_wait)[chain] + sums)
        return ends, slots[chains : chains + len(self.recorded) - count]

    def _inside(self, weights: Three, cost: Ints) -> tuple[Ints, Ints]:
        """For each interval the time from the start of its chain, and the maximum from the preceding wait."""
        count = self.intervals
        durations = weights[1][:count] + cost[:count]
        total = np.cumsum(durations)
        sums: Ints = total - (total - durations)[self._heads][self._chain]
        has_source = self.sources[0][:count] != self.never
        reach = np.where(has_source, weights[0][:count] + cost[:count] - sums, -FAR)
        best = pd.Series(reach).groupby(self._chain, sort=False).cummax()
        return sums, sums + np.asarray(best, np.int64)

    def _process(self, sources: list[Ints], lengths: list[Ints]) -> tuple[Ints, list[Ints]]:
        """Time of every slot, and the slot of each source; recorded times follow the slots."""
        order, place = self._order, np.append(self.place, [-1, -1])
        late = [place[source] >= self.place[self._nodes] for source in sources]
        fixed = np.concatenate([source[is_late] for source, is_late in zip(sources, late, strict=True)])
        slots = np.zeros(len(self._nodes), np.int64).tolist()
        slots += [*self.recorded[-2:].tolist(), *self.recorded[fixed].tolist()]
        froms, used = [self._slots[source] for source in sources], len(self._nodes) + 2
        for source, is_late in zip(froms, late, strict=True):
            source[is_late] = used + np.arange(int(is_late.sum()))
            used += int(is_late.sum())
        edges = [part for pair in zip(froms, lengths, strict=True) for part in pair]
        for slot, first, to_first, second, to_second, third, to_third in zip(
            order.tolist(), *(part[order].tolist() for part in edges), strict=True
        ):
            time = slots[first] + to_first
            other = slots[second] + to_second
            if other > time:
                time = other
            other = slots[third] + to_third
            slots[slot] = other if other > time else time
        return np.array(slots, np.int64), froms
