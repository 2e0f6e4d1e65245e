"""Rows of the list of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.dashboards.pages.runs.rows import make_row

from tracekit.runs import notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.dashboards.pages.runs.rows import Row, StepTimes

    from tracekit.runs.run import Run


def make_rows(runs: Sequence[Run], times: StepTimes) -> list[Row]:
    """One row per run, newest first."""
    return [make_row(run, times.of(run), notes.read(run)) for run in reversed(runs)]
