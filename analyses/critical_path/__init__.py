"""Critical path: the chain of host and device time that bounds each step, and the saving of removing a part.

`device` states how the launch and the stream wait of a device interval are known, `host` how waits of host
threads are. A step's window is from its start on the host to the later of its end on the host and the end of
the last interval launched in it.

Kinds of segments: compute, communication, memcpy, memset and graph are device intervals; *launch call* is
time in a call that launches device work; *launch delay* runs from its return to the start on the device;
*kernel-to-kernel delay* is a gap of at most 30 µs before queued work, a longer one is a *device gap* of
unknown cause; *CPU op*, *CPU outside ATen ops*, *runtime call*, *sync call* (its time beyond the device work
it waits for) and *profiler overhead* are time of a host thread by its innermost interval; *thread handover*
runs from the last interval of one thread to the next interval of another; *unknown* has no recorded
dependence.

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

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.runs import intervals
from tracekit.runs.rank_view import END_NS, HOST_NS, HOST_START_NS, step_windows
from tracekit.schema import C

from ..shared.common import NO_STEPS, RANK, STEP, UNLINKED, absent_device_note
from . import device as path_device
from . import findings as path_findings
from . import tables as path_tables
from .host import FAR
from .walk import WINDOW, Walker, Window, graph
from .whatif import Span, WhatIf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.runs.intervals import Union
    from tracekit.runs.run import Run

    from .walk import Graph


NO_HOST = (
    "no host activity was recorded: the path follows only the streams; record CPU activity too "
    "(`--collector torch`)"
)
UNLINKED_NOTE = f"{UNLINKED}, so the path follows only the streams and what-if has no launches"


def compute(run: Run) -> Result:
    """Compute the critical path of every step of every rank."""
    ranks = path_device.ranks(run)
    if not ranks:
        return Result(notes=(absent_device_note(run),))
    steps = step_windows(run)
    found = [_of_rank(run.of_ranks(rank), rank, steps[steps[C.RANK] == rank]) for rank in ranks]
    paths = path_tables.joined([path for path, _, _ in found])
    what_if = pd.concat([table for _, table, _ in found], ignore_index=True)
    tables = path_tables.result_tables(run, paths, what_if, marked=len(steps) > 0)
    notes = tuple(dict.fromkeys(note for _, _, own in found for note in own))
    findings = path_findings.findings(run, paths, what_if)
    return Result(tables, findings, (*(() if len(steps) else (NO_STEPS,)), *notes))


def _of_rank(run: Run, rank: int, steps: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, tuple[str, ...]]:
    """Segments of the paths of one rank, its what-if table, and notes."""
    own = graph(run, rank)
    walker = Walker(own)
    span = _span(own, steps)
    table = _what_if(own, walker, span, max(1, len(steps)))
    numbers, windows = zip(*_windows(own, steps), strict=True)
    path = path_tables.named(own, walker.paths(windows))
    step = pd.array(numbers, dtype="Int64").take(path.pop(WINDOW).to_numpy())
    path[C.RANK], path[C.STEP] = rank, step
    return path, table.assign(**{C.RANK: rank}), _notes(own)


def _what_if(own: Graph, walker: Walker, span: Span, steps: int) -> pd.DataFrame:
    """Compute the saving of removing each candidate on the path from the first step to the last."""
    path = path_tables.described(own, walker.pieces([span.window]))
    path = path_tables.inside(path, span.steps)
    sums = path.groupby([C.KIND, "op"], observed=True)[C.DUR_NS].sum().reset_index()
    del path
    table = path_tables.what_if(WhatIf(own, span), sums, steps)
    return table.assign(**path_findings.measured(own, span))


def _windows(own: Graph, steps: pd.DataFrame) -> list[tuple[int | None, Window]]:
    """Windows of a rank's steps with their numbers; without marked steps the capture, without a number."""
    device = own.device
    if not len(steps):
        return [(None, _span(own, steps).window)]
    step = device.frame[C.STEP].fillna(-1).to_numpy(np.int64)
    order = np.lexsort((device.start, device.end, step))
    sorted_steps = step[order]
    windows: list[tuple[int | None, Window]] = []
    for row in steps.itertuples(index=False):
        number, start, end = (int(getattr(row, name)) for name in (C.STEP, C.START_NS, END_NS))
        place = int(np.searchsorted(sorted_steps, number, side="right")) - 1
        last = int(order[place]) if place >= 0 and sorted_steps[place] == number else -1
        on_device = last >= 0 and int(device.end[last]) == end
        windows.append((number, Window(start, end, last if on_device else -1)))
    return windows


