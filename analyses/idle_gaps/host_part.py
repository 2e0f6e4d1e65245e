"""What the host did in its part of an idle interval: the thread, its waits, its calls, and overhead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.runs.intervals import Ints, Union
from tracekit.runs.range_names import MARKER
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C, HostKind

from ..shared.common import NO_PARENT, Bools, Small, ints, overlap_by, spans, values_at
from ..shared.groups import sum_by_code
from ..shared.host_columns import HostColumns
from ..shared.host_rows import LOADS_CODE
from ..shared.idle_neighbors import EARLIER, LAUNCH, first_ending_after
from ..shared.programs import COMPILED_CODE
from .context import MAX_CLOCK_SKEW_NS, MIN_LONG_NS

_HOST_MEMORY = r"(?i)host_?(?:alloc|register|free)|(?:malloc|free)_?host"
"""Calls that allocate memory of the host: they do not hold the device, so they are work of the program."""
_BACKWARD = r"run_backward"  # Python frames in which a thread only waits for autograd's threads
_BUFFER_SYNC = r"torch[/\\]nn[/\\]parallel[/\\]distributed\.py\(\d+\): _sync_buffers"
_DDP_FORWARD = r"^DistributedDataParallel\.forward"
_BUFFER_OPS = (
    r"^(?:aten::(?:un)?flatten_dense_tensors|c10d::broadcast_|nccl:broadcast|record_param_comms|aten::copy_)$"
)
"""What a broadcast of buffers consists of, directly in the forward pass of DistributedDataParallel."""
_FLATTENS = r"^aten::flatten_dense_tensors$"
_CHECKS = r"\bassert_(?:size_stride|alignment)\b"
"""Functions with which code of Inductor checks its inputs and the results of ops."""
NOTHING, _WAITING, _FRAME, WORKING = range(4)
"""Levels of activity of a host row."""


@dataclass(frozen=True)
class Part:
    """The host's part of each gap, on the responsible thread."""

    host: HostColumns  # host rows
    thread: Ints  # the responsible thread
    start: Ints  # start of the part, ns
    end: Ints  # end of the part, ns: its start where the host was not late
    late: Bools  # whether the host was late

    @property
    def bounds(self) -> Union:
        """Starts and ends of the parts."""
        return self.start, self.end

    def mostly(self, rows: Ints) -> Bools:
        """Whether these rows cover more than half of it."""
        return self.mostly_inside(self.host.thread[rows], self.host.spans(rows))

    def mostly_inside(self, threads: Small, bounds: Union) -> Bools:
        """Whether these spans of threads cover more than half of it."""
        return self.more_than_half(overlap_by(threads, bounds, self.thread, self.bounds))

    def mostly_in_rank(self, rows: pd.DataFrame, gaps: pd.DataFrame) -> Bools:
        """Whether these rows of the rank of each gap cover more than half of it."""
        ranks = ints(rows, C.RANK), ints(gaps, C.RANK)
        return self.more_than_half(overlap_by(ranks[0], spans(rows), ranks[1], self.bounds))

    def more_than_half(self, inside: Ints) -> Bools:
        """Whether a length inside of it, ns, is more than half of it; never where the host was not late."""
        return self.late & (2 * inside > self.end - self.start)


