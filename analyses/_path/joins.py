"""Where a host thread waits: for the device in a sync call or a blocking copy, or for another thread.

A sync call waits for what was launched before it began: of the stream that the profiler recorded with it,
else of all streams of the rank. The last of that to end by the end of the call is what it waited for. A copy
blocks its call where one of its ends is pageable memory or the call is not an asynchronous one, and the copy
ended before the call did. Freeing memory waits for the device too, where it has work.

An interval at the top of a backward thread follows on the main thread if that did nothing from before the
interval began, when the backward thread was idle, until it ended. What the main thread does next follows on
the last such interval that began and ended while it did nothing.
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
        end: When it goes on.
        source_thread: Thread whose progress lets it arrive: its own, or the one that hands over to it.
        source: Until when that thread had to get.
        target: Interval that ended last of those it waited for, -1 for a thread or nothing.
        is_call: Whether it is a sync call or a blocking copy, not a thread.
        bound: Whether it had to wait: the target ended after the call began.
        cost: From arrival or the target's end, whichever is later, until it goes on.
        pairs: Join and interval of every dependence on the device.
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
        """The last join of a thread that ended by each instant, -1 if there is none."""
        found = np.full(len(by), NO_PARENT)
        rows = np.flatnonzero(self.bound) if bound else np.arange(len(self.end))
        for lane in present(self.thread[rows]):
            low, high = np.searchsorted(self.thread[rows], [lane, lane + 1])
            asked = thread == lane
            at = np.searchsorted(self.end[rows[low:high]], by[asked], side="right") - 1
            found[asked] = np.where(at >= 0, rows[low + np.maximum(at, 0)], NO_PARENT)
        return found


def find(host: Host, device: Device) -> Joins:
    """Every wait of a rank's threads."""
    call, pairs, target = _calls(host, device)
    handed = _handovers(host)
    begun, gone = host.start[call], host.end[call]
    cost = gone - np.maximum(ended(device, target), begun)
    free = np.zeros(len(handed[0]), np.int64)
    thread = np.concatenate((host.thread[call], handed[0]))
    end = np.concatenate((gone, handed[1]))
    order = np.lexsort((np.concatenate((-begun, free)), end, thread))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number, interval = place[pairs[0]], pairs[1]
    sorted_pairs = np.lexsort((interval, number))
    return Joins(
        thread=thread[order],
        end=end[order],
        source_thread=np.concatenate((host.thread[call], handed[2]))[order],
        source=np.concatenate((begun, handed[3]))[order],
        target=np.concatenate((target, free - 1))[order],
        is_call=(np.arange(len(order)) < len(call))[order],
        bound=np.concatenate((ended(device, target) > begun, free == 0))[order],
        cost=np.concatenate((cost, handed[1] - handed[3]))[order],
        pairs=(number[sorted_pairs], interval[sorted_pairs]),
    )


def _calls(host: Host, device: Device) -> tuple[Ints, tuple[Ints, Ints], Ints]:
    """Calls that wait, by thread and end; each with every interval it waited for; and the last of those."""
    waits = np.flatnonzero(((host.kind == KINDS.index(SYNC)) | host.frees) & (host.end > host.start))
    copies = _blocking(host, device)
    call = np.concatenate((waits, device.call[copies]))
    numbers, intervals = [np.arange(len(waits), len(call))], [copies]
    lanes = _lanes_waited_for(host, device, waits)
    for lane in range(len(device.lanes)):
        asked = np.flatnonzero(np.isin(lanes, (-1, lane)))
        found = device.last(lane, host.end[waits[asked]], host.start[waits[asked]])
        numbers.append(asked[found >= 0])
        intervals.append(found[found >= 0])
    pairs = np.concatenate(numbers), np.concatenate(intervals)
    target = _latest(len(call), pairs, device)
    keep = _newest(call, pairs, host, target)
    waited = ~host.frees[call] | (ended(device, target) > host.start[call])
    keep &= waited[pairs[0]]
    number = np.cumsum(waited) - 1
    return call[waited], (number[pairs[0][keep]], pairs[1][keep]), target[waited]


