"""One number of a stored run for each metric of the gate; None where the run did not measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.measuring.metrics import of_run
from tracekit.noise import fingerprint_id, history

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.run import Run
    from tracekit.stats.noise import Noise


def value(run: Run, metric: str) -> float | None:
    """The median of the step times that were taken without a profiler, or a peak of memory."""
    return of_run(run).get(metric) or None


def clock(run: Run) -> str | None:
    """What the steps were timed by; None where they were not."""
    return run.meta.timings.clock if run.meta.timings and run.meta.timings.step_ns else None


def known_noise(metric: str, like: Run, runs: Iterable[Run]) -> Noise | None:
    """Noise of one run, from repeated runs of the same configuration in the store."""
    of = fingerprint_id(like)
    found = history(run for run in runs if fingerprint_id(run) == of and clock(run) == clock(like))
    return next((series.noise for series in found.series if series.metric == metric), None)
