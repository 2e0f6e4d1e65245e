"""Noise models: synthetic step times without a difference between the sides.

Values are natural logarithms of step times in an array of experiments × runs × steps, in run order. Sigma is
the standard deviation between runs; steps vary by 2% around the level of their run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

Floats: TypeAlias = npt.NDArray[np.float64]

STEPS = 30
STEP_SIGMA = 0.02
RUN_MEMORY, STEP_MEMORY = 0.6, 0.9
DRIFT = 0.03


def iid(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Independent normal runs of independent normal steps."""
    return sigma * rng.standard_normal((count, runs, 1)) + _steps(rng, count, runs)


def ar1(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Runs and steps that remember the one before."""
    levels = sigma * _remembering(rng, (runs, count), RUN_MEMORY).T[:, :, None]
    steps = _remembering(rng, (STEPS, count, runs), STEP_MEMORY)
    return np.asarray(levels + STEP_SIGMA * np.moveaxis(steps, 0, -1))


def spikes(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """One step in twenty takes half as long again, and one run in twenty 10% more, both exponential."""
    slow_runs = rng.exponential(0.1, (count, runs, 1)) * (rng.random((count, runs, 1)) < 0.05)
    slow_steps = rng.exponential(0.5, (count, runs, STEPS)) * (rng.random((count, runs, STEPS)) < 0.05)
    return iid(rng, count, runs, sigma) + slow_runs + slow_steps


def drift(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """The machine gets slower by 3% from the first run to the last."""
    return iid(rng, count, runs, sigma) + np.linspace(0, DRIFT, runs)[:, None]


def bimodal(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Every other run, by chance, is 5% slower."""
    return iid(rng, count, runs, sigma) + 0.05 * (rng.random((count, runs, 1)) < 0.5)


def rare_mode(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """One run in ten, by chance, is 10% slower."""
    return iid(rng, count, runs, sigma) + 0.10 * (rng.random((count, runs, 1)) < 0.1)


MODELS: dict[str, Callable[[np.random.Generator, int, int, float], Floats]] = {
    "iid": iid,
    "AR(1)": ar1,
    "spikes": spikes,
    "drift": drift,
    "bimodal": bimodal,
    "rare mode": rare_mode,
}


def ties(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """A timer whose resolution is a tenth of the value, so that most runs are alike."""
    values = 10 * np.exp(
        sigma * rng.standard_normal((count, runs, 1)) + rng.uniform(-0.05, 0.05, (count, 1, 1))
    )
    return np.asarray(np.log(np.round(values) / 10))


def two_states(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Every other run, by chance, is 10% slower."""
    return iid(rng, count, runs, sigma) + 0.1 * (rng.random((count, runs, 1)) < 0.5)


def sticky_states(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """The machine is 10% slower for a while: each run changes its state with a probability of 10%."""
    changes = rng.random((count, runs)) < 0.1
    states = (rng.random((count, 1)) < 0.5) ^ (np.cumsum(changes, axis=1) % 2 == 1)
    return np.asarray(iid(rng, count, runs, sigma) + 0.1 * states[:, :, None])


def outliers(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """One run in twenty takes half as long again."""
    return iid(rng, count, runs, sigma) + math.log(1.5) * (rng.random((count, runs, 1)) < 0.05)


def strong_drift(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """The machine gets slower by 10% from the first run to the last."""
    return iid(rng, count, runs, sigma) + np.linspace(0, 0.1, runs)[:, None]


def remembering(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Runs that strongly remember the one before."""
    return sigma * _remembering(rng, (runs, count), 0.8).T[:, :, None] + _steps(rng, count, runs)


def heavy_steps(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Step times with a long tail."""
    levels = sigma * rng.standard_normal((count, runs, 1))
    return np.asarray(levels + 0.5 * rng.standard_normal((count, runs, STEPS)))


def alternating(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Every other step takes four times as long; which one is first depends on the run."""
    return iid(rng, count, runs, sigma) + math.log(4) * _every(2, rng, count, runs)


def every_tenth(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """Every tenth step takes ten times as long, as with a checkpoint or an evaluation."""
    return iid(rng, count, runs, sigma) + math.log(10) * _every(10, rng, count, runs)


def slow_second(rng: np.random.Generator, count: int, runs: int, sigma: float) -> Floats:
    """The second run of each block is 8% slower, as on a machine that heats up."""
    return iid(rng, count, runs, sigma) + math.log(1.08) * (np.arange(runs) % 2)[:, None]


HARD: dict[str, Callable[[np.random.Generator, int, int, float], Floats]] = {
    "independent": iid,
    "ties, timer of 1/10": ties,
    "two states, 10%": two_states,
    "sticky states, 10%": sticky_states,
    "outliers": outliers,
    "drift of 10%": strong_drift,
    "AR(0.8)": remembering,
    "heavy steps": heavy_steps,
    "alternating steps": alternating,
    "every 10th step slow": every_tenth,
    "slow second run": slow_second,
}
"""Models beyond those that a quiet machine has."""


def run_values(steps: Floats) -> Floats:
    """Logarithms of the mean step of each run."""
    return np.asarray(np.log(np.exp(steps).mean(axis=-1)))


def _every(period: int, rng: np.random.Generator, count: int, runs: int) -> npt.NDArray[np.bool_]:
    places = np.arange(STEPS) + rng.integers(0, period, (count, runs, 1))
    return np.asarray(places % period == 0)


def _steps(rng: np.random.Generator, count: int, runs: int) -> Floats:
    return STEP_SIGMA * rng.standard_normal((count, runs, STEPS))


def _remembering(rng: np.random.Generator, shape: tuple[int, ...], memory: float) -> Floats:
    """A stationary AR(1) of variance 1 along the first axis."""
    fresh = rng.standard_normal(shape)
    values = np.empty_like(fresh)
    values[0] = fresh[0]
    for at in range(1, len(values)):
        values[at] = memory * values[at - 1] + np.sqrt(1 - memory**2) * fresh[at]
    return values
