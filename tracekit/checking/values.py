"""Values of a stored run for the metrics of the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.measuring.metrics import of_run

if TYPE_CHECKING:
    from tracekit.run import Run


def values(run: Run) -> dict[str, float]:
    """Return medians and peaks of a run, without missing and zero values."""
    return {name: value for name, value in of_run(run).items() if value}
