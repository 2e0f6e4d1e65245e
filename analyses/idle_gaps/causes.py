"""Cause of each idle interval of a device, decided in a fixed order on recorded evidence.

Let a gap be [g, e), and let [s, t) be the call that launched the interval which starts at e. Where that
interval has no recorded launch, the next one of its stream is used if it starts within `MAX_NEAR_NS`.

1. unknown: no launch is known and those of the rank do not wait for their kernels
   (`context.waiting_launches`), or kernels of a graph are missing (`context.in_unrecorded_replay`).
2. queued: the work was queued on the device and did not start. That is so if the launch had ended by g; if
   the launch also caused an earlier interval (a CUDA graph replay), unless the gap takes `MIN_DEPENDENCY_NS`
   or more and the call had not ended by e; if the call began before g and had ended
   for half of the gap or more; if the work was queued for at least `MIN_DEPENDENCY_NS` and more than half of
   the gap.
   * stream_dependency: it was queued for `MIN_DEPENDENCY_NS` or more, or a stream-wait-event call is between
     the launches of the intervals before and after, and these are on different streams;
   * submission: likewise, where the rank has one stream, so that there is nothing on a device to wait for;
   * kernel_to_kernel: the rest.
3. Otherwise the host was late: its part of the gap is [g, s), or [g, t) where the call began before g or
   takes more than half of the gap.
   * profiler: the profiler's own overhead covers more than half of that part;
   * dataload: data loading on the responsible thread does;
   * sync: waits for the device do; or a wait had begun before g, ended in the gap (or up to
     `MAX_CLOCK_SKEW_NS` before it: the clocks of host and device differ by that much), and was at least half
     as long as that part. Without a wait the launch could have been earlier by at most the wait's length;
   * stall, slow_call, first_call, host_work, launch_bound: the rest, by what the host did
     (`context.refine_causes`).

The responsible thread is the launching one, unless it records nothing in the middle of the host's part while
another thread that launches work of the rank does (autograd's thread during a backward pass).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from tracekit.analysis.idle_causes import CALL_NS, CAUSES, COVERED_NS, HOST_LAUNCHES, MANAGED
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.analysis.model import compute_shared
from tracekit.runs.intervals import Ints
from tracekit.runs.range_names import COLLECTION, MARKER
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS, measured_from, step_windows
from tracekit.schema import C, HostKind

from ..shared.common import NO_PARENT, PLACE, Bools, contains, ints, spans, to_categorical, values_at
from ..shared.groups import group_rows
from ..shared.host_columns import HostColumns, read_host_columns
from ..shared.host_rows import NO_OP, sampled_lines, sampled_waits, source_lines
from ..shared.idle_neighbors import (
    AFTER,
    BEFORE,
    EARLIER,
    LAUNCH,
    find_waits,
    find_waits_on_device,
    inside_steps,
    read_gaps,
    read_occupying,
)
from ..shared.intervals_by_class import find_searches
from . import context
from .context import MAX_DISPATCH_NS
from .host_part import (
    NOTHING,
    WORKING,
    Part,
    activity_levels,
    buffer_broadcasts,
    in_compiled_code,
    largest_calls,
    launch_latency,
    overhead_inside,
    responsible_thread,
    tensor_checks,
    waits_before,
)

MIN_DEPENDENCY_NS = 30_000
"""A device starts queued work within a few µs; after that it waits for something else."""
LOADER = r"enumerate\(DataLoader\)|torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data)"
HOST_WAITS = (
    r"(?i)\b(?:built-in (?:method|function) (?:sleep|acquire|poll|select|recv\w*|wait\w*)"
    r"|(?:threading|queue|selectors|socket|subprocess|connection|asyncio/\w+)\.py\(\d+\): "
    r"(?:acquire|get|join|poll|recv\w*|run_once|_run_once|select|wait\w*))\b"
)
"""Python frames in which a thread only waits."""
_MEMORY_CALLS = r"(?i)malloc|free|host_?(?:alloc|register)"
_BACKWARD_NODE = r"^autograd::engine::evaluate_function"
"""Rows of autograd's thread before the op of the node runs: what it waits for is not recorded."""

