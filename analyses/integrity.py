"""Checks of `integrity`.

Each check has a level: ok, info, warn or error. The definition lists the thresholds; the reasons:

* Device work without its launch: its time is right, but cannot be attributed to ops. Unified memory is
  ignored: the driver migrates it without a call. Work launched before the capture is counted apart.
* Kernel launches without device work: GPU time is missing. Copy and memset calls without it are only
  information: libraries make calls of zero bytes. Calls during stream capture are ignored, because they run
  nothing, and so are host functions launched into a stream. If no launch is linked, the number is unknown.
* A GPU, but no device events: error, because the device may have been busy all the time.
* Samples of traces, and captures of graphs: see `tracekit.analysis.trace_quality`. They have no findings.
* Device work of zero duration: the clock is too coarse (whole microseconds) for the kernels.
* Overhead: profiled against un-profiled steps, and the profiler's own intervals (activity buffers,
  instrumentation, CUPTI's resources). Kernel loading and full queues are recorded as overhead too, but are
  the program's own.

Sources: reports by users of other profilers; Kineto's and CUPTI's documented losses.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "integrity")  # doctest: +SKIP
    >>> result.tables["verdict"]["verdict"][0]  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Analysis, Column, Result, TableSpec, trace_quality
from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.environment import GPU_PROBLEM
from tracekit.runs.intervals import Ints
from tracekit.runs.meta import combine_diagnostics
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import backlog
from tracekit.schema import C, HostKind, Memory

from .shared.common import NO_PARENT, NOT_RECORDED, ints, is_launch, positions, spans
from .steps import overhead, profiled_steps

OK, INFO, WARN, ERROR = "ok", "info", "warn", "error"


@dataclass(frozen=True)
class Check:
    """Result of one check; `detail` names what `share` refers to."""

    check: str
    level: str
    count: int | None = None
    share: float | None = None
    detail: str = ""


def counted(name: str, count: int, of: int, what: str, *, warn: float, error: float | None = None) -> Check:
    """Check with a level derived from a share.

    Args:
        name: The check.
        count: Number of affected rows.
        of: Number of rows.
        what: What is counted and, after a semicolon, the consequence.
        warn: Above this share it is a warning.
        error: Above this share it is an error.

    Example:
        >>> counted("unlinked", 3, 10, "device intervals have no launch", warn=0.05).level
        'warn'
    """
    plain = what.split(";")[0]  # the consequence applies only to a count above 0
    if not of:
        return Check(name, OK, 0, None, f"0 of 0 {plain}")
    share = count / of
    text = what if count else plain
    return Check(name, level(share, warn=warn, error=error), count, share, f"{count:,} of {of:,} {text}")


def level(share: float, *, warn: float, error: float | None = None) -> str:
    """Level of a share; above 0 it is at least information."""
    if error is not None and share > error:
        return ERROR
    if share > warn:
        return WARN
    return INFO if share > 0 else OK


GRAPH_PATTERN = r"(?i)graphlaunch"
KERNEL_PATTERN = r"(?i)launch"
_GRAPH, _KERNEL, _COPY = "graph", "kernel", "copy"


def device_checks(run: Run) -> list[Check]:
    """Checks of device rows against the host rows that launched them."""
    columns = [C.START_NS, C.DUR_NS, C.STEP, C.RANK, C.LAUNCH_ROW, C.SRC_MEMORY, C.CORRELATION_ID]
    device = busy(run, columns)
    calls = _launch_calls(run)
    if device.empty:
        return [_without_device(run, int((~calls["captured"]).sum()))]
    return [
        Check("device_events", OK, len(device), None, f"{len(device):,} device intervals were recorded"),
        *_unlinked(device),
        *_without_interval(calls, device),
        _before_launch(calls, device),
        _coarse(device),
        _empty_steps(run, device),
    ]


def _launch_calls(run: Run) -> pd.DataFrame:
    """Calls that launch device work, with the kind of work and whether they are captured into a graph."""
    calls = trace_quality.runtime_calls(run)
    names = calls[C.NAME]
    patterns = [matches(names, GRAPH_PATTERN), matches(names, KERNEL_PATTERN)]
    kinds = np.select(patterns, [_GRAPH, _KERNEL], _COPY)
    return calls.assign(call=kinds)[is_launch(names)].reset_index(drop=True)


def _without_device(run: Run, launches: int) -> Check:
    gpus = len(run.meta.environment.get("gpus") or [])
    if launches:
        return Check("device_events", ERROR, 0, None, f"{launches:,} launches: {NOT_RECORDED}")
    machine = f"the machine has {gpus} GPU{'s' * (gpus != 1)}"
    if gpus and (run.meta.workload or {}).get("device") == "cpu":
        return Check("device_events", OK, 0, None, f"a run on the CPU: {machine}, and nothing was launched")
    if gpus:
        detail = (
            f"{machine} and nothing was recorded on "
            f"{'them' if gpus > 1 else 'it'}: the program did not use a GPU, or its activity was not recorded"
        )
        return Check("device_events", ERROR, 0, None, detail)
    return Check("device_events", OK, 0, None, "no GPU and no launch: a CPU-only run")


def _unlinked(device: pd.DataFrame) -> list[Check]:
    by_driver = (device[C.SRC_MEMORY] == Memory.UNIFIED) & device[C.CORRELATION_ID].isna()
    launched = device[~by_driver]
    earlier = len(backlog(launched))
    missing = int(launched[C.LAUNCH_ROW].isna().sum()) - earlier
    what = "device intervals have no launching call; their time can't be attributed to ops"
    before = "device intervals were launched before the capture; they belong to no step"
    return [
        counted("device_without_launch", missing, len(launched), what, warn=0.05),
        counted("launched_before_capture", earlier, len(launched), before, warn=1.0),
    ]


def _without_interval(calls: pd.DataFrame, device: pd.DataFrame) -> list[Check]:
    launched = device[C.LAUNCH_ROW].dropna().unique()
    calls = calls[~calls["captured"]]
    missing = ~calls[C.ROW_ID].isin(launched)
    found = []
    for name, call, what, warn, error in _WITHOUT_INTERVAL:
        mine = calls["call"] == call
        count, total = int((missing & mine).sum()), int(mine.sum())
        if total and not len(launched):
            found.append(Check(name, INFO, detail=f"{total:,} {call} calls: {_UNKNOWN}"))
        else:
            found.append(counted(name, count, total, what, warn=warn, error=error))
    return found


_UNKNOWN = "unknown how many have a device interval, since no launch is linked to one"


_KERNELS_LOST = "kernel launches have no device interval; that GPU time is missing"
_GRAPHS_LOST = "graph replays have no device interval; the kernels inside are missing"
_COPIES_LOST = "copy and memset calls have no device interval; calls of 0 bytes launch no device work"
_WITHOUT_INTERVAL = (
    ("launch_without_device", _KERNEL, _KERNELS_LOST, 0.01, 0.2),
    ("graph_without_device", _GRAPH, _GRAPHS_LOST, 0.0, 0.1),
    ("copy_without_device", _COPY, _COPIES_LOST, 1.0, None),
)


def _before_launch(calls: pd.DataFrame, device: pd.DataFrame) -> Check:
    at = positions(calls[C.ROW_ID], device[C.LAUNCH_ROW])
    linked = at != NO_PARENT
    early = ints(device, C.START_NS)[linked] < ints(calls, C.START_NS)[at[linked]]
    what = "linked device intervals start before their launch; host and device clocks disagree"
    return counted("device_before_launch", int(early.sum()), int(linked.sum()), what, warn=0.01)


def _coarse(device: pd.DataFrame) -> Check:
    empty = int((ints(device, C.DUR_NS) == 0).sum())
    what = "device intervals have no duration; shares of short kernels are inexact"
    return counted("zero_duration", empty, len(device), what, warn=0.1)


def _empty_steps(run: Run, device: pd.DataFrame) -> Check:
    steps = run.table("steps", columns=[C.RANK, C.STEP])
    launched = device.loc[device[C.STEP].notna(), [C.RANK, C.STEP]].drop_duplicates()
    filled = pd.MultiIndex.from_frame(launched.astype(np.int64))
    empty = ~pd.MultiIndex.from_frame(steps.astype(np.int64)).isin(filled)
    return counted("empty_steps", int(empty.sum()), len(steps), "steps launched no device work", warn=0.0)


JUMP_NS = 10_000_000_000
OUTLIVING_SHARE, OUTLIVING_NS = 0.5, 1_000_000_000
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
        counted("negative_duration", negative, len(durations), what, warn=0.0),
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
        unknown = "unknown: no profiled steps of known length, or no un-profiled steps"
        return Check("profiler_overhead", INFO, detail=unknown)
    part = float(table["overhead_share"].max())
    longer = "longer" if part >= 0 else "less"
    detail = f"a profiled step takes {100 * abs(part):.1f}% {longer} than an un-profiled one"
    return Check("profiler_overhead", level(max(part, 0.0), warn=0.2, error=1.0), None, part, detail)


def compute(run: Run) -> Result:
    """Run every check and derive the verdict."""
    checks = [*_diagnostics(run), *_unusable_gpus(run)]
    if run.meta.profiled:
        checks += [*_evidence(run), *device_checks(run), *time_checks(run)]
    table = pd.DataFrame([asdict(check) for check in checks], columns=[one.name for one in _CHECK_COLUMNS])
    return Result({"verdict": _verdict(checks), "checks": table.astype({"count": "Int64", "share": float})})


def _evidence(run: Run) -> list[Check]:
    """Whether the file holds a whole execution."""
    sampled, captured = trace_quality.describe_sample(run), trace_quality.describe_capture(run)
    whole, executed = "no sample by its correlation ids", "no capture of a graph"
    return [
        Check("sampled", ERROR if sampled else OK, detail=sampled or whole),
        Check("graph_capture", WARN if captured else OK, detail=captured or executed),
        _outliving(run),
    ]


def _outliving(run: Run) -> Check:
    """Whether steps last long after the last event in them."""
    steps = run.table("steps", columns=[C.RANK, C.START_NS, C.DUR_NS])
    where = pc.field(C.KIND) != str(HostKind.ANNOTATION)
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    rows = pd.concat([run.table("host_intervals", columns=columns, where=where), busy(run, columns)])
    ends = rows[C.START_NS] + rows[C.DUR_NS]
    last = steps[C.RANK].map(ends.groupby(rows[C.RANK]).max())
    end = steps[C.START_NS] + steps[C.DUR_NS]
    after = (end - last.fillna(steps[C.START_NS])).clip(lower=0)
    long = (after > OUTLIVING_SHARE * steps[C.DUR_NS]) & (after > OUTLIVING_NS)
    what = "steps last far longer than the events in them; the capture ended before, or the marker is wrong"
    return counted("step_outlives_events", int(long.sum()), len(steps), what, warn=0.0)


def _diagnostics(run: Run) -> list[Check]:
    """Diagnostics of the importer or collector as checks, except those that a check repeats."""
    return [
        Check(found.code, WARN if found.code in _NOT_UNDERSTOOD else str(found.level), detail=found.message)
        for found in combine_diagnostics(run.meta.diagnostics)
        if found.code not in _CHECKED
    ]


def _unusable_gpus(run: Run) -> list[Check]:
    """Whether torch could not use the GPUs of the machine, in its own words."""
    problem = run.meta.environment.get(GPU_PROBLEM)
    if not problem or any(found.code == _NOT_USED for found in run.meta.diagnostics):
        return []
    return [Check(_NOT_USED, WARN, detail=f"torch could not use the machine's GPUs: {problem}")]


_NOT_USED = "gpu_not_used"
_NOT_UNDERSTOOD = {"ignored_categories"}
"""Diagnostics about content that is not interpreted: no check can speak for it."""
_CHECKED = {"unlinked"}
"""Diagnostics that a check repeats: `device_without_launch` does not count waits, which have no launch."""


def _verdict(checks: list[Check]) -> pd.DataFrame:
    errors = [check for check in checks if check.level == ERROR]
    warnings = [check for check in checks if check.level == WARN]
    verdict = "misleading" if errors else "usable" if warnings else "good"
    reason = "; ".join(check.detail for check in errors or warnings) or "every check passed"
    counts = {"checks": len(checks), "warnings": len(warnings), "errors": len(errors)}
    return pd.DataFrame([{"verdict": verdict, **counts, "reason": reason}])


_CHECK_COLUMNS = (
    Column("check", "", "name of the check, or code of a diagnostic"),
    Column("level", "", "ok, info, warn or error"),
    Column("count", "count", "number of affected rows"),
    Column("share", "share", "count (or time) over the total that the detail names"),
    Column("detail", "prose", "result and its meaning"),
)

ANALYSIS = Analysis(
    name="integrity",
    title="Integrity",
    question="Can the numbers of this run be trusted?",
    definition=(
        "misleading: a check at error; usable: a check at warn; else good. Shares are over the rows that the "
        "detail names. Thresholds (warn / error): device work without launch 5%; kernel launches without "
        "device work 1% / 20%; graph replays without device work any / 10%; device work before its launch "
        "1%; gaps without events 10 s; zero durations 10%; overhead 20% / 100% of the un-profiled step; "
        "profiler intervals 5% / 50% of the capture; no device events with a GPU: error; a sample, by "
        "correlation ids of which under 2% occur: error; the capture of a graph, events that are not "
        "interpreted, and steps that last over 1 s longer than their events: warn."
    ),
    tables=(
        TableSpec(
            "verdict",
            "Verdict",
            (
                Column("verdict", "", "good, usable or misleading"),
                Column("checks", "count", "number of checks"),
                Column("warnings", "count", "checks at warn"),
                Column("errors", "count", "checks at error"),
                Column("reason", "prose", "details of the checks that decided the verdict"),
            ),
        ),
        TableSpec("checks", "Checks", _CHECK_COLUMNS),
    ),
    sources=("reports by users of other profilers",),
    order=0,
    compute=compute,
    needs_profile=False,
)
