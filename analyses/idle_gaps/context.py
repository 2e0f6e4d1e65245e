"""What surrounds an idle interval: the edges of the capture, ranges marked as warm-up, first calls of an op.

Such time is explained by the recording or by its start; it does not recur, so nothing is saved per step.

Functions take `gaps` (idle intervals and openings), the intervals of a `device` that occupy it, and the rows
of the `host`. Arrays are as long as the gaps, positions are -1 for none, and `host_ns` is the host's part.

* Edge: the launches of the work before the gap precede the capture, and the host was not late in a profiled
  step; or the work after it was queued while the first wait of the capture blocked the host, or is the first
  of a stream of a device that had hardly worked: what was waited for is not in the trace.
* Unrecorded: the gap is time of other kernels of a graph.
* Warm-up: the gap begins in a range that the program named so.
* Start-up: the host was late only before it got ahead. When its last launch call returned, the device had
  work queued for longer than the host was late in all, and no wait had drained the queue. A loop without
  waits keeps that lead, so the gaps do not recur; where the program waits after each round, they do.
* First call: the op that covers the host's part took `MIN_FIRST_RATIO` times the median of its calls, and
  only few of them did, or only calls of the first half: it loaded code, chose an algorithm or allocated a
  workspace. Of a Python function only the very first call counts: what an op does depends on shapes, what a
  function does on anything.
* Stall: a call of an op that is neither its first nor one of many slow ones took as much longer, and the
  kernel after it is not new. If calls of `MIN_STALLED_OPS` ops did, the thread was descheduled or waited for
  a lock; calls of one op may have had more to do. Then runtime calls that are as unusual stalled, too.
* Search: the gap lies between kernels of which a convolution measures which is fastest.
* Initialization: an early first call; a range that compiles; overhead of loading code; a runtime call that
  loads code, that launches a kernel for the first time, or that was slow at first only; a host part of
  `MIN_ONCE_NS` or more of which nothing was recorded, before the first launch of a generated kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis.idle_causes import CAUSES
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, overlap_lengths
from tracekit.runs.range_names import WARM_UP
from tracekit.schema import C, HostKind

from ..shared.common import (
    GRAPH_CALL,
    NO_PARENT,
    Bools,
    contains,
    ints,
    medians,
    overlap_by,
    spans,
)
from ..shared.groups import number_by, order_by_number, rows_by_device
from ..shared.host_columns import HostColumns, take
from ..shared.idle_neighbors import AFTER, BEFORE, LAUNCH

MIN_WAITING_CALLS = 20
"""Minimum number of launches of a rank of which most of the kernels' time is inside the calls."""
MIN_UNRECORDED_NS = 100_000
"""Launching a graph of many kernels delays the first of them by less, also where it was queued."""
UNRECORDED_SPREAD, MIN_REPLAYS = 0.05, 3
"""Largest difference in length, and least number, of gaps that count as equally long."""
MIGRATION = r"(?i)^unified memory"
"""Names of moves of managed memory, which no call launches."""
MAX_CLOCK_SKEW_NS = 5_000
"""Tolerance for a wait that seems to end before the work that it waited for."""
MIN_BEHIND_NS = 1_000_000
MAX_WORKED_SHARE = 0.01
"""Least wait of the first work of a stream that is one for unrecorded work, and largest recorded work of its
device before it, as a share of the wait."""
MIN_FIRST_RATIO = 10
"""Minimum ratio of a first call's time to the median of the op's calls."""
MAX_FIRST_CALLS = 3
"""Maximum number of first calls of one op: algorithms and workspaces depend on shapes."""
MIN_CALLS = 4
MIN_LOADING_SHARE = 0.2
"""Share of an otherwise unrecorded host part from which calls that load code explain it."""
MIN_STALLED_OPS = 3
"""Minimum number of ops of which calls stall."""
MIN_ONCE_NS = 10_000_000
"""Minimum length of a runtime call that is one of fewer than `MIN_CALLS` and initializes something: creating
a context, a stream or a library's handle takes tens of ms at first, other calls at most some ms."""
RUNTIME_CALL = r"^(?:cuda|cu|hip|ur|ze)[A-Z]"
_MEMORY = r"(?i)malloc|free|hostalloc"
_LAUNCH, _ALLOCATION = r"(?i)launch", r"(?i)malloc|hostalloc"
GENERATED = r"^triton_(?:poi|red|per|tem|for)_"
"""Names of kernels that torch.compile generates."""
_INITIALIZES = r"(?i)nvrtc|compil(?:e(?!d)|ing|ation)|autotun|(?:module|library)_?load"
"""Names of ranges and calls that compile, try variants of kernels, or load code."""
MAX_DISPATCH_NS = 1_000_000
"""Maximum host part that the dispatch of an op or module explains: eager ops with autograd, hooks and a
profiler take up to some hundreds of µs."""
MIN_LONG_NS = 200_000
"""Dispatching one op takes up to some tens of µs; a longer host part is examined for its reason."""


