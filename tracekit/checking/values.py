"""One number of a stored run for each metric of the gate; None where the run did not measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.measuring.metrics import of_run

if TYPE_CHECKING:
    from tracekit.run import Run


def value(run: Run, metric: str) -> float | None:
    """The median of the step times that were taken without a profiler, or a peak of memory."""
    return of_run(run).get(metric) or None