_LATE = [CAUSES.index(cause) for cause in HOST_LAUNCHES]
_PROFILER = CAUSES.index(Cause.PROFILER)
_EXPLAINED = (Cause.SLOW_CALL, Cause.FIRST_CALL, Cause.HOST_WORK)


@dataclass(frozen=True)
class Explained:
    """The cause of each gap and its evidence, in the order of the gaps."""

    cause: Ints  # index into `CAUSES`; launch_bound for every late launch without another cause
    host_ns: Ints  # the host's part of each gap; 0 if the work was queued, or no launch is known
    queued_ns: Ints  # part of each gap during which the work was queued
    thread: Ints  # the responsible thread
    covering_row: Ints  # host position of the innermost row that covers most of the host's part, or -1
    wait: Ints  # host position of the wait that had begun before the gap and ended in it, or -1
    queued: Bools  # whether the work was queued
    allocating: Bools  # whether calls that allocate or free memory cover most of the host's part
    # whether the responsible thread waited for something other than the device for most of the host's part
    waiting_elsewhere: Bools
    # of the runtime calls that together cover most of the host's part: the longest of the name with most time
    # (host position, -1 without), the time of that name, and the same of the name with most of the rest
    call: Ints
    call_ns: Ints
    second_call: Ints
    second_ns: Ints
    overhead_ns: Ints  # time of the profiler's own overhead in the host's part
    aside: Bools  # whether the gap is at an edge of the capture or in marked warm-up
    warm_up: Bools  # whether it is in the latter
    starting: Bools  # whether the host was late only before it got ahead for the rest of the capture
    loading: Bools  # whether the loading of code covers most of the host's part
    checking: Bools  # whether checks of tensors in code of Inductor cover most of the host's part
    broadcasting: Bools  # whether DistributedDataParallel's broadcasts of buffers do
    unrecorded: Bools  # whether the gap is time of kernels of a graph that were not recorded


