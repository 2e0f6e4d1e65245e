"""Every rule of a verdict, at its edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.stats.comparison import Verdict
from tracekit.stats.decide import Evidence, decide, explain, more_runs
from tracekit.stats.effects import Effect

T = math.log1p(0.07)
E = 1e-9
sizes = st.floats(-1, 1, allow_subnormal=False)


@pytest.mark.parametrize(
    ("log", "low", "high", "verdict"),
    [
        (T, E, 1.0, Verdict.REGRESSION),
        (T, 0.0, 1.0, Verdict.CANNOT_TELL),  # the interval reaches no change
        (T - E, E, 1.0, Verdict.CANNOT_TELL),  # the estimate is below the threshold
        (1.0, E, 2.0, Verdict.REGRESSION),  # how large is uncertain, not that it is one
        (-T, -1.0, -E, Verdict.IMPROVEMENT),
        (-T, -1.0, 0.0, Verdict.PASS),
        (-T + E, -1.0, -E, Verdict.PASS),
        (0.0, -1.0, T - E, Verdict.PASS),
        (0.0, -1.0, T, Verdict.CANNOT_TELL),
        (0.03, 0.02, 0.04, Verdict.PASS),  # surely slower, and surely by less than the threshold
        (0.0, math.nan, math.nan, Verdict.NONE),
    ],
)
def test_rules(log: float, low: float, high: float, verdict: Verdict) -> None:
    assert decide(Evidence(log, low, high, 0.07)) is verdict


@given(sizes, st.floats(0, 1), st.sampled_from([0.02, 0.07, 0.2]))
def test_every_verdict_has_its_reason(log: float, half: float, threshold: float) -> None:
    of = Evidence(log, log - half, log + half, threshold)
    verdict = decide(of)
    reason = explain(verdict, of)
    assert f"the threshold of {100 * threshold:g}%" in reason
    assert ("worse by at least" in reason) == (verdict is Verdict.REGRESSION)
    assert ("better by at least" in reason) == (verdict is Verdict.IMPROVEMENT)
    assert ("at most" in reason) == (verdict is Verdict.PASS)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (
            Evidence(0.05, 0.01, 0.09, 0.07),
            "+5.1% is worse, but possibly below the threshold of 7% (95% interval +1.0% to +9.4%)",
        ),
        (
            Evidence(0.03, -0.03, 0.09, 0.07),
            "+3.0%, but the 95% interval -3.0% to +9.4% reaches the threshold of 7%",
        ),
    ],
)
def test_doubts_say_what_is_missing(of: Evidence, reason: str) -> None:
    assert decide(of) is Verdict.CANNOT_TELL
    assert explain(Verdict.CANNOT_TELL, of) == reason


def test_a_pass_says_that_a_likely_improvement_is_not_confirmed() -> None:
    of = Evidence(-0.09, -0.2, 0.02, 0.07)
    assert explain(decide(of), of).endswith(
        "the threshold of 7%; an improvement (estimate -8.6%) is not confirmed"
    )
    for other in (Evidence(0.01, -0.01, 0.03, 0.07), Evidence(-0.05, -0.09, -0.01, 0.07)):
        assert "improvement" not in explain(decide(other), other)


def effect(log: float, se: float, df: float) -> Effect:
    return Effect(*map(np.array, (log, se, df, se)))


@pytest.mark.parametrize(
    ("log", "more"),
    [
        # s = 0.02·√5, √(4 / χ²₄(0.2)) = 1.558, so 0.0697·(t₀.₉₇₅ + t₀.₈)/√N must be at most T - log
        (0.0, 6),  # N = 11: 0.0697·(2.228 + 0.879)/√11 = 0.0653 ≤ 0.0677, and N = 10: 0.0693
        (T - E, None),  # too close to the threshold
        (0.2, 1),  # above the threshold, the distance is that from no change
    ],
)
def test_it_is_told_how_many_more_runs_are_needed(log: float, more: int | None) -> None:
    assert more_runs(effect(log, 0.02, 4.0), 5, 0.07) == more


def test_more_runs_of_a_rate_are_counted_in_its_own_direction() -> None:
    assert more_runs(effect(-0.02, 0.02, 4.0), 5, 0.07, -1) == more_runs(effect(0.02, 0.02, 4.0), 5, 0.07)
    assert more_runs(effect(-0.02, 0.02, 4.0), 5, 0.07) < more_runs(effect(0.02, 0.02, 4.0), 5, 0.07)


def test_a_decrease_names_the_threshold_as_a_decrease() -> None:
    """-6.6% is not "at least 7%", but takes back an increase of 7%."""
    faster = Evidence(math.log(0.934), -0.08, -0.06, 0.07)
    assert explain(decide(faster), faster) == (
        "-6.6% (95% interval -7.7% to -5.8%), better by at least the threshold of 7% (-6.5% downward)"
    )
