"""Noise of runs of the same code, and the smallest detectable effect.

Noise comes from A/A history: runs with equal fingerprint and commit. Its sigma is the standard deviation of
the logarithm of one run's value, pooled within such groups, so that differences between commits are excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import ALPHA, Values
from tracekit.stats.effects import MIN_BLOCKS_FOR_ORDER, Effect, Floats


@dataclass(frozen=True)
class Noise:
    """Noise of one run of a series."""

    # standard deviation of a run's logarithm (0.02: runs differ by about 2%); NaN without repeats
    sigma: float
    df: float = np.inf  # degrees of freedom it was estimated with; infinite where it is given
    low: float | None = None  # lower bound of its 95% interval
    high: float | None = None
    runs: int = 0  # runs it was estimated from
    groups: int = 0  # groups of identical runs with at least two

    def mde(self, k: int, *, paired: bool = False) -> float:
        """Smallest relative increase that a comparison of k runs a side detects at this noise.

        Example:
            >>> [f"{Noise(0.01).mde(k):.1%}" for k in (5, 10, 20)]
            ['2.0%', '1.3%', '0.9%']
        """
        return float(np.expm1(detectable_effect(self.sigma, k, paired=paired)))


@dataclass(frozen=True)
class Sessions:
    """Values of earlier sessions, which show how much occasions differ; one list per session."""

    values: Sequence[Values]

    @property
    def logs(self) -> Floats:
        """Logarithms, sessions by runs; NaN where a session has fewer runs."""
        logs = np.full((len(self.values), max(map(len, self.values))), np.nan)
        for row, session in zip(logs, self.values, strict=True):
            row[: len(session)] = np.log(np.asarray(session, float))
        return logs


def detectable_effect(sigma: float, k: int, *, paired: bool = False) -> float:
    """Smallest effect that k runs a side detect: (t₁₋α⸝₂ + t_power) · σ · √(2/k).

    Quantiles of Student's t have 2k - 2 degrees of freedom; in a paired comparison k - 1, and k - 2 where the
    effect of the order is estimated. The effect is a logarithm, in the unit of sigma; below 10% it is the
    relative change to within half a percentage point.

    Args:
        sigma: Standard deviation of a run's logarithm.
        k: Runs per side, at least 2.
        paired: Whether runs are compared within blocks.

    Example:
        >>> [round(100 * detectable_effect(0.02, k), 1) for k in (5, 10, 20)]
        [4.0, 2.7, 1.8]
    """
    if k < 2:
        return float("nan")
    df = k - 1 - (k >= MIN_BLOCKS_FOR_ORDER) if paired else 2 * k - 2
    numbers = np.array([0.0, sigma * np.sqrt(2 / k), df, sigma])
    return float(Effect(*numbers).detectable())


def estimate_noise(groups: Iterable[Values]) -> Noise:
    """Noise of a series from groups of runs of equal fingerprint and commit.

    Args:
        groups: Values of the runs of each group, in any unit; None where a run has no value.

    Returns:
        Its sigma is NaN where no group has two runs.

    Raises:
        UnusableInputError: A value is not above 0.

    Example:
        >>> noise = estimate_noise([[100, 102, 98], [200, 204, 196]])
        >>> f"{noise.sigma:.3f}", noise.df, noise.runs, noise.groups
        ('0.020', 4.0, 6, 2)
    """
    logs = [group for group in map(_logs, groups) if group.size > 1]
    df = float(sum(group.size - 1 for group in logs))
    if not df:
        return Noise(np.nan, 0.0)
    from scipy.special import chdtri

    squares = float(sum(((group - group.mean()) ** 2).sum() for group in logs))
    # Squares over the variance have a chi-squared distribution with df degrees of freedom.
    low, high = (float(np.sqrt(squares / chdtri(df, tail))) for tail in (ALPHA / 2, 1 - ALPHA / 2))
    return Noise((squares / df) ** 0.5, df, low, high, sum(group.size for group in logs), len(logs))


def _logs(values: Values) -> Floats:
    numbers = np.array([np.nan if value is None else value for value in values], float)
    measured = numbers[~np.isnan(numbers)]
    if bool((measured <= 0).any()):
        raise UnusableInputError("a run has a value that is not above 0", hint="exclude such runs")
    return np.asarray(np.log(measured))