def explain(
    gaps: pd.DataFrame,
    device: pd.DataFrame,
    host: HostColumns,
    waits: Ints,
    is_opening: Bools,
    waits_on_device: pd.DataFrame,
    measured: Mapping[int, int],
) -> Explained:
    """Decide the cause of each gap.

    The gaps end with the openings; `waits_on_device` are recorded as rows of devices alone.
    """
    start, end = spans(gaps)
    launch, has_launch = gaps[LAUNCH].to_numpy(), gaps[LAUNCH].to_numpy() >= 0
    called = np.where(has_launch, values_at(host.start, launch, 0), end)
    returned = np.where(has_launch, values_at(host.end, launch, 0), end)
    queued_ns = np.where(has_launch, end - np.clip(returned, start, end), 0)
    queued = has_launch & _is_queued(gaps, called, returned, queued_ns)
    another = np.where(has_launch, NO_PARENT, context.waiting_launches(gaps, device, host))
    late = (has_launch & ~queued) | (another >= 0)
    # A call that takes most of the gap is part of the delay: then the host's part ends with it.
    in_call = (called < start) | (2 * (np.minimum(returned, end) - called) > end - start)
    high = np.where(late, np.clip(np.where(in_call, returned, called), start, end), start)
    thread = responsible_thread(host, gaps, np.maximum(launch, another), start, high, late)
    part = Part(host, thread, start, high, late)
    wait_rows = waits_before(host, waits, part)
    wait_ns = values_at(host.end, wait_rows, 0) - values_at(host.start, wait_rows, 0)
    waited = part.mostly(waits) | part.mostly_in_rank(waits_on_device, gaps)
    overhead_ns = overhead_inside(host, gaps, part.bounds, loads_code=False)
    causes = np.full(len(gaps), CAUSES.index(Cause.UNKNOWN), np.int64)
    # An earlier interval of the same launch has run: the rest was queued for the whole gap.
    queued_ns = np.where(gaps["replayed"], end - start, queued_ns)
    depends = queued & ((queued_ns >= MIN_DEPENDENCY_NS) | _has_waited_for_event(gaps, device, host))
    unrecorded = context.in_unrecorded_replay(gaps, device, host, depends)
    for cause, holds in (  # each overrides those before it: of several that hold, the last one is the cause
        (Cause.LAUNCH_BOUND, late),
        (Cause.SYNC, waited | (wait_rows >= 0) & (2 * wait_ns >= part.end - part.start)),
        (Cause.DATALOAD, part.mostly(np.flatnonzero(host.data_loading | host.name_matches(LOADER)))),
        (Cause.PROFILER, part.more_than_half(overhead_ns)),
        (Cause.KERNEL_TO_KERNEL, queued),
        (Cause.STREAM_DEPENDENCY, depends),
        (Cause.SUBMISSION, depends & _has_one_stream(gaps, device)),
        (Cause.HOST_WORK, context.before_host_access(gaps, device)),
        (Cause.UNKNOWN, unrecorded),
    ):
        causes[holds] = CAUSES.index(cause)
    covering_row = np.where(late, host.mostly_covering(thread, start, high), NO_PARENT)
    # Frames of event loops count as waits, also while an op runs in them.
    works = values_at(activity_levels(host), covering_row, NOTHING) == WORKING
    waiting_elsewhere = part.mostly(np.flatnonzero(host.name_matches(HOST_WAITS))) & ~works
    at_edge = context.after_backlog(gaps, device) & ~(late & gaps[C.STEP].notna().to_numpy(bool))
    at_edge |= (is_opening & ~late) | context.in_first_wait(gaps, host, waits, queued)
    at_edge |= context.behind_unrecorded(gaps, device, queued, queued_ns)
    warm_up = context.in_warm_up(gaps, host, measured)
    aside = at_edge | warm_up
    starting = context.is_start_up(gaps, device, host, waits, late & ~aside, is_opening)
    return Explained(
        causes,
        high - start,
        queued_ns,
        thread,
        covering_row,
        wait_rows,
        queued,
        part.mostly(np.flatnonzero(host.of_kind(HostKind.RUNTIME) & host.name_matches(_MEMORY_CALLS))),
        waiting_elsewhere,
        *largest_calls(host, part, end),
        overhead_ns,
        aside | (starting & is_opening),
        warm_up,
        starting & ~is_opening,
        part.more_than_half(overhead_inside(host, gaps, part.bounds, loads_code=True)),
        part.mostly_inside(*tensor_checks(host)),
        part.mostly_inside(*buffer_broadcasts(host)),
        unrecorded,
    )


def _is_queued(gaps: pd.DataFrame, called: Ints, returned: Ints, queued_ns: Ints) -> Bools:
    """Whether the next work was queued on the device and did not start."""
    start, end = spans(gaps)
    before = returned <= start
    soon = (called < start) & (2 * queued_ns >= end - start)
    long = (queued_ns >= MIN_DEPENDENCY_NS) & (2 * queued_ns > end - start)
    # While the call that replays a graph runs, the rest of the graph may not have been submitted.
    submitting = (returned >= end) & (end - start >= MIN_DEPENDENCY_NS)
    queued: Bools = (gaps["replayed"].to_numpy() & ~submitting) | before | soon | long
    return queued


def _has_one_stream(gaps: pd.DataFrame, device: pd.DataFrame) -> Bools:
    """Whether all work of the rank of each gap is on one stream of one device."""
    streams = device[[C.RANK, C.DEVICE, C.STREAM]].drop_duplicates()[C.RANK].value_counts()
    unknown = device.loc[device[C.STREAM].isna(), C.RANK]
    known = streams.index[(streams == 1) & ~streams.index.isin(unknown)]
    alone: Bools = np.isin(ints(gaps, C.RANK), known) & ~gaps["replayed"].to_numpy(bool)
    return alone


