"""Device side of the critical path: the dependencies of each interval on a stream.

An interval has three dependencies: the end of the previous interval on its stream (queue), the arrival of
its launch at the device (launch), and the end of the interval its stream waits for (wait). The last one is
binding. A launch is assumed to arrive one *latency* after the start of its call, at the latest when the
interval starts; the latency is the lower median of (device start − call start) over launches into an empty
stream, or `DEFAULT_LATENCY_NS` where none is known. A wait is assumed for a `StreamWaitEvent` call between
the previous launch and its own; the awaited interval is not recorded, so it is the last one to end on
another stream of the device among those launched before that call. Within one graph replay, an interval
waits for the last of the graph's intervals to end on another stream. An interval that starts over
`MIN_GAP_NS` after the end of its queue and its launch, and within `MAX_FOLLOW_NS` after the end of work on
another stream of the device, waited for that work.

An interval that starts while the previous one on its stream still runs (programmatic dependent launch)
depends on that one, from its own start on.

A sync call waits for work launched before it started: on the stream that the profiler recorded with it, else
on all streams of the rank. The target of the wait is the last of that work to end by the end of the call. A
copy blocks its call if one side is pageable memory or the call is not asynchronous, and the copy ended before
the call did. Freeing memory also waits for a busy device.

A top-level interval of a backward thread depends on the main thread if that was idle from before the interval
started, when the backward thread was idle, until it ended. The next work of the main thread depends on the
last such interval that started and ended while the main thread was idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.selection import RowIndex
from tracekit.schema import BUSY_KINDS, C, DeviceKind, Memory

from ..shared.common import NO_PARENT, Bools, Small, ids_or_absent, ints, is_kind
from ..shared.groups import search_by
from .host import FAR, KINDS, SYNC, Host

NONE, QUEUE, LAUNCH, WAIT = range(4)
WAIT_ROW = "Stream Wait Event"
DEFAULT_LATENCY_NS = 10_000
"""Latency of a launch where none is known: under a profiler it is 5 to 10 µs."""
MIN_LATENCIES, MAX_LATENCY_NS = 5, 100_000
"""With fewer samples their median counts only up to this: a single late start may have another reason."""
MIN_GAP_NS, MAX_FOLLOW_NS = 30_000, 20_000
"""An idle stream with launched work, and the time after the end of another stream's work in which it
resumes."""
_MAX_PAIRS = 1 << 20  # pairs of calls and lanes in memory at a time
_KEPT = (C.ROW_ID, C.KIND, C.NAME, C.STEP, C.OP_ROW, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)
_READ = (*_KEPT, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS, C.LAUNCH_ROW)


@dataclass(frozen=True)
class Device:
    """Busy intervals of one rank, by stream and end."""

    frame: pd.DataFrame  # further columns of their rows, in this order
    lane: Ints  # number of the stream each is on, over all devices
    lanes: list[tuple[int, int]]  # device and stream of each lane
    start: Ints
    end: Ints
    call: Ints  # position of the launching call among the host's rows, -1 if unknown
    thread: Ints  # thread of that call, -1 if unknown
    called: Ints  # start of that call, else of the interval
    previous: Ints  # previous interval on its stream, -1 if there is none
    waited: Ints  # interval its stream waited for, -1 without a wait
    binding: Ints  # binding dependency: `QUEUE`, `LAUNCH` or `WAIT`; `NONE` if unknown
    latency: Ints  # assumed time from the start of its call until the launch arrives at the device
    # whether it is the first launched on its stream and started late: it may have waited for work from before
    # the capture
    behind_backlog: Bools
    syncs: pd.DataFrame  # recorded rows of the streams that calls waited for

    @cached_property
    def number(self) -> Ints:
        """Number of the device of each interval."""
        return np.array([number for number, _ in self.lanes], np.int64)[self.lane]

    @cached_property
    def _launched(self) -> Ints:
        """Latest call of the intervals of its lane up to each one."""
        return pd.Series(self.called).groupby(self.lane, sort=False).cummax().to_numpy(np.int64)

    def last(self, lane: Ints, ended_by: Ints, called_before: Ints) -> Ints:
        """Last interval of a lane that ended by each instant and was called before another, -1 for none."""
        # Several threads may launch on one stream, out of order: of the running maximum, which is sorted, a
        # prefix below an instant was launched before it as a whole.
        ended = search_by(self.lane, self.end, lane, ended_by)
        return np.minimum(ended, search_by(self.lane, self._launched, lane, called_before - 1))

    def lanes_of(self, rows: pd.DataFrame) -> Ints:
        """Lane of the device and stream of each of these rows, -1 if no interval is on it."""
        numbers = {place: lane for lane, place in enumerate(self.lanes)}
        places = zip(ints(rows, C.DEVICE).tolist(), ids_or_absent(rows[C.STREAM]).tolist(), strict=True)
        return np.array([numbers.get(place, NO_PARENT) for place in places], np.int64)


def ranks_with_device(run: Run) -> list[int]:
    """Ranks with device intervals."""
    return sorted(int(rank) for rank in busy(run, [C.RANK])[C.RANK].unique())


def read_device(run: Run, rank: int, host: Host) -> Device:
    """Read the intervals of one rank with their dependencies.

    Args:
        run: The run.
        rank: The rank.
        host: Its host rows.
    """
    kinds = is_kind(*BUSY_KINDS, DeviceKind.SYNC)
    frame = run.of_ranks(rank).table("device_intervals", columns=_READ, where=kinds)
    is_sync = (frame[C.KIND] == DeviceKind.SYNC).to_numpy(bool)
    syncs, frame = frame[is_sync], frame[~is_sync]
    device = frame[C.DEVICE].to_numpy(np.int64)
    stream = ids_or_absent(frame[C.STREAM])
    lane, lanes = _stream_numbers(device, stream)
    start = ints(frame, C.START_NS)
    end = start + ints(frame, C.DUR_NS)
    order = np.lexsort((ints(frame, C.ROW_ID), start, end, lane))  # by end, which is what is searched
    call = host.rows.positions(frame[C.LAUNCH_ROW])[order]
    frame, lane, start, end = frame[[*_KEPT]].iloc[order], lane[order], start[order], end[order]
    called = np.where(call >= 0, host.rows.start[call], start) if len(host.rows.start) else start
    thread = np.where(call >= 0, host.rows.thread[call], NO_PARENT) if len(host.rows.start) else call
    unbound = Device(
        frame=frame.reset_index(drop=True),
        lane=lane,
        lanes=lanes,
        start=start,
        end=end,
        call=call,
        thread=thread,
        called=called,
        previous=_previous(lane, start, end, ints(frame, C.ROW_ID)),
        waited=np.full(len(start), NO_PARENT),
        binding=np.zeros(len(start), np.int64),
        latency=np.zeros(len(start), np.int64),
        behind_backlog=np.zeros(len(start), np.bool_),
        syncs=syncs,
    )
    return _with_dependencies(unbound, host)


def _stream_numbers(device: Ints, stream: Ints) -> tuple[Ints, list[tuple[int, int]]]:
    """Lane number of each interval, and device and stream of each lane."""
    place, devices = pd.factorize(device, sort=True)
    stream_codes, streams = pd.factorize(stream, sort=True)
    lane, pairs = pd.factorize(place * len(streams) + stream_codes, sort=True)
    return lane, [(int(devices[pair // len(streams)]), int(streams[pair % len(streams)])) for pair in pairs]


def _previous(lane: Ints, start: Ints, end: Ints, row_id: Ints) -> Ints:
    """Last interval on the lane that ended by each start, or the previous one if it still runs.

    Ties are resolved by position.
    """
    # An interval of no length has ended by its own start, and would follow itself.
    before = np.minimum(search_by(lane, end, lane, start), np.arange(len(lane)) - 1)
    previous = np.where((before >= 0) & (lane[before] == lane), before, NO_PARENT)
    # In order of starts, an interval that overlaps the one before it depends on that one (programmatic
    # dependent launch), unless another one ended exactly at its start.
    order = np.lexsort((row_id, end, start, lane))
    first, second = order[:-1], order[1:]
    running = (lane[first] == lane[second]) & (end[first] > start[second])
    running &= (previous[second] < 0) | (end[previous[second]] < start[second])
    previous[second[running]] = first[running]
    return previous


def ends_of(device: Device, which: Ints) -> Ints:
    """End of each of these intervals, `-FAR` for none."""
    return np.where(which >= 0, device.end[which], -FAR)


def _with_dependencies(device: Device, host: Host) -> Device:
    """Add the dependencies to the intervals; instants of dependencies that there are not are `-FAR`."""
    start, launched = device.start, device.call >= 0
    queue_ended = np.minimum(ends_of(device, device.previous), start)
    elapsed = start - device.called
    # Only a launch into an empty stream shows its latency; a negative one shows that the clocks differ.
    empty = launched & (queue_ended <= device.called) & (elapsed >= 0)
    _, first = np.unique(device.call[empty], return_index=True)  # a graph has many intervals of one call
    samples = np.sort(elapsed[empty][first])
    median = int(samples[(len(samples) - 1) // 2]) if len(samples) else DEFAULT_LATENCY_NS
    if len(samples) < MIN_LATENCIES:
        median = min(median, MAX_LATENCY_NS)
    latency = np.minimum(elapsed, median)
    arrived = np.where(launched, device.called + latency, -FAR)
    waited = _find_stream_waits(device, host)
    _find_resumed_streams(device, np.maximum(queue_ended, arrived), waited)
    released = ends_of(device, waited)
    binding = np.where(queue_ended > -FAR, QUEUE, NONE)
    binding = np.where(arrived > queue_ended, LAUNCH, binding)
    binding = np.where(released > np.maximum(queue_ended, arrived), WAIT, binding)
    latency = np.where(binding == LAUNCH, elapsed, latency)  # nothing else explains the rest of the time
    behind_backlog = _behind_backlog(device, host, binding)
    return replace(device, waited=waited, binding=binding, latency=latency, behind_backlog=behind_backlog)


def _behind_backlog(device: Device, host: Host, binding: Ints) -> Bools:
    """Whether each interval is the first launched on its stream and starts late.

    Work from before the capture may occupy the stream, so removing launch overhead saves none of the delay.
    """
    behind: Bools = binding == LAUNCH
    if behind.any():
        behind &= (device.previous < 0) | (device.call[device.previous] < 0)
        behind &= device.start - host.rows.end[device.call] > MIN_GAP_NS
    return behind


def _find_stream_waits(device: Device, host: Host) -> Ints:
    """Interval that each interval's stream waited for, derived from the calls; -1 without a wait."""
    waited = np.full(len(device.start), NO_PARENT)
    recorded = device.syncs[matches(device.syncs[C.NAME], WAIT_ROW)]
    if len(recorded):
        lanes, calls = device.lanes_of(recorded), host.rows.positions(recorded[C.LAUNCH_ROW])
        known = (lanes >= 0) & (calls >= 0)
        _follow(device, host, calls[known], lanes[known], device.lane, waited)
    else:  # without a recorded stream a wait applies to the next launch of the thread
        calls = np.flatnonzero(host.waits)
        _follow(device, host, calls, np.zeros_like(calls), np.zeros_like(device.lane), waited)
    _within_graphs(device, waited)
    return waited


