"""Cause of each idle interval of a device, decided in a fixed order on recorded evidence.

Let a gap be [g, e), and let [s, t) be the call that launched the interval which starts at e. Where that
interval has no recorded launch, the next one of its stream is used if it starts within 30 µs.

1. unknown: no launch is known. 2. queued: the work was queued on the device and did not start. That is so if
the launch had ended by g; if the
   launch also caused an earlier interval (a CUDA graph replay); if the call began before g and had ended for
   half of the gap or more; if the work was queued for at least 30 µs and more than half of the gap.
   * stream_dependency: it was queued for 30 µs or more, or a stream-wait-event call lies between the launches
     of the intervals before and after, and these are on different streams;
   * kernel_to_kernel: the rest.
3. Otherwise the host was late: its part of the gap is [g, s), or [g, t) where the call began before g or
   takes more than half of the gap.
   * profiler: the profiler's own overhead covers more than half of that part;
   * dataload: data loading on the responsible thread does;
   * sync: waits for the device do; or a wait had begun before g, ended in the gap (or up to 5 µs before it:
     the clocks of host and device differ by that much), and was at least half as long as that part. Without a
     wait the launch could have been earlier by at most the wait's length;
   * launch_bound: the rest.

The responsible thread is the launching one, unless it records nothing in the middle of the host's part while
another thread that launches work of the rank does (autograd's thread during a backward pass).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.schema import C, HostKind

from .._shared.common import NO_PARENT, spans, values_at
from .._shared.gaps import AFTER, BEFORE, EARLIER, LAUNCH, NEAR_NS
from .._shared.host_lines import STEP_MARKER
from .waits import first_ending_after

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from tracekit.intervals import Ints

    from .._shared.columns import Small
    from .._shared.host_lines import HostLines

    Bools = npt.NDArray[np.bool_]


class Cause(StrEnum):
    """Cause of an idle interval."""

    LAUNCH_BOUND = "launch_bound"
    SYNC = "sync"
    DATALOAD = "dataload"
    KERNEL_TO_KERNEL = "kernel_to_kernel"
    STREAM_DEPENDENCY = "stream_dependency"
    PROFILER = "profiler"
    UNKNOWN = "unknown"


CAUSES = tuple(str(cause) for cause in Cause)
DEPENDENCY_NS = 30_000
"""A device starts queued work within a few µs; after that it waits for something else."""
CLOCKS_NS = 5_000
"""Tolerance for a wait that seems to end before the work that it waited for."""
WAIT_EVENT = r"(?i)streamwaitevent"
LOADER = r"enumerate\(DataLoader\)|torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data)"
NOT_PROFILER = r"(?i)lazy|compil"
"""Overhead that also occurs without a profiler: lazy module loading, compilation."""
HOST_WAITS = (
    r"(?i)\b(?:built-in (?:method|function) (?:sleep|acquire|poll|select|recv\w*|wait\w*)"
    r"|(?:threading|queue|selectors|socket|subprocess|connection|asyncio/\w+)\.py\(\d+\): "
    r"(?:acquire|get|join|poll|recv\w*|run_once|_run_once|select|wait\w*))\b"
)
"""Python frames in which a thread only waits."""
_BACKWARD = r"run_backward"
"""Python frames in which a thread only waits for autograd's threads."""

_NOTHING, _WAITING, _FRAME, _WORKING = range(4)


@dataclass(frozen=True)
class Explained:
    """The cause of each gap and its evidence, in the order of the gaps.

    Attributes:
        cause: Index into `CAUSES`.
        host_ns: The host's part of each gap; 0 if the work was queued, or no launch is known.
        queued_ns: Part of each gap during which the work was queued.
        thread: The responsible thread.
        covering_row: Host position of the innermost row that covers most of the host's part, or -1.
        wait: Host position of the wait that had begun before the gap and ended in it, or -1.
        queued: Whether the work was queued.
        waiting_elsewhere: Whether the responsible thread waited for something other than the device for most
            of the host's part.
    """

    cause: Ints
    host_ns: Ints
    queued_ns: Ints
    thread: Ints
    covering_row: Ints
    wait: Ints
    queued: Bools
    waiting_elsewhere: Bools


