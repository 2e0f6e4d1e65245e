"""Backward walk along the critical path, and the resulting segments.

The walk is a Python loop over the nodes on the path. Runs of neighboring intervals on a stream that depend on
each other are one step of the loop and expanded afterwards; host time between two waits is also one step, and
cut into slices afterwards, vectorized.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import COMMUNICATION, family, matches
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from ..shared.collective_kinds import collective_copies
from ..shared.common import NO_PARENT, Bools, Small
from . import device as path_device
from . import host as path_host
from .device import Device, Joins
from .host import FAR, KINDS, Host

COMPUTE, COMMUNICATE, MEMCPY, MEMSET, GRAPH = "compute", "communication", "memcpy", "memset", "graph"
DEVICE_KINDS = (COMPUTE, COMMUNICATE, MEMCPY, MEMSET, GRAPH)
LAUNCH_DELAY, QUEUE_DELAY, DEVICE_GAP, HANDOVER, UNKNOWN = (
    "launch delay",
    "kernel-to-kernel delay",
    "device gap, cause unknown",
    "thread handover",
    "unknown",
)
ALL_KINDS = (*KINDS, *DEVICE_KINDS, LAUNCH_DELAY, QUEUE_DELAY, DEVICE_GAP, HANDOVER, UNKNOWN)
MAX_SHORT_GAP_NS = 30_000
"""Maximum length of a gap before queued work that is a device delay, as in `idle_gaps`."""

WRAPPER = "record_param_comms"
"""Op around every collective; the kernel's family is a more specific label."""

WINDOW = "window"
"""Column with the window number of a segment."""
MAX_KEPT = 1_000_000
"""Host rows up to which the graph of a rank stays in memory: about 40 MB."""
_BUSY, _LAUNCHED, _QUEUED, _HANDOVER, _HOST, _UNKNOWN, _RUN = range(7)
_Step = tuple[int, int, int, int]


@dataclass(frozen=True)
class Graph:
    """Dependency graph of one rank: host, device, joins, and labels of device intervals."""

    host: Host  # host threads
    device: Device  # device streams
    joins: Joins  # waits of host threads
    kind: Ints  # index into `ALL_KINDS` of each device interval
    label: Ints  # index into `labels` of each device interval: the op that launched it, else its family
    labels: list[str]  # host labels, then kernel families


def read_graph(run: Run, rank: int) -> Graph:
    """Read the dependency graph of one rank; several analyses share a small one."""
    own = run if run.ranks == (rank,) else run.of_ranks(rank)
    return own.compute_once(_read_graph) if own.rows("host_intervals") <= MAX_KEPT else _read_graph(own)


def _read_graph(run: Run) -> Graph:
    (rank,) = run.ranks
    host = path_host.read_host(run)
    device = path_device.read_device(run, rank, host)
    joins = path_device.find_joins(host, device)
    label, labels = _labels(host, device)
    return Graph(host, device, joins, _kinds(run, device), label, labels)


def _kinds(run: Run, device: Device) -> Ints:
    frame = device.frame
    kind = np.full(len(frame), ALL_KINDS.index(COMPUTE))
    kind[matches(frame[C.NAME], COMMUNICATION).to_numpy(bool)] = ALL_KINDS.index(COMMUNICATE)
    for value, name in ((DeviceKind.MEMCPY, MEMCPY), (DeviceKind.MEMSET, MEMSET), (DeviceKind.GRAPH, GRAPH)):
        kind[(frame[C.KIND] == value).to_numpy(bool)] = ALL_KINDS.index(name)
    kind[(collective_copies(run, frame) != "").to_numpy(bool)] = ALL_KINDS.index(COMMUNICATE)
    return kind


def _labels(host: Host, device: Device) -> tuple[Ints, list[str]]:
    names = device.frame[C.NAME].cat
    families = [family(name) for name in names.categories.astype(str)]
    op = host.rows.positions(device.frame[C.OP_ROW])
    number = {name: code for code, name in enumerate(dict.fromkeys([*host.labels, *families]))}
    family_label = np.array([number[name] for name in families], np.int64)[names.codes.to_numpy()]
    wrapper = number.get(WRAPPER, NO_PARENT)
    label = (
        np.where((op >= 0) & (host.label[op] != wrapper), host.label[op], family_label)
        if len(host.label)
        else family_label
    )
    return label, list(number)


@dataclass(frozen=True)
class Window:
    """Window of a path: its bounds, and the interval it ends with, -1 if it ends on the host."""

    start: int
    end: int
    last: int


