"""What-if: the longest path recomputed with one part taking no time.

The nodes are the device intervals and the waits of host threads; the host time between two of them is an
edge weight, so ops and calls that do not wait need no node. Times are computed in one pass in recorded order,
in exact integers (`longest_path`): the time of a node is the maximum over its dependencies of their time
plus the weight. Weights are the recorded ones for binding dependencies, and the minimum for others: zero for
a stream, the typical latency for a launch. With nothing removed the pass yields the recorded times.

Limits of the model: a launch call that blocked because the queue was full keeps its length, as does the call
of a pageable copy, which also copies on the host; concurrent kernels do not slow each other down; and other
ranks are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, covered_before, overlap_lengths

from ..shared.common import Bools, Small
from ..shared.host_rows import NO_OP
from . import device as path_device
from .backtrack import ALL_KINDS, COMMUNICATE, MEMCPY, Graph, Window
from .host import FAR, KINDS, LAUNCH, SYNC, Slices
from .longest_path import LongestPath

SLICES_PER_BLOCK = 1 << 17
"""Slices per block, so that intermediate arrays fit the CPU cache."""


@dataclass(frozen=True)
class RemovedTime:
    """Removed host time of one candidate, at the queried slices."""

    before: Ints  # removed time before each queried slice
    inside: Bools  # whether the slice is removed

    def between(self, times: _Range) -> Ints:
        """Removed time in ranges of threads."""
        first, last = (
            self.before[place] + np.where(self.inside[place], part, 0)
            for place, part in ((times.first, times.first_part), (times.last, times.last_part))
        )
        return last - first


def _removed_times(
    slices: Slices, codes: Small, count: int, *, queried: Ints, steps: Union
) -> list[RemovedTime]:
    """Removed time in steps of several candidates at sorted numbers of slices, in one pass over all slices.

    `codes` is the candidate of each host row from 1 on, 0 for none; the last entry is that of time in no row.
    Unbounded time of a thread before its first row and after its last is excluded.
    """
    before, inside = np.zeros((count, len(queried)), np.int64), np.zeros(len(queried), codes.dtype)
    totals = [0] * count
    for first in range(0, len(slices.row) if count else 0, SLICES_PER_BLOCK):
        cuts = slices.cuts[first : first + SLICES_PER_BLOCK + 1]
        candidate = codes[slices.row[first : first + SLICES_PER_BLOCK]]
        candidate[(cuts[:-1] == -FAR) | (cuts[1:] == -FAR)] = 0
        length = np.diff(covered_before(steps, cuts))
        here = slice(*np.searchsorted(queried, [first, first + SLICES_PER_BLOCK]))
        position = queried[here] - first
        inside[here] = candidate[position]
        for number in range(count):
            removed_ns = np.where(candidate == number + 1, length, 0)
            total = np.cumsum(removed_ns)
            before[number, here] = totals[number] + total[position] - removed_ns[position]
            totals[number] += int(total[-1])
    return [RemovedTime(before[number], inside == number + 1) for number in range(count)]


Cut = Callable[["_Range"], Ints]

DEVICE_OP, HOST_OP, CLASS = "device", "host", "all"
NOTHING = "nothing"
LAUNCHES, COPIES, WAITS, COMMUNICATION = "launch overhead", "copies", "sync waits", "communication"
CLASSES = (LAUNCHES, COPIES, WAITS, COMMUNICATION)
TOTAL = "total_ns"
"""Saving over all steps of a rank, for findings; not a column of the result."""
_NOT_OF_OP = (LAUNCH, SYNC)  # kinds of host time that are not an op's own


@dataclass(frozen=True)
class MeasuredSpan:
    """Measured time span, its end conditions, and the steps in which parts are removed."""

    window: Window  # from the start of the first step to the last end of all, or the capture
    host_end: int  # time when the main thread finishes the steps; `-FAR` if that does not count
    device: Bools  # whether each interval must finish
    steps: Union  # union of the steps, or the capture: only time in them is removed

    def contains(self, times: Ints) -> Bools:
        """Whether each instant is in a step."""
        starts, ends = self.steps
        place = np.searchsorted(starts, times, side="right") - 1
        inside: Bools = (place >= 0) & (times <= ends[np.maximum(place, 0)])
        return inside


@dataclass(frozen=True)
class _Range:
    """Thread time between two instants: the slices of both, and the parts of these before the instants.

    Slices are given as indices into the queried slices.
    """

    first: Small
    last: Small
    first_part: Ints
    last_part: Ints


@dataclass(frozen=True)
class _Ranges:
    """Time ranges of edge weights, and the queried slices at their ends."""

    queried: Ints
    launches: _Range
    arrivals: _Range
    waits: _Range
    rest: _Range


class WhatIf:
    """Dependencies of one rank as arrays, and the pass over them."""

    def __init__(self, graph: Graph, span: MeasuredSpan) -> None:
        self._graph, self._span = graph, span
        self._intervals, self._waits = len(graph.device.start), len(graph.joins.end)
        self._pairs = len(graph.joins.pairs[0])
        self._total = self._intervals + self._pairs + self._waits
        self._root, self._never = self._total, self._total + 1
        device, joins = graph.device, graph.joins
        by = np.minimum(device.called, device.start)
        self._launched_after = joins.last(device.thread, by, bound=False)
        self._thread = np.maximum(device.thread, 0)
        self._arrived_after = joins.last(joins.source_thread, joins.source, bound=False)
        main, end = np.array([graph.host.main]), np.array([span.host_end])
        self._main_after = joins.last(main, end, bound=False)

    @cached_property
    def recorded(self) -> int:
        """End with nothing removed, which is the recorded one."""
        return self.end(NOTHING, "")

    @property
    def span_ns(self) -> int:
        """Length of the steps, or of the capture."""
        return intervals.length(self._span.steps)

    @property
    def waits(self) -> bool:
        """Whether any call waited for the device in the steps."""
        joins = self._graph.joins
        return bool((joins.is_call & joins.bound & self._span.contains(joins.end)).any())

    def savings(self, candidates: Sequence[tuple[str, str]]) -> list[int]:
        """Reduction of the span without each of these, ns."""
        on_host = [
            candidate for candidate in candidates if candidate[0] == HOST_OP or candidate == (CLASS, LAUNCHES)
        ]
        removed_parts = self._removed_host_time(on_host)
        ends = [self.end(where, what, removed_parts.get((where, what))) for where, what in candidates]
        return [min(max(0, self.recorded - end), self.span_ns) for end in ends]

    def end(self, where: str, what: str, removed: RemovedTime | None = None) -> int:
        """End of the span without a part, ns.

        Args:
            where: Resource of the part.
            what: Kind of the part.
            removed: Host time that goes with it, if any.
        """
        cut: Cut = removed.between if removed else lambda times: np.zeros(len(times.first), np.int64)
        on_device, others = self._longest.times(
            *self._weights(where, what, cut), self._third_source(where, what)
        )
        device = on_device[self._span.device]
        ends = [int(device.max())] if len(device) else []
        if self._span.host_end > -FAR:
            join = self._main_after
            base = int(others[self._join_node(join) - self._intervals].item())
            rest = self._span.host_end - self._origin(join) - cut(self._ranges.rest)
            ends.append(base + int(rest.item()))
        return max(ends, default=self._span.window.end)

    def _join_node(self, join: Ints) -> Ints:
        return np.where(join >= 0, self._intervals + self._pairs + join, self._root)

    @cached_property
    def _longest(self) -> LongestPath:
        device, joins = self._graph.device, self._graph.joins
        place = np.empty(self._total, np.int64)
        place[self._order] = np.arange(self._total)
        ends = (device.end, device.end[joins.pairs[1]], joins.end, [self._span.window.start, -FAR])
        return LongestPath(
            intervals=self._intervals,
            lane=device.lane,
            place=place,
            recorded=np.concatenate(ends),
            sources=self._sources,
        )

    @cached_property
    def _order(self) -> Ints:
        joins = self._graph.joins
        device = self._graph.device
        ready = np.concatenate((device.start, joins.end[joins.pairs[0]], joins.end))
        parts = (self._intervals, self._pairs, self._waits)
        stage = np.repeat([2, 0, 1], parts)  # at equal times waits end before intervals start
        later = np.concatenate((device.end, np.zeros(self._pairs + self._waits, np.int64)))
        return np.lexsort((np.arange(self._total), later, stage, ready))

    @cached_property
    def _sources(self) -> tuple[Ints, Ints, Ints]:
        """Dependencies of each node."""
        device = self._graph.device
        never = self._never
        launched = np.where(device.call >= 0, self._join_node(self._launched_after), never)
        unlinked = (device.call < 0) & (device.previous < 0)
        first = [np.where(unlinked, self._root, launched), self._graph.joins.pairs[1]]
        second = [np.where(device.previous >= 0, device.previous, never), self._chained]
        third = [np.where(device.waited >= 0, device.waited, never), np.full(self._pairs, never)]
        first.append(self._join_node(self._arrived_after))
        second.append(np.full(self._waits, never))
        last = np.full(self._waits, never)
        last[self._graph.joins.pairs[0]] = self._intervals + np.arange(self._pairs)
        third.append(last)
        return np.concatenate(first), np.concatenate(second), np.concatenate(third)

    def _third_source(self, where: str, what: str) -> Ints:
        """Third dependency of each node; if waits are removed, calls do not wait for the device."""
        third = self._sources[2]
        if (where, what) != (CLASS, WAITS):
            return third
        joins = self._graph.joins
        removed = np.zeros(self._total, np.bool_)
        removed[self._total - self._waits :] = joins.is_call & self._span.contains(joins.end)
        return np.where(removed, self._never, third)

    @cached_property
    def _chained(self) -> Ints:
        """Previous dependency of the same join for each dependency, so that a chain gives the latest one."""
        number = self._graph.joins.pairs[0]
        same = np.concatenate(([False], number[1:] == number[:-1]))[: len(number)]
        return np.where(same, self._intervals + np.arange(len(number)) - 1, self._never)

    def _weights(self, where: str, what: str, cut: Cut) -> tuple[tuple[Ints, Ints, Ints], Ints]:
        """Time from each dependency to its node, and duration of the node."""
        device, joins, start = self._graph.device, self._graph.joins, self._span.window.start
        launching, waiting = ((where, what) == (CLASS, name) for name in (LAUNCHES, WAITS))
        origin = self._origin(self._launched_after)
        late = self._span.contains(device.start) & ~device.behind_backlog
        latency = np.where(launching & late, 0, device.latency)
        launched = device.called - origin - cut(self._ranges.launches) + latency
        unlinked = (device.call < 0) & (device.previous < 0)
        launched = np.where(unlinked, device.start - start, launched)
        removed = self._removed(where, what)
        gap = device.start - path_device.ends_of(device, device.previous)
        gap = np.where(
            removed[device.previous], np.maximum(gap, 0), gap
        )  # a removed interval does not overlap
        queued = np.where(device.binding == path_device.QUEUE, gap, 0)
        gap = device.start - path_device.ends_of(device, device.waited)
        waited = np.where(device.binding == path_device.WAIT, gap, 0)
        origin = self._origin(self._arrived_after)
        arrived = joins.source - origin - cut(self._ranges.arrivals)
        removed_wait = np.where(joins.is_call, cut(self._ranges.waits), 0)
        cost = np.where(
            joins.is_call & self._span.contains(joins.end) & waiting, 0, joins.cost - removed_wait
        )
        no_pair, no_wait = np.zeros(self._pairs, np.int64), np.zeros(self._waits, np.int64)
        lasted = np.where(removed, 0, device.end - device.start)
        return (
            np.concatenate((launched, no_pair, arrived)),
            np.concatenate((queued, no_pair, no_wait)),
            np.concatenate((waited, no_pair, no_wait)),
        ), np.concatenate((lasted, no_pair, cost))

    def _origin(self, join: Ints) -> Ints:
        ends = np.append(self._graph.joins.end, self._span.window.start)
        return ends[join]

    def _removed(self, where: str, what: str) -> Bools:
        """Whether each device interval is removed."""
        graph = self._graph
        chosen = np.zeros(self._intervals, np.bool_)
        if where == DEVICE_OP:
            chosen = graph.label == graph.labels.index(what)
        elif where == CLASS and what in (COPIES, COMMUNICATION):
            chosen = graph.kind == ALL_KINDS.index(MEMCPY if what == COPIES else COMMUNICATE)
        return chosen & self._span.contains(graph.device.start)

    def _removed_host_time(self, candidates: Sequence[tuple[str, str]]) -> dict[tuple[str, str], RemovedTime]:
        """Time without each of these in the queried slices."""
        host, codes = self._graph.host, np.zeros(len(self._graph.host.kind) + 1, np.int8)
        rows = codes[:-1]
        for number, (where, what) in enumerate(candidates, 1):
            if where == CLASS:
                rows[host.kind == KINDS.index(LAUNCH)] = number
                continue
            of_op = host.label == self._graph.labels.index(what)
            for kind in _NOT_OF_OP:
                of_op &= host.kind != KINDS.index(kind)
            rows[of_op] = number
            if what == NO_OP:
                codes[-1] = number
        queried, steps = self._ranges.queried, self._span.steps
        times = _removed_times(host.slices, codes, len(candidates), queried=queried, steps=steps)
        return dict(zip(candidates, times, strict=True))

    @cached_property
    def _ranges(self) -> _Ranges:
        device, joins, slices = self._graph.device, self._graph.joins, self._graph.host.slices
        main, host_end = np.array([self._graph.host.main]), np.array([self._span.host_end])
        parts = (
            (self._thread, self._origin(self._launched_after), device.called),
            (joins.source_thread, self._origin(self._arrived_after), joins.source),
            (joins.thread, joins.end - joins.cost, joins.end),
            (main, self._origin(self._main_after), host_end),
        )
        ends = [(slices.at(thread, by), by) for thread, *both in parts for by in both]
        queried, place = np.unique(np.concatenate([position for position, _ in ends]), return_inverse=True)
        places = np.split(place.astype(np.int32), np.cumsum([len(position) for position, _ in ends])[:-1])
        before = [overlap_lengths(self._span.steps, slices.starts(position), by) for position, by in ends]
        ranges = [
            _Range(places[end], places[end + 1], before[end], before[end + 1])
            for end in range(0, len(ends), 2)
        ]
        return _Ranges(queried, *ranges)
