"""Laws of comparisons, and whole results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.unit.stats.strategies import blocks, groups, values
from tracekit.errors import UnusableInputError
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison, Direction, Metric, Verdict, exit_code, overall
from tracekit.stats.noise import Noise, Sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP = Metric("step_time")
RATE = Metric("rate", "1/s", Direction.HIGHER)
MIRROR = {Verdict.REGRESSION: Verdict.IMPROVEMENT, Verdict.IMPROVEMENT: Verdict.REGRESSION}
A, B = [100.0, 102.0, 98.0, 101.0], [111.0, 112.0, 108.0, 110.0]

Sides = tuple[list[int], list[int]]


def both(sides: Sides, *, paired: bool) -> tuple[Comparison, Comparison]:
    a, b = sides
    noise = Noise(0.02, 8)
    return (
        compare(STEP, a, b, paired=paired, noise=noise),
        compare(STEP, b, a, paired=paired, noise=noise),
    )


def mirrored(one: Comparison, other: Comparison) -> None:
    assert one.ratio is not None
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert one.ci95 is not None
    assert other.ci95 == pytest.approx((1 / one.ci95[1], 1 / one.ci95[0]))
    assert (other.p, other.mde, other.sigma) == (one.p, one.mde, one.sigma)
    assert (other.a, other.b) == (one.b, one.a)
    claimed = {one.verdict, other.verdict} & set(MIRROR)
    assert not claimed or other.verdict is MIRROR[one.verdict]


@given(blocks)
def test_paired_sides_exchanged_mirror_the_result(sides: Sides) -> None:
    mirrored(*both(sides, paired=True))


@given(groups)
def test_unpaired_sides_exchanged_mirror_the_result(sides: Sides) -> None:
    mirrored(*both(sides, paired=False))


@given(st.lists(values, min_size=1, max_size=7), st.booleans())
def test_a_side_compared_with_itself_has_no_effect(a: list[int], paired: bool) -> None:
    one = compare(STEP, a, a, paired=paired, noise=Noise(0.01))
    assert (one.ratio, one.p) == (1.0, 1.0)
    assert one.verdict in {Verdict.PASS, Verdict.CANNOT_TELL}
    assert paired is False or len(a) < 4 or one.verdict is Verdict.PASS


@given(blocks, st.sampled_from([1e-9, 3.0, 1e6]), st.booleans())
def test_the_unit_does_not_matter(sides: Sides, scale: float, paired: bool) -> None:
    one = both(sides, paired=paired)[0]
    scaled = compare(
        STEP, *([scale * value for value in side] for side in sides), paired=paired, noise=Noise(0.02, 8)
    )
    assert scaled.ratio == pytest.approx(one.ratio)
    assert scaled.ci95 == pytest.approx(one.ci95, rel=1e-6)
    assert scaled.a == pytest.approx(scale * one.a)


@given(blocks)
def test_the_order_of_the_blocks_does_not_matter(sides: Sides) -> None:
    one, _ = both(sides, paired=True)
    other, _ = both((sides[0][::-1], sides[1][::-1]), paired=True)
    assert other.ratio == pytest.approx(one.ratio)
    assert other.ci95 == pytest.approx(one.ci95)


@given(blocks)
def test_more_is_better_turns_the_verdict_around(sides: Sides) -> None:
    a, b = sides
    lower = compare(STEP, a, b, paired=True, noise=Noise(0.01))
    higher = compare(RATE, b, a, paired=True, noise=Noise(0.01))
    assert higher.verdict is lower.verdict


def test_a_rate_that_fell_reads_as_a_fall() -> None:
    one = compare(RATE, [100.0, 101.0, 99.0], [80.0, 81.0, 79.0], paired=False)
    assert one.ratio == pytest.approx(0.8, abs=1e-3)
    assert one.reason == (
        "-20.0% (95% interval -22.1% to -17.9%), worse by at least the threshold of 7% (-6.5% downward)"
    )
    other = compare(RATE, [100.0, 100.2, 99.9, 100.1], [99.0, 99.1, 98.9, 99.2], paired=False)
    assert other.verdict is Verdict.PASS
    assert other.reason == "at worst -1.2% (95% interval up to -0.8%), within the threshold of 7%"


def test_blocks_that_lack_a_side_each_are_two_groups() -> None:
    """Every block lost one of its runs: there is no pair, but there are two runs a side."""
    one = compare(STEP, [100.0, None, 101.0, None], [None, 120.0, None, 121.0], paired=True)
    assert (one.paired, one.runs, one.ratio) == (False, (2, 2), pytest.approx(1.199, abs=1e-3))
    assert one == compare(STEP, [100.0, 101.0], [120.0, 121.0], paired=False)


def test_a_spread_without_bounds_has_numbers_and_words() -> None:
    one = compare(STEP, [1.0, 1e18], [1e18, 1.0], paired=True, alpha=0.0179)
    assert one.verdict is Verdict.CANNOT_TELL
    json.dumps(one.entry(), allow_nan=False)
    assert "-100.0% to more than 1000× reaches the threshold of 7%; too close" in one.reason


def test_a_verdict_by_history_says_so() -> None:
    noise = Noise(0.012, 9.0, runs=10, groups=1)
    one = compare(STEP, [100.0], [112.0], paired=False, noise=noise)
    assert one.verdict is Verdict.REGRESSION
    assert one.reason.endswith("; judged by the noise of 1.2% in 10 recorded runs of unchanged code")
    assert "judged" not in compare(STEP, [100.0, 101.0], [1.0, 2.0], paired=False, noise=noise).reason


@given(blocks)
def test_what_was_not_measured_takes_its_partner_along(sides: Sides) -> None:
    a, b = ([*side, *side] for side in sides)  # two whole blocks at least
    whole = compare(STEP, a, b, paired=True)
    for missing in (None, float("nan")):
        assert compare(STEP, [*a, missing, 7.0], [*b, 5.0, missing], paired=True) == whole


def test_paired_is_students_t_on_the_logarithms() -> None:
    one = compare(STEP, A, B, paired=True)
    oracle = stats.ttest_rel(np.log(B), np.log(A))
    low, high = oracle.confidence_interval(0.95)
    assert one.p == pytest.approx(oracle.pvalue)
    assert one.ci95 == pytest.approx((np.exp(low), np.exp(high)))
    assert one.ratio == pytest.approx(one.b / one.a)
    assert one.sigma == pytest.approx(np.std(np.log(B) - np.log(A), ddof=1) / np.sqrt(2))


def test_unpaired_is_welchs_t_on_the_logarithms() -> None:
    one = compare(STEP, A, B[:3], paired=False)
    oracle = stats.ttest_ind(np.log(B[:3]), np.log(A), equal_var=False)
    low, high = oracle.confidence_interval(0.95)
    assert one.p == pytest.approx(oracle.pvalue)
    assert one.ci95 == pytest.approx((np.exp(low), np.exp(high)))
    assert (one.runs, one.k) == ((4, 3), 3)


def test_one_run_against_many_borrows_their_spread() -> None:
    one = compare(STEP, A, [110.0], paired=False)
    half = stats.t.ppf(0.975, 3) * np.log(A).std(ddof=1) * np.sqrt(1 + 1 / 4)
    assert np.log(one.ci95) == pytest.approx(np.log(one.ratio) + np.array([-half, half]))
    assert one.method == "pooled t on logarithms"


def test_one_run_a_side_gets_no_verdict() -> None:
    assert compare(STEP, [100.0], [200.0], paired=True) == Comparison(
        name="step_time",
        unit="ns",
        a=pytest.approx(100.0),
        b=pytest.approx(200.0),
        ratio=pytest.approx(2.0),
        ci95=None,
        p=None,
        mde=None,
        verdict=Verdict.NONE,
        k=1,
        paired=False,
        reason="one run per side: no variance estimate; repeat the runs, or record runs of unchanged code",
        runs=(1, 1),
        method="none",
    )


@pytest.mark.parametrize(("df", "quantile"), [(np.inf, 1.959964), (8.0, stats.t.ppf(0.975, 8))])
def test_one_run_a_side_is_judged_by_known_noise(df: float, quantile: float) -> None:
    one = compare(STEP, [100.0], [112.0], paired=False, noise=Noise(0.01, df))
    half = quantile * 0.01 * np.sqrt(2)
    assert one.ci95 == pytest.approx((1.12 * np.exp(-half), 1.12 * np.exp(half)))
    assert one.verdict is Verdict.REGRESSION
    assert one.method == ("z with known noise" if df == np.inf else "t with known noise")


def test_noise_that_is_unknown_gives_no_verdict() -> None:
    unknown = Noise(float("nan"), 0.0)
    assert compare(STEP, [100.0], [112.0], paired=False, noise=unknown).verdict is Verdict.NONE


def test_a_look_is_judged_at_its_own_level() -> None:
    usual, strict = (compare(STEP, A, B, paired=True, alpha=alpha) for alpha in (0.05, 0.01))
    assert usual.ci95 is not None
    assert strict.ci95 is not None
    assert strict.ci95[0] < usual.ci95[0] < usual.ci95[1] < strict.ci95[1]
    assert strict.p == usual.p
    half = strict.ci95[1] / (strict.ratio or 0)
    power = stats.t.ppf(0.8, 3) / stats.t.ppf(0.995, 3)
    assert strict.mde == pytest.approx(half ** (1 + power) - 1)


@pytest.mark.parametrize(
    ("a", "b", "paired", "says"),
    [
        ([], [1.0], False, "not measured in any run of the base"),
        ([1.0], [None], False, "not measured in any run of the head"),
        ([1.0, 2.0], [1.0], True, "cannot be paired"),
        ([1.0], [0.0], False, "not above 0"),
        ([float("inf")], [1.0], False, "not above 0"),
    ],
)
def test_what_cannot_be_compared_says_why(
    a: Sequence[float | None], b: Sequence[float | None], paired: bool, says: str
) -> None:
    with pytest.raises(UnusableInputError, match=says) as error:
        compare(STEP, a, b, paired=paired)
    assert error.value.message.startswith("step_time: ")
    assert error.value.hint


def test_an_entry_is_json() -> None:
    one = compare(STEP, A, B, paired=True)
    entry = json.loads(json.dumps(one.entry(), allow_nan=False))
    assert entry == {**entry, "name": "step_time", "verdict": "regression", "paired": True, "k": 4}
    assert entry["ci95"] == list(one.ci95 or ())
    assert set(entry) >= {"name", "unit", "a", "b", "ratio", "ci95", "p", "mde", "verdict"}


def test_one_doubt_keeps_a_gate_from_passing() -> None:
    ranked = [Verdict.REGRESSION, Verdict.CANNOT_TELL, Verdict.NONE, Verdict.IMPROVEMENT, Verdict.PASS]
    assert [overall(ranked[at:][::-1]) for at in range(5)] == ranked
    assert [int(exit_code(verdict)) for verdict in ranked] == [1, 3, 3, 0, 0]


def test_results_can_be_changed_only_by_copying() -> None:
    one = compare(STEP, A, B, paired=True)
    assert replace(one, verdict=Verdict.PASS) != one
    with pytest.raises(AttributeError):
        one.verdict = Verdict.PASS  # type: ignore[misc]


def test_from_five_blocks_the_effect_of_the_order_is_separated() -> None:
    """Hand-computed: d = δ + s·π + e, with δ = 0.10, π = 0.02 and e = (1, -1, 0, 1, -1) per mille.

    Σs = 1, so δ = (5·Σd - Σsd) / 24 and π = (5·Σsd - Σd) / 24, with Σe = 0 and Σse = 0.
    """
    base_first = [True, False, True, False, True]
    d = [0.121, 0.079, 0.12, 0.081, 0.119]
    one = compare(STEP, [100.0] * 5, list(100.0 * np.exp(d)), paired=True)
    assert np.log(one.ratio) == pytest.approx(0.10)
    # residuals are e: Σe² = 4e-6, 3 degrees of freedom, Var δ = σ²·5/24
    half = stats.t.ppf(0.975, 3) * np.sqrt(4e-6 / 3 * 5 / 24)
    assert np.log(one.ci95) == pytest.approx([0.10 - half, 0.10 + half])
    assert one == compare(STEP, [100.0] * 5, list(100.0 * np.exp(d)), paired=True, base_first=base_first)
    four = compare(STEP, [100.0] * 4, list(100.0 * np.exp(d[:4])), paired=True)
    assert np.log(four.ratio) == pytest.approx(np.mean(d[:4]))
    assert four.p == pytest.approx(stats.ttest_1samp(d[:4], 0).pvalue)
    assert one.method == "paired t on logarithms, adjusted for which side ran first"
    assert four.method == "paired t on logarithms"


def test_outlier_blocks_are_trimmed_from_ten_on() -> None:
    """Yuen by scipy, with 10 - 2·2 - 3 degrees of freedom: a run of one block is an outlier."""
    d = np.array([0.10, 0.11, 0.09, 0.105, 0.095, 0.1, 0.104, 0.096, 0.102, 0.6])
    one = compare(STEP, [100.0] * 10, list(100.0 * np.exp(d)), paired=True)
    assert np.log(one.ratio) == pytest.approx(stats.trim_mean(d, 0.2))
    low, high = np.log(one.ci95)
    winsorized = np.clip(np.sort(d), 0.096, 0.105)
    half = stats.t.ppf(0.975, 3) * np.sqrt(9 * winsorized.var(ddof=1) / 30)
    assert (low, high) == pytest.approx((np.log(one.ratio) - half, np.log(one.ratio) + half))
    nine = compare(STEP, [100.0] * 9, list(100.0 * np.exp(d[1:])), paired=True)
    assert nine.ci95[1] > 1.3  # too few to tell outliers from noise
    states = np.where(np.arange(10) < 4, d + 0.2, d)
    two_states = compare(STEP, [100.0] * 10, list(100.0 * np.exp(states)), paired=True)
    assert two_states.ci95[1] - two_states.ci95[0] > 0.1  # 40% of the blocks are no outliers


def test_equal_values_are_not_believed_to_have_no_noise() -> None:
    """10, 10 against 11, 11: a timer of a tenth of the value could have rounded 10.5 to either."""
    one = compare(STEP, [10.0, 10.0], [11.0, 11.0], paired=False)
    assert (one.verdict, one.ratio) == (Verdict.CANNOT_TELL, pytest.approx(1.1))
    # 1/√12 of the relative resolution for each run: log(1.1)·√((1/2 + 1/2) / 12), 2 degrees of freedom
    t = np.sqrt(12)
    assert one.p == pytest.approx(2 * stats.t.sf(t, 2))
    clear = compare(STEP, [10.0] * 5, [20.0] * 5, paired=True)
    assert clear.verdict is Verdict.REGRESSION
    assert compare(STEP, [10.0] * 5, [10.0] * 5, paired=True).verdict is Verdict.PASS
    assert compare(STEP, [10.0] * 3, [10.0] * 3, paired=True).verdict is Verdict.CANNOT_TELL


def test_a_noisy_but_large_change_is_a_regression() -> None:
    """The least detectable change is above the threshold, and the change is surely one."""
    base, head = [100.0, 104, 97, 102, 99], [106.2, 140.4, 118.5, 129.7, 109.4]
    one = compare(STEP, base, head, paired=False)
    assert one.mde is not None
    assert (one.verdict, one.mde > 0.07, one.more_runs) == (Verdict.REGRESSION, True, None)


@pytest.mark.parametrize("seed", range(5))
def test_a_loader_that_takes_86_per_cent_longer_is_a_regression(seed: int) -> None:
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.03, (2, 5)))
    for paired in (True, False):
        one = compare(STEP, 36.7e6 * noise[0], 68.0e6 * noise[1], paired=paired)
        assert one.verdict is Verdict.REGRESSION


def test_pairs_in_one_order_only_tell_nothing() -> None:
    """The head ran second in every pair, and whatever runs second may be slower."""
    second = [108.0, 109.0, 107.0, 108.5, 108.2]
    one = compare(STEP, [100.0, 101, 99, 100.5, 100.2], second, paired=True, base_first=[True] * 5)
    assert one.verdict is Verdict.CANNOT_TELL
    assert one.reason.startswith(
        "the base ran first in every pair, so that an effect of the order looks like"
    )
    alternating = compare(STEP, [100.0, 101, 99, 100.5, 100.2], second, paired=True)
    assert alternating.verdict is Verdict.REGRESSION


SESSIONS = [
    [100.0, 102],
    [104.0, 106],
    [98.0, 100],
    [103.0, 101],
    [97.0, 99],
    [101.0, 103],
    [105.0, 103],
    [99.0, 97],
]


def test_sides_of_different_occasions_are_judged_by_the_variance_between_sessions() -> None:
    base, head = [100.0, 101.0, 150.0], [140.0, 141.0, 139.0]
    one = compare(STEP, base, head, paired=False, noise=Sessions(SESSIONS))
    logs = np.log(SESSIONS)
    between = np.median(logs, axis=1).var(ddof=1)
    # 2 MSB + MSW max(1/3 + 1/3 - 2/2, 0), and 101 to 140 by the medians
    half = stats.t.ppf(0.975, 7) * np.sqrt(2 * between)
    assert one.ratio == pytest.approx(140 / 101)
    assert np.log(one.ci95) == pytest.approx([np.log(one.ratio) - half, np.log(one.ratio) + half])
    assert (one.verdict, one.method) == (Verdict.REGRESSION, "t with the variance between sessions")
    base, head = [100.0, 101.0, 100.5], [108.0, 109.1, 108.5]
    assert compare(STEP, base, head, paired=False, noise=Sessions(SESSIONS)).verdict is Verdict.CANNOT_TELL
    assert compare(STEP, base, head, paired=False).verdict is Verdict.REGRESSION


def test_fewer_runs_than_the_sessions_have_vary_more() -> None:
    sessions = [[*session, session[0] + 1, session[1] - 1] for session in SESSIONS]
    base, head = [100.0, 101.0, 100.5], [140.0, 141.0, 140.5]
    one = compare(STEP, base, head, paired=False, noise=Sessions(sessions))
    logs = np.log(sessions)
    main, within = 2 * np.median(logs, axis=1).var(ddof=1), logs.var(axis=1, ddof=1).mean()
    extra = within * (2 / 3 - 2 / 4)
    df = (main + extra) ** 2 / (main**2 / 7 + extra**2 / 24)
    half = stats.t.ppf(0.975, df) * np.sqrt(main + extra)
    assert np.log(one.ci95) == pytest.approx([np.log(one.ratio) - half, np.log(one.ratio) + half])


@pytest.mark.parametrize("runs", [1, 2])
def test_few_runs_on_another_occasion_tell_nothing(runs: int) -> None:
    one = compare(STEP, [100.0] * runs, [200.0] * runs, paired=False, noise=Sessions(SESSIONS))
    assert (one.verdict, one.ci95) == (Verdict.CANNOT_TELL, None)
    assert "3 runs per side" in one.reason


def test_few_sessions_do_not_show_how_much_occasions_differ() -> None:
    one = compare(STEP, A, B, paired=False, noise=Sessions(SESSIONS[:7]))
    assert (one.verdict, one.ci95, one.p) == (Verdict.CANNOT_TELL, None, None)
    assert one.reason.startswith("the sides were recorded on different occasions; use `tracekit ab`")
    assert compare(STEP, A, B, paired=True, noise=Sessions(SESSIONS[:7])).verdict is Verdict.REGRESSION


def test_cannot_tell_says_how_many_more_runs_are_needed() -> None:
    one = compare(STEP, [100.0, 104, 97, 102, 99], [100.0, 97, 104, 99, 102], paired=False)
    assert one.verdict is Verdict.PASS or one.more_runs
    noisy = compare(STEP, [100.0, 120, 90], [101.0, 95, 119], paired=False)
    assert noisy.verdict is Verdict.CANNOT_TELL
    assert noisy.reason.endswith("per side") or f"about {noisy.more_runs} more runs per side" in noisy.reason
