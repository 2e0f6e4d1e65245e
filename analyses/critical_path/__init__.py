"""Critical path: the chain of host and device time that bounds each step, and the saving of removing a part.

`device` states how the launch and the stream wait of a device interval are known, `host` how waits of host
threads are. A step's window is from its start on the host to the later of its end on the host and the end of
the last interval launched in it.

Kinds of segments: compute, communication, memcpy, memset and graph are device intervals; *launch call* is
time in a call that launches device work; *launch delay* runs from its return to the start on the device;
*kernel-to-kernel delay* is a gap of at most `MAX_SHORT_GAP_NS` before queued work, a longer one is a
*device gap* of unknown cause, as is a launch delay of over `MIN_GAP_NS` of the first work on a stream,
which may be busy with work from before the capture; *CPU op*, *CPU outside ATen ops*, *runtime call*, *sync
call* (its time beyond the device work it waits for) and *profiler overhead* are time of a host thread by
its innermost interval; *thread handover* runs from the last interval of one thread to the next interval of
another; *unknown* has no recorded dependence.

`what_if` recomputes the longest path from the first step's start to the last step's end (`whatif` states the
limits); time between steps is kept. The saving can be less than the time on the path if another chain is
nearly as long.

Sources: HTA critical path analysis, which does not recompute the path.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "critical_path")  # doctest: +SKIP
    >>> result.tables["what_if"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.runs import intervals
from tracekit.runs.intervals import Union, overlap_lengths
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS, HOST_NS, HOST_START_NS, step_windows
from tracekit.schema import C

from ..shared.common import (
    NO_STEPS,
    RANK,
    STEP,
    UNLINKED,
    Bools,
    Small,
    absent_device_note,
    ints,
    share,
    sort_by,
)
from ..shared.groups import group_rows
from ..shared.host_columns import read_host_columns
from . import device as path_device
from . import findings as path_findings
from . import whatif
from .backtrack import (
    ALL_KINDS,
    COMMUNICATE,
    DEVICE_KINDS,
    LAUNCH_DELAY,
    MEMCPY,
    WINDOW,
    Backtracker,
    Graph,
    Window,
    read_graph,
)
from .host import FAR, LAUNCH, OP, OUTSIDE, RUNTIME, SYNC
from .whatif import CLASS, COMMUNICATION, MeasuredSpan, WhatIf

NO_HOST = (
    "no host activity was recorded: the path follows only the streams; record CPU activity too "
    "(`--collector torch`)"
)
UNLINKED_NOTE = f"{UNLINKED}, so the path follows only the streams and what-if has no launches"


def compute(run: Run) -> Result:
    """Compute the critical path of every step of every rank."""
    ranks = path_device.ranks_with_device(run)
    if not ranks:
        return Result(notes=(absent_device_note(run),))
    steps = step_windows(run)
    results = [_analyze_rank(run, rank, steps[steps[C.RANK] == rank]) for rank in ranks]
    named = {name: _sorted([path[name] for path, _, _ in results]) for name in (C.KIND, "op")}
    paths = pd.concat([path for path, _, _ in results], ignore_index=True).assign(**named)
    what_if = pd.concat([table for _, table, _ in results], ignore_index=True)
    tables = _result_tables(run, paths, what_if, marked=len(steps) > 0)
    notes = tuple(dict.fromkeys(note for _, _, rank_notes in results for note in rank_notes))
    findings = path_findings.findings(run, paths, what_if)
    return Result(tables, findings, (*(() if len(steps) else (NO_STEPS,)), *notes))


def saved_without_communication(run: Run) -> int | None:
    """How much shorter the profiled steps (the capture) would be if communication kernels took no time.

    An upper bound of what overlapping them saves: another chain of work may be nearly as long.

    Returns:
        Sum over the ranks of the run, ns; None if launches, or the waits of streams for each other, were not
        recorded: what depends on communication is then unknown.
    """
    windows, total = step_windows(run), 0
    for rank in path_device.ranks_with_device(run):
        graph = read_graph(run, rank)
        device = graph.device
        if (device.call < 0).all() or (len(device.lanes) > 1 and (device.waited < 0).all()):
            return None
        model = WhatIf(graph, _span(graph, windows[windows[C.RANK] == rank]))
        total += model.savings([(CLASS, COMMUNICATION)])[0]
    return total


def _analyze_rank(
    run: Run, rank: int, steps: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, tuple[str, ...]]:
    """Segments of the paths of one rank, its what-if table, and notes."""
    graph = read_graph(run, rank)
    walker = Backtracker(graph)
    span = _span(graph, steps)
    table = _what_if(graph, walker, span, max(1, len(steps)))
    numbers, windows = zip(*_windows(graph, steps), strict=True)
    path = name_segments(graph, walker.paths(windows))
    step = pd.array(numbers, dtype="Int64").take(path.pop(WINDOW).to_numpy())
    path[C.RANK], path[C.STEP] = rank, step
    return path, table.assign(**{C.RANK: rank}), _notes(graph)


def _what_if(graph: Graph, walker: Backtracker, span: MeasuredSpan, steps: int) -> pd.DataFrame:
    """Compute the saving of removing each candidate on the path from the first step to the last."""
    path = describe_segments(graph, walker.pieces([span.window]))
    start = ints(path, C.START_NS)
    path[C.DUR_NS] = overlap_lengths(span.steps, start, start + ints(path, C.DUR_NS))
    groups = group_rows(path, [C.KIND, "op"])
    kinds, ops = (np.asarray(path[name].array[groups.first], object).tolist() for name in (C.KIND, "op"))
    sums = list(zip(kinds, ops, groups.sums(ints(path, C.DUR_NS)).tolist(), strict=True))
    del path, groups
    table = _savings(WhatIf(graph, span), sums, steps)
    return table.assign(**path_findings.measure_limits(graph, span))


def _windows(graph: Graph, steps: pd.DataFrame) -> list[tuple[int | None, Window]]:
    """Windows of a rank's steps with their numbers; without marked steps the capture, without a number."""
    device = graph.device
    if not len(steps):
        return [(None, _span(graph, steps).window)]
    step = device.frame[C.STEP].fillna(-1).to_numpy(np.int64)
    order = np.lexsort((device.start, device.end, step))
    number, start, end = (ints(steps, name) for name in (C.STEP, C.START_NS, END_NS))
    last = np.append(order, -1)[np.searchsorted(step[order], number, side="right") - 1]
    on_device = (last >= 0) & (step[last] == number) & (device.end[last] == end)
    bounds = zip(start.tolist(), end.tolist(), np.where(on_device, last, -1).tolist(), strict=True)
    return [(step_number, Window(*each)) for step_number, each in zip(number.tolist(), bounds, strict=True)]


