"""From an interval to a verdict.

At the threshold θ (a relative change, T = log(1 + θ) on the scale of effects), with the effect counted so
that an increase is worse:

- regression: the interval's lower bound is above 0 and the estimate is at least T;
- improvement: the mirror, upper bound below 0 and estimate at most -T;
- pass: the upper bound is below T;
- cannot tell: anything else, and everything else when the smallest detectable effect is above T. Then only an
  interval that lies beyond T as a whole still decides: no test was too weak for an effect that large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from tracekit.stats.effect import Floats

Codes: TypeAlias = npt.NDArray[np.int64]

CODES = (Verdict.CANNOT_TELL, Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.PASS, Verdict.NONE)


@dataclass(frozen=True)
class Decided:
    """What a verdict rests on, with an increase counted as worse.

    Attributes:
        log: The effect's estimate, a natural logarithm.
        low: Lower bound of its interval.
        high: Upper bound.
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
    able = detectable <= limit
    worse = (low > 0) & (log >= limit) & (able | (low >= limit))
    better = (high < 0) & (log <= -limit) & (able | (high <= -limit))
    fine = (high < limit) & able
    unknown = ~np.isfinite(low) | ~np.isfinite(high)
    order = [(unknown, Verdict.NONE), (worse, Verdict.REGRESSION), (better, Verdict.IMPROVEMENT)]
    order.append((fine, Verdict.PASS))
    return np.select([where for where, _ in order], [CODES.index(verdict) for _, verdict in order], 0)


def decide(of: Decided) -> Verdict:
    """The verdict of one effect.

    Example:
        >>> decide(Decided(0.10, 0.08, 0.12, 0.03, 0.07)), decide(Decided(0.01, -0.01, 0.03, 0.03, 0.07))
        (<Verdict.REGRESSION: 'regression'>, <Verdict.PASS: 'pass'>)
        >>> decide(Decided(0.05, 0.01, 0.09, 0.06, 0.07))
        <Verdict.CANNOT_TELL: 'cannot tell'>
    """
    log, low, high, detectable = np.array([of.log, of.low, of.high, of.detectable])[:, None]
    return CODES[int(classify(log, low, high, detectable, of.threshold)[0])]