def after_backlog(gaps: pd.DataFrame, device: pd.DataFrame) -> Bools:
    """Whether all work of the rank that ended by the start of the gap was launched before the capture."""
    unlinked = device[C.LAUNCH_ROW].isna().to_numpy()
    _, end = spans(device)
    precedes = np.zeros(len(gaps), np.bool_)
    place = gaps[BEFORE].to_numpy()
    for rank in np.unique(gaps[C.RANK]):
        of_rank = (device[C.RANK] == rank).to_numpy(bool)
        linked = end[of_rank & ~unlinked]
        if len(linked):  # else launches were not recorded at all
            mine = (gaps[C.RANK] == rank).to_numpy(bool)
            precedes[mine] = end[place[mine]] < linked.min()
    migrated: Bools = contains(device[C.NAME], MIGRATION)[place]
    return precedes & ~migrated


def before_host_access(gaps: pd.DataFrame, device: pd.DataFrame) -> Bools:
    """Whether each gap ends as the CPU touches managed memory: nothing else moves its pages to the host."""
    to_host: Bools = contains(device[C.NAME], f"{MIGRATION}.*DtoH")[gaps[AFTER].to_numpy()]
    return to_host & (gaps[LAUNCH].to_numpy() < 0)


def after_read_back(gaps: pd.DataFrame, device: pd.DataFrame, wait: Ints) -> Bools:
    """Whether each gap follows a copy to the host that was waited for, and precedes other work than a copy.

    The program went on with data that was on the device already, so it did not wait for a request or a batch.
    """
    before, after = (device[C.NAME].iloc[gaps[name].to_numpy()] for name in (BEFORE, AFTER))
    read: Bools = contains(before, r"(?i)^memcpy DtoH") & ~contains(after, "(?i)^memcpy") & (wait >= 0)
    return read


def waiting_launches(gaps: pd.DataFrame, device: pd.DataFrame, host: HostColumns) -> Ints:
    """A launch call of the rank of each gap, where these return after their kernels; -1 elsewhere.

    Such a host never runs ahead, so it was late for each gap, also before work without a recorded launch.
    """
    chosen = np.full(len(gaps), NO_PARENT, np.int64)
    if (gaps[LAUNCH].to_numpy() >= 0).all():
        return chosen
    for rank, call in ranks_that_wait(device, host).items():
        chosen[ints(gaps, C.RANK) == rank] = call
    return chosen


def ranks_that_wait(device: pd.DataFrame, host: HostColumns) -> dict[int, int]:
    """Return the ranks whose launch calls return after their kernels, with the host row of one such call."""
    found = {}
    calls, ranks, (start, end) = host.positions(device[C.LAUNCH_ROW]), ints(device, C.RANK), spans(device)
    for rank in np.unique(ranks[calls >= 0]).tolist():
        rows = np.flatnonzero((calls >= 0) & (ranks == rank))
        if len(rows) < MIN_WAITING_CALLS:
            continue
        begun, returned = host.start[calls[rows]], host.end[calls[rows]]
        inside = np.minimum(end[rows], returned) - np.maximum(start[rows], begun)
        if 2 * np.maximum(inside, 0).sum() > (end[rows] - start[rows]).sum():
            found[rank] = int(calls[rows[0]])
    return found