def _span(graph: Graph, steps: pd.DataFrame) -> MeasuredSpan:
    """Span from the first start to the last end of a rank's steps, or the capture on its devices."""
    device = graph.device
    order = np.lexsort((device.start, device.end))
    if not len(steps):
        window = Window(int(device.start.min()), int(device.end.max()), int(order[-1]))
        return MeasuredSpan(
            window, -FAR, np.ones(len(device.end), np.bool_), _union([window.start], [window.end])
        )
    host_end = int((steps[HOST_START_NS] + steps[HOST_NS]).max())
    in_steps = device.frame[C.STEP].isin(steps[C.STEP]).to_numpy(bool)
    end = int(steps[END_NS].max())
    last = order[in_steps[order]][-1:]
    on_device = len(last) and int(device.end[last[0]]) == end
    window = Window(int(steps[C.START_NS].min()), end, int(last[0]) if on_device else -1)
    return MeasuredSpan(window, host_end, in_steps, _union(steps[C.START_NS], steps[END_NS]))


def _union(start: Sequence[int] | pd.Series, end: Sequence[int] | pd.Series) -> Union:
    return intervals.union(np.asarray(start, np.int64), np.asarray(end, np.int64))


def _notes(graph: Graph) -> tuple[str, ...]:
    if not len(graph.host.rows.start):
        return (NO_HOST,)
    return (UNLINKED_NOTE,) if (graph.device.call < 0).all() else ()


MAX_LISTED = 50
"""Number of longest segments listed."""
MAX_OPS_REMOVED = 3
"""Ops of the host and of the device removed in turn; with the four classes at most ten passes."""

HOST_KINDS = (OP, OUTSIDE, RUNTIME)
"""Kinds of an op's own host time."""
_CLASS_KINDS = {
    whatif.LAUNCHES: (LAUNCH, LAUNCH_DELAY),
    whatif.COPIES: (MEMCPY,),
    whatif.WAITS: (SYNC,),
    whatif.COMMUNICATION: (COMMUNICATE,),
}
WHAT_IF = [C.RANK, "removed", "where", "saving_ns", "saving_share", "new_step_ns", "path_ns"]