def _has_waited_for_event(gaps: pd.DataFrame, device: pd.DataFrame, host: HostColumns) -> Bools:
    """Whether a thread called stream-wait-event between launches on two different streams."""
    # Host rows are by thread and start: positions between those of two calls of a thread are between them.
    events = np.flatnonzero(host.name_matches(r"(?i)streamwaitevent"))
    before, after = gaps[EARLIER].to_numpy(), gaps[LAUNCH].to_numpy()
    both_known = (before >= 0) & (after >= 0)
    both_known &= values_at(host.thread, before, NO_PARENT) == values_at(host.thread, after, NO_PARENT)
    waited_event = np.searchsorted(events, after) > np.searchsorted(events, before)
    stream = device[C.STREAM].fillna(NO_PARENT).to_numpy(np.int64)
    changed = stream[gaps[BEFORE].to_numpy()] != stream[gaps[AFTER].to_numpy()]
    waited: Bools = both_known & waited_event & changed
    return waited


CAUSE, OP, CALL, SOURCE = "cause", "op", "call", "source_line"
NEXT_OP, COMMON_OP, HOST_NS, QUEUED_NS, WAIT_NS = "next_op", "common_op", "host_ns", "queued_ns", "wait_ns"
WAIT_ROW, ANCHOR_ROW, WAITS_ELSEWHERE, ALLOCATING = "wait_row", "host_row", "resting", "allocating"
ASIDE, STARTING, NAMED = "aside", "starting", "named"
"""Whether a gap is set aside, precedes the host's lead, and has a known activity."""
SECOND, SECOND_NS, OVERHEAD_NS = "second_call", "second_ns", "overhead_ns"
"""Of the calls in a gap other than those named, the name with most time, and that; time of the profiler's own
overhead in gaps that it causes."""
COMPILED, CHECKING, BROADCASTING = "compiled", "checking", "broadcasting"
"""Whether compiled code delayed the device; it checked tensors; DDP broadcast the buffers of a module."""
LATENCY_NS = "launch_latency_ns"
"""Part of a gap after the launch call began, where the host was late with it."""
READ_BACK = "read_back"
"""Whether the program copied to the host before a gap, and then went on with data on the device."""
WARM_UP, INITIAL = "warm_up", "initial"
"""Whether a gap is in marked warm-up, and whether the host loaded or compiled code or chose an algorithm."""
BETWEEN = "(between ops)"
OUTSIDE, _NO_KERNELS = "(outside of ops)", "(kernels of a graph not recorded)"


@dataclass(frozen=True)
class Idle:
    """The idle intervals of a run."""

    gaps: pd.DataFrame  # one row per idle interval, by rank, device and start, then the openings
    openings: int  # number of the latter
    device: pd.DataFrame  # the intervals that occupy a device
    host: HostColumns  # host rows
    waits: Ints  # host positions of the waits for a device
    explained: Explained  # cause and evidence of each gap

    def without_openings(self) -> Idle:
        """Return the idle intervals of the devices alone."""
        count = len(self.gaps) - self.openings
        columns = {field.name: getattr(self.explained, field.name)[:count] for field in fields(Explained)}
        return replace(self, gaps=self.gaps[:count], openings=0, explained=Explained(**columns))


def read_idle(run: Run) -> Idle:
    """Read and explain the idle intervals of a run; several analyses share them."""
    return compute_shared(run, _read_idle)