class Backtracker:
    """Walks paths of one rank, with lookup columns prepared once."""

    def __init__(self, graph: Graph) -> None:
        host, device, joins = graph.host, graph.device, graph.joins
        self._graph = graph
        launched = device.call >= 0
        called = np.minimum(device.called, device.start)
        done = np.where(launched, host.rows.end[device.call], called) if len(host.rows.end) else called
        source = np.where(device.binding == path_device.WAIT, device.waited, device.previous)
        before = joins.last(device.thread, called, bound=True)
        done = np.maximum(called, np.minimum(done, device.start))
        bound = device.binding == path_device.LAUNCH
        self._intervals = _columns(
            device.start, bound, source, done, device.thread, before, _run_starts(device, bound, source)
        )
        self._ends = device.end.data
        low = np.where(joins.is_call, path_device.ends_of(device, joins.target), joins.end)
        target = np.where(joins.is_call, joins.target, NO_PARENT)
        earlier = joins.last(joins.source_thread, joins.source, bound=True)
        self._joins = _columns(low, target, joins.source, joins.source_thread, earlier)
        self._most = len(device.start) + len(low) + 1  # bounds the loop in case of cycles at equal times

    def paths(self, windows: Sequence[Window]) -> pd.DataFrame:
        """Segments of the critical path of each window, sorted by time; they partition the window exactly."""
        path = self.pieces(windows)
        order = np.lexsort((path["start"], path[WINDOW]))
        return pd.DataFrame({name: path.pop(name)[order] for name in [*path]}, copy=False)

    def pieces(self, windows: Sequence[Window]) -> dict[str, Small]:
        """Segments as columns, unsorted."""
        ends = np.array([window.end for window in windows], np.int64)
        main = np.full(len(windows), self._graph.host.main)
        joins = self._graph.joins.last(main, ends, bound=True).tolist()
        walked = list(map(self._walk, windows, joins))
        number = np.repeat(np.arange(len(windows)), [len(steps_of_window) for steps_of_window in walked])
        flat = (value for steps_of_window in walked for step in steps_of_window for value in step)
        steps = np.fromiter(flat, np.int64, 4 * len(number)).reshape(-1, 4).T
        steps = _expand_runs(self._graph.device, np.vstack((steps, number)))
        low = np.array([window.start for window in windows], np.int64)
        steps[2] = np.maximum(steps[2], low[steps[4]])
        steps[3] = np.minimum(steps[3], ends[steps[4]])
        return _to_segments(self._graph, steps)

    def _walk(self, window: Window, join: int) -> list[_Step]:
        """Steps back from the end of a window, before which this join of the main thread is the last one."""
        steps: list[_Step] = []
        now, interval, thread = window.end, window.last, self._graph.host.main
        for _ in range(self._most):
            if now <= window.start:
                return steps
            if interval >= 0:
                now, interval = self._along_stream(steps, now, interval, window.start)
                now, interval, thread, join = self._from_device(steps, now, interval)
            else:
                now, interval, thread, join = self._from_host(steps, now, thread, join)
        steps.append((_UNKNOWN, 0, -FAR, now))
        return steps

    def _along_stream(self, steps: list[_Step], now: int, interval: int, until: int) -> tuple[int, int]:
        """Walk back along a stream while its intervals depend on each other and end after an instant."""
        first = self._intervals[-1][interval]
        if first == interval or self._ends[interval - 1] <= until:
            return now, interval
        first = bisect_right(self._ends, until, first, interval)
        steps.append((_RUN, interval, first, now))
        return min(self._ends[first], self._intervals[0][first + 1]), first

    def _from_device(self, steps: list[_Step], now: int, interval: int) -> tuple[int, int, int, int]:
        start, by_launch, source, done, thread, join, _ = (column[interval] for column in self._intervals)
        steps.append((_BUSY, interval, start, now))
        if by_launch:
            steps.append((_LAUNCHED, interval, done, start))
            return done, NO_PARENT, thread, join
        if source < 0:
            steps.append((_UNKNOWN, interval, -FAR, start))
            return -FAR, NO_PARENT, NO_PARENT, NO_PARENT
        end = min(self._ends[source], start)
        steps.append((_QUEUED, interval, end, start))
        return end, source, NO_PARENT, NO_PARENT

    def _from_host(self, steps: list[_Step], now: int, thread: int, join: int) -> tuple[int, int, int, int]:
        if join < 0:
            steps.append((_HOST, thread, -FAR, now))
            return -FAR, NO_PARENT, NO_PARENT, NO_PARENT
        low, target, source, other, before = (column[join] for column in self._joins)
        steps.append((_HOST, thread, low, now))
        if target >= 0:
            return low, target, NO_PARENT, NO_PARENT
        steps.append((_HANDOVER, thread, source, low))
        return source, NO_PARENT, other, before


