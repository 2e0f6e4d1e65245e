"""A search finds the jumps, asks for no more than it needs, and says when it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tracekit.errors import UnusableInputError
from tracekit.stats.search import Found, Measure, next_step

if TYPE_CHECKING:
    from collections.abc import Callable


def searched(
    measure: Callable[[int, int], list[float]], last: int, **options: object
) -> tuple[Found, dict[int, list[float]]]:
    """Follow a search to its end; each step must ask for something new."""
    measured: dict[int, list[float]] = {}
    for _ in range(2_000):
        step = next_step(measured, last=last, **options)  # type: ignore[arg-type]
        if isinstance(step, Found):
            return step, measured
        assert step.repeats > 0
        measured.setdefault(step.commit, []).extend(measure(step.commit, step.repeats))
    raise AssertionError("the search does not end")


def noisy(levels: np.ndarray, sigma: float, seed: int = 1) -> Callable[[int, int], list[float]]:
    rng = np.random.default_rng(seed)
    return lambda commit, repeats: list(levels[commit] * np.exp(sigma * rng.standard_normal(repeats)))


def steps(last: int, jumps: dict[int, float]) -> np.ndarray:
    """Values of the commits with a factor at some of them."""
    factors = np.ones(last + 1)
    for at, factor in jumps.items():
        factors[at] = factor
    return 1e6 * np.cumprod(factors)


@given(st.integers(1, 200).flatmap(lambda last: st.tuples(st.just(last), st.integers(1, last))))
@settings(max_examples=examples(50))
def test_a_count_that_changed_is_found_by_halving(case: tuple[int, int]) -> None:
    last, culprit = case
    found, measured = searched(
        lambda commit, _: [float(commit >= culprit)],
        last,
        repeats=1,
        exact=True,
    )
    assert [(jump.after, jump.at, jump.effect, jump.suspects) for jump in found.jumps] == [
        (culprit - 1, culprit, 1.0, (culprit,))
    ]
    assert len(measured) <= 2 + int(np.ceil(np.log2(last)))
    assert all(len(own) == 1 for own in measured.values())


@pytest.mark.parametrize("factor", [1.1, 15.64, 1 / 1.1])
@pytest.mark.parametrize("culprit", [1, 20, 64])
def test_a_jump_in_noise_is_found_in_either_direction(factor: float, culprit: int) -> None:
    found, _ = searched(noisy(steps(64, {culprit: factor}), 0.01), 64)
    (jump,) = found.jumps
    assert (jump.after, jump.at) == (culprit - 1, culprit)
    assert jump.low < jump.effect < jump.high
    assert jump.effect == pytest.approx(np.log(factor), abs=0.03)
    assert jump.posterior >= 0.99
    assert (found.undecided, found.reason) == ((), "")


def test_a_jump_made_of_two_is_found_in_both_halves() -> None:
    found, _ = searched(noisy(steps(64, {10: 1.06, 50: 1.05}), 0.005), 64)
    assert [jump.at for jump in found.jumps] == [10, 50]


@pytest.mark.parametrize("seed", range(5))
def test_a_lesser_part_in_doubt_is_measured_until_it_is_sure(seed: int) -> None:
    found, _ = searched(noisy(steps(64, {10: 1.10, 50: 1.05}), 0.01, seed=seed), 64)
    assert [jump.at for jump in found.jumps] == [10, 50]


def test_commits_that_cannot_be_measured_are_suspects() -> None:
    broken = frozenset(range(30, 40))
    values = steps(64, {35: 1.2})

    def measure(commit: int, repeats: int) -> list[float]:
        assert commit not in broken
        return noisy(values, 0.001, seed=commit)(commit, repeats)

    found, _ = searched(measure, 64, broken=broken)
    (jump,) = found.jumps
    assert (jump.after, jump.at, jump.suspects) == (29, 40, tuple(range(30, 41)))


def test_a_commit_in_doubt_is_measured_again() -> None:
    ends = {0: [1.0, 1.01, 0.99], 2: [1.1, 1.11, 1.09]}
    middle = [1.02, 1.05, 1.08]
    step = next_step({**ends, 1: middle}, last=2)
    assert isinstance(step, Measure)
    assert step.commit == 1


def test_anchors_that_do_not_differ_end_the_search() -> None:
    found, measured = searched(noisy(steps(8, {}), 0.02, seed=3), 8)
    assert found == Found((), reason="measured again, the good and the bad commit do not differ")
    assert {commit: len(own) for commit, own in measured.items()} == {0: 12, 8: 12}


def test_counts_that_do_not_differ_end_the_search_at_once() -> None:
    found, measured = searched(lambda *_: [1.0], 8, repeats=1, exact=True)
    assert (found.jumps, measured) == ((), {0: [1.0], 8: [1.0]})


def test_a_slope_without_a_jump_names_no_culprit() -> None:
    found, _ = searched(noisy(np.linspace(1.0, 1.1, 65), 0.02), 64)
    assert found.jumps == ()
    assert found.reason == "no single commit makes the jump for sure"


def test_without_repeats_nothing_is_decided() -> None:
    step = next_step({0: [1.0], 4: [2.0]}, last=4, repeats=1)
    assert step == Measure(0, 1)


def test_the_order_of_measuring_does_not_matter() -> None:
    measured = {2: [1.2, 1.21], 0: [1.0, 1.01], 1: [1.2, 1.19]}
    one, other = (
        next_step(dict(items), last=2, repeats=2) for items in (measured.items(), sorted(measured.items()))
    )
    assert one == other


def test_a_search_needs_two_ends() -> None:
    with pytest.raises(UnusableInputError, match="no commit after"):
        next_step({}, last=0)


def test_a_value_without_logarithm_is_refused() -> None:
    with pytest.raises(UnusableInputError, match="not above 0"):
        next_step({0: [0.0]}, last=2)
