"""One number of a stored run for each metric of the gate; None where the run did not measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.checking.configuration import alike
from tracekit.checking.heads import code
from tracekit.measuring.metrics import of_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.run import Run


def value(run: Run, metric: str) -> float | None:
    """The median of the step times that were taken without a profiler, or a peak of memory."""
    return of_run(run).get(metric) or None


def clock(run: Run) -> str | None:
    """What the steps were timed by; None where they were not."""
    return run.meta.timings.clock if run.meta.timings and run.meta.timings.step_ns else None


def repeats(metric: str, like: Run, runs: Iterable[Run]) -> list[list[float | None]]:
    """Values of earlier runs of the same configuration, each list of one state of the code."""
    found: dict[object, list[float | None]] = {}
    for run in runs:
        if run.meta.git and clock(run) == clock(like) and alike(run, like, ()):
            found.setdefault(code(run.meta.git), []).append(value(run, metric))
    return list(found.values())
