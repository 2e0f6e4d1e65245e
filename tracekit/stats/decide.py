"""Effects on logarithms with their standard errors, for one metric or for thousands at once.

Arrays hold runs along the last axis; axes before it are metrics (or simulated experiments) and may be absent.
A run that was not measured is NaN; in a paired comparison it takes its partner with it.

At the threshold θ (a relative change, T = log(1 + θ) on the scale of effects), with the effect counted so
that an increase is worse:

- regression: the interval's lower bound is above 0 and the estimate is at least T;
- improvement: the mirror, upper bound below 0 and estimate at most -T;
- pass: the upper bound is below T;
- cannot tell: anything else, and everything else when the smallest detectable effect is above T. Then only an
  interval entirely beyond T still decides: no test was too weak for an effect that large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.stats.comparison import ALPHA, POWER, Direction, Verdict

Floats: TypeAlias = npt.NDArray[np.float64]

DUST = 1e-12
"""Logarithms below this are rounding errors; without spread they would count as a change."""


@dataclass(frozen=True)
class Effect:
    """Estimate of the natural logarithm of head over base.

    Attributes:
        log: The estimate; 0 is no change.
        se: Its standard error.
        df: Degrees of freedom of the standard error; infinite where it is known.
        sigma: Standard deviation of one run's logarithm.
    """

    log: Floats
    se: Floats
    df: Floats
    sigma: Floats

    def interval(self, alpha: float = ALPHA) -> tuple[Floats, Floats]:
        """Bounds that cover the true logarithm in all but `alpha` of the cases."""
        half = quantile(1 - alpha / 2, self.df) * self.se
        return self.log - half, self.log + half

    def p(self) -> Floats:
        """Two-sided p value of "no change"; without any spread, 1 where nothing changed and else 0."""
        from scipy.special import stdtr

        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(np.abs(self.log) < DUST, 0.0, np.abs(self.log) / self.se)
        return np.asarray(np.where(np.isnan(self.se), np.nan, 2 * stdtr(self.df, -t)))

    def detectable(self, alpha: float = ALPHA) -> Floats:
        """Smallest logarithm that a test like this one finds with 80% power: (t₁₋α⸝₂ + t_power) · se."""
        return np.asarray((quantile(1 - alpha / 2, self.df) + quantile(POWER, self.df)) * self.se)


def quantile(level: float, df: npt.ArrayLike) -> Floats:
    """Quantile of Student's t; of the normal distribution where the degrees of freedom are infinite."""
    from scipy.special import ndtri, stdtrit

    freedom = np.asarray(df, float)
    finite = np.where(np.isinf(freedom), 1.0, freedom)
    return np.asarray(np.where(np.isinf(freedom), ndtri(level), stdtrit(finite, level)))


def effect_in_blocks(log_a: Floats, log_b: Floats) -> Effect:
    """Effect within blocks of two runs: what is common to a block, such as drift, cancels.

    Args:
        log_a: Logarithms of the base's runs, one per block along the last axis.
        log_b: The same of the head, in the same order.

    Example:
        >>> effect = effect_in_blocks(np.array([0.0, 1.0, 2.0]), np.array([0.1, 1.1, 2.1]))
        >>> round(float(effect.log), 6), round(float(effect.se), 6), float(effect.df)
        (0.1, 0.0, 2.0)
    """
    count, mean, variance = _moments(log_b - log_a)
    # A difference of two runs has twice the variance of one, if the runs of a block are independent.
    return Effect(mean, np.sqrt(variance / count), count - 1, np.sqrt(variance / 2))