def in_first_wait(gaps: pd.DataFrame, host: HostColumns, waits: Ints, queued: Bools) -> Bools:
    """Whether work was queued and most of the gap lies in the first wait of its rank."""
    in_wait = np.zeros(len(gaps), np.bool_)
    start, end = spans(gaps)
    ranks = gaps[C.RANK].to_numpy()
    for rank in np.unique(host.rank[waits]):
        of_rank = waits[host.rank[waits] == rank]
        first = of_rank[np.argmin(host.start[of_rank])]
        inside = np.minimum(end, host.end[first]) - np.maximum(start, host.start[first])
        in_wait |= queued & (ranks == rank) & (2 * inside > end - start)
    return in_wait


def behind_unrecorded(gaps: pd.DataFrame, device: pd.DataFrame, queued: Bools, queued_ns: Ints) -> Bools:
    """Whether each gap is a wait for work that is not recorded, such as that from before the capture.

    That is so if the first work of a stream was queued for most of the gap, and the device had hardly worked
    before: nothing recorded explains why it did not start. A gap of at most `MAX_WORKED_SHARE` of that wait
    right before it is one, too: that work ran already.
    """
    behind, length = np.zeros(len(gaps), np.bool_), ints(gaps, C.DUR_NS)
    rows = np.flatnonzero(queued & (queued_ns >= MIN_BEHIND_NS) & (2 * queued_ns > length))
    if not len(rows):
        return behind
    start, end = spans(device)
    began = device.groupby([C.RANK, C.DEVICE, C.STREAM])[C.START_NS].transform("min")  # NaN without a stream
    rows = rows[(began == device[C.START_NS]).to_numpy()[gaps[AFTER].to_numpy()[rows]]]
    for gap in rows:
        other = (device[[C.RANK, C.DEVICE]] == gaps[[C.RANK, C.DEVICE]].iloc[gap]).all(axis=1)
        earlier = other.to_numpy() & (start < gaps[C.START_NS].iloc[gap])
        worked_ns = intervals.length(intervals.union(start[earlier], end[earlier]))
        if worked_ns <= MAX_WORKED_SHARE * length[gap]:
            ahead_ns = gaps[C.START_NS].iloc[gap] - ints(gaps, C.START_NS)
            alike = (gaps[[C.RANK, C.DEVICE]] == gaps[[C.RANK, C.DEVICE]].iloc[gap]).all(axis=1).to_numpy()
            behind |= alike & (ahead_ns >= 0) & (ahead_ns <= MAX_WORKED_SHARE * length[gap])
    return behind


def is_start_up(
    gaps: pd.DataFrame,
    device: pd.DataFrame,
    host: HostColumns,
    waits: Ints,
    late: Bools,
    is_opening: Bools,
) -> Bools:
    """Whether each gap is one of a device on which the host was late only before it got ahead.

    An opening counts for itself alone, so that it never decides about the gaps.
    """
    starting = np.zeros(len(gaps), np.bool_)
    call, (start, end) = host.positions(device[C.LAUNCH_ROW]), spans(device)
    late_lengths, rows_of = np.where(late, ints(gaps, C.DUR_NS), 0), rows_by_device(device)
    for (rank, number), of_device in rows_by_device(gaps).items():
        rows = rows_of[rank, number]
        launched = call[rows][call[rows] >= 0]
        if not len(launched) or not late[of_device].any():
            continue
        last = int(host.end[launched].max())
        occupied = intervals.union(start[rows], end[rows])
        lead = int(overlap_lengths(occupied, np.array([last]), end[rows].max(keepdims=True))[0])
        done = host.end[waits[host.rank[waits] == rank]]
        done = done[(done > start[rows].min()) & (done <= last)]
        drained = (overlap_lengths(occupied, done, done + 1) == 0) | (
            overlap_lengths(occupied, done + MAX_CLOCK_SKEW_NS, done + MAX_CLOCK_SKEW_NS + 1) == 0
        )
        late_ns = late_lengths[of_device]
        opening_ns = np.where(is_opening[of_device], late_ns, 0)
        in_all = late_ns.sum() - opening_ns.sum() + opening_ns
        starting[of_device] = late[of_device] & (lead >= in_all) & ~drained.any()
    return starting


