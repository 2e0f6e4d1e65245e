"""A verdict in time must hold in cycles where the clocks differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison, Metric, Verdict
from tracekit.stats.noise import Noise
from tracekit.stats.samples import at_their_clocks, clocks_differ, cycles, reconcile

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


@pytest.mark.parametrize(("clock", "different"), [(1_937.9, False), (1_938.1, True)])
def test_clocks_differ_from_two_per_cent_on(clock: float, different: bool) -> None:
    assert clocks_differ(1_900.0, clock) is different
    assert clocks_differ(clock, 1_900.0) is different


def test_each_run_is_judged_at_its_own_clock() -> None:
    """A run without a time needs no clock; one with a time and no clock leaves the verdict open."""
    head = [value * 1.1 for value in NS]
    in_time = compare(Metric("step_time"), NS, head, paired=False)
    slow = [1_900.0 / 1.1] * 4
    different = at_their_clocks(in_time, ([*NS, None], head), ([1_900.0] * 4 + [None], slow))
    assert (in_time.verdict, different.verdict) == (Verdict.REGRESSION, Verdict.CANNOT_TELL)
    assert different.reason.endswith("regression in time, but pass in cycles")
    some = at_their_clocks(in_time, (NS, head), ([1_900.0] * 4, [*slow[:3], None]))
    assert some.reason.endswith("without cycles their part in it is unknown")
    assert at_their_clocks(in_time, (NS, head), ([1_900.0] * 4, [None] * 4)) is in_time


def test_cycles_of_single_runs_are_judged_by_the_same_noise() -> None:
    noise = Noise(0.005, 9.0, runs=10, groups=1)
    in_time = compare(Metric("step_time"), [1e6], [1.4e6], paired=False, noise=noise)
    one = at_their_clocks(in_time, ([1e6], [1.4e6]), ([1_900.0], [1_800.0]), noise=noise)
    assert one.verdict is Verdict.REGRESSION
    assert "the same holds in cycles" in one.reason