def explain(gaps: pd.DataFrame, device: pd.DataFrame, host: HostLines, waits: Ints) -> Explained:
    """Decide the cause of each gap.

    Args:
        gaps: Result of `_shared.gaps.read`.
        device: The intervals that occupy a device.
        host: Host rows.
        waits: Positions of the waits.
    """
    start, end = spans(gaps)
    launch, known = gaps[LAUNCH].to_numpy(), gaps[LAUNCH].to_numpy() >= 0
    called = np.where(known, values_at(host.start, launch, 0), end)
    returned = np.where(known, values_at(host.end, launch, 0), end)
    queued_ns = np.where(known, end - np.clip(returned, start, end), 0)
    queued = known & _queued(gaps, called, returned, queued_ns)
    late = known & ~queued
    in_call = (called < start) | (2 * (np.minimum(returned, end) - called) > end - start)
    high = np.where(late, np.clip(np.where(in_call, returned, called), start, end), start)
    thread = _responsible_thread(host, gaps, start, high, late)
    part = _Part(host, thread, start, high, late)
    wait_rows = _waits_before(host, waits, part)
    causes = np.full(len(gaps), CAUSES.index(Cause.UNKNOWN), np.int64)
    queued_ns = np.where(gaps["replayed"], end - start, queued_ns)
    depends = queued & ((queued_ns >= DEPENDENCY_NS) | _waited_for_event(gaps, device, host))
    for cause, holds in (
        (Cause.LAUNCH_BOUND, late),
        (Cause.SYNC, part.mostly(waits) | _long_enough(host, wait_rows, part)),
        (Cause.DATALOAD, part.mostly(np.flatnonzero(host.loading | host.named(LOADER)))),
        (Cause.PROFILER, _profiled(host, gaps, part)),
        (Cause.KERNEL_TO_KERNEL, queued),
        (Cause.STREAM_DEPENDENCY, depends),
    ):
        causes[holds] = CAUSES.index(cause)
    covering_row = np.where(late, host.filling(thread, start, high), NO_PARENT)
    waiting_elsewhere = part.mostly(np.flatnonzero(host.named(HOST_WAITS)))
    return Explained(
        causes, high - start, queued_ns, thread, covering_row, wait_rows, queued, waiting_elsewhere
    )


def _queued(gaps: pd.DataFrame, called: Ints, returned: Ints, queued_ns: Ints) -> Bools:
    """Whether the next work was queued on the device and did not start."""
    start, end = spans(gaps)
    before = returned <= start
    soon = (called < start) & (2 * queued_ns >= end - start)
    long = (queued_ns >= DEPENDENCY_NS) & (2 * queued_ns > end - start)
    found: Bools = gaps["replayed"].to_numpy() | before | soon | long
    return found


@dataclass(frozen=True)
class _Part:
    """The host's part of each gap, on the responsible thread."""

    host: HostLines
    thread: Ints
    start: Ints
    end: Ints
    late: Bools

    def mostly(self, rows: Ints) -> Bools:
        """Whether these rows cover more than half of it."""
        marked = np.zeros(len(self.host.start), np.bool_)
        marked[rows] = True
        inside = np.zeros(len(self.start), np.int64)
        for lane, union in self.host.unions(marked).items():
            own = self.thread == lane
            inside[own] = covered(union, self.start[own], self.end[own])
        return self.more_than_half(inside)

    def more_than_half(self, inside: Ints) -> Bools:
        """Whether a part of it is more than half."""
        return self.late & (2 * inside > self.end - self.start)


