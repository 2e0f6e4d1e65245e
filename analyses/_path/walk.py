"""The walk back along the critical path, and the segments it consists of.

The walk is a plain loop, and touches only what is on the path. Neighbours on a stream that lead to each other
are passed in one turn, and told one by one afterwards; neither is time on the host walked: a stretch between
two waits is cut into its slices afterwards, all of them at once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.kernel_names import COMMUNICATION, family, matches
from tracekit.schema import C, DeviceKind

from .._shared.common import NO_PARENT, known
from . import device as path_device
from . import host as path_host
from . import joins as path_joins
from .host import FAR, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.intervals import Ints
    from tracekit.run import Run

    from .device import Device
    from .host import Bools, Host, Small
    from .joins import Joins

COMPUTE, COMMUNICATE, MEMCPY, MEMSET, GRAPH = "compute", "communication", "memcpy", "memset", "graph"
LAUNCH_DELAY, QUEUE_DELAY, DEVICE_GAP, HANDOVER, UNKNOWN = (
    "launch delay",
    "kernel-to-kernel delay",
    "device gap, cause unknown",
    "thread handover",
    "unknown",
)
ALL_KINDS = (
    *KINDS,
    COMPUTE,
    COMMUNICATE,
    MEMCPY,
    MEMSET,
    GRAPH,
    LAUNCH_DELAY,
    QUEUE_DELAY,
    DEVICE_GAP,
    HANDOVER,
    UNKNOWN,
)
SHORT_GAP_NS = 30_000
"""Up to this long a gap before queued work is the device's own delay, as `idle_gaps` has it."""

WRAPPER = "record_param_comms"
"""An op that wraps every collective, whichever it is: the kernel's family says more."""

WINDOW = "window"
"""Column of the number of the window a segment is of."""
_BUSY, _LAUNCHED, _QUEUED, _HANDED, _HOST, _LOST, _RUN = range(7)
_Step = tuple[int, int, int, int]


@dataclass(frozen=True)
class Graph:
    """One rank: its host, its device, where one waits for the other, and names for what the device did.

    Attributes:
        host: The host's threads.
        device: The device's streams.
        joins: Waits of the threads.
        kind: Index into `ALL_KINDS` of each device interval.
        label: Index into `labels` of each device interval: the op that launched it, else its family.
        labels: The host's labels, then families.
    """

    host: Host
    device: Device
    joins: Joins
    kind: Ints
    label: Ints
    labels: list[str]


def graph(run: Run, rank: int) -> Graph:
    """The dependences of one rank."""
    host = path_host.read(run, rank)
    device = path_device.read(run, rank, host)
    joins = path_joins.find(host, device)
    label, labels = _labels(host, device)
    return Graph(host, device, joins, _kinds(device), label, labels)


def _kinds(device: Device) -> Ints:
    frame = device.frame
    kind = np.full(len(frame), ALL_KINDS.index(COMPUTE))
    kind[matches(frame[C.NAME], COMMUNICATION).to_numpy(bool)] = ALL_KINDS.index(COMMUNICATE)
    for value, name in ((DeviceKind.MEMCPY, MEMCPY), (DeviceKind.MEMSET, MEMSET), (DeviceKind.GRAPH, GRAPH)):
        kind[(frame[C.KIND] == value).to_numpy(bool)] = ALL_KINDS.index(name)
    return kind


def _labels(host: Host, device: Device) -> tuple[Ints, list[str]]:
    names = device.frame[C.NAME].cat
    families = [family(name) for name in names.categories.astype(str)]
    op = host.position(known(device.frame[C.OP_ROW]))
    number = {name: code for code, name in enumerate(dict.fromkeys([*host.labels, *families]))}
    own = np.array([number[name] for name in families], np.int64)[names.codes.to_numpy()]
    wrapper = number.get(WRAPPER, NO_PARENT)
    label = np.where((op >= 0) & (host.label[op] != wrapper), host.label[op], own) if len(host.label) else own
    return label, list(number)


@dataclass(frozen=True)
class Window:
    """What a path is walked over: its ends, and the interval it ends with, -1 where it ends on the host."""

    start: int
    end: int
    last: int


