"""Options that several commands share."""

from __future__ import annotations

from tracekit.cli import options
from tracekit.experiments import measure
from tracekit.runs import metrics


def test_choices_spelled_for_fast_help_are_those_that_can_be_measured() -> None:
    assert tuple(measure.UNITS) == options.UNITS
    assert {*metrics.METRICS, metrics.VALUE} == set(options.METRICS)
