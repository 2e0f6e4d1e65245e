"""Counts and allocator peaks: what holds in every run needs no statistics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import Comparison, Direction, Metric, Verdict
from tracekit.stats.tests import compare_exact

FILLS = Metric("fills", "count")
PEAK = Metric("device_peak", "bytes")
MB = 2**20
counts = st.lists(st.integers(0, 20), min_size=1, max_size=5)
MIRROR = {Verdict.REGRESSION: Verdict.IMPROVEMENT, Verdict.IMPROVEMENT: Verdict.REGRESSION}


def test_a_new_copy_in_every_run_is_a_regression() -> None:
    assert compare_exact(FILLS, [0, 0, 0], [1, 1, 1]) == Comparison(
        name="fills",
        unit="count",
        a=0.0,
        b=1.0,
        ratio=None,
        ci95=None,
        p=None,
        mde=None,
        verdict=Verdict.REGRESSION,
        k=3,
        paired=False,
        reason="from 0 to 1 in every run",
        runs=(3, 3),
        method="exact",
        threshold=0.0,
    )


@pytest.mark.parametrize(
    ("a", "b", "verdict", "reason"),
    [
        ([161, 161], [1, 1], Verdict.IMPROVEMENT, "from 161 to 1 in every run"),
        ([161], [1, 1], Verdict.CANNOT_TELL, "161 against 1: each side needs two runs that agree"),
        ([1, 1], [2, 3], Verdict.CANNOT_TELL, "1 against 2-3: each side needs two runs that agree"),
        ([5, 5], [5, 5], Verdict.PASS, "from 5 to 5 in every run"),
        ([1, 1, 2], [3, 4, 4], Verdict.REGRESSION, "from 1-2 to 3-4 in every run"),
        ([1, 1, 3], [2, 4, 4], Verdict.CANNOT_TELL, "differ too much to tell"),
    ],
)
def test_counts(a: list[int], b: list[int], verdict: Verdict, reason: str) -> None:
    one = compare_exact(FILLS, a, b)
    assert one.verdict is verdict
    assert reason in one.reason


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        ([100 * MB + 512] * 2, Verdict.PASS),
        ([106 * MB] * 2, Verdict.PASS),
        ([108 * MB, 109 * MB], Verdict.REGRESSION),
        ([105 * MB, 108 * MB], Verdict.CANNOT_TELL),
        ([105 * MB, 105 * MB, 108 * MB], Verdict.CANNOT_TELL),
        ([93 * MB] * 2, Verdict.IMPROVEMENT),
        ([99 * MB, 101 * MB], Verdict.PASS),
    ],
)
def test_peaks_have_a_threshold_and_a_tolerance(head: list[int], verdict: Verdict) -> None:
    one = compare_exact(PEAK, [100 * MB, 100 * MB], head, threshold=0.07, tolerance=2 * MB)
    assert one.verdict is verdict
    assert one.mde == 0.02


def test_a_difference_within_the_tolerance_says_so() -> None:
    one = compare_exact(PEAK, [1000] * 2, [1512] * 2, tolerance=512)
    assert (one.verdict, one.reason) == (Verdict.PASS, "from 1,000 to 1,512, within the tolerance of 512")


def test_runs_that_vary_pass_where_none_is_above_the_tolerance() -> None:
    assert compare_exact(PEAK, [100, 101, 110], [95, 96, 101], tolerance=2).verdict is Verdict.PASS
    assert compare_exact(PEAK, [100, 101, 110], [95, 96, 103], tolerance=2).verdict is Verdict.CANNOT_TELL


def test_counts_that_are_known_to_repeat_need_one_run() -> None:
    assert compare_exact(FILLS, [161], [1], agreeing=1).verdict is Verdict.IMPROVEMENT


@given(counts, counts, st.integers(0, 3), st.sampled_from([0.0, 0.07, 0.5]))
def test_sides_exchanged_mirror_the_verdict(a: list[int], b: list[int], tolerance: int, limit: float) -> None:
    one, other = (
        compare_exact(FILLS, *sides, threshold=limit, tolerance=tolerance) for sides in ((a, b), (b, a))
    )
    claimed = {one.verdict, other.verdict} & set(MIRROR)
    assert not claimed or other.verdict is MIRROR[one.verdict]
    higher = compare_exact(
        Metric("hits", "count", Direction.HIGHER), b, a, threshold=limit, tolerance=tolerance
    )
    assert higher.verdict is one.verdict


@given(counts)
def test_a_side_does_not_differ_from_itself_for_sure(a: list[int]) -> None:
    verdict = compare_exact(FILLS, a, a).verdict
    assert verdict is (Verdict.PASS if len(set(a)) == 1 < len(a) else Verdict.CANNOT_TELL)


@pytest.mark.parametrize("b", [[], [None], [-1.0], [1.0, float("inf")]])
def test_what_is_no_count_is_refused(b: list[float | None]) -> None:
    with pytest.raises(UnusableInputError, match="fills: the head"):
        compare_exact(FILLS, [1], b)
