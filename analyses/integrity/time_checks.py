"""Check the times of all rows, what the profiler costs, and whether steps end with their events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import trace_quality
from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.cpu_load import describe_load, find_contention
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, HostKind

from ..shared.common import ints, is_kind, spans
from ..steps import measure_steps, overhead
from .checks import ERROR, INFO, OK, WARN, Check, check_share, level_of

CONTENTION = "cpu_contention"
MAX_GAP_NS = 10_000_000_000
"""Time without any event from which a clock jump is assumed."""
MAX_FASTER = 0.1
"""Share by which profiled steps are shorter than others, which a profiler cannot make them."""
MAX_SILENT_SHARE, MAX_SILENT_NS = 0.5, 1_000_000_000
"""Part of a step after the last event, and its length, from which the step outlives its events."""

PROFILER_PATTERN = r"(?i)activity buffer request|buffer flush|instrumentation|cupti|resource"
"""Overhead rows of the profiler; others, such as lazy loading, belong to the program."""


def time_checks(run: Run) -> list[Check]:
    """Checks of the times of all rows."""
    host = run.table("host_intervals", columns=[C.START_NS, C.DUR_NS])
    device = busy(run, [C.START_NS, C.DUR_NS])
    durations = np.concatenate((ints(host, C.DUR_NS), ints(device, C.DUR_NS)))
    start, end = (np.concatenate(both) for both in zip(spans(host), spans(device), strict=True))
    negative, what = int((durations < 0).sum()), "intervals have a negative duration"
    return [
        check_share("negative_duration", negative, len(durations), what),
        _check_jumps(start, end),
        _check_profiler_intervals(run, start, end),
        check_overhead(run),
    ]


def _check_jumps(start: Ints, end: Ints) -> Check:
    covered = intervals.union(start, end)
    holes = covered[0][1:] - covered[1][:-1]
    long = holes[holes > MAX_GAP_NS]
    if not len(long):
        return Check(
            "clock_jump", OK, 0, None, f"no gap of more than {MAX_GAP_NS // 10**9} s without any event"
        )
    longest = int(long.max()) / 1e9
    detail = f"gaps without any event, the longest {longest:.1f} s: a clock jump or a suspended process"
    return Check("clock_jump", WARN, len(long), None, detail)


def _check_profiler_intervals(run: Run, start: Ints, end: Ints) -> Check:
    where = is_kind(HostKind.OVERHEAD)
    rows = run.table("host_intervals", columns=[C.NAME, C.START_NS, C.DUR_NS], where=where)
    rows = rows[matches(rows[C.NAME], PROFILER_PATTERN)]
    if rows.empty:
        return Check("profiler_intervals", INFO, detail="no profiler overhead intervals were recorded")
    overhead_ns = intervals.length(intervals.union(*spans(rows)))
    capture = int(end.max() - start.min()) if len(start) else 0
    part = overhead_ns / capture if capture else 0.0
    detail = f"the profiler's overhead intervals cover {100 * part:.1f}% of the capture"
    return Check("profiler_intervals", level_of("profiler_intervals", part), None, part, detail)


def check_overhead(run: Run) -> Check:
    """Check how much longer profiled steps take than others."""
    table = overhead(run, measure_steps(run))
    if table.empty:
        unknown = "unknown: no profiled steps of known length, or no un-profiled steps"
        return Check("profiler_overhead", INFO, detail=unknown)
    part = float(table["overhead_share"].max())
    longer = "longer" if part >= 0 else "less"
    detail = f"a profiled step takes {100 * abs(part):.1f}% {longer} than an un-profiled one"
    level = level_of("profiler_overhead", max(part, 0.0))
    if part < -MAX_FASTER:
        level, detail = WARN, f"{detail}; those were disturbed, or do other work"
    return Check("profiler_overhead", level, None, part, detail)


def check_contention(run: Run) -> Check:
    """Check whether other programs, or limits, kept the program from the CPU around its timed steps."""
    loads = run.meta.cpu_loads
    if not loads:
        unknown = "unknown: the run does not say who used the CPU around its timed steps"
        return Check(CONTENTION, INFO, detail=unknown)
    contention = find_contention(loads)
    if contention is None:
        return Check(CONTENTION, OK, detail=describe_load(loads))
    return Check(
        CONTENTION, WARN if contention.is_external else INFO, None, contention.share, contention.message
    )


def evidence_checks(run: Run) -> list[Check]:
    """Whether the file holds a whole execution."""
    sampled, captured = map(run.compute_once, (trace_quality.describe_sample, trace_quality.describe_capture))
    is_whole, executed = "no sample by its correlation ids", "no capture of a graph"
    return [
        Check("sampled", ERROR if sampled else OK, detail=sampled or is_whole),
        Check("graph_capture", WARN if captured else OK, detail=captured or executed),
        _check_outliving(run),
    ]


def _check_outliving(run: Run) -> Check:
    """Whether steps last long after the last event in them."""
    steps = run.table("steps", columns=[C.RANK, C.START_NS, C.DUR_NS])
    where = pc.field(C.KIND) != str(HostKind.ANNOTATION)
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    rows = pd.concat([run.table("host_intervals", columns=columns, where=where), busy(run, columns)])
    ends = rows[C.START_NS] + rows[C.DUR_NS]
    last = steps[C.RANK].map(ends.groupby(rows[C.RANK]).max())
    end = steps[C.START_NS] + steps[C.DUR_NS]
    after = (end - last.fillna(steps[C.START_NS])).clip(lower=0)
    long = (after > MAX_SILENT_SHARE * steps[C.DUR_NS]) & (after > MAX_SILENT_NS)
    what = "steps last far longer than the events in them; the capture ended before, or the marker is wrong"
    return check_share("step_outlives_events", int(long.sum()), len(steps), what)