def _find_resumed_streams(device: Device, ready: Ints, waited: Ints) -> None:
    """Add to `waited` the waits of intervals that start late, directly after one of another stream ends.

    The call that made the stream wait is not recorded, or precedes the capture. `ready` is the time at which
    queue and launch let each interval start, ns.
    """
    ready = np.maximum(ready, ends_of(device, waited))
    rows = np.flatnonzero((device.start - ready > MIN_GAP_NS) & (ready > -FAR))
    if not len(rows):
        return
    # By device and end; of equal ends that on the first lane is the last one.
    order = np.lexsort((-device.lane, device.end, device.number))
    lane, number = device.lane[order], device.number[order]
    place = search_by(number, device.end[order], device.number[rows], device.start[rows])
    # Directly before neighbors of one lane is the last interval of another lane.
    begins = np.concatenate(([True], (lane[1:] != lane[:-1]) | (number[1:] != number[:-1])))
    others = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0)) - 1
    place = np.where((place >= 0) & (lane[place] == device.lane[rows]), others[place], place)
    best = np.where((place >= 0) & (number[place] == device.number[rows]), order[place], NO_PARENT)
    follows = (best >= 0) & (device.start[rows] - ends_of(device, best) <= MAX_FOLLOW_NS)
    waited[rows[follows]] = best[follows]


