"""Simulated bisections of a slower series: TorchBench's recursion and tracekit's."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from tracekit.stats.search import Found, Measure, next_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.noise_models import Floats

LAST = 64
THRESHOLD = 0.07


def levels(jumps: dict[int, float]) -> Floats:
    """Level of every commit, as a logarithm, from the relative increases at some of them."""
    steps = np.zeros(LAST + 1)
    for at, increase in jumps.items():
        steps[at] = np.log1p(increase)
    return np.cumsum(steps)


def recursion(level: Floats, sigma: float, rng: np.random.Generator) -> tuple[set[int], int]:
    """TorchBench's `bisection.py`: each commit measured once; halves that differ by the threshold go on.

    Returns:
        Culprits, and the number of measurements.
    """
    score: dict[int, float] = {}

    def worse(left: int, right: int) -> bool:
        for commit in (left, right):
            score.setdefault(commit, float(np.exp(level[commit] + sigma * rng.standard_normal())))
        return score[right] / score[left] - 1 >= THRESHOLD

    culprits: set[int] = set()
    queue = deque([(0, LAST)])
    while queue:
        left, right = queue.popleft()
        if not worse(left, right):
            continue
        if right == left + 1:
            culprits.add(right)
            continue
        middle = (left + right) // 2
        queue.extend(half for half in ((left, middle), (middle, right)) if worse(*half))
    return culprits, len(score)


def anchored(level: Floats, sigma: float, rng: np.random.Generator) -> tuple[set[int], int]:
    """The search of `tracekit.stats.search`.

    Returns:
        Culprits, and the number of measurements.
    """
    measured: dict[int, list[float]] = {}
    while True:
        step = next_step(measured, last=LAST)
        if isinstance(step, Found):
            return {jump.at for jump in step.jumps}, sum(map(len, measured.values()))
        measured.setdefault(step.commit, []).extend(_measure(level, sigma, rng, step))


def _measure(level: Floats, sigma: float, rng: np.random.Generator, step: Measure) -> list[float]:
    values = np.exp(level[step.commit] + sigma * rng.standard_normal(step.repeats))
    return [float(value) for value in values]


def found(
    search: Callable[[Floats, float, np.random.Generator], tuple[set[int], int]],
    increases: Sequence[float],
    *,
    count: int,
    sigma: float,
    seed: int,
) -> tuple[float, float]:
    """Share of searches that name exactly the culprits, and mean number of measurements.

    Args:
        search: `recursion` or `anchored`.
        increases: Relative increase of each culprit; culprits lie at commits drawn by chance.
        count: Number of searches.
        sigma: Noise of one measurement.
        seed: Of the random numbers.
    """
    rng = np.random.default_rng(seed)
    right, measurements = 0, 0
    for _ in range(count):
        places = rng.choice(np.arange(1, LAST + 1), size=len(increases), replace=False)
        jumps = {int(at): increase for at, increase in zip(places, increases, strict=True)}
        culprits, measured = search(levels(jumps), sigma, rng)
        right += culprits == set(jumps)
        measurements += measured
    return right / count, measurements / count