def _run_starts(device: Device, bound: Bools, source: Ints) -> Ints:
    """First interval of the run of dependent neighbors on a stream, for each interval."""
    place = np.arange(len(source))
    separate = bound | (source != place - 1)
    separate[1:] |= device.lane[1:] != device.lane[:-1]
    separate[:1] = True
    return np.maximum.accumulate(np.where(separate, place, 0))


def _expand_runs(device: Device, steps: Ints) -> Ints:
    """Expand runs: each interval except the first, and the gap before it, become steps."""
    is_run = steps[0] == _RUN
    _, last, first, now, number = steps[:, is_run]
    counts = last - first
    run = np.repeat(np.arange(len(last)), counts)
    interval = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts - first, counts) + 1
    start = device.start[interval]
    end = np.minimum(device.end[interval], device.start[np.minimum(interval + 1, len(device.start) - 1)])
    end[np.cumsum(counts) - 1] = now
    before = np.minimum(device.end[interval - 1], start)
    window = number[run]
    busy = (np.full_like(run, _BUSY), interval, start, end, window)
    queued = (np.full_like(run, _QUEUED), interval, before, start, window)
    return np.hstack((steps[:, ~is_run], np.vstack(busy), np.vstack(queued)))


def _columns(*parts: Small) -> tuple[memoryview, ...]:
    """Columns as memory views, whose items are Python integers: the walk reads few rows, individually."""
    return tuple(np.ascontiguousarray(part).data for part in parts)


def _to_segments(graph: Graph, steps: Ints) -> dict[str, Small]:
    """Convert steps of the walks inside their windows to segments, with host time cut into slices."""
    nonempty = steps[3] > steps[2]
    on_host = steps[0] == _HOST
    device = _device_segments(graph, *steps[:, nonempty & ~on_host])
    host = _host_segments(graph, *steps[1:, nonempty & on_host])
    return {name: np.concatenate((device.pop(name), host.pop(name))) for name in [*device]}


def _device_segments(
    graph: Graph, what: Ints, which: Ints, start: Ints, end: Ints, window: Ints
) -> dict[str, Small]:
    long = end - start > MAX_SHORT_GAP_NS
    queued = np.where(long, ALL_KINDS.index(DEVICE_GAP), ALL_KINDS.index(QUEUE_DELAY))
    is_handover = what == _HANDOVER
    interval = np.where(is_handover, 0, which)
    backlog = graph.device.behind_backlog[interval]
    launched = np.where(backlog, ALL_KINDS.index(DEVICE_GAP), ALL_KINDS.index(LAUNCH_DELAY))
    kind = np.select(
        [what == _BUSY, what == _LAUNCHED, what == _QUEUED, is_handover],
        [
            graph.kind[interval],
            launched,
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
        "label": np.where(is_handover, none, graph.label[interval]).astype(np.int32),
        "interval": np.where(is_handover, NO_PARENT, which).astype(np.int32),
        "slice": np.full(len(what), NO_PARENT, np.int32),
    }


def _host_segments(graph: Graph, thread: Ints, start: Ints, end: Ints, window: Ints) -> dict[str, Small]:
    slices = graph.host.slices
    first, last = slices.at(thread, start), slices.at(thread, end - 1)
    counts = last - first + 1
    segment = np.repeat(np.arange(len(start), dtype=np.int32), counts)
    number = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    number = number.astype(np.int32)
    kind, label = describe_slices(graph.host, number)
    kind[slices.starts(number) == -FAR] = ALL_KINDS.index(UNKNOWN)
    return {
        WINDOW: window.astype(np.int32)[segment],
        "start": np.maximum(slices.starts(number), start[segment]),
        "end": np.minimum(slices.ends(number), end[segment]),
        "kind": kind,
        "label": label,
        "interval": np.full(len(number), NO_PARENT, np.int32),
        "slice": number,
    }


def describe_slices(host: Host, number: Small) -> tuple[Small, Small]:
    """Kind and label of host slices."""
    row = host.slices.row[number]
    none = row < 0
    has_rows = len(host.kind) > 0
    kind: Small = host.kind[row] if has_rows else np.empty(len(row), np.int8)
    label: Small = host.label[row] if has_rows else np.empty(len(row), np.int32)
    kind[none], label[none] = KINDS.index(path_host.OUTSIDE), len(host.labels) - 1
    return kind, label