def name_segments(graph: Graph, path: pd.DataFrame) -> pd.DataFrame:
    """A path with kinds and ops as text, and row ids of the run's tables."""
    interval, number = path["interval"].to_numpy(), path["slice"].to_numpy()
    row = np.where(number >= 0, graph.host.slices.row[number], np.int32(-1))
    rows = graph.host.rows.row_id if len(graph.host.rows.row_id) else row
    named = describe_segments(graph, path)
    named[WINDOW] = path[WINDOW]
    named["device_row"] = _ids(ints(graph.device.frame, C.ROW_ID)[interval], interval < 0)
    named["host_row"] = _ids(rows[row], row < 0)
    return named


def describe_segments(graph: Graph, path: pd.DataFrame | dict[str, Small]) -> pd.DataFrame:
    """A path with kinds and ops as text."""
    start, end = (np.asarray(path[name]) for name in ("start", "end"))
    return pd.DataFrame(
        {
            C.KIND: pd.Categorical.from_codes(path["kind"], pd.Index(ALL_KINDS)),
            "op": pd.Categorical.from_codes(path["label"], pd.Index(graph.labels)),
            C.START_NS: start,
            C.DUR_NS: end - start,
        },
        copy=False,
    )


def _ids(rows: Small, absent: Bools) -> pd.api.extensions.ExtensionArray:
    return pd.arrays.IntegerArray(rows.astype(np.int64, copy=False), absent)


def _sorted(columns: Sequence[pd.Series]) -> pd.Categorical:
    """Concatenate categorical columns, with common sorted categories."""
    combined = union_categoricals([column.cat.remove_unused_categories() for column in columns])
    return combined.reorder_categories(sorted(combined.categories))


def _result_tables(
    run: Run, paths: pd.DataFrame, what_if: pd.DataFrame, *, marked: bool
) -> dict[str, pd.DataFrame]:
    """All tables, from the segments and what-if tables of all ranks; per step only if steps are marked."""
    result = {
        "by_kind": _totals(paths, [C.RANK, C.KIND], [C.RANK]),
        "what_if": what_if[WHAT_IF],
        "by_op": _totals(paths, [C.RANK, C.KIND, "op"], [C.RANK]),
        "segments": _longest_segments(paths),
    }
    if marked:
        result["per_step"] = _totals(paths, [C.RANK, C.STEP, C.KIND], [C.RANK, C.STEP])
    return result


def _totals(paths: pd.DataFrame, keys: list[str], window: list[str]) -> pd.DataFrame:
    """Time, share of the windows and number of segments by keys, the longest of each window first."""
    groups = group_rows(paths, keys)
    path_ns = groups.sums(ints(paths, C.DUR_NS))
    firsts = {key: paths[key].array[groups.first] for key in keys}
    texts = {name: np.asarray(firsts[name], object) for name in (C.KIND, "op") if name in keys}
    table = pd.DataFrame(firsts | texts)
    windows = group_rows(table, window)
    in_window = share(path_ns, windows.sums(path_ns)[windows.codes])
    table = table.assign(path_ns=path_ns, share=in_window, segments=groups.sizes())
    return sort_by(table, *window, "-path_ns", *(key for key in keys if key not in window))


def _longest_segments(paths: pd.DataFrame) -> pd.DataFrame:
    length = ints(paths, C.DUR_NS)
    threshold = np.partition(length, -MAX_LISTED)[-MAX_LISTED] if len(length) > MAX_LISTED else 0
    longest = paths[length >= threshold]
    longest = longest.assign(**{name: longest[name].astype(object) for name in (C.KIND, "op")})
    longest = sort_by(longest, f"-{C.DUR_NS}", C.RANK, C.START_NS, C.STEP, C.KIND)
    columns = [C.RANK, C.STEP, C.KIND, "op", C.DUR_NS, C.START_NS, "device_row", "host_row"]
    return longest.head(MAX_LISTED)[columns]


