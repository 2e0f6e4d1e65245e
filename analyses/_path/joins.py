"""Waits of host threads: for the device in a sync call or a blocking copy, or for another thread.

A sync call waits for work launched before it started: on the stream that the profiler recorded with it, else
on all streams of the rank. The target of the wait is the last of that work to end by the end of the call. A
copy blocks its call if one side is pageable memory or the call is not asynchronous, and the copy ended before
the call did. Freeing memory also waits for a busy device.

A top-level interval of a backward thread depends on the main thread if that was idle from before the interval
started, when the backward thread was idle, until it ended. The next work of the main thread depends on the
last such interval that started and ended while the main thread was idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.kernel_names import matches
from tracekit.schema import C, DeviceKind, Memory

from .._shared.common import NO_PARENT
from .device import ended
from .host import FAR, KINDS, SYNC, present

if TYPE_CHECKING:
    from tracekit.intervals import Ints

    from .device import Device
    from .host import Bools, Host, Small


@dataclass(frozen=True)
class Joins:
    """Waits of host threads, by thread and end.

    Attributes:
        thread: Thread that waits.
        end: End of the wait.
        source_thread: Thread it depends on: its own, or the one that hands over to it.
        source: Time on that thread it depends on.
        target: Last interval to end of those it waited for, -1 for a thread or none.
        is_call: Whether it is a sync call or a blocking copy, not a thread.
        bound: Whether it actually waited: the target ended after the call started.
        cost: Time from the later of arrival and the target's end until the end of the wait.
        pairs: Join and interval of every dependency on the device.
    """

    thread: Small
    end: Ints
    source_thread: Small
    source: Ints
    target: Ints
    is_call: Bools
    bound: Bools
    cost: Ints
    pairs: tuple[Ints, Ints]

    def last(self, thread: Small, by: Ints, *, bound: bool) -> Ints:
        """Last join of a thread that ended by each instant, -1 if there is none."""
        found = np.full(len(by), NO_PARENT)
        rows = np.flatnonzero(self.bound) if bound else np.arange(len(self.end))
        for lane in present(self.thread[rows]):
            low, high = np.searchsorted(self.thread[rows], [lane, lane + 1])
            on_lane = thread == lane
            at = np.searchsorted(self.end[rows[low:high]], by[on_lane], side="right") - 1
            found[on_lane] = np.where(at >= 0, rows[low + np.maximum(at, 0)], NO_PARENT)
        return found


def find(host: Host, device: Device) -> Joins:
    """Find all waits of a rank's threads."""
    call, pairs, target = _calls(host, device)
    handovers = _handovers(host)
    called, returned = host.start[call], host.end[call]
    cost = returned - np.maximum(ended(device, target), called)
    zeros = np.zeros(len(handovers[0]), np.int64)
    thread = np.concatenate((host.thread[call], handovers[0]))
    end = np.concatenate((returned, handovers[1]))
    order = np.lexsort((np.concatenate((-called, zeros)), end, thread))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number, interval = place[pairs[0]], pairs[1]
    sorted_pairs = np.lexsort((interval, number))
    return Joins(
        thread=thread[order],
        end=end[order],
        source_thread=np.concatenate((host.thread[call], handovers[2]))[order],
        source=np.concatenate((called, handovers[3]))[order],
        target=np.concatenate((target, zeros - 1))[order],
        is_call=(np.arange(len(order)) < len(call))[order],
        bound=np.concatenate((ended(device, target) > called, zeros == 0))[order],
        cost=np.concatenate((cost, handovers[1] - handovers[3]))[order],
        pairs=(number[sorted_pairs], interval[sorted_pairs]),
    )


def _calls(host: Host, device: Device) -> tuple[Ints, tuple[Ints, Ints], Ints]:
    """Waiting calls by thread and end, with all intervals they waited for, and the last of these."""
    waits = np.flatnonzero(((host.kind == KINDS.index(SYNC)) | host.frees) & (host.end > host.start))
    copies = _blocking(host, device)
    call = np.concatenate((waits, device.call[copies]))
    numbers, intervals = [np.arange(len(waits), len(call))], [copies]
    lanes = _lanes_waited_for(host, device, waits)
    for lane in range(len(device.lanes)):
        selected = np.flatnonzero(np.isin(lanes, (-1, lane)))
        found = device.last(lane, host.end[waits[selected]], host.start[waits[selected]])
        numbers.append(selected[found >= 0])
        intervals.append(found[found >= 0])
    pairs = np.concatenate(numbers), np.concatenate(intervals)
    target = _latest(len(call), pairs, device)
    keep = _newest(call, pairs, host, target)
    waited = ~host.frees[call] | (ended(device, target) > host.start[call])
    keep &= waited[pairs[0]]
    number = np.cumsum(waited) - 1
    return call[waited], (number[pairs[0][keep]], pairs[1][keep]), target[waited]


