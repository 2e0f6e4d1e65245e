"""Every rule of a verdict, at its edge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.stats.comparison import Verdict
from tracekit.stats.decide import Evidence, decide, explain

T = math.log1p(0.07)
E = 1e-9
sizes = st.floats(-1, 1, allow_subnormal=False)


@pytest.mark.parametrize(
    ("log", "low", "high", "detectable", "verdict"),
    [
        (T, E, 1.0, T, Verdict.REGRESSION),
        (T, 0.0, 1.0, T, Verdict.CANNOT_TELL),  # the interval reaches no change
        (T - E, E, 1.0, T, Verdict.CANNOT_TELL),  # the estimate is below the threshold
        (T, E, 1.0, T + E, Verdict.CANNOT_TELL),  # the comparison is too weak
        (1.0, T, 2.0, 1.0, Verdict.REGRESSION),  # weak, but all of the interval is beyond the threshold
        (1.0, T - E, 2.0, 1.0, Verdict.CANNOT_TELL),
        (-T, -1.0, -E, T, Verdict.IMPROVEMENT),
        (-T, -1.0, 0.0, T, Verdict.PASS),
        (-1.0, -2.0, -T, 1.0, Verdict.IMPROVEMENT),
        (-1.0, -2.0, -T + E, 1.0, Verdict.CANNOT_TELL),
        (0.0, -1.0, T - E, T, Verdict.PASS),
        (0.0, -1.0, T, T, Verdict.CANNOT_TELL),
        (0.0, -1.0, T - E, T + E, Verdict.CANNOT_TELL),
        (0.03, 0.02, 0.04, 0.01, Verdict.PASS),  # surely slower, and surely by less than the threshold
        (0.0, math.nan, math.nan, math.nan, Verdict.NONE),
    ],
)
def test_rules(log: float, low: float, high: float, detectable: float, verdict: Verdict) -> None:
    assert decide(Evidence(log, low, high, detectable, 0.07)) is verdict


@given(sizes, st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.02, 0.07, 0.2]))
def test_every_verdict_has_its_reason(log: float, half: float, detectable: float, threshold: float) -> None:
    of = Evidence(log, log - half, log + half, detectable, threshold)
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
            Evidence(0.05, -0.01, 0.11, 0.09, 0.07),
            "the smallest detectable change, +9.4%, exceeds the threshold of 7%: more runs are needed",
        ),
        (
            Evidence(0.05, 0.01, 0.09, 0.05, 0.07),
            "+5.1% is worse, but possibly below the threshold of 7% (95% interval +1.0% to +9.4%)",
        ),
        (
            Evidence(0.03, -0.03, 0.09, 0.05, 0.07),
            "+3.0%, but the 95% interval -3.0% to +9.4% reaches the threshold of 7%",
        ),
    ],
)
def test_doubts_say_what_is_missing(of: Evidence, reason: str) -> None:
    assert decide(of) is Verdict.CANNOT_TELL
    assert explain(Verdict.CANNOT_TELL, of) == reason
