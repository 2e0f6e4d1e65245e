"""Whether the run's numbers can be trusted: what was lost, repaired, or never recorded.

Each check has a level: ok, info, warn or error. The verdict is *misleading* when a check is at error,
*usable* when one is at warn, else *good*. The thresholds, with the reason for each:

* Device work without its launch: warn above 5%. The time is right, but ops do not get their part of it.
  Unified memory is left out: the driver moves it without a call.
* Kernel launches without device work: warn above 1%, error above 20%: that much GPU time is missing. Copy
  and memset calls without it are only information: libraries make calls of no bytes, which do nothing. Calls
  while a stream of their thread is captured into a graph are left out: they run nothing; so are functions of
  the host put in a stream. Where no launch is linked at all, how many are lost is unknown.
* Graph replays without device work: warn at the first, error above 10% of them: one holds many kernels.
* A GPU, but no device events: error. The device may have been busy all the time.
* Device work that starts before its launch call: warn above 1%: the clocks of host and device disagree.
* Gaps of more than 10 s without any event: warn: a clock jump, or a suspended process.
* Device work of no duration: warn above 10%: the clock is too coarse (whole microseconds) for its kernels.
* Overhead: warn above 20%, error above 100% of the un-profiled step; and warn where the profiler's own
  intervals (activity buffers, instrumentation, CUPTI's resources) cover over 5% of the capture, error over
  50%. Loading of kernels and full queues are recorded beside them and are the program's own.

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
    """Run every check and sum them up."""
    checks = _diagnostics(run)
    if run.meta.profiled:
        checks += [*device_checks(run), *time_checks(run)]
    columns = [column.name for column in _CHECK_COLUMNS]
    table = pd.DataFrame([check.row() for check in checks], columns=columns)
    table["count"] = table["count"].astype("Int64")
    return Result({"verdict": _verdict(checks), "checks": table})


def _diagnostics(run: Run) -> list[Check]:
    """What the importer or collector noticed, at its own level, but for what a check of its own says."""
    return [
        Check(found.code, str(found.level), detail=found.message)
        for found in together(run.meta.diagnostics)
        if found.code not in _CHECKED
    ]


_CHECKED = {"unlinked"}
"""Diagnostics that a check repeats: `device_without_launch` counts without waits, which have no launch."""


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
    Column("check", "", "what was checked, or the code of a diagnostic"),
    Column("level", "", "ok, info, warn or error"),
    Column("count", "count", "how many rows it concerns"),
    Column("share", "share", "count (or time) over what the detail names"),
    Column("detail", "prose", "what was found and what it means"),
)

ANALYSIS = Analysis(
    name="integrity",
    title="Integrity",
    question="Can the numbers of this run be trusted?",
    definition=(
        "misleading: a check at error; usable: a check at warn; else good. Shares are over the rows the "
        "detail names. Thresholds (warn / error): unlinked device work 5%; kernel launches without "
        "device work 1% / 20%; unrecorded graph replays any / 10%; device work before its launch 1%; "
        "gaps without events 10 s; zero durations 10%; overhead 20% / 100% of the un-profiled step; "
        "profiler intervals 5% / 50% of the capture."
    ),
    tables=(
        TableSpec(
            "verdict",
            "Verdict",
            (
                Column("verdict", "", "good, usable or misleading"),
                Column("checks", "count", "checks made"),
                Column("warnings", "count", "checks at warn"),
                Column("errors", "count", "checks at error"),
                Column("reason", "prose", "what decided the verdict"),
            ),
        ),
        TableSpec("checks", "Checks", _CHECK_COLUMNS),
    ),
    sources=("reports by users of other profilers",),
    order=0,
    compute=compute,
    needs_profile=False,
)
