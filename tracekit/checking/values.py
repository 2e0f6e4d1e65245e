"""One number of a stored run for each metric of the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.measuring.metrics import of_run

if TYPE_CHECKING:
    from tracekit.run import Run


def values(run: Run) -> dict[str, float]:
    """Medians and peaks of a run; what it did not measure, or measured as nothing, is absent."""
    return {name: value for name, value in of_run(run).items() if value}