def _profiled(host: HostLines, gaps: pd.DataFrame, part: _Part) -> Bools:
    """Whether the profiler's overhead, on any thread, covers most of the host's part."""
    marked = host.of_kind(HostKind.OVERHEAD) & ~host.named(NOT_PROFILER)
    inside = np.zeros(len(gaps), np.int64)
    ranks = gaps[C.RANK].to_numpy()
    for rank in np.unique(host.rank[marked]):
        rows = np.flatnonzero(marked & (host.rank == rank))
        union = intervals.union(host.start[rows], host.end[rows])
        inside[ranks == rank] = covered(union, part.start[ranks == rank], part.end[ranks == rank])
    return part.more_than_half(inside)


def _waits_before(host: HostLines, waits: Ints, part: _Part) -> Ints:
    """The wait in progress at the start of each gap, else one that ended shortly before."""
    chosen = np.full(len(part.start), NO_PARENT, np.int64)
    for early in (CLOCKS_NS, 0):
        found = first_ending_after(host, waits, part.thread, part.start - early - 1)
        fits = part.late & (found >= 0) & (values_at(host.start, found, 0) < part.start)
        fits &= values_at(host.end, found, 0) <= part.end
        chosen = np.where(fits, found, chosen)
    return chosen


def _long_enough(host: HostLines, wait_rows: Ints, part: _Part) -> Bools:
    length = values_at(host.end, wait_rows, 0) - values_at(host.start, wait_rows, 0)
    found: Bools = (wait_rows >= 0) & (2 * length >= part.end - part.start)
    return found


def _responsible_thread(host: HostLines, gaps: pd.DataFrame, start: Ints, end: Ints, late: Bools) -> Ints:
    """The thread that delayed each launch."""
    launch = gaps[LAUNCH].to_numpy()
    thread, ranks = (values_at(column, launch, NO_PARENT) for column in (host.thread, host.rank))
    activity, middle = _activity(host), start + (end - start) // 2
    best = values_at(activity, host.innermost(thread, middle), _NOTHING)
    uncertain = np.flatnonzero(late & (best < _FRAME))
    calls = np.concatenate((launch, gaps[EARLIER].to_numpy()))
    for lane in np.unique(host.thread[calls[calls >= 0]]):
        lane_rows = uncertain[ranks[uncertain] == host.rank[host.lanes[int(lane)].start]]
        inner = host.innermost(np.full(len(lane_rows), lane, np.int64), middle[lane_rows])
        lane_activity = values_at(activity, inner, _NOTHING)
        better = lane_activity > best[lane_rows]
        thread[lane_rows[better]], best[lane_rows[better]] = lane, lane_activity[better]
    return thread


def _activity(host: HostLines) -> Small:
    """Activity level of each row: waiting, Python frame, or working."""
    works = host.of_kind(HostKind.OP, HostKind.RUNTIME, HostKind.SYNC)
    waits = host.named(STEP_MARKER) | host.named(_BACKWARD)
    found = np.full(len(works), _FRAME, np.int8)
    found[works], found[waits] = _WORKING, _WAITING
    return found


def _waited_for_event(gaps: pd.DataFrame, device: pd.DataFrame, host: HostLines) -> Bools:
    """Whether a thread called stream-wait-event between launches on two different streams."""
    events = np.flatnonzero(host.named(WAIT_EVENT))
    before, after = gaps[EARLIER].to_numpy(), gaps[LAUNCH].to_numpy()
    known = (before >= 0) & (after >= 0)
    known &= values_at(host.thread, before, NO_PARENT) == values_at(host.thread, after, NO_PARENT)
    waited_event = np.searchsorted(events, after) > np.searchsorted(events, before)
    stream = device[C.STREAM].fillna(NO_PARENT).to_numpy(np.int64)
    changed = stream[gaps[BEFORE].to_numpy()] != stream[gaps[AFTER].to_numpy()]
    found: Bools = known & waited_event & changed
    return found


__all__ = ["CAUSES", "NEAR_NS", "Cause", "Explained", "explain"]