def in_unrecorded_replay(
    gaps: pd.DataFrame, device: pd.DataFrame, host: HostColumns, depends: Bools
) -> Bools:
    """Whether each gap is time of other kernels of a graph, which were not recorded.

    That is so if it lies on one stream between kernels of a replay or before the first, takes
    `MIN_UNRECORDED_NS` or more, and takes as long in other replays. What a stream waits for varies. Where
    that is most of the time in which a device waited, its other waits may be for such kernels too.
    """
    missing = np.zeros(len(gaps), np.bool_)
    replays = host.names_match(GRAPH_CALL, gaps[LAUNCH].to_numpy())
    length = gaps[C.DUR_NS].to_numpy(np.int64)
    rows = np.flatnonzero(depends & replays & (length >= MIN_UNRECORDED_NS))
    if not len(rows):
        return missing
    before, after = (device.iloc[gaps[name].to_numpy()[rows]] for name in (BEFORE, AFTER))
    rows = rows[(before[C.STREAM].to_numpy() == after[C.STREAM].to_numpy())]
    before, after = (device.iloc[gaps[name].to_numpy()[rows]] for name in (BEFORE, AFTER))
    keys = [
        gaps[C.RANK].to_numpy()[rows],
        gaps[C.DEVICE].to_numpy()[rows],
        before[C.NAME].astype(object).to_numpy(),
    ]
    keys.append(after[C.NAME].astype(object).to_numpy())
    for of_place in pd.Series(length[rows]).groupby(keys, sort=False).indices.values():
        ordered = np.sort(length[rows[of_place]])
        alike = np.searchsorted(ordered, ordered * (1 + UNRECORDED_SPREAD), side="right")
        alike -= np.searchsorted(ordered, ordered * (1 - UNRECORDED_SPREAD))
        recurring = alike >= MIN_REPLAYS
        missing[rows[of_place]] = np.isin(length[rows[of_place]], ordered[recurring])
    for of_device in gaps.groupby([C.RANK, C.DEVICE], sort=False).indices.values():
        waited, known = depends[of_device], missing[of_device]
        if 2 * length[of_device][known].sum() > length[of_device][waited].sum():
            missing[of_device] = waited
    return missing


def in_search(gaps: pd.DataFrame, device: pd.DataFrame, searches: Ints) -> Bools:
    """Whether each gap lies between kernels that search for the fastest algorithm of a convolution."""
    before, after = (gaps[name].to_numpy() for name in (BEFORE, AFTER))
    searched = np.isin(ints(device, C.ROW_ID), searches)
    inside: Bools = searched[before] & searched[after] & (before != after)  # an opening has one for both
    return inside


def in_warm_up(gaps: pd.DataFrame, host: HostColumns, measured: Mapping[int, int]) -> Bools:
    """Whether each gap begins in a range marked as warm-up or before the first one, or lies mostly in one."""
    rows = np.flatnonzero(host.of_kind(HostKind.ANNOTATION) & host.name_matches(WARM_UP))
    start, end = spans(gaps)
    marked, ranks = (host.rank[rows], host.spans(rows)), gaps[C.RANK].to_numpy(np.int64)
    begins = overlap_by(*marked, ranks, (start, start + 1)) > 0
    begins |= start < gaps[C.RANK].map(measured).to_numpy(np.float64, na_value=np.nan)
    mostly: Bools = begins | (2 * overlap_by(*marked, ranks, (start, end)) > end - start)
    return mostly


