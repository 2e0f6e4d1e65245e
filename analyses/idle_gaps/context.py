"""What surrounds an idle interval: the edges of the capture, ranges marked as warm-up, first calls of an op.

Such time is explained by the recording or by its start; it does not recur, so nothing is saved per step.

* Edge: the launches of the work before the gap precede the capture, or the work after it was queued while the
  first wait of the capture blocked the host: what was waited for is not in the trace.
* Warm-up: the gap begins in a range that the program named so.
* Start-up: the host was late only before it got ahead. When its last launch call returned, the device had
  work queued for longer than the host was late in all, and no wait had drained the queue. A loop without
  waits keeps that lead, so the gaps do not recur; where the program waits after each round, they do.
* First call: the op that covers the host's part took `MIN_FIRST_RATIO` times the median of its calls, and
  only few of them did, or only calls of the first half: it loaded code, chose an algorithm or allocated a
  workspace. Of a Python function only the very first call counts: what an op does depends on shapes, what a
  function does on anything.
* Initialization: a first call; a range that compiles; a runtime call that loads code, that launches a kernel
  for the first time, or that was slow at first only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis.idle_causes import CAUSES
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, overlap_lengths
from tracekit.schema import C, HostKind

from ..shared.common import Bools, medians, overlap_by, spans, values_at
from ..shared.idle_neighbors import AFTER, BEFORE

if TYPE_CHECKING:
    from ..shared.host_columns import HostColumns

WARM_UP = r"(?i)warm[-_ ]?up"
MAX_CLOCK_SKEW_NS = 5_000
"""Tolerance for a wait that seems to end before the work that it waited for."""
MIN_FIRST_RATIO = 10
"""Minimum ratio of a first call's time to the median of the op's calls."""
MAX_FIRST_CALLS = 3
"""Maximum number of first calls of one op: algorithms and workspaces depend on shapes."""
MIN_CALLS = 4
MIN_ONCE_NS = 10_000_000
"""Minimum length of a runtime call that is one of fewer than `MIN_CALLS` and initializes something: creating
a context, a stream or a library's handle takes tens of ms at first, other calls at most some ms."""
_RUNTIME_CALL = r"^(?:cuda|cu|hip)[A-Z]"
_LAUNCH_CALL = r"(?i)launch"
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
    return precedes


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


def is_start_up(
    gaps: pd.DataFrame, device: pd.DataFrame, host: HostColumns, waits: Ints, late: Bools
) -> Bools:
    """Whether each gap is one of a device on which the host was late only before it got ahead.

    Args:
        gaps: Idle intervals.
        device: The intervals that occupy a device.
        host: Host rows.
        waits: Host positions of the waits for a device.
        late: Whether the host was late, for each gap.
    """
    starting = np.zeros(len(gaps), np.bool_)
    call, (start, end) = host.positions(device[C.LAUNCH_ROW]), spans(device)
    lengths = gaps[C.DUR_NS].to_numpy()
    rows_of = device.groupby([C.RANK, C.DEVICE], sort=True).indices
    for place, of_device in gaps.groupby([C.RANK, C.DEVICE], sort=True).indices.items():
        rows = np.asarray(rows_of[place])
        rank = device[C.RANK].to_numpy()[rows[0]]
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
        starting[of_device] = (
            late[of_device] & (lead >= lengths[of_device][late[of_device]].sum()) & ~drained.any()
        )
    return starting


def in_warm_up(gaps: pd.DataFrame, host: HostColumns) -> Bools:
    """Whether each gap begins in a range marked as warm-up, or lies mostly in one."""
    rows = np.flatnonzero(host.of_kind(HostKind.ANNOTATION) & host.name_matches(WARM_UP))
    start, end = spans(gaps)
    marked, ranks = (host.rank[rows], host.spans(rows)), gaps[C.RANK].to_numpy(np.int64)
    begins = overlap_by(*marked, ranks, (start, start + 1)) > 0
    mostly: Bools = begins | (2 * overlap_by(*marked, ranks, (start, end)) > end - start)
    return mostly