class Walker:
    """Walks paths of one rank; what the loop looks up is prepared once."""

    def __init__(self, graph: Graph) -> None:
        host, device, joins = graph.host, graph.device, graph.joins
        self._graph = graph
        launched = device.call >= 0
        begun = np.minimum(device.begun, device.start)
        done = np.where(launched, host.end[device.call], begun) if len(host.end) else begun
        source = np.where(device.binding == path_device.WAIT, device.waited, device.previous)
        before = joins.last(device.thread, begun, bound=True)
        done = np.maximum(begun, np.minimum(done, device.start))
        bound = device.binding == path_device.LAUNCH
        self._intervals = _columns(
            device.start, bound, source, done, device.thread, before, _firsts(device, bound, source)
        )
        self._ends = device.end.data
        low = np.where(joins.is_call, path_device.ended(device, joins.target), joins.end)
        target = np.where(joins.is_call, joins.target, NO_PARENT)
        earlier = joins.last(joins.source_thread, joins.source, bound=True)
        self._joins = _columns(low, target, joins.source, joins.source_thread, earlier)
        self._most = len(device.start) + len(low) + 1  # equal times cannot make it go round

    def paths(self, windows: Sequence[Window]) -> pd.DataFrame:
        """The segments of the critical path of each window, in order of time: they sum to it exactly."""
        path = self.pieces(windows)
        order = np.lexsort((path["start"], path[WINDOW]))
        return pd.DataFrame({name: path.pop(name)[order] for name in [*path]}, copy=False)

    def pieces(self, windows: Sequence[Window]) -> dict[str, Small]:
        """The same as columns, in no order."""
        walked = [self._walk(window) for window in windows]
        number = np.repeat(np.arange(len(windows)), [len(own) for own in walked])
        steps = np.fromiter(_flat(walked), np.int64, 4 * len(number)).reshape(-1, 4).T
        steps = _told(self._graph.device, np.vstack((steps, number)))
        low = np.array([window.start for window in windows], np.int64)
        high = np.array([window.end for window in windows], np.int64)
        steps[2] = np.maximum(steps[2], low[steps[4]])
        steps[3] = np.minimum(steps[3], high[steps[4]])
        return _segments(self._graph, steps)

    def _walk(self, window: Window) -> list[_Step]:
        steps: list[_Step] = []
        at, interval = window.end, window.last
        main = self._graph.host.main
        join = self._graph.joins.last(np.array([main]), np.array([at]), bound=True).item()
        thread = main
        for _ in range(self._most):
            if at <= window.start:
                return steps
            if interval >= 0:
                at, interval = self._along_stream(steps, at, interval, window.start)
                at, interval, thread, join = self._from_device(steps, at, interval)
            else:
                at, interval, thread, join = self._from_host(steps, at, thread, join)
        steps.append((_LOST, 0, -FAR, at))
        return steps

    def _along_stream(self, steps: list[_Step], at: int, interval: int, until: int) -> tuple[int, int]:
        """Back along a stream as far as its intervals lead to each other, or end after an instant."""
        first = self._intervals[-1][interval]
        if first == interval or self._ends[interval - 1] <= until:
            return at, interval
        first = bisect_right(self._ends, until, first, interval)
        steps.append((_RUN, interval, first, at))
        return min(self._ends[first], self._intervals[0][first + 1]), first

    def _from_device(self, steps: list[_Step], at: int, interval: int) -> tuple[int, int, int, int]:
        start, by_launch, source, done, thread, join, _ = (column[interval] for column in self._intervals)
        steps.append((_BUSY, interval, start, at))
        if by_launch:
            steps.append((_LAUNCHED, interval, done, start))
            return done, NO_PARENT, thread, join
        if source < 0:
            steps.append((_LOST, interval, -FAR, start))
            return -FAR, NO_PARENT, NO_PARENT, NO_PARENT
        end = min(self._ends[source], start)
        steps.append((_QUEUED, interval, end, start))
        return end, source, NO_PARENT, NO_PARENT

    def _from_host(self, steps: list[_Step], at: int, thread: int, join: int) -> tuple[int, int, int, int]:
        if join < 0:
            steps.append((_HOST, thread, -FAR, at))
            return -FAR, NO_PARENT, NO_PARENT, NO_PARENT
        low, target, source, other, before = (column[join] for column in self._joins)
        steps.append((_HOST, thread, low, at))
        if target >= 0:
            return low, target, NO_PARENT, NO_PARENT
        steps.append((_HANDED, thread, source, low))
        return source, NO_PARENT, other, before


def _firsts(device: Device, bound: Bools, source: Ints) -> Ints:
    """The first interval of the neighbours on a stream that lead back to each other from each interval."""
    place = np.arange(len(source))
    apart = bound | (source != place - 1)
    apart[1:] |= device.lane[1:] != device.lane[:-1]
    apart[:1] = True
    return np.maximum.accumulate(np.where(apart, place, 0))