def first_calls(host: HostColumns, anchor: Ints) -> tuple[Bools, Bools, Bools, Bools]:
    """Whether each of these host rows is one of few calls of an op that took far longer than the others.

    Returns:
        That; whether it is the only call of an op, so that it is unknown whether others would be faster;
        whether it is a first call near the start of the capture; and whether it is a later call that took far
        longer than most others.
    """
    is_op, is_frame = host.of_kind(HostKind.OP), host.of_kind(HostKind.PYTHON)
    ops = np.flatnonzero(_have_names(host, anchor) & (is_op | is_frame))
    if not len(ops):
        none = np.zeros(len(anchor), np.bool_)
        return none, none, none, none
    calls = _Calls.of(host, ops)
    first, rare, early, later = (np.zeros(len(is_op), np.bool_) for _ in range(4))
    first[ops] = calls.slow & (is_op[ops] | (calls.place == 0))
    rare[ops] = (calls.count == 1) & is_op[ops]
    early[ops] = first[ops] & calls.early
    later[ops] = calls.outlier & is_op[ops]
    return (
        is_marked(first, anchor),
        is_marked(rare, anchor),
        is_marked(early, anchor),
        is_marked(later, anchor),
    )


def is_stall(host: HostColumns, anchor: Ints, call: Ints, later: Bools, early: Bools, is_new: Bools) -> Bools:
    """Whether the thread stalled in the host's part of each gap (gaps,).

    Where it is known to stall, early calls of ops and runtime calls that are as unusual stalled, too.

    Args:
        host: Intervals of the host.
        anchor: Row of `host` that covers most of the host's part, or -1 (gaps,).
        call: Runtime call that does, or -1 (gaps,).
        later: Whether the former is a later call of an op that took far longer than most (gaps,).
        early: Whether it is one of few near the start of the capture (gaps,).
        is_new: Whether the work after the gap is the first of its name (gaps,).
    """
    in_op = later & ~is_new & ((call < 0) | host.names_match(_LAUNCH, call))
    if len(np.unique(host.name_codes(anchor[in_op & ~early]))) < MIN_STALLED_OPS:
        return np.zeros(len(later), np.bool_)
    named = host.of_kind(HostKind.RUNTIME) & _have_names(host, call)
    for pattern in (_MEMORY, _INITIALIZES, GRAPH_CALL):
        named &= ~host.name_matches(pattern)
    rows = np.flatnonzero(named)
    unusual = np.zeros(len(named), np.bool_)
    unusual[rows] = _Calls.of(host, rows).outlier
    stalled: Bools = in_op | (is_marked(unusual, call) & ~is_new)
    return stalled