def _within_graphs(device: Device, waited: Ints) -> None:
    """Add to `waited` the last to end on another lane, for intervals launched by one call on several lanes.

    The edges of a graph are not recorded, and no call is between its intervals.
    """
    lanes = pd.DataFrame({"call": device.call, "lane": device.lane}).groupby("call")["lane"]
    spread = lanes.min() != lanes.max()
    calls = spread.index[spread].to_numpy(np.int64)
    rows = np.flatnonzero(np.isin(device.call, calls[calls >= 0]) & (waited < 0))
    best = np.full(len(rows), NO_PARENT)
    for lane in np.unique(device.lane[rows]):
        position = search_by(device.lane, device.end, np.full(len(rows), lane), device.start[rows])
        fits = (position >= 0) & (device.lane[rows] != lane) & (device.call[position] == device.call[rows])
        last = np.where(fits, position, NO_PARENT)
        best = np.where(ends_of(device, last) > ends_of(device, best), last, best)
    waited[rows] = best


def _follow(device: Device, host: Host, calls: Ints, groups: Ints, of_row: Ints, waited: Ints) -> None:
    """Set in `waited` the waits of intervals launched after one of these calls and before its next ones.

    Args:
        device: The intervals.
        host: The host rows.
        calls: Positions of calls that make a stream wait.
        groups: Group of each: its lane if recorded.
        of_row: Group of each interval.
        waited: The interval that each one waited for.
    """
    rows = np.flatnonzero(device.call >= 0)
    if not len(calls) or not len(rows):
        return
    order = np.lexsort((calls, groups))
    calls, groups = calls[order], groups[order]
    # Positions of host rows are by thread and start: the call before a launch on its thread precedes it here.
    place = search_by(groups, calls, of_row[rows], device.call[rows] - 1)
    wait = calls[np.maximum(place, 0)]
    previous_call = np.where(device.previous[rows] >= 0, device.called[device.previous[rows]], -FAR)
    applies: Bools = (place >= 0) & (host.rows.thread[wait] == host.rows.thread[device.call[rows]])
    applies &= host.rows.start[wait] >= previous_call  # else the previous interval of the stream has waited
    rows, wait = rows[applies], wait[applies]
    best = np.full(len(rows), NO_PARENT)
    for lane, (number, _) in enumerate(device.lanes if len(rows) else ()):
        last = device.last(np.full(len(rows), lane), device.start[rows], host.rows.start[wait])
        is_other = (device.lane[rows] != lane) & (device.number[rows] == number)
        best = np.where(is_other & (ends_of(device, last) > ends_of(device, best)), last, best)
    waited[rows] = best


