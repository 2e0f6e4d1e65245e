"""The sentence that says why a verdict is what it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracekit.stats.comparison import Direction, Verdict

if TYPE_CHECKING:
    from tracekit.stats.decide import Decided

LARGE = 2.0
"""From this ratio on a change reads better as a multiple."""
HUGE = 1000.0
"""From this multiple on nothing but its size can matter."""


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


def because(verdict: Verdict, of: Decided, direction: Direction = Direction.LOWER) -> str:
    """Explain the verdict on an effect, with changes in the metric's own direction.

    Args:
        verdict: What `decide` said of it.
        of: The effect, with a worsening above 0.
        direction: Which values of the metric are better.

    Example:
        >>> from tracekit.stats.decide import Decided
        >>> because(Verdict.PASS, Decided(0.01, -0.01, 0.03, 0.02, 0.07))
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
    return _doubt(of, effect, limit, span)


def _doubt(of: Decided, effect: str, limit: str, span: str) -> str:
    if of.detectable > math.log1p(of.threshold):
        return (
            f"the smallest detectable change, {change(of.detectable)}, exceeds {limit}: more runs are needed"
        )
    if of.low > 0:
        return f"{effect} is worse, but possibly below {limit} ({span})"
    return f"{effect}, but the {span} reaches {limit}"