def effect_between_groups(log_a: Floats, log_b: Floats) -> Effect:
    """Effect between two groups of runs after Welch; each side has its own spread.

    A side of one run has no spread of its own and borrows the other's, with its degrees of freedom. Two or
    three runs can be alike by chance, and beside twenty others Welch's interval then covers the truth in 88
    of 100 cases: between sides of unequal size the standard error is at least that of the pooled spread.
    """
    (n_a, mean_a, var_a), (n_b, mean_b, var_b) = _moments(log_a), _moments(log_b)
    var_a, var_b = np.where(n_a < 2, var_b, var_a), np.where(n_b < 2, var_a, var_b)
    part_a, part_b = var_a / n_a, var_b / n_b
    with np.errstate(divide="ignore", invalid="ignore"):
        # Degrees of freedom after Welch 1947 and Satterthwaite 1946; undefined where neither side varies.
        welch = (part_a + part_b) ** 2 / (part_a**2 / (n_a - 1) + part_b**2 / (n_b - 1))
    total = n_a + n_b - 2
    df = np.where((np.minimum(n_a, n_b) < 2) | ~np.isfinite(welch), total, welch)
    pooled = (var_a * np.maximum(n_a - 1, 0) + var_b * np.maximum(n_b - 1, 0)) / np.where(
        total, total, np.nan
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.fmax(part_a + part_b, pooled * (1 / n_a + 1 / n_b))
    return Effect(mean_b - mean_a, np.sqrt(variance), df.astype(float), np.sqrt(pooled))


def effect_with_noise(log_a: Floats, log_b: Floats, *, sigma: float, df: float = np.inf) -> Effect:
    """Effect between groups of any size with a known noise of one run.

    Args:
        log_a: Logarithms of the base's runs; one is enough.
        log_b: The same of the head.
        sigma: Standard deviation of one run's logarithm.
        df: Degrees of freedom that sigma was estimated with.
    """
    (n_a, mean_a, _), (n_b, mean_b, _) = _moments(log_a), _moments(log_b)
    log = mean_b - mean_a
    full = np.full_like(log, sigma)
    return Effect(log, full * np.sqrt(1 / n_a + 1 / n_b), np.full_like(log, df), full)


def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return count, mean and unbiased variance along the last axis, without missing values."""
    there = np.isfinite(values)
    count = there.sum(axis=-1).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(there, values, 0.0).sum(axis=-1) / count
        squares = np.where(there, (values - mean[..., None]) ** 2, 0.0).sum(axis=-1)
        variance = np.where(count > 1, squares / (count - 1), np.nan)
    return count, np.asarray(mean), np.asarray(variance)


Codes: TypeAlias = npt.NDArray[np.int64]

CODES = (Verdict.CANNOT_TELL, Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.PASS, Verdict.NONE)


@dataclass(frozen=True)
class Evidence:
    """Evidence of a verdict, with an increase counted as worse.

    Attributes:
        log: The effect's estimate, a natural logarithm.
        low: Lower bound of its interval.
        detectable: Smallest detectable effect.
        threshold: Relative change from which the verdict is a regression.
    """

    log: float
    low: float
    high: float
    detectable: float
    threshold: float


def classify(log: Floats, low: Floats, high: Floats, detectable: Floats, threshold: float) -> Codes:
    """Verdicts as positions in `CODES`, for arrays of any one shape.

    Args:
        log: Estimates; an increase is worse.
        low: Lower bounds of their intervals.
        high: Upper bounds.
        detectable: Smallest detectable effects, on the same scale.
        threshold: Relative change from which the verdict is a regression.
    """
    limit = np.log1p(threshold)
    # A test too weak for the threshold finds only exaggerated effects (Gelman and Carlin 2014), so that it
    # decides only where the whole interval is beyond the threshold.
    powerful = detectable <= limit
    worse = (low > 0) & (log >= limit) & (powerful | (low >= limit))
    better = (high < 0) & (log <= -limit) & (powerful | (high <= -limit))
    fine = (high < limit) & powerful
    unknown = ~np.isfinite(low) | ~np.isfinite(high)
    order = [(unknown, Verdict.NONE), (worse, Verdict.REGRESSION), (better, Verdict.IMPROVEMENT)]
    order.append((fine, Verdict.PASS))
    return np.select([where for where, _ in order], [CODES.index(verdict) for _, verdict in order], 0)


def decide(of: Evidence) -> Verdict:
    """The verdict of one effect.

    Example:
        >>> decide(Evidence(0.10, 0.08, 0.12, 0.03, 0.07)), decide(Evidence(0.01, -0.01, 0.03, 0.03, 0.07))
        (<Verdict.REGRESSION: 'regression'>, <Verdict.PASS: 'pass'>)
        >>> decide(Evidence(0.05, 0.01, 0.09, 0.06, 0.07))
        <Verdict.CANNOT_TELL: 'cannot tell'>
    """
    log, low, high, detectable = np.array([of.log, of.low, of.high, of.detectable])[:, None]
    return CODES[int(classify(log, low, high, detectable, of.threshold)[0])]


LARGE = 2.0
"""From this ratio on a change reads better as a multiple."""
HUGE = 1000.0
"""Multiple from which only the size is shown."""


def change(log: float) -> str:
    """Format the logarithm of a ratio as a relative change.

    Example:
        >>> change(0.0676586), change(-0.01), change(2.75), change(900.0)
        ('+7.0%', '-1.0%', '15.64×', 'more than 1000×')
    """
    if log >= math.log(HUGE):
        return f"more than {HUGE:.0f}×"
    ratio = math.exp(log)
    return f"{ratio:.2f}×" if ratio >= LARGE else f"{100 * (ratio - 1):+.1f}%"


def explain(verdict: Verdict, of: Evidence, direction: Direction = Direction.LOWER) -> str:
    """Explain the verdict on an effect, with changes in the metric's own direction.

    Args:
        verdict: What `decide` said of it.
        of: The effect, with a worsening above 0.
        direction: Which values of the metric are better.

    Example:
        >>> from tracekit.stats.decide import Evidence
        >>> explain(Verdict.PASS, Evidence(0.01, -0.01, 0.03, 0.02, 0.07))
        'at most +3.0% (95% interval from -1.0%), below the threshold of 7%'
    """
    sign, limit = direction.sign, f"the threshold of {100 * of.threshold:g}%"
    effect, better, worse = (change(sign * log) for log in (of.log, of.low, of.high))
    ends = (better, worse) if sign > 0 else (worse, better)
    span = f"95% interval {ends[0]} to {ends[1]}"
    if verdict is Verdict.REGRESSION:
        return f"{effect} ({span}), worse by at least {limit}"
    if verdict is Verdict.IMPROVEMENT:
        return f"{effect} ({span}), better by at least {limit}"
    if verdict is Verdict.PASS and sign > 0:
        return f"at most {worse} (95% interval from {better}), below {limit}"
    if verdict is Verdict.PASS:
        return f"at worst {worse} (95% interval up to {better}), within {limit}"
    return _explain_doubt(of, effect, limit, span)


def _explain_doubt(of: Evidence, effect: str, limit: str, span: str) -> str:
    if of.detectable > math.log1p(of.threshold):
        return (
            f"the smallest detectable change, {change(of.detectable)}, exceeds {limit}: more runs are needed"
        )
    if of.low > 0:
        return f"{effect} is worse, but possibly below {limit} ({span})"
    return f"{effect}, but the {span} reaches {limit}"
