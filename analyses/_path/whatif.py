"""What a rank's time would be without something: the longest path through its dependences, worked out again.

The nodes are the device intervals and the waits of host threads; the host time between two of them is a
weight, so ops and calls that wait for nothing cost no node. Times follow in one pass in the order recorded,
in exact integers (`_path.longest`): each is at the latest of what it depends on plus the time from there.
Weights are the recorded ones for what bound a node, and the least that is known for what did not: nothing
for a stream, the usual latency for a launch. With nothing removed the pass gives the recorded times.

What the dependences do not say: a launch call that stood still because the queue was full keeps its length,
as does the call of a pageable copy, which copies on the host too; kernels that share a device do not slow
each other down; and other ranks do not move.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.intervals import covered

from .._shared.hosts import NO_OP
from . import device as path_device
from .host import FAR, KINDS, LAUNCH, SYNC
from .longest import Longest
from .removed import removed
from .walk import ALL_KINDS, COMMUNICATE, MEMCPY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.intervals import Ints, Union

    from .host import Bools, Small
    from .removed import Removed
    from .walk import Graph, Window

    Cut = Callable[["_Stretch"], Ints]

DEVICE_OP, HOST_OP, CLASS = "device", "host", "all"
NOTHING = "nothing"
LAUNCHES, COPIES, WAITS, COMMUNICATION = "launch overhead", "copies", "sync waits", "communication"
CLASSES = (LAUNCHES, COPIES, WAITS, COMMUNICATION)
_KEPT = (LAUNCH, SYNC)
"""Kinds of host time that do not count as an op's own."""


@dataclass(frozen=True)
class Span:
    """What is measured: from when on things are removed, and what it ends with.

    Attributes:
        window: From the start of the first step to the last end of all, or the capture.
        host_end: When the main thread is done with the steps; before everything where that does not count.
        device: Which intervals must be done.
        steps: The steps, united, or the capture: only what lies in them is removed.
    """

    window: Window
    host_end: int
    device: Bools
    steps: Union

    @property
    def start(self) -> int:
        """From when on the path is measured."""
        return self.window.start

    @property
    def end(self) -> int:
        """When the last of its ends was recorded."""
        return self.window.end

    def holds(self, times: Ints) -> Bools:
        """Which instants lie in a step."""
        starts, ends = self.steps
        place = np.searchsorted(starts, times, side="right") - 1
        found: Bools = (place >= 0) & (times <= ends[np.maximum(place, 0)])
        return found


@dataclass(frozen=True)
class _Stretch:
    """Time of threads between two instants of each: the slices of both, and how much of these is before.

    Slices are told by their places among all that are asked about.
    """

    first: Small
    last: Small
    first_part: Ints
    last_part: Ints


@dataclass(frozen=True)
class _Stretches:
    """Where time of threads is weighed, and the slices asked about: those at the ends of the stretches."""

    asked: Ints
    launches: _Stretch
    arrivals: _Stretch
    waits: _Stretch
    rest: _Stretch


