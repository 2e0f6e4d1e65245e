"""A verdict in time must hold in cycles where the clocks differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.stats.clocks import cycles, differ, reconcile
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison, Metric, Verdict

NS = [100_000.0, 101_000.0, 99_000.0, 100_500.0]


def compared(factor: float, *, clock: float = 1_900.0) -> tuple[Comparison, Comparison]:
    """The head's times are the base's times a factor, its clock is another."""
    head = [value * factor for value in NS]
    in_time = compare(Metric("step_time"), NS, head, paired=True)
    in_cycles = compare(
        Metric("step_cycles", "cycles"),
        [cycles(value, 1_900.0) for value in NS],
        [cycles(value, clock) for value in head],
        paired=True,
    )
    return in_time, in_cycles


def test_equal_clocks_leave_the_verdict_alone() -> None:
    in_time, in_cycles = compared(1.2, clock=1_880.0)
    assert reconcile(in_time, in_cycles, 1_900.0, 1_880.0) is in_time


def test_a_slow_clock_is_no_regression() -> None:
    in_time, in_cycles = compared(1.1, clock=1_900.0 / 1.1)
    one = reconcile(in_time, in_cycles, 1_900.0, 1_900.0 / 1.1)
    reason = "SM clock 1900 MHz against 1727 MHz: regression in time, but pass in cycles"
    assert one == replace(in_time, verdict=Verdict.CANNOT_TELL, reason=reason)


def test_a_fast_clock_hides_no_regression() -> None:
    in_time, in_cycles = compared(1.0, clock=2_090.0)
    one = reconcile(in_time, in_cycles, 1_900.0, 2_090.0)
    assert (in_time.verdict, one.verdict) == (Verdict.PASS, Verdict.CANNOT_TELL)


def test_a_verdict_that_holds_in_cycles_stands() -> None:
    in_time, in_cycles = compared(1.3, clock=1_800.0)
    one = reconcile(in_time, in_cycles, 1_900.0, 1_800.0)
    assert one.verdict is Verdict.REGRESSION
    assert one.reason.endswith("; the same holds in cycles (SM clock 1900 MHz against 1800 MHz)")


def test_differing_clocks_without_cycles_cannot_be_told() -> None:
    in_time, _ = compared(1.3)
    assert reconcile(in_time, None, 1_900.0, 1_800.0).verdict is Verdict.CANNOT_TELL


def test_no_verdict_stays_none() -> None:
    single = compare(Metric("step_time"), [1.0], [2.0], paired=False)
    assert reconcile(single, None, 1_900.0, 1_000.0) is single


@pytest.mark.parametrize(("clock", "told"), [(1_937.9, False), (1_938.1, True)])
def test_clocks_differ_from_two_per_cent_on(clock: float, told: bool) -> None:
    assert differ(1_900.0, clock) is told
    assert differ(clock, 1_900.0) is told
