"""What the statistics promise, on fewer synthetic runs than `benchmarks.statistics` makes, with margins."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import searches, simulation
from benchmarks.noise_models import HARD, MODELS
from tracekit.stats.tests import SCHEDULE, plan

COUNT = 2_000
each = pytest.mark.parametrize("model", MODELS)


@pytest.mark.slow_except(4)
@each
@pytest.mark.parametrize("k", [5, 10])
def test_intervals_cover_and_the_gate_gives_no_false_alarm(model: str, k: int) -> None:
    got = simulation.simulated(model, (k,), count=COUNT, sigma=0.02, seed=1)
    assert 0.925 <= got.covered <= 0.975
    assert got.regression <= 0.005


@pytest.mark.slow_except(2)
@each
def test_looking_again_raises_no_false_alarm(model: str) -> None:
    got = simulation.simulated(model, SCHEDULE, count=COUNT, sigma=0.02, seed=2)
    assert got.claimed <= 0.06
    assert got.covered >= 0.95
    assert got.regression <= 0.005
    assert got.passed >= (0.8 if model == "spikes" else 0.95)  # slow steps count in the mean


@pytest.mark.parametrize(("increase", "sigma"), [(0.10, 0.01), (0.10, 0.02), (0.10, 0.03), (14.64, 0.03)])
def test_a_planted_increase_fails_the_gate(increase: float, sigma: float) -> None:
    planted = float(np.log1p(increase))
    got = simulation.simulated("iid", SCHEDULE, count=COUNT, sigma=sigma, seed=3, planted=planted)
    assert got.regression >= 0.99


def test_an_increase_at_the_threshold_does_not_pass() -> None:
    got = simulation.simulated("iid", (5,), count=COUNT, sigma=0.02, seed=4, planted=float(np.log(1.07)))
    assert got.passed <= 0.04
    assert 0.4 <= got.regression <= 0.55


def test_blocks_cancel_a_drift_that_deceives_two_groups() -> None:
    groups, blocks = simulation.designs(count=COUNT, seed=5).values()
    assert groups > 0.3
    assert blocks < 0.07


@each
def test_steps_are_no_units(model: str) -> None:
    pooled, medians = simulation.units(model, count=500, seed=6)
    assert pooled > 0.15
    assert medians < 0.07


def test_a_family_of_metrics_keeps_to_alpha() -> None:
    assert simulation.families(count=2_000, metrics=6, looks=plan(), seed=7) <= 0.06


def test_kernels_shown_are_mostly_changed_ones() -> None:
    false, found = simulation.discoveries(kernels=2_000, changed=200, k=5, seed=8)
    assert false <= 0.08
    assert found >= 0.98


@pytest.mark.parametrize("k", [(1, 10), (2, 5), (2, 20), (20, 2), (3, 40)])
def test_few_runs_beside_many_cover(k: tuple[int, int]) -> None:
    """Welch's interval alone covers 88 of 100 where two runs that are alike by chance meet twenty others."""
    covered, fails = simulation.unequal(count=COUNT, k=k, seed=12)
    assert covered >= 0.93
    assert fails <= 0.005


def test_one_run_a_side_with_noise_from_history_covers() -> None:
    covered, fails = simulation.single_runs(count=COUNT, history=5, seed=9)
    assert 0.93 <= covered <= 0.97
    assert fails <= 0.01


def test_the_anchored_search_finds_what_single_measurements_miss() -> None:
    share, _ = searches.found(searches.recursion, [0.1], count=200, sigma=0.02, seed=10)
    assert share < 0.6
    share, measurements = searches.found(searches.anchored, [0.1], count=60, sigma=0.02, seed=10)
    assert share == 1.0
    assert measurements < 40


@pytest.mark.parametrize("model", HARD)
@pytest.mark.parametrize("schedule", [(3,), (5,), (10,), SCHEDULE])
def test_verdicts_hold_on_machines_that_are_not_quiet(model: str, schedule: tuple[int, ...]) -> None:
    cell = simulation.alternated(model, schedule, count=1_000, sigma=0.03, seed=13)
    assert cell.alarms <= 0.065
    assert cell.covered >= 0.925


@pytest.mark.parametrize("levels", ["independent", "two states, 10%"])
@pytest.mark.parametrize("runs", ["independent", "outliers"])
def test_verdicts_hold_between_occasions(levels: str, runs: str) -> None:
    cell = simulation.apart(levels, runs, 5, sessions=8, count=2_000, sigma=0.01, seed=14)
    assert cell.alarms <= 0.065
    assert cell.covered >= 0.925
