"""Check whether the numbers of a run can be trusted.

The definition lists the thresholds; the reasons:

* Device work without its launch: its time is right, but cannot be attributed to ops. Unified memory is
  ignored: the driver migrates it without a call. Work launched before the capture is counted apart.
* Kernel launches without device work: GPU time is missing. Copy and memset calls without it are only
  information: libraries make calls of zero bytes. Calls during stream capture and host functions are ignored,
  because they run nothing on the device. If no launch is linked, the number is unknown. Launches after the
  last one with device work are counted apart: their work lies past the end of the capture.
* A GPU, or ops that only run on one, but no device events: error, because the device may have been busy all
  the time.
* Time between or before the kernels of a graph that is as long in each of its replays: other kernels of the
  graph were not recorded.
* Launches without device work, and as much device work without an id: its launches are unknown, not its time.
* A kernel that lasts until after the end of the next one of its stream, which starts far before that: streams
  run in order, and programmatic dependent launches overlap by tens of microseconds, so its duration is wrong.
* Step times of a program that waited for the CPU are those of the machine at that time. The scheduler of
  Linux counts for how long a thread was ready and did not run; what other programs took is what the cores ran
  less what the processes of the program ran.
* Device work of zero duration: the clock is too coarse (whole microseconds) for the kernels.
* The profiler's own intervals are activity buffers, instrumentation and CUPTI's resources. Kernel loading and
  full queues are recorded as overhead too, but are the program's own.

Sources: reports by users of other profilers; Kineto's and CUPTI's documented losses.

Example:
    >>> tracekit.analyze(run, "integrity").tables["verdict"]["verdict"][0]  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec, trace_quality
from tracekit.runs.conditions import MAX_BUSY, MIN_OTHERS, MIN_WAIT
from tracekit.runs.environment import GPU_PROBLEM
from tracekit.runs.meta import Diagnostic, combine_diagnostics
from tracekit.runs.run import Run

from ..shared.intervals_by_class import find_overruns
from .checks import (
    CONTENTION,
    ERROR,
    INFO,
    MAX_FASTER,
    MAX_GAP_NS,
    MAX_SILENT_NS,
    WARN,
    Check,
    check_contention,
    device_checks,
    evidence_checks,
    limits_of,
    time_checks,
)


def compute(run: Run) -> Result:
    """Run every check and derive the verdict."""
    checks = [*_check_diagnostics(run), *_check_gpus(run)]
    if run.meta.timings:
        checks.append(check_contention(run))
    if run.meta.profiled:
        checks += [*evidence_checks(run), *device_checks(run), *time_checks(run)]
    table = pd.DataFrame(
        [asdict(check) for check in checks], columns=[column.name for column in _CHECK_COLUMNS]
    )
    return Result({"verdict": _verdict(checks), "checks": table.astype({"count": "Int64", "share": float})})


def _check_diagnostics(run: Run) -> list[Check]:
    """Diagnostics of the importer or collector as checks, except those that a check repeats."""
    disproved = _NO_EVENTS if run.rows("device_intervals") else ()
    return [
        Check(diagnostic.code, _level(diagnostic, disproved), detail=diagnostic.message)
        for diagnostic in combine_diagnostics(run.meta.diagnostics)
        if diagnostic.code not in _CHECKED
    ]


def _level(diagnostic: Diagnostic, disproved: tuple[str, ...]) -> str:
    if diagnostic.code in _NOT_UNDERSTOOD:
        return WARN
    return INFO if diagnostic.message.startswith(disproved) else str(diagnostic.level)


def _check_gpus(run: Run) -> list[Check]:
    """Whether torch could not use the GPUs of the machine, in its own words."""
    problem = run.meta.environment.get(GPU_PROBLEM)
    if not problem or any(diagnostic.code == _NOT_USED for diagnostic in run.meta.diagnostics):
        return []
    return [Check(_NOT_USED, WARN, detail=f"torch could not use the machine's GPUs: {problem}")]


_NOT_USED = "gpu_not_used"
_NO_EVENTS = ("nsys: No CUDA events collected", "nsys: CUDA profiling might have not been started")
"""Begins of messages of nsys of which recorded work of a device shows that they are wrong."""
_NOT_UNDERSTOOD = {"ignored_categories"}
"""Diagnostics about content that is not interpreted: no check can speak for it."""
_CHECKED = {"unlinked"}
"""Diagnostics that a check repeats: `device_without_launch` does not count waits, which have no launch."""


def _verdict(checks: list[Check]) -> pd.DataFrame:
    errors = [check for check in checks if check.level == ERROR]
    warnings = [check for check in checks if check.level == WARN]
    verdict = "misleading" if errors else "usable" if warnings else "good"
    busy = [check for check in warnings if check.check == CONTENTION]  # doubts also what errors are found by
    decisive = [*busy, *errors] if errors else warnings
    reason = "; ".join(check.detail for check in decisive) or "every check passed"
    counts = {"checks": len(checks), "warnings": len(warnings), "errors": len(errors)}
    return pd.DataFrame([{"verdict": verdict, **counts, "reason": reason}])


_CHECK_COLUMNS = (
    Column("check", "", "name of the check, or code of a diagnostic"),
    Column("level", "", "ok, info, warn or error"),
    Column("count", "count", "number of affected rows"),
    Column("share", "share", "count (or time) over the total that the detail names"),
    Column("detail", "prose", "result and its meaning"),
)

_VERDICT = (
    Column("verdict", "", "good, usable or misleading"),
    Column("checks", "count", "number of checks"),
    Column("warnings", "count", "checks at warn"),
    Column("errors", "count", "checks at error"),
    Column("reason", "prose", "details of the checks that decided the verdict"),
)
ANALYSIS = Analysis(
    name="integrity",
    title="Integrity",
    question="Can the numbers of this run be trusted?",
    definition=(
        "misleading: a check at error; usable: a check at warn; else good. Shares are over the rows that the "
        "detail names. Thresholds (warn / error): device work without launch "
        f"{limits_of('device_without_launch')}; kernel launches without device work "
        f"{limits_of('launch_without_device')}; graph replays without device work "
        f"{limits_of('graph_without_device')}; launches whose work lies past the end "
        f"{limits_of('launched_past_end')}; idle time of missing kernels of graphs "
        f"{limits_of('graph_kernels_missing')} of the capture; device work before its launch "
        f"{limits_of('device_before_launch')}; gaps without events {MAX_GAP_NS // 10**9} s; zero durations "
        f"{limits_of('zero_duration')}; kernels that run over later work of their stream "
        f"{limits_of('kernel_overruns')}; overhead {limits_of('profiler_overhead')} of the unprofiled "
        f"step, and steps over {MAX_FASTER:.0%} shorter than that: warn; other programs that took over "
        f"{MIN_OTHERS:.0%} of the CPU while unprofiled steps waited for it for {MIN_WAIT:.0%} of their time "
        f"or the cores were {MAX_BUSY:.0%} busy: warn; "
        f"profiler intervals {limits_of('profiler_intervals')} of the capture; no device events with a GPU: "
        f"error; a sample, by correlation ids of which under {trace_quality.MIN_DENSITY:.0%} occur: error; "
        "the capture of a graph, events that are not interpreted, and steps that last over "
        f"{MAX_SILENT_NS // 10**9} s longer than their events: warn."
    ),
    tables=(
        TableSpec("verdict", "Verdict", _VERDICT),
        TableSpec("checks", "Checks", _CHECK_COLUMNS),
    ),
    sources=("reports by users of other profilers",),
    order=0,
    shares=(find_overruns,),
    compute=compute,
    needs_profile=False,
)