def largest_calls(host: HostColumns, part: Part, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Find the runtime calls with most time in the gaps with a long host part that calls mostly cover.

    Up to the `end` of a gap, as the call that launches the work after it may last longer than the host's
    part.

    Returns:
        Host position of the longest call of the name with most time (-1 for none), time of all calls of that
        name in the gap, and the same of the name with most of the rest.
    """
    count = len(part.start)
    longest, longest_ns, second, second_ns = (
        np.full(count, value, np.int64) for value in (NO_PARENT, 0, NO_PARENT, 0)
    )
    is_call = host.of_kind(HostKind.RUNTIME, HostKind.SYNC) & ~host.name_matches(_HOST_MEMORY)
    calls = np.flatnonzero(is_call)
    chosen = np.flatnonzero(part.mostly(calls) & (part.end - part.start >= MIN_LONG_NS))
    calls = calls[~(is_call[host.parent[calls]] & (host.parent[calls] >= 0))]  # one in another is part of it
    for thread in np.unique(part.thread[chosen]):
        on_thread = calls[host.thread[calls] == thread]  # by start
        # Calls of damaged traces overlap, so ends are not sorted; none before `low` reaches into the gap.
        ends = np.maximum.accumulate(host.end[on_thread]) if len(on_thread) else on_thread
        gaps = chosen[part.thread[chosen] == thread]
        low = np.searchsorted(ends, part.start[gaps], side="right").tolist()
        high = np.searchsorted(host.start[on_thread], end[gaps]).tolist()
        for gap, first, stop in zip(gaps.tolist(), low, high, strict=True):
            inside = on_thread[first:stop]
            length = np.minimum(host.end[inside], end[gap])
            length -= np.maximum(host.start[inside], part.start[gap])
            if len(inside) == 1:
                longest[gap], longest_ns[gap] = inside[0], length[0]
                continue
            names, name = np.unique(host.name_codes(inside), return_inverse=True)
            sums = sum_by_code(name, len(names), length)
            largest = np.argsort(-sums, kind="stable")[:2]
            places = [inside[np.argmax(np.where(name == code, length, -1))] for code in largest]
            longest[gap], longest_ns[gap] = places[0], sums[largest[0]]
            if len(largest) > 1:
                second[gap], second_ns[gap] = places[1], sums[largest[1]]
    return longest, longest_ns, second, second_ns


def overhead_inside(host: HostColumns, gaps: pd.DataFrame, bounds: Union, *, loads_code: bool) -> Ints:
    """For how long the loading of code, or other overhead, runs on any thread in a part of each gap."""
    marked = host.of_kind(HostKind.OVERHEAD) & (host.name_matches(LOADS_CODE) == loads_code)
    rows, ranks = np.flatnonzero(marked), ints(gaps, C.RANK)
    return overlap_by(host.rank[rows], host.spans(rows), ranks, bounds)


def buffer_broadcasts(host: HostColumns) -> tuple[Small, Union]:
    """Threads and spans of broadcasts of the buffers of a module in DistributedDataParallel.

    Without Python frames, they are the ops directly in its forward pass that flatten, broadcast and copy, up
    to the first other op: the module's own ops come later.
    """
    frames = np.flatnonzero(host.name_matches(_BUFFER_SYNC))
    if len(frames):
        return host.thread[frames], host.spans(frames)
    forward = host.name_matches(_DDP_FORWARD)
    if not forward.any():
        return host.thread[frames], host.spans(frames)
    inside = np.flatnonzero((host.parent >= 0) & forward[host.parent])
    belongs = host.name_matches(_BUFFER_OPS) | host.of_kind(HostKind.RUNTIME, HostKind.SYNC)
    threads, spans = _join_siblings(host, inside[belongs[inside]])
    flattening = inside[host.name_matches(_FLATTENS)[inside]]
    is_broadcast = overlap_by(host.thread[flattening], host.spans(flattening), threads, spans) > 0
    return threads[is_broadcast], (spans[0][is_broadcast], spans[1][is_broadcast])


def tensor_checks(host: HostColumns) -> tuple[Small, Union]:
    """Threads and spans of the checks of tensors in code of Inductor, which stacks record one by one."""
    return _join_siblings(host, np.flatnonzero(host.name_matches(_CHECKS)))


def _join_siblings(host: HostColumns, rows: Ints) -> tuple[Small, Union]:
    """Join rows with the same parent and no other row of it between them.

    Those without a parent are left out.

    Returns:
        Threads and spans of the joined rows.
    """
    rows = rows[host.parent[rows] >= 0]
    siblings = np.flatnonzero(np.isin(host.parent, np.unique(host.parent[rows])))
    siblings = siblings[np.argsort(host.parent[siblings], kind="stable")]
    chosen = np.isin(siblings, rows)
    parent = host.parent[siblings]
    goes_on = chosen[1:] & chosen[:-1] & (parent[1:] == parent[:-1])
    first = siblings[chosen & ~np.append(False, goes_on)]
    last = siblings[chosen & ~np.append(goes_on, False)]
    return host.thread[first], (host.start[first], host.end[last])


def launch_latency(host: HostColumns, gaps: pd.DataFrame, host_ns: Ints, of_profiler: Bools) -> Ints:
    """Part of each gap after the call that launched the next work began; 0 where that call is not known.

    Overhead of the profiler in the host's part is left out where it counts apart (`of_profiler`).
    """
    (start, end), launch = spans(gaps), gaps[LAUNCH].to_numpy()
    called = np.clip(values_at(host.start, launch, 0), start, end)
    called = np.where(launch >= 0, called, end)
    in_part = called, np.where(of_profiler, np.maximum(start + host_ns, called), called)
    latency: Ints = end - called - overhead_inside(host, gaps, in_part, loads_code=False)
    return latency


def in_compiled_code(host: HostColumns, covering: Ints, launch: Ints) -> Bools:
    """Whether compiled code delayed each gap, or launched the work after it where no row covers the gap."""
    rows = np.where(covering >= 0, covering, launch)
    compiled: Bools = host.nearest_ancestor(rows, host.name_matches(COMPILED_CODE)) >= 0
    return compiled


def waits_before(host: HostColumns, waits: Ints, part: Part) -> Ints:
    """The wait in progress at the start of each gap, else one that ended shortly before; -1 for none."""
    chosen = np.full(len(part.start), NO_PARENT, np.int64)
    for early in (MAX_CLOCK_SKEW_NS, 0):  # the second overrides the first: a wait in progress goes before
        wait = first_ending_after(host, waits, part.thread, part.start - early - 1)
        fits = part.late & (wait >= 0) & (values_at(host.start, wait, 0) < part.start)
        fits &= values_at(host.end, wait, 0) <= part.end
        chosen = np.where(fits, wait, chosen)
    return chosen


def responsible_thread(
    host: HostColumns, gaps: pd.DataFrame, launch: Ints, start: Ints, end: Ints, late: Bools
) -> Ints:
    """The thread that delayed each launch: the launching one, unless another of its rank was more active."""
    thread, ranks = (values_at(column, launch, NO_PARENT) for column in (host.thread, host.rank))
    activity, middle = activity_levels(host), start + (end - start) // 2
    best = values_at(activity, host.innermost(thread, middle), NOTHING)
    # Other threads count only where the launching one recorded nothing, or only waited.
    uncertain = np.flatnonzero(late & (best < _FRAME))
    calls = np.concatenate((launch, gaps[EARLIER].to_numpy()))
    for number in np.unique(host.thread[calls[calls >= 0]]) if len(uncertain) else ():
        in_question = uncertain[ranks[uncertain] == host.rank[host.rows_of_thread[int(number)].start]]
        inner = host.innermost(np.full(len(in_question), number, np.int64), middle[in_question])
        activity_there = values_at(activity, inner, NOTHING)
        better = activity_there > best[in_question]
        thread[in_question[better]], best[in_question[better]] = number, activity_there[better]
    return thread


def activity_levels(host: HostColumns) -> Small:
    """Activity level of each row: waiting, Python frame, or working."""
    works = host.of_kind(HostKind.OP, HostKind.RUNTIME, HostKind.SYNC)
    waits = host.name_matches(MARKER) | host.name_matches(_BACKWARD)
    level = np.full(len(works), _FRAME, np.int8)
    level[works], level[waits] = WORKING, _WAITING
    return level


def queued_before(host: HostColumns, of_device: pd.DataFrame) -> int:
    """For how long the first work of a device was queued; 0 if its launch is unknown."""
    first = of_device.iloc[[int(ints(of_device, C.START_NS).argmin())]]
    call = int(host.positions(first[C.LAUNCH_ROW])[0])
    return max(0, int(first[C.START_NS].iloc[0]) - int(host.end[call])) if call >= 0 else 0


def largest_before(host: HostColumns, of_device: pd.DataFrame) -> tuple[str | None, int | None]:
    """Name and self time of what the thread with the first launch did longest before the work of a device."""
    end, calls = int(ints(of_device, C.START_NS).min()), host.positions(of_device[C.LAUNCH_ROW])
    if not len(calls := calls[calls >= 0]):
        return None, None
    launches = host.thread[calls[np.argmin(host.start[calls])]]
    of_thread = host.rows_of_thread[int(launches)]
    count = int(np.searchsorted(host.start[of_thread], end))
    rows = np.arange(of_thread.start, of_thread.start + count)
    parent = host.parent[rows].astype(np.int64)
    in_call = host.kind[parent].is_any_of(HostKind.RUNTIME, HostKind.SYNC)  # it has the time of what it asks
    in_call &= parent >= 0
    inside = np.where(in_call, 0, np.minimum(host.end[rows], end) - host.start[rows])
    self_ns, place = inside.copy(), parent - of_thread.start
    np.subtract.at(self_ns, place[parent >= 0], inside[parent >= 0])
    sums = sum_by_code(host.name_codes(rows).astype(np.int64), len(host.shown_names), self_ns)
    largest = int(sums.argmax())
    return str(host.shown_names[largest]), int(sums[largest])


def time_after(
    host: HostColumns, of_device: pd.DataFrame, windows: pd.DataFrame
) -> tuple[int, str | None, int | None]:
    """Return how long a step goes on after the last work of a device, in what, and how long in that.

    Steps of the same program go on as long, in each of which the device is idle then. It is 0 where no op,
    range or frame covers most of that time, or where a call or data loading does, and if the last step did
    not launch that work.
    """
    none = (0, None, None)
    last = of_device.iloc[[int(spans(of_device)[1].argmax())]]
    call = int(host.positions(last[C.LAUNCH_ROW])[0])
    step = windows.iloc[[int(ints(windows, C.START_NS).argmax())]] if len(windows) else windows
    if step.empty or call < 0 or last[C.STEP].fillna(NO_PARENT).tolist() != step[C.STEP].tolist():
        return none
    start, end = int(spans(last)[1][0]), int(ints(step, END_NS)[0])
    if end <= start:
        return none
    bounds = np.array([start]), np.array([end])
    row = host.mostly_covering(host.thread[[call]].astype(np.int64), *bounds)
    works = host.kind[row].is_any_of(HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)
    if row[0] < 0 or not works[0] or host.data_loading[row[0]] or host.name[row].matches(MARKER)[0]:
        return none
    inside_ns = min(end, int(host.end[row[0]])) - max(start, int(host.start[row[0]]))
    return end - start, str(host.categories(row, "")[0]), inside_ns