def _blocking(host: Host, device: Device) -> Ints:
    """Copies for which their call waited."""
    frame, call = device.frame, device.call
    copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool) & (call >= 0)
    pageable = (frame[C.SRC_MEMORY] == Memory.PAGEABLE) | (frame[C.DST_MEMORY] == Memory.PAGEABLE)
    rows = np.flatnonzero(copy)
    at = call[rows]
    within = (device.end[rows] <= host.end[at]) & (device.start[rows] >= host.start[at])
    solid = host.end[at] > host.start[at]
    rows = rows[within & solid & (pageable.to_numpy(bool)[rows] | ~host.asynchronous[at])]
    _, last = np.unique(call[rows][::-1], return_index=True)
    return rows[::-1][last]


def _lanes_waited_for(host: Host, device: Device, waits: Ints) -> Ints:
    """The lane each sync call waited for where the profiler recorded it, else -1 for all of them."""
    lanes = np.full(len(waits), -1)
    own = device.syncs[matches(device.syncs[C.NAME], r"^Stream Sync")]
    call = host.position(own[C.LAUNCH_ROW].fillna(NO_PARENT).to_numpy(np.int64))
    place, stream = own[C.DEVICE].to_numpy(np.int64), own[C.STREAM].fillna(NO_PARENT).to_numpy(np.int64)
    for lane, (number, one) in enumerate(device.lanes):
        lanes[np.isin(waits, call[(call >= 0) & (place == number) & (stream == one)])] = lane
    return lanes


def _latest(count: int, pairs: tuple[Ints, Ints], device: Device) -> Ints:
    """Of the intervals of each join the one that ended last; at the same end the first in the order."""
    target = np.full(count, NO_PARENT)
    order = np.lexsort((-pairs[1], device.end[pairs[1]], pairs[0]))
    target[pairs[0][order]] = pairs[1][order]
    return target


def _newest(call: Ints, pairs: tuple[Ints, Ints], host: Host, target: Ints) -> Bools:
    """Which dependences the thread had not met before: the others hold by the join before."""
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
    """Thread, time, thread before and time there of each passing on between main and backward threads."""
    parts = [_between(host, int(lane)) for lane in np.flatnonzero(host.backward)]
    if not parts:
        none = np.zeros(0, np.int64)
        return none, none, none, none
    thread, time, before, at = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((-at, time, thread))
    first = np.ones(len(order), np.bool_)  # of several threads it waits for, the last to be done counts
    first[1:] = (thread[order][1:] != thread[order][:-1]) | (time[order][1:] != time[order][:-1])
    kept = order[first]
    return thread[kept], time[kept], before[kept], at[kept]


def _between(host: Host, other: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Both ways between the main thread and one backward thread; equal times are set 1 ns apart."""
    slices, main = host.slices, host.main
    top = np.flatnonzero((host.thread == other) & (host.parent < 0) & (host.end > host.start))
    first, done = host.start[top], np.maximum.accumulate(host.end[top])
    low, high = slices.bounds[main], slices.bounds[main + 1]
    begin, end = slices.cuts[low : high - 1], slices.cuts[low + 1 : high]
    over = np.searchsorted(slices.cuts[low:high], first, side="right") - 1
    begun = slices.cuts[low + over]
    idle = np.concatenate(([-FAR], done[:-1]))
    starts = (begun > idle) & (slices.ends(low + over) >= host.end[top])
    last = np.searchsorted(done, end, side="right") - 1
    resumes = np.flatnonzero((last >= 0) & (begin > -FAR) & (first[last] >= begin))
    counts = [int(starts.sum()), len(resumes)]
    return (
        np.repeat(np.array([other, main]), counts),
        np.concatenate((first[starts], end[resumes])),
        np.repeat(np.array([main, other]), counts),
        np.concatenate(
            (
                np.minimum(begun[starts], first[starts] - 1),
                np.minimum(done[last[resumes]], end[resumes] - 1),
            )
        ),
    )