def first_calls(host: HostColumns, anchor: Ints) -> tuple[Bools, Bools]:
    """Whether each of these host rows is one of few calls of an op that took far longer than the others.

    Returns:
        That, and whether it is the only call of an op, so that it is unknown whether others would be faster.
    """
    is_op, is_frame = host.of_kind(HostKind.OP), host.of_kind(HostKind.PYTHON)
    ops = np.flatnonzero(is_op | is_frame)
    if not len(ops):
        return np.zeros(len(anchor), np.bool_), np.zeros(len(anchor), np.bool_)
    slow, place, count = _slow_at_first(host, ops)
    first, rare = np.zeros(len(is_op), np.int64), np.zeros(len(is_op), np.int64)
    first[ops] = slow & (is_op[ops] | (place == 0))
    rare[ops] = (count == 1) & is_op[ops]
    return values_at(first, anchor, 0) > 0, values_at(rare, anchor, 0) > 0


def _slow_at_first(host: HostColumns, rows: Ints) -> tuple[Bools, Ints, Ints]:
    """Which calls took far longer than is usual of their name, where only few did or only early ones.

    Returns:
        That, the place of each among the calls of its name, by start, and their number (rows,).
    """
    names, group = np.unique(host.name_codes(rows), return_inverse=True)
    duration = (host.end - host.start)[rows]
    slow = duration >= MIN_FIRST_RATIO * np.maximum(medians(group, len(names), duration)[group], 1)
    count = np.bincount(group, minlength=len(names))
    order = np.lexsort((host.start[rows], group))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    calls_until_fast = np.zeros(len(names), np.int64)
    np.maximum.at(calls_until_fast, group[slow], place[slow] + 1)
    few = np.bincount(group[slow], minlength=len(names)) <= MAX_FIRST_CALLS
    at_first = (few | (2 * calls_until_fast <= count)) & (count >= MIN_CALLS)
    return slow & at_first[group], place, count[group]


def is_initialization(
    gaps: pd.DataFrame, device: pd.DataFrame, host: HostColumns, anchor: Ints, call: Ints, first: Bools
) -> Bools:
    """Whether the host's part of each gap loaded or compiled code, or chose an algorithm (gaps,).

    Args:
        gaps: Idle intervals of devices.
        device: Intervals of devices.
        host: Intervals of the host.
        anchor: Row of `host` that covers most of the host's part, or -1 (gaps,).
        call: Runtime call that does, or -1 (gaps,).
        first: Whether a first call of an op does (gaps,).
    """
    by_name = is_marked(host.name_matches(_INITIALIZES), anchor) | is_marked(
        host.name_matches(_INITIALIZES), call
    )
    calls = np.flatnonzero(host.of_kind(HostKind.RUNTIME) & host.name_matches(_RUNTIME_CALL))
    slow = np.zeros(len(host.start), np.bool_)
    if len(calls):
        at_first, _, count = _slow_at_first(host, calls)
        is_long = (host.end - host.start)[calls] >= MIN_ONCE_NS
        slow[calls] = at_first | ((count < MIN_CALLS) & is_long)
    of_kernel = is_marked(host.name_matches(_LAUNCH_CALL), call)
    is_first = ~device.duplicated([C.RANK, C.NAME]).to_numpy()
    loads = of_kernel & is_first[gaps[AFTER].to_numpy()]
    initial: Bools = first | by_name | loads | (~of_kernel & is_marked(slow, call))
    return initial


def is_marked(marked: Bools, rows: Ints) -> Bools:
    """Whether each of these rows is marked; no row is not."""
    return values_at(marked.astype(np.int8), rows, 0) > 0


def refine_causes(cause: Ints, host_ns: Ints, calling: Bools, first: Bools, dispatch: Bools) -> Ints:
    """Replace launch_bound by what the host did in its part of a gap, as indices into `CAUSES`.

    slow_call: a long host part, mostly in runtime calls. first_call: a long one, in a first call. host_work:
    one of `MAX_DISPATCH_NS` or more, or a long one outside ops, modules and ranges. Long is `MIN_LONG_NS` or
    more. The other causes are unchanged.

    Args:
        cause: Cause of each gap.
        host_ns: The host's part of each gap.
        calling: Whether a runtime call covers most of that part.
        first: Whether a first call of an op does.
        dispatch: Whether an op, a module or a range does.
    """
    late = (cause == CAUSES.index(Cause.LAUNCH_BOUND)) & (host_ns >= MIN_LONG_NS)
    refined = np.where(
        late & (~dispatch | (host_ns >= MAX_DISPATCH_NS)), CAUSES.index(Cause.HOST_WORK), cause
    )
    refined = np.where(late & first, CAUSES.index(Cause.FIRST_CALL), refined)
    chosen: Ints = np.where(late & calling, CAUSES.index(Cause.SLOW_CALL), refined)
    return chosen