@dataclass(frozen=True)
class Joins:
    """Waits of host threads, by thread and end."""

    thread: Small  # thread that waits
    end: Ints  # end of the wait
    source_thread: Small  # thread it depends on: its own, or the one that hands over to it
    source: Ints  # time on that thread it depends on
    target: Ints  # last interval to end of those it waited for, -1 for a thread or none
    is_call: Bools  # whether it is a sync call or a blocking copy, not a thread
    bound: Bools  # whether it actually waited: the target ended after the call started
    cost: Ints  # time from the later of arrival and the target's end until the end of the wait
    pairs: tuple[Ints, Ints]  # join and interval of every dependency on the device

    def last(self, thread: Small, by: Ints, *, bound: bool) -> Ints:
        """Last join of a thread by each instant, ns, -1 for none; `bound`: of those that actually waited."""
        joins = np.full(len(by), NO_PARENT)
        rows = np.flatnonzero(self.bound) if bound else np.arange(len(self.end))
        place = search_by(self.thread[rows].astype(np.int64), self.end[rows], thread.astype(np.int64), by)
        joins[place >= 0] = rows[place[place >= 0]]
        return joins


def find_joins(host: Host, device: Device) -> Joins:
    """Find all waits of a rank's threads."""
    call, pairs, target = _calls(host, device)
    handovers = _handovers(host)
    called, returned = host.rows.start[call], host.rows.end[call]
    cost = returned - np.maximum(ends_of(device, target), called)
    zeros = np.zeros(len(handovers[0]), np.int64)  # handovers have no interval, and always bind
    thread = np.concatenate((host.rows.thread[call], handovers[0]))
    end = np.concatenate((returned, handovers[1]))
    # Of waits that end together, as a driver call within a runtime call does, the enclosing one comes last.
    order = np.lexsort((np.concatenate((-called, zeros)), end, thread))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number, interval = place[pairs[0]], pairs[1]
    sorted_pairs = np.lexsort((interval, number))
    return Joins(
        thread=thread[order],
        end=end[order],
        source_thread=np.concatenate((host.rows.thread[call], handovers[2]))[order],
        source=np.concatenate((called, handovers[3]))[order],
        target=np.concatenate((target, zeros - 1))[order],
        is_call=(np.arange(len(order)) < len(call))[order],
        bound=np.concatenate((ends_of(device, target) > called, zeros == 0))[order],
        cost=np.concatenate((cost, handovers[1] - handovers[3]))[order],
        pairs=(number[sorted_pairs], interval[sorted_pairs]),
    )