@dataclass(frozen=True)
class _Calls:
    """Host rows compared with the others of their name and rank."""

    slow: Bools  # whether it took far longer than usual, as few do, or only calls of the first half
    outlier: Bools  # whether it did, is not the first, and is one of at most a tenth, or the only one
    early: Bools  # whether it is in the first half, and of those until it at least a tenth were slow
    place: Ints  # its place among them by start, from 0
    count: Ints  # their number

    @classmethod
    def of(cls, host: HostColumns, rows: Ints) -> _Calls:
        keys = pd.DataFrame({C.RANK: host.rank[rows], C.NAME: host.name_codes(rows)})
        group, first = number_by(keys, [C.RANK, C.NAME])
        duration = (host.end - host.start)[rows]
        slow = duration >= MIN_FIRST_RATIO * np.maximum(medians(group, len(first), duration)[group], 1)
        count, slow_count = (np.bincount(group[of], minlength=len(first)) for of in (slice(None), slow))
        by_start = np.argsort(host.start[rows], kind="stable")
        order = by_start[order_by_number(group[by_start])]
        place, slow_until = np.empty((2, len(rows)), np.int64)
        place[order] = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        slow_until[order] = np.cumsum(slow[order]) - np.repeat(np.cumsum(slow_count) - slow_count, count)
        calls_until_fast = np.zeros(len(first), np.int64)
        np.maximum.at(calls_until_fast, group[slow], place[slow] + 1)
        at_first = (slow_count <= MAX_FIRST_CALLS) | (2 * calls_until_fast <= count)
        early = (2 * place < count[group]) & (10 * slow_until > place)
        outlier = slow & (place > 0) & ((count > 2) & (slow_count <= np.maximum(1, count // 10)))[group]
        return cls(slow & (at_first & (count >= MIN_CALLS))[group], outlier, early, place, count[group])


def is_initialization(host: HostColumns, anchor: Ints, call: Ints, is_new: Bools) -> Bools:
    """Whether the host's part of each gap compiled or loaded code, or initialized something (gaps,).

    The arguments are those of `is_stall`.
    """
    named = host.name_matches(_INITIALIZES) & ~host.of_kind(HostKind.PYTHON)
    is_call = host.of_kind(HostKind.RUNTIME) & host.name_matches(RUNTIME_CALL)
    rows = np.flatnonzero(is_call & _have_names(host, call))
    calls, initializes = _Calls.of(host, rows), np.zeros(len(host.start), np.bool_)
    once = (calls.count < MIN_CALLS) & ((host.end - host.start)[rows] >= MIN_ONCE_NS)
    once &= (calls.place == 0) | ~host.name_matches(_ALLOCATION)[rows]
    initializes[rows] = (calls.slow & calls.early) | once
    launches = host.names_match(_LAUNCH, call)
    loads = launches & ~host.names_match(GRAPH_CALL, call) & is_new
    initial: Bools = is_marked(named, anchor) | is_marked(named, call) | loads
    return initial | (~launches & is_marked(initializes, call))


def is_compilation(gaps: pd.DataFrame, device: pd.DataFrame, host_ns: Ints, unknown: Bools) -> Bools:
    """Whether the host compiled in its part of each gap: nothing was recorded, and then a new kernel ran."""
    after, names = gaps[AFTER].to_numpy(), device[C.NAME]
    generated = contains(names, GENERATED) & ~device.duplicated([C.RANK, C.NAME]).to_numpy()
    compiled: Bools = unknown & (host_ns >= MIN_ONCE_NS) & generated[after]
    return compiled


def is_loading(gaps: pd.DataFrame, host: HostColumns, thread: Ints, host_ns: Ints, unknown: Bools) -> Bools:
    """Whether the host loaded a library in its part of each gap: calls that load code take a part of it.

    Reading and registering the library between these calls is not recorded.
    """
    rows = np.flatnonzero(host.of_kind(HostKind.RUNTIME) & host.name_matches(_INITIALIZES))
    start = gaps[C.START_NS].to_numpy(np.int64)
    inside = overlap_by(host.thread[rows], host.spans(rows), thread, (start, start + host_ns))
    loads: Bools = unknown & (host_ns >= MIN_ONCE_NS) & (inside >= MIN_LOADING_SHARE * host_ns)
    return loads


def _have_names(host: HostColumns, rows: Ints) -> Bools:
    """Whether each row of the host has the name of one of some rows."""
    occurs = np.zeros(len(host.name.texts) + 1, np.bool_)
    occurs[host.name_codes(rows)] = True
    occurs[-1] = False  # of no row
    return take(occurs, host.name.codes)


def is_marked(marked: Bools, rows: Ints) -> Bools:
    """Whether each of these rows is marked; no row is not."""
    found: Bools = np.append(marked, values=False)[rows]
    return found


def refine_causes(
    cause: Ints, host_ns: Ints, calling: Bools, first: Bools, stalled: Bools, dispatch: Bools
) -> Ints:
    """Replace launch_bound by what the host did in its part of a gap, as indices into `CAUSES`.

    stall: a long host part in which the thread stalled. slow_call: one mostly in runtime calls. first_call:
    one in a first call. host_work: one of `MAX_DISPATCH_NS` or more, or a long one outside ops, modules and
    ranges. Long is `MIN_LONG_NS` or more. The other causes are unchanged.

    Args:
        cause: Cause of each gap.
        host_ns: The host's part of each gap.
        calling: Whether a runtime call covers most of that part.
        first: Whether a first call of an op does.
        stalled: Whether the thread stalled in it.
        dispatch: Whether an op, a module or a range does.
    """
    late = (cause == CAUSES.index(Cause.LAUNCH_BOUND)) & (host_ns >= MIN_LONG_NS)
    refined = np.where(
        late & (~dispatch | (host_ns >= MAX_DISPATCH_NS)), CAUSES.index(Cause.HOST_WORK), cause
    )
    refined = np.where(late & first, CAUSES.index(Cause.FIRST_CALL), refined)
    refined = np.where(late & calling, CAUSES.index(Cause.SLOW_CALL), refined)
    chosen: Ints = np.where(late & stalled, CAUSES.index(Cause.STALL), refined)
    return chosen