def _read_idle(run: Run) -> Idle:
    device = read_occupying(run)
    host = read_host_columns(run)
    gaps, openings = read_gaps(run, device, host), _read_openings(run, device, host)
    if len(openings):
        gaps = pd.concat([gaps, openings[gaps.columns]], ignore_index=True)
    waiting, is_opening = find_waits(host, device), np.arange(len(gaps)) >= len(gaps) - len(openings)
    on_device, measured = find_waits_on_device(run, host), measured_from(run)
    explained = explain(gaps, device, host, waiting, is_opening, on_device, measured)
    return Idle(gaps, len(openings), device, host, waiting, explained)


def _read_openings(run: Run, device: pd.DataFrame, host: HostColumns) -> pd.DataFrame:
    """Return one row per device that has an opening, with the columns of `read_gaps`.

    An opening is the time from the start of a profiled step to the first work of a device. It lies before the
    first interval of its device, so it is in no gap. If that interval was launched in the same step, nothing
    earlier was running, and what the host did until the launch explains the time like that of a gap. It stays
    an edge of the capture if the work was queued meanwhile, or if the host later got ahead of the device for
    longer than it was late in all, so that later steps do not begin with an idle device.

    Its row is that of the device's first interval, which also stands for the interval before.
    """
    windows = step_windows(run)[[C.RANK, C.STEP, C.START_NS]]
    if windows.empty or device.empty:
        return pd.DataFrame()
    is_first = device[C.START_NS] == device.groupby(PLACE)[C.START_NS].transform("min")
    first = device[is_first & device[C.STEP].notna()].sort_values([*PLACE, C.ROW_ID])
    first = first.assign(**{AFTER: first.index}).drop_duplicates(PLACE).astype({C.STEP: "int64"})
    rows = first.rename(columns={C.START_NS: END_NS}).merge(windows, on=[C.RANK, C.STEP])
    launch, length = host.positions(rows[C.LAUNCH_ROW]), ints(rows, END_NS) - ints(rows, C.START_NS)
    rows[C.DUR_NS], rows[LAUNCH], rows[BEFORE] = length, launch, rows[AFTER]
    rows[EARLIER], rows["replayed"] = NO_PARENT, False
    return rows[(launch >= 0) & (length > 0)].reset_index(drop=True)


def missing_kernels_ns(run: Run) -> int:
    """Idle time of a run in which kernels of graphs ran that were not recorded, on the worst device."""
    idle = read_idle(run).without_openings()
    gaps = idle.gaps[idle.explained.unrecorded]
    return int(gaps.groupby(PLACE)[C.DUR_NS].sum().max()) if len(gaps) else 0


def due_to_launches(run: Run) -> int:
    """Idle time due to waits for the device and to launches, not to other work of the host.

    Returns:
        Sum over the ranks of that of the device with most of it, inside the profiled steps if marked.
    """
    idle = read_idle(run).without_openings()
    why = idle.explained
    waited = why.cause == CAUSES.index(Cause.SYNC)
    launched = (why.cause == CAUSES.index(Cause.LAUNCH_BOUND)) & (why.host_ns < MAX_DISPATCH_NS)
    gaps, windows = idle.gaps[(waited | launched) & ~why.aside], step_windows(run)
    if len(windows):
        gaps = gaps.assign(**{C.DUR_NS: inside_steps(gaps, windows)})
    return total_ns(idlest_devices(gaps)) if len(gaps) else 0


