"""Sigma from runs of the same code, and what it allows to detect."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.unit.stats.strategies import values
from tracekit.errors import UnusableInputError
from tracekit.stats.noise import Noise, detectable_effect, estimate_noise

TABLE = {0.01: ("2.0", "1.3", "0.9"), 0.02: ("4.0", "2.7", "1.8"), 0.03: ("6.1", "4.0", "2.7")}


@pytest.mark.parametrize(("sigma", "printed"), TABLE.items())
def test_the_table_of_detectable_effects(sigma: float, printed: tuple[str, ...]) -> None:
    found = tuple(f"{100 * detectable_effect(sigma, k):.1f}" for k in (5, 10, 20))
    assert found == printed


@pytest.mark.parametrize(("paired", "df"), [(False, 8), (True, 3)])
def test_a_detectable_effect_is_found_in_four_of_five_cases(paired: bool, df: int) -> None:
    effect = detectable_effect(0.02, 5, paired=paired)
    shift = effect / (0.02 * math.sqrt(2 / 5))
    assert stats.nct.sf(stats.t.ppf(0.975, df), df, shift) == pytest.approx(0.8, abs=0.02)


def test_an_effect_of_one_run_cannot_be_detected() -> None:
    assert math.isnan(detectable_effect(0.01, 1))


def test_a_detectable_change_is_relative() -> None:
    assert Noise(0.03).mde(5) == pytest.approx(math.expm1(detectable_effect(0.03, 5)))
    assert Noise(0.03).mde(5, paired=True) > Noise(0.03).mde(5)


@given(st.lists(st.lists(values, max_size=5), max_size=5))
def test_noise_is_pooled_within_groups(groups: list[list[int]]) -> None:
    noise = estimate_noise(groups)
    used = [np.log(group) for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in used)
    assert (noise.df, noise.groups, noise.runs) == (df, len(used), sum(map(len, used)))
    if df:
        squares = sum(group.var(ddof=1) * (len(group) - 1) for group in used)
        assert noise.sigma == pytest.approx(math.sqrt(squares / df))
        assert noise.low is not None
        assert noise.high is not None
        assert noise.low <= noise.sigma <= noise.high
    else:
        assert math.isnan(noise.sigma)


def test_differences_between_commits_are_no_noise() -> None:
    assert estimate_noise([[100, 100], [200, 200, None]]).sigma == 0


def test_the_interval_of_sigma_is_that_of_chi_squared() -> None:
    noise = estimate_noise([[100, 102, 98, 101, 99]])
    low, high = noise.sigma * np.sqrt(4 / stats.chi2.ppf([0.975, 0.025], 4))
    assert (noise.low, noise.high) == pytest.approx((low, high))


def test_a_value_without_logarithm_is_refused() -> None:
    with pytest.raises(UnusableInputError):
        estimate_noise([[1.0, 0.0]])