def _calls(host: Host, device: Device) -> tuple[Ints, tuple[Ints, Ints], Ints]:
    """Waiting calls by thread and end, with all intervals they waited for, and the last of these."""
    waits = np.flatnonzero(
        ((host.kind == KINDS.index(SYNC)) | host.frees) & (host.rows.end > host.rows.start)
    )
    copies = _blocking_copies(host, device)
    call = np.concatenate((waits, device.call[copies]))
    numbers, intervals = [np.arange(len(waits), len(call))], [copies]
    lanes = _streams_waited_for(host, device, waits)
    block = max(1, _MAX_PAIRS // max(1, len(waits)))
    for first in range(0, len(device.lanes), block):
        selected, lane = _pair_with_lanes(lanes, np.arange(first, min(first + block, len(device.lanes))))
        awaited = device.last(lane, host.rows.end[waits[selected]], host.rows.start[waits[selected]])
        numbers.append(selected[awaited >= 0])
        intervals.append(awaited[awaited >= 0])
    pairs = np.concatenate(numbers), np.concatenate(intervals)
    target = _latest(len(call), pairs, device)
    keep = _newest(call, pairs, host, target)
    # Freeing memory waits for the device only where it has work; sync calls are waits in any case.
    waited = ~host.frees[call] | (ends_of(device, target) > host.rows.start[call])
    keep &= waited[pairs[0]]
    number = np.cumsum(waited) - 1
    return call[waited], (number[pairs[0][keep]], pairs[1][keep]), target[waited]


def _blocking_copies(host: Host, device: Device) -> Ints:
    """Copies that blocked their call."""
    frame, call = device.frame, device.call
    copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool) & (call >= 0)
    pageable = (frame[C.SRC_MEMORY] == Memory.PAGEABLE) | (frame[C.DST_MEMORY] == Memory.PAGEABLE)
    rows = np.flatnonzero(copy)
    calls = call[rows]
    within = (device.end[rows] <= host.rows.end[calls]) & (device.start[rows] >= host.rows.start[calls])
    nonempty = host.rows.end[calls] > host.rows.start[calls]
    rows = rows[within & nonempty & (pageable.to_numpy(bool)[rows] | ~host.asynchronous[calls])]
    # A call may have made several copies: the last one is what it returned after.
    _, last = np.unique(call[rows][::-1], return_index=True)
    return rows[::-1][last]