class WhatIf:
    """The dependences of one rank as arrays, and the pass over them."""

    def __init__(self, graph: Graph, span: Span) -> None:
        self._graph, self._span = graph, span
        self._intervals, self._waits = len(graph.device.start), len(graph.joins.end)
        self._pairs = len(graph.joins.pairs[0])
        self._total = self._intervals + self._pairs + self._waits
        self._root, self._never = self._total, self._total + 1
        device, joins = graph.device, graph.joins
        by = np.minimum(device.begun, device.start)
        self._launched_after = joins.last(device.thread, by, bound=False)
        self._thread = np.maximum(device.thread, 0)
        self._arrived_after = joins.last(joins.source_thread, joins.source, bound=False)
        main, end = np.array([graph.host.main]), np.array([span.host_end])
        self._main_after = joins.last(main, end, bound=False)

    @cached_property
    def recorded(self) -> int:
        """The end that follows with nothing removed: the recorded one."""
        return self.end(NOTHING, "")

    @property
    def span_ns(self) -> int:
        """Length of the steps, or of the capture."""
        return intervals.length(self._span.steps)

    @property
    def waits(self) -> bool:
        """Whether any call waited for the device in the steps."""
        joins = self._graph.joins
        return bool((joins.is_call & joins.bound & self._span.holds(joins.end)).any())

    def savings(self, tried: Sequence[tuple[str, str]]) -> list[int]:
        """By how much the span would be shorter without each of these, ns."""
        gone = self._gone([(where, what) for where, what in tried if _is_of_host(where, what)])
        ends = [self.end(where, what, gone.get((where, what))) for where, what in tried]
        return [min(max(0, self.recorded - end), self.span_ns) for end in ends]

    def end(self, where: str, what: str, gone: Removed | None = None) -> int:
        """When the span would end without this, which takes this time of the host away."""
        cut = _cut(gone)
        on_device, others = self._longest.times(*self._weights(where, what, cut), self._told(where, what))
        device = on_device[self._span.device]
        ends = [int(device.max())] if len(device) else []
        if self._span.host_end > -FAR:
            join = self._main_after
            base = int(others[self._join_node(join) - self._intervals].item())
            rest = self._span.host_end - self._origin(join) - cut(self._stretches.rest)
            ends.append(base + int(rest.item()))
        return max(ends, default=self._span.end)

    def _join_node(self, join: Ints) -> Ints:
        return np.where(join >= 0, self._intervals + self._pairs + join, self._root)

    @cached_property
    def _longest(self) -> Longest:
        device, joins = self._graph.device, self._graph.joins
        place = np.empty(self._total, np.int64)
        place[self._order] = np.arange(self._total)
        ends = (device.end, device.end[joins.pairs[1]], joins.end, [self._span.start, -FAR])
        return Longest(
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
        stage = np.repeat([2, 0, 1], parts)  # at one time a wait ends before an interval starts
        later = np.concatenate((device.end, np.zeros(self._pairs + self._waits, np.int64)))
        return np.lexsort((np.arange(self._total), later, stage, ready))

    @cached_property
    def _sources(self) -> tuple[Ints, Ints, Ints]:
        """What each node depends on."""
        device = self._graph.device
        never = self._never
        launched = np.where(device.call >= 0, self._join_node(self._launched_after), never)
        alone = (device.call < 0) & (device.previous < 0)
        first = [np.where(alone, self._root, launched), self._graph.joins.pairs[1]]
        second = [np.where(device.previous >= 0, device.previous, never), self._chained]
        third = [np.where(device.waited >= 0, device.waited, never), np.full(self._pairs, never)]
        first.append(self._join_node(self._arrived_after))
        second.append(np.full(self._waits, never))
        last = np.full(self._waits, never)
        last[self._graph.joins.pairs[0]] = self._intervals + np.arange(self._pairs)
        third.append(last)
        return np.concatenate(first), np.concatenate(second), np.concatenate(third)

    def _told(self, where: str, what: str) -> Ints:
        """The third of what each node depends on: without waits, no call waits for the device."""
        third = self._sources[2]
        if (where, what) != (CLASS, WAITS):
            return third
        joins = self._graph.joins
        gone = np.zeros(self._total, np.bool_)
        gone[self._total - self._waits :] = joins.is_call & self._span.holds(joins.end)
        return np.where(gone, self._never, third)

    @cached_property
    def _chained(self) -> Ints:
        """For each dependence of a join the one before of the same join: together they are its latest."""
        number = self._graph.joins.pairs[0]
        same = np.concatenate(([False], number[1:] == number[:-1]))[: len(number)]
        return np.where(same, self._intervals + np.arange(len(number)) - 1, self._never)

    def _weights(self, where: str, what: str, cut: Cut) -> tuple[tuple[Ints, Ints, Ints], Ints]:
        """The time from each dependence to its node, and what the node itself takes."""
        device, joins, start = self._graph.device, self._graph.joins, self._span.start
        launching, waiting = ((where, what) == (CLASS, name) for name in (LAUNCHES, WAITS))
        origin = self._origin(self._launched_after)
        latency = np.where(launching & self._span.holds(device.start), 0, device.latency)
        launched = device.begun - origin - cut(self._stretches.launches) + latency
        alone = (device.call < 0) & (device.previous < 0)
        launched = np.where(alone, device.start - start, launched)
        gone = self._removed(where, what)
        gap = device.start - path_device.ended(device, device.previous)
        gap = np.where(gone[device.previous], np.maximum(gap, 0), gap)  # one that is gone overlaps nothing
        queued = np.where(device.binding == path_device.QUEUE, gap, 0)
        gap = device.start - path_device.ended(device, device.waited)
        waited = np.where(device.binding == path_device.WAIT, gap, 0)
        origin = self._origin(self._arrived_after)
        arrived = joins.source - origin - cut(self._stretches.arrivals)
        spent = np.where(joins.is_call, cut(self._stretches.waits), 0)
        cost = np.where(joins.is_call & self._span.holds(joins.end) & waiting, 0, joins.cost - spent)
        no_pair, no_wait = np.zeros(self._pairs, np.int64), np.zeros(self._waits, np.int64)
        lasted = np.where(gone, 0, device.end - device.start)
        return (
            np.concatenate((launched, no_pair, arrived)),
            np.concatenate((queued, no_pair, no_wait)),
            np.concatenate((waited, no_pair, no_wait)),
        ), np.concatenate((lasted, no_pair, cost))

    def _origin(self, join: Ints) -> Ints:
        ends = np.append(self._graph.joins.end, self._span.start)
        return ends[join]

    def _removed(self, where: str, what: str) -> Bools:
        """Which device intervals take no time."""
        graph = self._graph
        chosen = np.zeros(self._intervals, np.bool_)
        if where == DEVICE_OP:
            chosen = graph.label == graph.labels.index(what)
        elif where == CLASS and what in (COPIES, COMMUNICATION):
            chosen = graph.kind == ALL_KINDS.index(MEMCPY if what == COPIES else COMMUNICATE)
        return chosen & self._span.holds(graph.device.start)

    def _gone(self, tried: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Removed]:
        """Which time of the host each of these takes away."""
        host, codes = self._graph.host, np.zeros(len(self._graph.host.kind) + 1, np.int8)
        rows = codes[:-1]
        for number, (where, what) in enumerate(tried, 1):
            if where == CLASS:
                rows[host.kind == KINDS.index(LAUNCH)] = number
                continue
            own = host.label == self._graph.labels.index(what)
            for kind in _KEPT:
                own &= host.kind != KINDS.index(kind)
            rows[own] = number
            if what == NO_OP:
                codes[-1] = number
        asked, steps = self._stretches.asked, self._span.steps
        found = removed(host.slices, codes, len(tried), asked=asked, steps=steps)
        return dict(zip(tried, found, strict=True))

    @cached_property
    def _stretches(self) -> _Stretches:
        device, joins, slices = self._graph.device, self._graph.joins, self._graph.host.slices
        main, host_end = np.array([self._graph.host.main]), np.array([self._span.host_end])
        parts = (
            (self._thread, self._origin(self._launched_after), device.begun),
            (joins.source_thread, self._origin(self._arrived_after), joins.source),
            (joins.thread, joins.end - joins.cost, joins.end),
            (main, self._origin(self._main_after), host_end),
        )
        ends = [(slices.at(thread, by), by) for thread, *both in parts for by in both]
        asked, place = np.unique(np.concatenate([at for at, _ in ends]), return_inverse=True)
        places = np.split(place.astype(np.int32), np.cumsum([len(at) for at, _ in ends])[:-1])
        before = [covered(self._span.steps, slices.starts(at), by) for at, by in ends]
        made = [
            _Stretch(places[one], places[one + 1], before[one], before[one + 1])
            for one in range(0, len(ends), 2)
        ]
        return _Stretches(asked, *made)


def _is_of_host(where: str, what: str) -> bool:
    return where == HOST_OP or (where, what) == (CLASS, LAUNCHES)


def _cut(gone: Removed | None) -> Cut:
    """A function that gives the removed time of stretches of threads."""
    if gone is None:
        return lambda one: np.zeros(len(one.first), np.int64)
    return lambda one: gone.until(one.last, one.last_part) - gone.until(one.first, one.first_part)