def _savings(model: WhatIf, path: Sequence[tuple[str, str, int]], steps: int) -> pd.DataFrame:
    """What-if savings of one rank, largest first; amounts are per step."""
    candidates = _candidates(path, waits=model.waits)
    savings = model.savings([(where, what) for where, what, _ in candidates])
    span = model.span_ns
    rows = [
        (what, where, saved // steps, saved / span, (span - saved) // steps, on_path // steps, saved)
        for (where, what, on_path), saved in zip(candidates, savings, strict=True)
    ]
    amounts = dict.fromkeys(("saving_ns", "new_step_ns", "path_ns", whatif.TOTAL), np.int64)
    table = pd.DataFrame(rows, columns=[*WHAT_IF[1:], whatif.TOTAL]).astype(amounts)
    return sort_by(table, "-saving_ns", "-path_ns", "where", "removed")


def _candidates(path: Sequence[tuple[str, str, int]], *, waits: bool) -> list[tuple[str, str, int]]:
    """Parts of the path to remove, with their time on the path.

    Waits are included even without time of their own: a wait may return at the instant the device finishes.

    Args:
        path: Kind, op and time of its parts.
        waits: Whether there are calls that wait.
    """
    candidates = []
    for where, kinds in ((whatif.DEVICE_OP, DEVICE_KINDS), (whatif.HOST_OP, HOST_KINDS)):
        by_op: Counter[str] = Counter()
        for kind, op, ns in path:
            if kind in kinds:
                by_op[op] += ns
        top = sorted(by_op.items(), key=lambda part: (-part[1], part[0]))[:MAX_OPS_REMOVED]
        candidates += [(where, op, ns) for op, ns in top]
    for name in whatif.CLASSES:
        own_parts = [ns for kind, _, ns in path if kind in _CLASS_KINDS[name]]
        if own_parts or (name == whatif.WAITS and waits):
            candidates.append((whatif.CLASS, name, sum(own_parts)))
    return candidates


_KIND = Column(C.KIND, "", "kind of segment")
_OP = Column(
    "op", "", "innermost op or annotation on the host; launching op, or kernel family, on the device"
)
_TIME = Column("path_ns", "ns", "time on the critical path")
_SHARE = Column("share", "share", "time on the path over the sum of the rank's windows")
_SEGMENTS = Column("segments", "count", "number of segments")

_WHAT_IF = (
    RANK,
    Column("removed", "", "part that takes no time"),
    Column("where", "", "device or host (self) time of an op, or all of a class"),
    Column("saving_ns", "ns", "saving per step"),
    Column("saving_share", "share", "saving over the time per step"),
    Column("new_step_ns", "ns", "time per step with the part removed"),
    Column("path_ns", "ns", "its time on the path, per step; for waits the time of the calls"),
)
_SEGMENTS_COLUMNS = (
    RANK,
    STEP,
    _KIND,
    _OP,
    Column(C.DUR_NS, "ns", "length of the segment"),
    Column(C.START_NS, "ns", "start, since the run's t0"),
    Column("device_row", "", "row in device_intervals that contains or follows the segment"),
    Column("host_row", "", "row in host_intervals that contains the segment"),
)
_PER_STEP = (
    RANK,
    STEP,
    _KIND,
    _TIME,
    Column("share", "share", "time on the path over the step's window"),
    _SEGMENTS,
)
TABLES = (
    TableSpec("by_kind", "By kind, all windows of a rank", (RANK, _KIND, _TIME, _SHARE, _SEGMENTS)),
    TableSpec("what_if", "What-if: step time with each part removed", _WHAT_IF),
    TableSpec("by_op", "By kind and op", (RANK, _KIND, _OP, _TIME, _SHARE, _SEGMENTS)),
    TableSpec("segments", "The longest segments", _SEGMENTS_COLUMNS),
    TableSpec("per_step", "By step and kind", _PER_STEP),
)


ANALYSIS = Analysis(
    name="critical_path",
    title="Critical path",
    question="Which chain of host and device time bounds each step, and what would removing a part save?",
    definition=(
        "Followed backwards from the end of the window: a device interval depends on the last to finish of "
        "the interval before it on its stream, its launch, and the work that a stream wait refers to; a "
        "launch on its host thread; a sync call or blocking copy on the device interval it waited for; a "
        "backward thread on the main thread, and vice versa. The segments sum exactly to the window (a step, "
        "or the capture on the rank's devices). what_if: the longest path through the same dependences, "
        "recomputed with one thing taking no time: an upper bound of the saving."
    ),
    tables=TABLES,
    sources=("HTA critical path analysis",),
    order=70,
    shares=(read_host_columns,),
    reads=("device_intervals",),
    compute=compute,
    rules=path_findings.RULES,
)
