"""Tests and corrections: exact comparison, several metrics, sequential tests.

Exact: a change counts if it holds in every run: the ranges of the two sides are separated by more than the
tolerance. Smaller differences are no change, and overlapping ranges are inconclusive. A value that was seen
once may be one of two that occur, so each side needs two runs that agree.

Several metrics: the metrics of a gate are few and declared beforehand; Holm limits the probability of any
false regression to alpha. Tests are t tests on logarithms: a rank test of 5 against 5 runs cannot reach
p < 0.008 and would find nothing.

Sequential: three looks at level 0.05 raise a false alarm in 12 of 100 comparisons. A plan gives every look a
level of its own, and the levels sum to alpha. Alpha is spent following Lan and DeMets after Pocock,
α(t) = α · log(1 + (e - 1) t) at the share t of the runs, so that early looks can decide, which saves runs.
(O'Brien and Fleming's spending leaves 0.00009 for 5 of 20 blocks, which with 4 degrees of freedom requires
|t| > 14: such a first look decides nothing.)

Levels that sum to alpha hold by the union bound, for any dependence of the looks. Bounds that use their
correlation assume known noise: with t tests of few blocks they allow 5.3 of 100 false alarms, and 5.8 if Holm
divides them among 8 metrics. The sum costs 5% of the smallest effect that the last look detects.

Sources: Pocock 1977, Lan & DeMets 1983.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import ALPHA, Comparison, Metric, Values, Verdict
from tracekit.stats.effects import Floats


def compare_exact(
    metric: Metric,
    a: Values,
    b: Values,
    *,
    threshold: float = 0.0,
    tolerance: float = 0.0,
    agreeing: int = 2,
) -> Comparison:
    """Compare values that do not vary, or hardly.

    Args:
        metric: What is compared.
        a: One value per run of the base; 0 is allowed.
        b: One value per run of the head.
        threshold: Relative change from which a change is a regression; by default any.
        tolerance: Difference that is none, in the metric's unit.
        agreeing: Runs of each side that must agree: 2, or 1 for counts that are known to repeat.

    Returns:
        A comparison without a p value. Its interval is the range of the ratio over all pairs of runs.

    Raises:
        UnusableInputError: A side has no value, or a value is negative or infinite.

    Example:
        >>> one = compare_exact(Metric("fills", "count"), [1, 1, 1], [161, 161, 161])
        >>> one.verdict, one.ratio, one.reason
        (<Verdict.REGRESSION: 'regression'>, 161.0, 'from 1 to 161 in every run')
    """
    base, head = _values(metric, a, "base"), _values(metric, b, "head")
    middle_a, middle_b = float(np.median(base)), float(np.median(head))
    if all(_repeats(side, tolerance, agreeing) for side in (base, head)):
        verdict, reason = _verdict(metric, base, head, threshold, tolerance)
    else:
        verdict, reason = (
            Verdict.CANNOT_TELL,
            f"{_format_range(base)} against {_format_range(head)}: {NO_REPEAT}",
        )
    return Comparison(
        **vars(metric),
        a=middle_a,
        b=middle_b,
        ratio=middle_b / middle_a if middle_a else None,
        ci95=(min(head) / max(base), max(head) / min(base)) if min(base) > 0 else None,
        p=None,
        mde=tolerance / middle_a if middle_a else None,
        verdict=verdict,
        k=min(len(base), len(head)),
        paired=False,
        reason=reason,
        runs=(len(base), len(head)),
        method="exact",
        threshold=threshold,
    )


def _verdict(
    metric: Metric, a: list[float], b: list[float], threshold: float, tolerance: float
) -> tuple[Verdict, str]:
    """Compare ranges with an increase counted as worse."""
    ranges = f"from {_format_range(a)} to {_format_range(b)}"
    low, high = (a, b) if metric.direction.sign > 0 else (b, a)
    if _beyond(low, high, threshold, tolerance):
        return Verdict.REGRESSION, f"{ranges} in every run"
    if _beyond(high, low, threshold, tolerance):
        return Verdict.IMPROVEMENT, f"{ranges} in every run"
    if max(max(b) - min(a), max(a) - min(b)) <= tolerance:
        within = f", within the tolerance of {tolerance:,.10g}" if sorted(a) != sorted(b) else " in every run"
        return Verdict.PASS, ranges + within
    raised, base = max(high), min(low)
    if raised - base <= tolerance or raised < base * (1 + threshold):
        return Verdict.PASS, f"{ranges}, below the threshold of {100 * threshold:g}%"
    return Verdict.CANNOT_TELL, f"{ranges}: the runs of one side differ too much to tell"


NO_REPEAT = "each side needs two runs that agree"


def _repeats(values: list[float], tolerance: float, agreeing: int) -> bool:
    """Tell whether enough runs have the same value, or nearly."""
    neighbors = pairwise(sorted(values))
    return agreeing == 1 or any(late - early <= tolerance for early, late in neighbors)


def _beyond(low: list[float], high: list[float], threshold: float, tolerance: float) -> bool:
    """Tell whether every value of the second is above every value of the first, by enough to matter."""
    separate = min(high) - max(low) > tolerance
    return separate and float(np.median(high)) >= float(np.median(low)) * (1 + threshold)


def _format_range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.10g}" if low == high else f"{low:,.10g}-{high:,.10g}"


def _values(metric: Metric, values: Values, side: str) -> list[float]:
    numbers = [float(value) for value in values if value is not None and not np.isnan(value)]
    if not numbers or min(numbers) < 0 or bool(np.isinf(numbers).any()):
        what = "has a value below 0 or without end" if numbers else "did not measure it"
        raise UnusableInputError(f"{metric.name}: the {side} {what}", hint="collect the runs again")
    return numbers


_CLAIMS = (Verdict.REGRESSION, Verdict.IMPROVEMENT)


def holm(p: Sequence[float] | Floats) -> Floats:
    """P values adjusted so that rejecting those up to alpha errs anywhere with probability alpha at most.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
        [0.03, 0.06, 0.06]
    """
    # Holm 1979: the smallest of m p values times m, the next times m - 1, and none below the one before.
    values = np.asarray(p, float)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def with_holm(comparisons: Sequence[Comparison], *, further: int = 0) -> tuple[Comparison, ...]:
    """Judge the declared metrics together: a change that Holm does not confirm is inconclusive.

    Each comparison was judged at its own `alpha`; exact ones need no confirming.

    Args:
        comparisons: What was compared.
        further: Comparisons that were left out after a look at their values; they count as tests.

    Example:
        >>> with_holm([])
        ()
    """
    # Exact comparisons make no error of chance, so they do not count among the tests.
    left_out = [1.0] * further
    adjusted = iter(holm([*(metric.p for metric in comparisons if metric.p is not None), *left_out]).tolist())
    return tuple(
        metric if metric.p is None else _with_adjusted_p(metric, next(adjusted)) for metric in comparisons
    )


def _with_adjusted_p(comparison: Comparison, p: float) -> Comparison:
    alpha, reason = comparison.alpha, comparison.reason
    if comparison.verdict not in _CLAIMS or p <= alpha:
        return replace(comparison, p_adjusted=p)
    reason = f"{reason}, but among all that was compared p is {p:.2g} (Holm), above {alpha:.2g}"
    return replace(comparison, p_adjusted=p, verdict=Verdict.CANNOT_TELL, reason=reason)


SCHEDULE = (5, 10, 20)


@dataclass(frozen=True)
class Look:
    """Interim test of a plan: runs per side and significance level."""

    k: int
    alpha: float


def plan(schedule: Sequence[int] = SCHEDULE, *, alpha: float = ALPHA) -> tuple[Look, ...]:
    """Looks of a group-sequential comparison.

    Args:
        schedule: Runs per side at each look, increasing.
        alpha: Level of all looks together, two-sided.

    Example:
        >>> [(look.k, round(look.alpha, 4)) for look in plan()]
        [(5, 0.0179), (10, 0.0131), (20, 0.019)]
        >>> [round(look.alpha, 9) for look in plan([8])]
        [0.05]
    """
    if not schedule or min(schedule) < 1 or any(late <= early for early, late in pairwise(schedule)):
        raise ValueError(f"a schedule counts runs and increases: {schedule}")
    # Lan and DeMets 1983: a look spends what the spending function rises by since the look before.
    levels = [alpha * math.log1p((math.e - 1) * k / schedule[-1]) for k in (0, *schedule)]
    return tuple(Look(k, late - early) for k, (early, late) in zip(schedule, pairwise(levels), strict=True))
