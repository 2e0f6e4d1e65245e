"""On which side of a jump a commit lies.

A measurement's logarithm is normal about its commit's level with one spread for all commits, which is
estimated from the repeats (and from history, where there is any). Levels have flat priors, so that what
is asked of them (whether a level lies above the midpoint of two others, whether two levels differ by more
than some amount) has Student's t as its posterior, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.stats.effect import Floats
    from tracekit.stats.noise import Noise

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Level:
    """What was measured of one commit: the mean of its values (as a rule logarithms) and their number."""

    mean: float
    count: int


@dataclass(frozen=True)
class Spread:
    """Spread of one measurement: standard deviation and degrees of freedom."""

    sigma: float
    df: float


def level(values: Floats) -> Level:
    """The level of a commit from its measurements."""
    return Level(float(values.mean()), int(values.size))


def pooled(measured: Iterable[Floats], history: Noise | None = None) -> Spread:
    """The common spread of measurements around the levels of their commits.

    Args:
        measured: Measurements of each commit.
        history: Noise of such measurements known from before.

    Example:
        >>> pooled([np.array([1.0, 3.0]), np.array([5.0, 7.0])])
        Spread(sigma=1.4142135623730951, df=2.0)
    """
    if history is not None and np.isinf(history.df):
        return Spread(history.sigma, history.df)
    known = (history.sigma**2 * history.df, history.df) if history is not None and history.df else (0.0, 0.0)
    squares, df = known
    for values in measured:
        squares += float(((values - values.mean()) ** 2).sum())
        df += values.size - 1
    return Spread(float(np.sqrt(squares / df)) if df else float("nan"), float(df))


def posterior_bad(good: Level, bad: Level, commit: Level, spread: Spread) -> float:
    """Probability that a commit's level lies on the bad side of the midpoint of good and bad.

    Args:
        good: Level before the jump.
        bad: Level after it, in either direction.
        commit: Level of the commit in question.
        spread: Of one measurement.

    Example:
        >>> round(posterior_bad(Level(0.0, 3), Level(0.1, 3), Level(0.09, 3), Spread(0.02, 6)), 3)
        0.985
    """
    sign = np.sign(bad.mean - good.mean) or 1.0
    distance = commit.mean - (good.mean + bad.mean) / 2
    variance = 1 / commit.count + 1 / (4 * good.count) + 1 / (4 * bad.count)
    return _above(float(sign * distance), variance, spread)


def posterior_jump(
    left: Level, right: Level, spread: Spread, *, least: float = 0.0, sign: float = 1.0
) -> float:
    """Probability that the level rises by more than `least` from one commit to a later one.

    Args:
        left: Level of the earlier commit.
        right: Level of the later one.
        spread: Of one measurement.
        least: Rise in question.
        sign: -1 to ask for a fall instead.
    """
    rise = sign * (right.mean - left.mean) - least
    return _above(rise, 1 / left.count + 1 / right.count, spread)


def further_repeats(
    good: Level, bad: Level, commit: Level, spread: Spread, *, confidence: float = CONFIDENCE, most: int = 12
) -> int:
    """Measurements of a commit that would decide its side if it lies where it seems to; 1 to `most`.

    Example:
        >>> further_repeats(Level(0.0, 3), Level(0.1, 3), Level(0.06, 3), Spread(0.02, 6))
        12
    """
    for more in range(1, most + 1):
        there = Level(commit.mean, commit.count + more)
        posterior = posterior_bad(good, bad, there, spread)
        if max(posterior, 1 - posterior) >= confidence:
            return more
    return most


def _above(distance: float, variance: float, spread: Spread) -> float:
    """Posterior probability that a contrast is above 0; its own sign decides where there is no spread."""
    from scipy.special import ndtr, stdtr

    if spread.sigma == 0:
        return 0.5 if distance == 0 else float(distance > 0)
    t = distance / (spread.sigma * np.sqrt(variance))
    return float(ndtr(t) if np.isinf(spread.df) else stdtr(spread.df, t))
