"""Verdicts on effects, and their reasons.

At the threshold θ (a relative change, T = log(1 + θ) on the scale of effects), with the effect counted so
that an increase is worse:

- regression: the interval's lower bound is above 0 and the estimate is at least T;
- improvement: the mirror, upper bound below 0 and estimate at most -T;
- pass: the upper bound is below T;
- cannot tell: anything else.

Without a finite interval there is no verdict: nothing is known of the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.stats.comparison import ALPHA, POWER, Direction, Verdict, format_ratio
from tracekit.stats.effects import Effect, Floats, quantile

Codes: TypeAlias = npt.NDArray[np.int64]

CODES = (Verdict.CANNOT_TELL, Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.PASS, Verdict.NONE)
"""Verdicts by code; the first is the one where no condition of another holds."""


@dataclass(frozen=True)
class Evidence:
    """Evidence of a verdict, with an increase counted as worse."""

    log: float  # the effect's estimate, a natural logarithm
    low: float  # lower bound of its interval
    high: float  # upper bound
    threshold: float  # relative change from which the verdict is a regression


def classify(log: Floats, low: Floats, high: Floats, threshold: float) -> Codes:
    """Verdicts as positions in `CODES`, for arrays of any one shape.

    Args:
        log: Estimates; an increase is worse.
        low: Lower bounds of their intervals.
        high: Upper bounds.
        threshold: Relative change from which the verdict is a regression.
    """
    limit = np.log1p(threshold)
    worse = (low > 0) & (log >= limit)
    better = (high < 0) & (log <= -limit)
    fine = high < limit
    unknown = ~np.isfinite(low) | ~np.isfinite(high)
    # The first that holds counts: an improvement is also fine, and comparisons with NaN are False.
    conditions = {
        Verdict.NONE: unknown,
        Verdict.REGRESSION: worse,
        Verdict.IMPROVEMENT: better,
        Verdict.PASS: fine,
    }
    return np.select([*conditions.values()], [CODES.index(verdict) for verdict in conditions], default=0)


def decide(evidence: Evidence) -> Verdict:
    """The verdict of one effect.

    Example:
        >>> decide(Evidence(0.10, 0.08, 0.12, 0.07)), decide(Evidence(0.01, -0.01, 0.03, 0.07))
        (<Verdict.REGRESSION: 'regression'>, <Verdict.PASS: 'pass'>)
        >>> decide(Evidence(0.05, 0.01, 0.09, 0.07))
        <Verdict.CANNOT_TELL: 'cannot tell'>
    """
    log, low, high = np.array([evidence.log, evidence.low, evidence.high])[:, None]
    return CODES[int(classify(log, low, high, evidence.threshold)[0])]


MAX_MORE = 60
"""Further runs per side beyond which none are recommended."""
SPREAD_LEVEL = 0.8
"""Probability with which the true spread of runs is at most the one that further runs are planned for."""


def more_runs(effect: Effect, k: int, threshold: float, sign: int = 1) -> int | None:
    """Return about how many more runs per side decide a comparison, with a power of 80%; None if too many.

    The limit is `MAX_MORE`. What decides is a lower bound above 0 if the estimate is a regression, else an
    upper bound below the threshold. An improvement need not be confirmed: a pass is enough.

    Args:
        effect: The effect of one comparison.
        k: Runs per side so far.
        threshold: Relative change from which the verdict is a regression.
        sign: 1 where an increase is worse, else -1.

    Example:
        >>> more_runs(Effect(np.array(0.02), np.array(0.02), np.array(3.0), np.array(0.03)), 5, 0.07)
        18
    """
    from scipy.special import chdtri

    log, se, df = sign * float(effect.log), float(effect.se), float(effect.df)
    limit = math.log1p(threshold)
    distance = log if log >= limit else limit - log
    # The spread of few runs is often too small by chance: this is the bound of its chi-squared distribution.
    inflation = math.sqrt(df / float(chdtri(df, SPREAD_LEVEL))) if np.isfinite(df) else 1.0
    for count in range(k + 1, k + MAX_MORE + 1):
        quantiles = quantile(1 - ALPHA / 2, count - 1) + quantile(POWER, count - 1)
        if float(quantiles) * se * inflation * math.sqrt(k / count) <= distance:
            return count - k
    return None


def change(log: float) -> str:
    """Format the logarithm of a ratio as a relative change.

    Example:
        >>> change(0.0676586), change(-0.01), change(2.75), change(900.0)
        ('+7.0%', '-1.0%', '15.64×', 'more than 1000×')
    """
    return format_ratio(math.exp(min(log, 100.0)))  # that of a larger one would overflow


def explain(verdict: Verdict, evidence: Evidence, direction: Direction = Direction.LOWER) -> str:
    """Explain the verdict on an effect, with changes in the metric's own direction.

    Args:
        verdict: What `decide` said of it.
        evidence: The effect, with a worsening above 0.
        direction: Which values of the metric are better.

    Example:
        >>> explain(Verdict.PASS, Evidence(0.01, -0.01, 0.03, 0.07))
        'at most +3.0% (95% interval from -1.0%), below the threshold of 7%'
    """
    sign, limit = direction.sign, f"the threshold of {100 * evidence.threshold:g}%"
    effect, better, worse = (change(sign * log) for log in (evidence.log, evidence.low, evidence.high))
    ends = (better, worse) if sign > 0 else (worse, better)
    span = f"95% interval {ends[0]} to {ends[1]}"
    # A decrease to 1 / (1 + θ) is as much as an increase by θ: each takes the other back.
    down = f"{limit} ({change(-math.log1p(evidence.threshold))} downward)"
    if verdict is Verdict.REGRESSION:
        return f"{effect} ({span}), worse by at least {limit if sign > 0 else down}"
    if verdict is Verdict.IMPROVEMENT:
        return f"{effect} ({span}), better by at least {down if sign > 0 else limit}"
    if verdict is Verdict.PASS:
        is_likely = evidence.log <= -math.log1p(evidence.threshold)
        unconfirmed = f"; an improvement (estimate {effect}) is not confirmed" * is_likely
        if sign > 0:
            return f"at most {worse} (95% interval from {better}), below {limit}{unconfirmed}"
        return f"at worst {worse} (95% interval up to {better}), within {limit}{unconfirmed}"
    if evidence.low > 0:
        return f"{effect} is worse, but possibly below {limit} ({span})"
    return f"{effect}, but the {span} reaches {limit}"
