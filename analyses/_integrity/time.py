"""Integrity of times: durations, clock jumps, and profiler overhead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tracekit import intervals
from tracekit.kernel_names import matches
from tracekit.run import busy
from tracekit.schema import C, HostKind

from .._shared.common import ints, spans
from ..steps import overhead, profiled_steps
from .checks import INFO, OK, WARN, Check, counted, level

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

JUMP_NS = 10_000_000_000
PROFILER_PATTERN = r"(?i)activity buffer request|buffer flush|instrumentation|cupti|resource"
"""Overhead rows of the profiler; others, such as lazy loading, belong to the program."""


def time_checks(run: Run) -> list[Check]:
    """Checks of the times of all rows."""
    host = run.table("host_intervals", columns=[C.START_NS, C.DUR_NS])
    device = busy(run, [C.START_NS, C.DUR_NS])
    durations = np.concatenate((ints(host, C.DUR_NS), ints(device, C.DUR_NS)))
    start, end = (np.concatenate(both) for both in zip(spans(host), spans(device), strict=True))
    negative = int((durations < 0).sum())
    return [
        counted(
            "negative_duration", negative, len(durations), "intervals have a negative duration", warn=0.0
        ),
        _jumps(start, end),
        _profiler_intervals(run, start, end),
        _overhead(run),
    ]


def _jumps(start: Ints, end: Ints) -> Check:
    covered = intervals.union(start, end)
    holes = covered[0][1:] - covered[1][:-1]
    long = holes[holes > JUMP_NS]
    if not len(long):
        return Check("clock_jump", OK, 0, None, "no gap of more than 10 s without any event")
    longest = int(long.max()) / 1e9
    detail = f"gaps without any event, the longest {longest:.1f} s: a clock jump or a suspended process"
    return Check("clock_jump", WARN, len(long), None, detail)


def _profiler_intervals(run: Run, start: Ints, end: Ints) -> Check:
    where = pc.field(C.KIND) == str(HostKind.OVERHEAD)
    rows = run.table("host_intervals", columns=[C.NAME, C.START_NS, C.DUR_NS], where=where)
    rows = rows[matches(rows[C.NAME], PROFILER_PATTERN)]
    if rows.empty:
        return Check("profiler_intervals", INFO, detail="no profiler overhead intervals were recorded")
    own = intervals.length(intervals.union(*spans(rows)))
    capture = int(end.max() - start.min()) if len(start) else 0
    part = own / capture if capture else 0.0
    detail = f"the profiler's overhead intervals cover {100 * part:.1f}% of the capture"
    return Check("profiler_intervals", level(part, warn=0.05, error=0.5), None, part, detail)


def _overhead(run: Run) -> Check:
    table = overhead(run, profiled_steps(run))
    if table.empty:
        return Check(
            "profiler_overhead",
            INFO,
            detail="unknown: no profiled steps of known length, or no un-profiled steps",
        )
    part = float(table["overhead_share"].max())
    longer = "longer" if part >= 0 else "less"
    detail = f"a profiled step takes {100 * abs(part):.1f}% {longer} than an un-profiled one"
    return Check("profiler_overhead", level(max(part, 0.0), warn=0.2, error=1.0), None, part, detail)