def _streams_waited_for(host: Host, device: Device, waits: Ints) -> Ints:
    """Lane each sync call waited for if recorded, else -1 for all lanes."""
    lanes = np.full(len(waits), -1)
    syncs = device.syncs[matches(device.syncs[C.NAME], r"^Stream Sync")]
    call, lane = host.rows.positions(syncs[C.LAUNCH_ROW]), device.lanes_of(syncs)
    place = RowIndex(waits).of(call)
    np.maximum.at(lanes, place[place >= 0], lane[place >= 0])
    return lanes


def _pair_with_lanes(awaited: Ints, lanes: Ints) -> tuple[Ints, Ints]:
    """Pairs of calls and those of some lanes that they waited for, by lane and call; -1 waited for all."""
    everywhere, somewhere = np.flatnonzero(awaited < 0), np.flatnonzero(np.isin(awaited, lanes))
    call = np.concatenate((np.tile(everywhere, len(lanes)), somewhere))
    lane = np.concatenate((np.repeat(lanes, len(everywhere)), awaited[somewhere]))
    order = np.lexsort((call, lane))
    return call[order], lane[order]


def _latest(count: int, pairs: tuple[Ints, Ints], device: Device) -> Ints:
    """Interval of each join that ended last; the first one for equal ends."""
    target = np.full(count, NO_PARENT)
    order = np.lexsort((-pairs[1], device.end[pairs[1]], pairs[0]))
    target[pairs[0][order]] = pairs[1][order]
    return target


def _newest(call: Ints, pairs: tuple[Ints, Ints], host: Host, target: Ints) -> Bools:
    """Whether each dependency is new to the thread; others already hold by an earlier join."""
    number, interval = pairs
    order = np.lexsort((host.rows.end[call[number]], interval, host.rows.thread[call[number]]))
    thread, what = host.rows.thread[call[number]][order], interval[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (thread[1:] != thread[:-1]) | (what[1:] != what[:-1])
    keep: Bools = np.empty(len(order), np.bool_)
    keep[order] = new
    keep |= target[number] == interval
    return keep


def _handovers(host: Host) -> tuple[Ints, Ints, Ints, Ints]:
    """Thread, time, source thread and source time of handovers between main and backward threads."""
    parts = [_handovers_with(host, int(lane)) for lane in np.flatnonzero(host.backward)]
    if not parts:
        none = np.zeros(0, np.int64)
        return none, none, none, none
    thread, time, before, source_time = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((-source_time, time, thread))
    first = np.ones(len(order), np.bool_)  # of several awaited threads, the last one to finish counts
    first[1:] = (thread[order][1:] != thread[order][:-1]) | (time[order][1:] != time[order][:-1])
    selected = order[first]
    return thread[selected], time[selected], before[selected], source_time[selected]


def _handovers_with(host: Host, other: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Handovers in both directions between main and a backward thread; equal times are separated by 1 ns."""
    # A path is followed back in time: through handovers at equal times it could go round forever.
    slices, main = host.slices, host.main
    top = np.flatnonzero(
        (host.rows.thread == other) & (host.rows.parent < 0) & (host.rows.end > host.rows.start)
    )
    first, done = host.rows.start[top], np.maximum.accumulate(host.rows.end[top])
    low, high = slices.bounds[main], slices.bounds[main + 1]
    begin, end = slices.cuts[low : high - 1], slices.cuts[low + 1 : high]
    over = np.searchsorted(slices.cuts[low:high], first, side="right") - 1
    called = slices.cuts[low + over]
    idle = np.concatenate(([-FAR], done[:-1]))
    starts = (called > idle) & (slices.ends(low + over) >= host.rows.end[top])
    last = np.searchsorted(done, end, side="right") - 1
    resumes = np.flatnonzero((last >= 0) & (begin > -FAR) & (first[last] >= begin))
    counts = [int(starts.sum()), len(resumes)]
    return (
        np.repeat(np.array([other, main]), counts),
        np.concatenate((first[starts], end[resumes])),
        np.repeat(np.array([main, other]), counts),
        np.concatenate(
            (
                np.minimum(called[starts], first[starts] - 1),
                np.minimum(done[last[resumes]], end[resumes] - 1),
            )
        ),
    )