def _blocking(host: Host, device: Device) -> Ints:
    """Copies that blocked their call."""
    frame, call = device.frame, device.call
    copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool) & (call >= 0)
    pageable = (frame[C.SRC_MEMORY] == Memory.PAGEABLE) | (frame[C.DST_MEMORY] == Memory.PAGEABLE)
    rows = np.flatnonzero(copy)
    at = call[rows]
    within = (device.end[rows] <= host.end[at]) & (device.start[rows] >= host.start[at])
    nonempty = host.end[at] > host.start[at]
    rows = rows[within & nonempty & (pageable.to_numpy(bool)[rows] | ~host.asynchronous[at])]
    _, last = np.unique(call[rows][::-1], return_index=True)
    return rows[::-1][last]


def _lanes_waited_for(host: Host, device: Device, waits: Ints) -> Ints:
    """Lane each sync call waited for if recorded, else -1 for all lanes."""
    lanes = np.full(len(waits), -1)
    own = device.syncs[matches(device.syncs[C.NAME], r"^Stream Sync")]
    call = host.position(own[C.LAUNCH_ROW].fillna(NO_PARENT).to_numpy(np.int64))
    place, stream = own[C.DEVICE].to_numpy(np.int64), own[C.STREAM].fillna(NO_PARENT).to_numpy(np.int64)
    for lane, (number, one) in enumerate(device.lanes):
        lanes[np.isin(waits, call[(call >= 0) & (place == number) & (stream == one)])] = lane
    return lanes


def _latest(count: int, pairs: tuple[Ints, Ints], device: Device) -> Ints:
    """Interval of each join that ended last; the first one for equal ends."""
    target = np.full(count, NO_PARENT)
    order = np.lexsort((-pairs[1], device.end[pairs[1]], pairs[0]))
    target[pairs[0][order]] = pairs[1][order]
    return target


def _newest(call: Ints, pairs: tuple[Ints, Ints], host: Host, target: Ints) -> Bools:
    """Whether each dependency is new to the thread; others already hold by an earlier join."""
    number, interval = pairs
    order = np.lexsort((host.end[call[number]], interval, host.thread[call[number]]))
    thread, what = host.thread[call[number]][order], interval[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (thread[1:] != thread[:-1]) | (what[1:] != what[:-1])
    keep: Bools = np.empty(len(order), np.bool_)
    keep[order] = new
    keep |= target[number] == interval
    return keep


def _handovers(host: Host) -> tuple[Ints, Ints, Ints, Ints]:
    """Thread, time, source thread and source time of handovers between main and backward threads."""
    parts = [_between(host, int(lane)) for lane in np.flatnonzero(host.backward)]
    if not parts:
        none = np.zeros(0, np.int64)
        return none, none, none, none
    thread, time, before, at = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((-at, time, thread))
    first = np.ones(len(order), np.bool_)  # of several awaited threads, the last one to finish counts
    first[1:] = (thread[order][1:] != thread[order][:-1]) | (time[order][1:] != time[order][:-1])
    selected = order[first]
    return thread[selected], time[selected], before[selected], at[selected]


def _between(host: Host, other: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Handovers in both directions between main and a backward thread; equal times are separated by 1 ns."""
    slices, main = host.slices, host.main
    top = np.flatnonzero((host.thread == other) & (host.parent < 0) & (host.end > host.start))
    first, done = host.start[top], np.maximum.accumulate(host.end[top])
    low, high = slices.bounds[main], slices.bounds[main + 1]
    begin, end = slices.cuts[low : high - 1], slices.cuts[low + 1 : high]
    over = np.searchsorted(slices.cuts[low:high], first, side="right") - 1
    called = slices.cuts[low + over]
    idle = np.concatenate(([-FAR], done[:-1]))
    starts = (called > idle) & (slices.ends(low + over) >= host.end[top])
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