def _told(device: Device, steps: Ints) -> Ints:
    """The same steps, with each interval of a run, but for its first, and the gap before it as steps."""
    is_run = steps[0] == _RUN
    _, last, first, at, number = steps[:, is_run]
    counts = last - first
    run = np.repeat(np.arange(len(last)), counts)
    interval = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts - first, counts) + 1
    start = device.start[interval]
    end = np.minimum(device.end[interval], device.start[np.minimum(interval + 1, len(device.start) - 1)])
    end[np.cumsum(counts) - 1] = at
    before = np.minimum(device.end[interval - 1], start)
    window = number[run]
    busy = (np.full_like(run, _BUSY), interval, start, end, window)
    queued = (np.full_like(run, _QUEUED), interval, before, start, window)
    return np.hstack((steps[:, ~is_run], np.vstack(busy), np.vstack(queued)))


def _columns(*parts: Small) -> tuple[memoryview, ...]:
    """Columns of numbers as what gives Python's own at once: the walk looks at few rows, one by one."""
    return tuple(np.ascontiguousarray(part).data for part in parts)


def _flat(walked: list[list[_Step]]) -> Iterator[int]:
    return (number for own in walked for step in own for number in step)


def _segments(graph: Graph, steps: Ints) -> dict[str, Small]:
    """Steps of the walks inside their windows as segments; stretches on the host cut into their slices.

    Args:
        graph: What was walked.
        steps: What each step is, of which interval or thread, its start, its end, and its window's number.
    """
    solid = steps[3] > steps[2]
    hosted = steps[0] == _HOST
    device = _of_device(graph, *steps[:, solid & ~hosted])
    host = _of_host(graph, *steps[1:, solid & hosted])
    return {name: np.concatenate((device.pop(name), host.pop(name))) for name in [*device]}


def _of_device(
    graph: Graph, what: Ints, which: Ints, start: Ints, end: Ints, window: Ints
) -> dict[str, Small]:
    long = end - start > SHORT_GAP_NS
    queued = np.where(long, ALL_KINDS.index(DEVICE_GAP), ALL_KINDS.index(QUEUE_DELAY))
    handed = what == _HANDED
    interval = np.where(handed, 0, which)
    kind = np.select(
        [what == _BUSY, what == _LAUNCHED, what == _QUEUED, handed],
        [
            graph.kind[interval],
            np.full(len(what), ALL_KINDS.index(LAUNCH_DELAY)),
            queued,
            np.full(len(what), ALL_KINDS.index(HANDOVER)),
        ],
        default=ALL_KINDS.index(UNKNOWN),
    )
    none = len(graph.host.labels) - 1
    return {
        WINDOW: window.astype(np.int32),
        "start": start,
        "end": end,
        "kind": kind.astype(np.int8),
        "label": np.where(handed, none, graph.label[interval]).astype(np.int32),
        "interval": np.where(handed, NO_PARENT, which).astype(np.int32),
        "slice": np.full(len(what), NO_PARENT, np.int32),
    }


def _of_host(graph: Graph, thread: Ints, start: Ints, end: Ints, window: Ints) -> dict[str, Small]:
    slices = graph.host.slices
    first, last = slices.at(thread, start), slices.at(thread, end - 1)
    counts = last - first + 1
    stretch = np.repeat(np.arange(len(start), dtype=np.int32), counts)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    number = number.astype(np.int32)
    kind, label = described(graph.host, number)
    kind[slices.starts(number) == -FAR] = ALL_KINDS.index(UNKNOWN)
    return {
        WINDOW: window.astype(np.int32)[stretch],
        "start": np.maximum(slices.starts(number), start[stretch]),
        "end": np.minimum(slices.ends(number), end[stretch]),
        "kind": kind,
        "label": label,
        "interval": np.full(len(number), NO_PARENT, np.int32),
        "slice": number,
    }


def described(host: Host, number: Small) -> tuple[Small, Small]:
    """Kind and label of slices of the host."""
    row = host.slices.row[number]
    none = row < 0
    known = len(host.kind) > 0
    kind: Small = host.kind[row] if known else np.empty(len(row), np.int8)
    label: Small = host.label[row] if known else np.empty(len(row), np.int32)
    kind[none], label[none] = KINDS.index(path_host.OUTSIDE), len(host.labels) - 1
    return kind, label