def describe_gaps(run: Run, idle: Idle) -> pd.DataFrame:
    """Add the shown columns to the gaps: cause, op, line, neighbors, evidence and row ids."""
    gaps, host, why = idle.gaps, idle.host, idle.explained
    subject = _subjects(idle)
    marks = host.of_kind(HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON) & ~host.name_matches(MARKER)
    anchor = host.nearest_ancestor(subject, marks)
    earlier_op, next_op = (
        host.positions(idle.device[C.OP_ROW].iloc[gaps[name].to_numpy()]) for name in (BEFORE, AFTER)
    )
    common = host.nearest_ancestor(host.common_ancestor(earlier_op, next_op), host.of_kind(HostKind.OP))
    launch = gaps[LAUNCH].to_numpy()
    calls = host.of_kind(HostKind.RUNTIME, HostKind.SYNC, HostKind.OVERHEAD)
    call = np.where(context.is_marked(calls, subject), subject, why.call)
    wait_ns = values_at(host.end, why.wait, 0) - values_at(host.start, why.wait, 0)
    anchor_ids = host.ids(np.where(anchor >= 0, anchor, np.where(next_op >= 0, next_op, launch)))
    first, rare, early, later = context.first_calls(host, anchor)
    is_new = ~idle.device.duplicated([C.RANK, C.NAME]).to_numpy()[gaps[AFTER].to_numpy()]
    stalled = context.is_stall(host, anchor, call, later, early, is_new)
    in_module = host.nearest_ancestor(anchor, host.name_matches(r"^nn\.Module: ")) >= 0
    dispatch = in_module | context.is_marked(host.of_kind(HostKind.OP, HostKind.ANNOTATION), anchor)
    dispatch &= ~host.names_match(f"^{COLLECTION}", anchor)
    is_calling = host.names_match(context.RUNTIME_CALL, call)
    causes = context.refine_causes(why.cause, why.host_ns, is_calling, first, stalled, dispatch)
    is_other_call = (anchor < 0) & (why.cause == CAUSES.index(Cause.LAUNCH_BOUND)) & ~is_calling
    is_late = np.isin(causes, [CAUSES.index(cause) for cause in _EXPLAINED])
    start, lines = ints(gaps, C.START_NS), source_lines(run, anchor_ids)
    sampled = sampled_lines(run, ints(gaps, C.RANK), start, start + why.host_ns)
    waits = sampled_waits(run, ints(gaps, C.RANK), start, start + why.host_ns, HOST_WAITS) & (anchor < 0)
    is_named = (anchor >= 0) & ~rare & ~host.names_match(_BACKWARD_NODE, anchor)
    initial = early | why.loading | context.is_initialization(host, anchor, call, is_new)
    is_unknown = (anchor < 0) & (call < 0)
    initial |= context.is_compilation(gaps, idle.device, why.host_ns, is_unknown)
    initial |= context.is_loading(gaps, host, why.thread, why.host_ns, is_unknown)
    searching = context.in_search(gaps, idle.device, find_searches(run))
    latency = launch_latency(host, gaps, why.host_ns, causes == _PROFILER)
    generated: Bools = contains(idle.device[C.NAME], context.GENERATED)
    length = ints(gaps, C.DUR_NS)
    inside = np.minimum(start + length, values_at(host.end, anchor, 0))
    inside -= np.maximum(start, values_at(host.start, anchor, 0))
    shown = {
        COVERED_NS: np.where(
            (is_late | (causes == CAUSES.index(Cause.DATALOAD))) & (anchor >= 0),
            np.clip(inside, 0, length),
            length,
        ),
        NEXT_OP: host.categories(next_op, NO_OP),
        OP: _op_labels(idle, np.where(is_other_call, call, anchor), next_op),
        CALL: host.categories(call, ""),
        CALL_NS: why.call_ns,
        SECOND: host.categories(why.second_call, ""),
        SECOND_NS: why.second_ns,
        LATENCY_NS: np.where(np.isin(causes, [*_LATE, _PROFILER]), latency, 0),
        OVERHEAD_NS: np.where(causes == _PROFILER, why.overhead_ns, 0),
        COMMON_OP: host.categories(common, ""),
        **{name: idle.device[C.NAME].array.take(gaps[name].to_numpy()) for name in (BEFORE, AFTER)},
        HOST_NS: _nullable(why.host_ns, launch >= 0),
        QUEUED_NS: _nullable(why.queued_ns, launch >= 0),
        WAIT_NS: _nullable(wait_ns, why.wait >= 0),
        WAIT_ROW: host.ids(why.wait).array,
        C.LAUNCH_ROW: host.ids(launch).array,
        ANCHOR_ROW: anchor_ids.array,
        SOURCE: lines.mask(lines == "", sampled).astype("category").array,
        WAITS_ELSEWHERE: why.waiting_elsewhere | waits,
        ALLOCATING: why.allocating,
        ASIDE: why.aside,
        WARM_UP: why.warm_up,
        STARTING: why.starting,
        COMPILED: in_compiled_code(host, why.covering_row, launch) | generated[gaps[AFTER].to_numpy()],
        CHECKING: why.checking,
        BROADCASTING: why.broadcasting,
        READ_BACK: context.after_read_back(gaps, idle.device, why.wait),
        INITIAL: (is_late & initial & ~stalled | searching) & ~why.aside,
        NAMED: is_named | (sampled != "") & (anchor < 0),
        CAUSE: pd.Categorical.from_codes(causes, categories=pd.Index(CAUSES)),
    }
    read = {name: gaps[name].array for name in (*PLACE, C.START_NS, C.DUR_NS, C.STEP, C.ROW_ID)}
    return pd.DataFrame(read | shown, copy=False)


