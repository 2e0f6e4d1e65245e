"""More runs until it can be told, without more false alarms.

Looking three times at level 0.05 raises a false alarm in more than 5 of 100 comparisons. A plan gives
every look a level of its own, so that all looks together keep to alpha. It spends alpha as Lan and DeMets
do after Pocock, α(t) = α · log(1 + (e - 1) t) at the share t of the runs: early looks stay able to
decide, which is what saves runs. (O'Brien and Fleming's spending leaves 0.00009 for 5 of 20 blocks, which
with 4 degrees of freedom asks for |t| > 14: such a first look decides nothing.) Levels are exact for
known noise and are applied to t quantiles, as usual.

Sources: Lan & DeMets 1983, Pocock 1977, Armitage, McPherson & Rowe 1969.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tracekit.stats.comparison import ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.stats.effect import Floats

SCHEDULE = (5, 10, 20)
_POINTS = 801
_STEPS = 60


@dataclass(frozen=True)
class Look:
    """One look of a plan: runs per side, and the level at which to judge them."""

    k: int
    alpha: float


def plan(schedule: Sequence[int] = SCHEDULE, *, alpha: float = ALPHA) -> tuple[Look, ...]:
    """Looks of a group-sequential comparison.

    Args:
        schedule: Runs per side at each look, increasing.
        alpha: Level of all looks together, two-sided.

    Example:
        >>> [(look.k, round(look.alpha, 4)) for look in plan()]
        [(5, 0.0179), (10, 0.0179), (20, 0.026)]
        >>> plan([8])
        (Look(k=8, alpha=0.05),)
    """
    if not schedule or min(schedule) < 1 or any(late <= early for early, late in pairwise(schedule)):
        raise ValueError(f"a schedule counts runs and increases: {schedule}")
    shares = np.asarray(schedule, float) / schedule[-1]
    spent = alpha * np.log1p((np.e - 1) * shares)
    levels = _levels(shares, np.diff(spent, prepend=0.0))
    return tuple(Look(int(k), level) for k, level in zip(schedule, levels, strict=True))


def order(k: int, *, start: int = 0) -> str:
    """The sides of 2k runs in ABBA order, the base being A; blocks are two runs each.

    Args:
        k: Runs per side.
        start: Blocks that were made before, whose order goes on.

    Example:
        >>> order(5), order(2, start=5)
        ('ABBAABBAAB', 'BAAB')
    """
    return "".join("BA" if block % 2 else "AB" for block in range(start, start + k))


def _levels(shares: Floats, spending: Floats) -> list[float]:
    """Nominal two-sided level of each look that spends what the look may spend."""
    from scipy.special import ndtr

    levels: list[float] = []
    grid, density, past = np.zeros(1), np.ones(1), 0.0
    for share, spend in zip(shares, spending, strict=True):
        scale = np.sqrt(share - past)
        bound = _bound(grid, density, scale, float(spend))
        levels.append(float(2 * ndtr(-bound / np.sqrt(share))))
        grid, density, past = *_next(grid, density, scale, bound), share
    return levels


def _bound(grid: Floats, density: Floats, scale: float, spend: float) -> float:
    """The bound that a Brownian path, inside so far as the density says, leaves with probability `spend`."""
    from scipy.special import ndtr

    low, high = 0.0, 20.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        outside = ndtr((grid - middle) / scale) + ndtr((-middle - grid) / scale)
        low, high = (middle, high) if float((density * outside).sum()) > spend else (low, middle)
    return (low + high) / 2


def _next(grid: Floats, density: Floats, scale: float, bound: float) -> tuple[Floats, Floats]:
    """Where the path is at this look if it stayed inside: points, and the probability at each (Simpson)."""
    points = np.linspace(-bound, bound, _POINTS)
    weights = np.ones(_POINTS)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    kernel = np.exp(-(((points[:, None] - grid) / scale) ** 2) / 2) / (scale * np.sqrt(2 * np.pi))
    return points, kernel @ density * weights * (points[1] - points[0]) / 3