def _span(own: Graph, steps: pd.DataFrame) -> Span:
    """Span from the first start to the last end of a rank's steps, or the capture on its devices."""
    device = own.device
    order = np.lexsort((device.start, device.end))
    if not len(steps):
        window = Window(int(device.start.min()), int(device.end.max()), int(order[-1]))
        return Span(window, -FAR, np.ones(len(device.end), np.bool_), _union([window.start], [window.end]))
    host_end = int((steps[HOST_START_NS] + steps[HOST_NS]).max())
    in_steps = device.frame[C.STEP].isin(steps[C.STEP]).to_numpy(bool)
    end = int(steps[END_NS].max())
    last = order[in_steps[order]][-1:]
    on_device = len(last) and int(device.end[last[0]]) == end
    window = Window(int(steps[C.START_NS].min()), end, int(last[0]) if on_device else -1)
    return Span(window, host_end, in_steps, _union(steps[C.START_NS], steps[END_NS]))


def _union(start: Sequence[int] | pd.Series, end: Sequence[int] | pd.Series) -> Union:
    return intervals.union(np.asarray(start, np.int64), np.asarray(end, np.int64))


def _notes(own: Graph) -> tuple[str, ...]:
    if not len(own.host.start):
        return (NO_HOST,)
    return (UNLINKED_NOTE,) if (own.device.call < 0).all() else ()


_KIND = Column(C.KIND, "", "kind of segment")
_OP = Column(
    "op", "", "innermost op or annotation on the host; launching op, or kernel family, on the device"
)
_TIME = Column("path_ns", "ns", "time on the critical path")
_SHARE = Column("share", "share", "time on the path over the sum of the rank's windows")
_SEGMENTS = Column("segments", "count", "number of segments")

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
    tables=(
        TableSpec("by_kind", "By kind, all windows of a rank", (RANK, _KIND, _TIME, _SHARE, _SEGMENTS)),
        TableSpec(
            "what_if",
            "What-if: step time with each part removed",
            (
                RANK,
                Column("removed", "", "part that takes no time"),
                Column("where", "", "device or host (self) time of an op, or all of a class"),
                Column("saving_ns", "ns", "saving per step"),
                Column("saving_share", "share", "saving over the time per step"),
                Column("new_step_ns", "ns", "time per step with the part removed"),
                Column("path_ns", "ns", "its time on the path, per step; for waits the time of the calls"),
            ),
        ),
        TableSpec("by_op", "By kind and op", (RANK, _KIND, _OP, _TIME, _SHARE, _SEGMENTS)),
        TableSpec(
            "segments",
            "The longest segments",
            (
                RANK,
                STEP,
                _KIND,
                _OP,
                Column(C.DUR_NS, "ns", "length of the segment"),
                Column(C.START_NS, "ns", "start, since the run's t0"),
                Column("device_row", "", "row in device_intervals that contains or follows the segment"),
                Column("host_row", "", "row in host_intervals that contains the segment"),
            ),
        ),
        TableSpec(
            "per_step",
            "By step and kind",
            (
                RANK,
                STEP,
                _KIND,
                _TIME,
                Column("share", "share", "time on the path over the step's window"),
                _SEGMENTS,
            ),
        ),
    ),
    sources=("HTA critical path analysis",),
    order=70,
    compute=compute,
    rules=path_findings.RULES,
)
