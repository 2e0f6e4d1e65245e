"""Integrity: whether the run's numbers can be trusted; what was lost, repaired, or not recorded.

Each check has a level: ok, info, warn or error. The definition lists the thresholds; the reasons:

* Device work without its launch: its time is right, but cannot be attributed to ops. Unified memory is
  ignored: the driver migrates it without a call.
* Kernel launches without device work: GPU time is missing. Copy and memset calls without it are only
  information: libraries make calls of zero bytes. Calls during stream capture are ignored, because they run
  nothing, and so are host functions launched into a stream. If no launch is linked, the number is unknown.
* Graph replays without device work: one replay holds many kernels.
* A GPU, but no device events: error, because the device may have been busy all the time.
* Device work that starts before its launch call: the clocks of host and device disagree.
* Gaps of more than 10 s without any event: a clock jump, or a suspended process.
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

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.alike import together
from tracekit.analysis import Analysis, Column, Result, TableSpec

from ._integrity.checks import ERROR, WARN, Check
from ._integrity.device import device_checks
from ._integrity.time import time_checks

if TYPE_CHECKING:
    from tracekit.run import Run


def compute(run: Run) -> Result:
    """Run every check and derive the verdict."""
    checks = _diagnostics(run)
    if run.meta.profiled:
        checks += [*device_checks(run), *time_checks(run)]
    columns = [column.name for column in _CHECK_COLUMNS]
    table = pd.DataFrame([check.row() for check in checks], columns=columns)
    table["count"] = table["count"].astype("Int64")
    return Result({"verdict": _verdict(checks), "checks": table})


def _diagnostics(run: Run) -> list[Check]:
    """Diagnostics of the importer or collector as checks, except those that a check repeats."""
    return [
        Check(found.code, str(found.level), detail=found.message)
        for found in together(run.meta.diagnostics)
        if found.code not in _CHECKED
    ]


_CHECKED = {"unlinked"}
"""Diagnostics that a check repeats: `device_without_launch` does not count waits, which have no launch."""


def _verdict(checks: list[Check]) -> pd.DataFrame:
    errors = [check for check in checks if check.level == ERROR]
    warnings = [check for check in checks if check.level == WARN]
    verdict = "misleading" if errors else "usable" if warnings else "good"
    reason = "; ".join(check.detail for check in errors or warnings) or "every check passed"
    return pd.DataFrame(
        [
            {
                "verdict": verdict,
                "checks": len(checks),
                "warnings": len(warnings),
                "errors": len(errors),
                "reason": reason,
            }
        ]
    )


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
        "profiler intervals 5% / 50% of the capture; no device events with a GPU: error."
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