def _nullable(values: Ints, is_known: Bools) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.astype(np.int64, copy=False), ~is_known)


def _subjects(idle: Idle) -> Ints:
    """Host row responsible for each gap: the wait, the row covering it, or the launch of queued work."""
    why = idle.explained
    waited = (why.cause == CAUSES.index(Cause.SYNC)) & (why.wait >= 0)
    launch = np.where(why.queued, idle.gaps[LAUNCH].to_numpy(), NO_PARENT)
    subject: Ints = np.where(waited, why.wait, np.where(why.covering_row >= 0, why.covering_row, launch))
    return subject


def _op_labels(idle: Idle, anchor: Ints, next_op: Ints) -> pd.Categorical:
    """Label of the op, annotation or frame that delayed the device, or of the next op if there is none."""
    host, why = idle.host, idle.explained
    # Four groups of labels, each name once in the first three: a code is its name's plus that of the group.
    plain = [*host.shown_names, ""]
    between = [f"(between ops, before {name})" if name else BETWEEN for name in plain]
    queued = [name or NO_OP for name in plain]
    following = host.name_codes(next_op)
    codes = np.where(why.queued, 2, 1) * len(plain) + following
    codes[why.cause == CAUSES.index(Cause.UNKNOWN)] = 3 * len(plain)
    codes[why.cause == CAUSES.index(Cause.SYNC)] = 3 * len(plain) + 1
    codes = np.where(anchor >= 0, host.name_codes(anchor), codes)
    codes[why.unrecorded] = 3 * len(plain) + 2
    codes[(why.cause == CAUSES.index(Cause.HOST_WORK)) & (anchor < 0)] = 3 * len(plain) + 3
    return to_categorical(
        [*plain, *between, *queued, "(launch not recorded)", OUTSIDE, _NO_KERNELS, MANAGED],
        codes,
    )


def idlest_devices(gaps: pd.DataFrame) -> pd.DataFrame:
    """Gaps of the device with most idle time of each rank: devices of a rank run concurrently."""
    ranks, lengths, devices = ints(gaps, C.RANK), ints(gaps, C.DUR_NS), group_rows(gaps, PLACE)
    totals, rank_of_device = devices.sums(lengths), ranks[devices.first]
    falling = np.lexsort((-totals, rank_of_device))
    is_idlest = np.zeros(len(totals), np.bool_)
    is_idlest[falling[np.unique(rank_of_device[falling], return_index=True)[1]]] = True
    order = np.lexsort((ints(gaps, C.ROW_ID), ranks, -lengths))
    return gaps.take(order[is_idlest[devices.codes[order]]]).reset_index(drop=True)


def total_ns(gaps: pd.DataFrame) -> int:
    """Sum of the lengths of gaps."""
    return int(ints(gaps, C.DUR_NS).sum())
