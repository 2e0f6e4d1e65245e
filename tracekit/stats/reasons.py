"""The sentence that says why a verdict is what it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from tracekit.stats.decide import Decided

LARGE = 2.0
"""From this ratio on a change reads better as a multiple."""


def change(log: float) -> str:
    """A logarithm as the relative change it stands for.

    Example:
        >>> change(0.0676586), change(-0.01), change(2.75)
        ('+7.0 %', '-1.0 %', '15.64×')
    """
    ratio = math.exp(log)
    return f"{ratio:.2f}×" if ratio >= LARGE else f"{100 * (ratio - 1):+.1f} %"


def because(verdict: Verdict, of: Decided) -> str:
    """Why an effect got its verdict.

    Example:
        >>> from tracekit.stats.decide import Decided
        >>> because(Verdict.PASS, Decided(0.01, -0.01, 0.03, 0.02, 0.07))
        'at most +3.0 % (95 % interval from -1.0 %), below the threshold of 7 %'
    """
    limit = f"the threshold of {100 * of.threshold:g} %"
    span = f"95 % interval {change(of.low)} to {change(of.high)}"
    if verdict is Verdict.REGRESSION:
        return f"{change(of.log)} ({span}) is a worsening of at least {limit}"
    if verdict is Verdict.IMPROVEMENT:
        return f"{change(of.log)} ({span}) is an improvement of at least {limit}"
    if verdict is Verdict.PASS:
        return f"at most {change(of.high)} (95 % interval from {change(of.low)}), below {limit}"
    return _doubt(of, limit, span)


def _doubt(of: Decided, limit: str, span: str) -> str:
    if of.detectable > math.log1p(of.threshold):
        return (
            f"the smallest detectable effect, {change(of.detectable)}, is above {limit}: more runs are needed"
        )
    if of.low > 0:
        return f"{change(of.log)} is a worsening, but whether by {limit} is open ({span})"
    return f"{change(of.log)}, but the {span} reaches {limit}"
