"""Posteriors of sides and jumps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.stats.search import (
    Level,
    Spread,
    further_repeats,
    level,
    pool_spread,
    posterior_bad,
    posterior_jump,
)

means = st.floats(-1, 1).map(lambda value: round(value, 3))
levels = st.builds(Level, means, st.integers(1, 6))
GOOD, BAD = Level(0.0, 3), Level(0.1, 3)


@given(levels, levels, levels)
def test_sides_exchanged_complement_the_posterior(good: Level, bad: Level, commit: Level) -> None:
    spread = Spread(0.1, 6)
    if good.mean != bad.mean:
        other = posterior_bad(bad, good, commit, spread)
        assert posterior_bad(good, bad, commit, spread) == pytest.approx(1 - other)


def test_the_posterior_is_what_sampling_the_levels_gives() -> None:
    rng = np.random.default_rng(1)
    commit, spread, count = Level(0.07, 2), Spread(0.02, 6), 400_000
    sigma = spread.sigma * np.sqrt(spread.df / rng.chisquare(spread.df, count))
    good, bad, own = (
        one.mean + sigma / np.sqrt(one.count) * rng.standard_normal(count) for one in (GOOD, BAD, commit)
    )
    assert posterior_bad(GOOD, BAD, commit, spread) == pytest.approx(
        (own > (good + bad) / 2).mean(), abs=0.003
    )
    rise = (own - good > 0.05).mean()
    assert posterior_jump(GOOD, commit, spread, least=0.05) == pytest.approx(rise, abs=0.003)


def test_a_jump_downwards_has_sides_too() -> None:
    spread = Spread(0.01, 6)
    assert posterior_bad(BAD, GOOD, Level(0.02, 3), spread) > 0.99
    assert posterior_jump(BAD, GOOD, spread, sign=-1.0) > 0.99


@pytest.mark.parametrize(("mean", "posterior"), [(0.06, 1.0), (0.05, 0.5), (0.04, 0.0)])
def test_what_repeats_exactly_is_certain(mean: float, posterior: float) -> None:
    assert posterior_bad(GOOD, BAD, Level(mean, 1), Spread(0.0, math.inf)) == posterior


def test_known_noise_is_normal() -> None:
    one = posterior_bad(GOOD, BAD, Level(0.08, 3), Spread(0.02, math.inf))
    assert one == pytest.approx(posterior_bad(GOOD, BAD, Level(0.08, 3), Spread(0.02, 1e9)))


def test_spread_is_pooled_by_degrees_of_freedom() -> None:
    values = [np.array([1.0, 3.0]), np.array([5.0]), np.array([2.0, 3.0, 4.0])]
    assert pool_spread(values) == Spread(math.sqrt(4 / 3), 3.0)
    assert pool_spread(values[:2]) == Spread(math.sqrt(2.0), 1.0)
    values = values[:2]
    assert math.isnan(pool_spread(values[1:]).sigma)


def test_repeats_suffice_if_the_commit_lies_where_it_seems_to() -> None:
    commit, spread = Level(0.066, 2), Spread(0.02, 20)
    more = further_repeats(GOOD, BAD, commit, spread, most=50)
    for count, sure in ((commit.count + more, True), (commit.count + more - 1, False)):
        assert (posterior_bad(GOOD, BAD, Level(commit.mean, count), spread) >= 0.95) is sure


def test_repeats_have_a_limit() -> None:
    assert further_repeats(GOOD, BAD, Level(0.05, 3), Spread(0.02, 6), most=4) == 4


def test_a_level_is_the_mean_of_its_values() -> None:
    assert level(np.array([1.0, 2.0, 6.0])) == Level(3.0, 3)
