"""Options that several commands share."""

from __future__ import annotations

from tracekit.experiments import options
from tracekit.runs import metrics


def test_choices_spelled_for_fast_help_are_those_that_can_be_measured() -> None:
    assert {*metrics.METRICS, metrics.VALUE} == set(options.METRICS)
