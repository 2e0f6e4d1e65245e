"""Noise models: synthetic step times without a difference between the sides.

Values are natural logarithms of step times in an array of experiments × runs × steps, in run order. Sigma is
the standard deviation between runs; steps vary by 2% around the level of their run.
"""

from __future__ import annotations

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
