"""Several metrics in one gate, and thousands of kernels to explore.

A gate's metrics are few and declared beforehand; Holm keeps the chance of any false regression at alpha.
Kernels are many and looked through afterwards; Benjamini and Hochberg keep the share of false ones among
those shown at alpha. Tests are t tests on logarithms: a rank test of 5 against 5 runs cannot reach p <
0.008 and would find nothing there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.stats import effect as effects
from tracekit.stats.comparison import ALPHA, Comparison, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tracekit.stats.effect import Floats

_CLAIMS = (Verdict.REGRESSION, Verdict.IMPROVEMENT)


def holm(p: Sequence[float] | Floats) -> Floats:
    """P values adjusted so that rejecting those up to alpha errs anywhere with probability alpha at most.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
        [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, float)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def benjamini_hochberg(p: Sequence[float] | Floats) -> Floats:
    """Q values: showing those up to alpha shows false ones as a share of alpha at most. NaN stays NaN.

    Example:
        >>> benjamini_hochberg([0.01, 0.04, 0.03, float("nan")]).round(3).tolist()
        [0.03, 0.04, 0.04, nan]
    """
    values = np.asarray(p, float)
    adjusted = np.full_like(values, np.nan)
    there = np.flatnonzero(~np.isnan(values))
    falling = there[np.argsort(-values[there], kind="stable")]
    steps = values[falling] * there.size / np.arange(there.size, 0, -1)
    adjusted[falling] = np.minimum(1.0, np.minimum.accumulate(steps))
    return adjusted


def gate(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Judge the declared metrics together: a change that Holm does not confirm cannot be told.

    Args:
        comparisons: One per declared metric, each judged at its own `alpha`. Exact ones need no confirming.

    Example:
        >>> gate([])
        ()
    """
    tested = [at for at, one in enumerate(comparisons) if one.p is not None]
    adjusted = holm([comparisons[at].p or 0.0 for at in tested])
    found = dict(zip(tested, adjusted.tolist(), strict=True))
    return tuple(_confirmed(one, found[at]) if at in found else one for at, one in enumerate(comparisons))


def _confirmed(one: Comparison, p: float) -> Comparison:
    if one.verdict not in _CLAIMS or p <= one.alpha:
        return replace(one, p_adjusted=p)
    reason = f"{one.reason}, but among the gate's metrics p is {p:.2g} (Holm), above {one.alpha:.2g}"
    return replace(one, p_adjusted=p, verdict=Verdict.CANNOT_TELL, reason=reason)


@dataclass(frozen=True)
class Exploration:
    """Effects of many series, one element per series.

    Attributes:
        ratio: Head over base.
        low: Lower bound of its 95% interval, of this series alone.
        high: Upper bound.
        p: Two-sided p value of this series alone.
        q: The same over all series (Benjamini-Hochberg).
        shown: Where q is at most alpha.
    """

    ratio: Floats
    low: Floats
    high: Floats
    p: Floats
    q: Floats
    shown: npt.NDArray[np.bool_]


def explore(a: Floats, b: Floats, *, paired: bool = False, alpha: float = ALPHA) -> Exploration:
    """Compare many series at once; a series with too few runs has NaN and is not shown.

    Args:
        a: Values of the base, series by runs; NaN or 0 where a run did not measure the series.
        b: Values of the head, series by runs.
        paired: Whether run i of both sides was made in the same block.
        alpha: Share of false ones among those shown.

    Example:
        >>> found = explore(np.array([[10.0, 11.0, 10.5]]), np.array([[20.0, 22.0, 21.0]]))
        >>> found.ratio.round(2).tolist(), found.shown.tolist()
        ([2.0], [True])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [np.log(np.where(np.asarray(side, float) > 0, side, np.nan)) for side in (a, b)]
    effect = (effects.paired if paired else effects.unpaired)(*logs)
    low, high = effect.interval()
    p = effect.p()
    q = benjamini_hochberg(p)
    return Exploration(np.exp(effect.log), np.exp(low), np.exp(high), p, q, np.asarray(q <= alpha))
