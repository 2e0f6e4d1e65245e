"""Metrics that need no statistics: counts, and allocator peaks, which repeat to within a few blocks.

A change counts when it holds in every run: the ranges of the two sides lie apart by more than the
tolerance. What lies within it is no change, and ranges that overlap otherwise cannot be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import Comparison, Metric, Verdict

if TYPE_CHECKING:
    from tracekit.stats.compare import Values


def compare_exact(
    metric: Metric, a: Values, b: Values, *, threshold: float = 0.0, tolerance: float = 0.0
) -> Comparison:
    """Compare values that do not vary, or hardly.

    Args:
        metric: What is compared.
        a: One value per run of the base; 0 is allowed.
        b: One value per run of the head.
        threshold: Relative change from which a change is a regression; by default any.
        tolerance: Difference that is none, in the metric's unit.

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
    verdict, reason = _verdict(metric, base, head, threshold, tolerance)
    return Comparison(
        name=metric.name,
        unit=metric.unit,
        a=middle_a,
        b=middle_b,
        ratio=_ratio(middle_a, middle_b),
        ci95=_bounds(base, head),
        p=None,
        mde=tolerance / middle_a if middle_a else None,
        verdict=verdict,
        k=min(len(base), len(head)),
        paired=False,
        reason=reason,
        runs=(len(base), len(head)),
        method="exact",
        threshold=threshold,
        direction=metric.direction,
    )


def _verdict(
    metric: Metric, a: list[float], b: list[float], threshold: float, tolerance: float
) -> tuple[Verdict, str]:
    """Compare ranges with an increase counted as worse."""
    if metric.direction.sign < 0:
        worse, better = _beyond(b, a, threshold, tolerance), _beyond(a, b, threshold, tolerance)
    else:
        worse, better = _beyond(a, b, threshold, tolerance), _beyond(b, a, threshold, tolerance)
    told = f"from {_span(a)} to {_span(b)}"
    if worse or better:
        return (Verdict.REGRESSION if worse else Verdict.IMPROVEMENT), f"{told} in every run"
    if max(max(b) - min(a), max(a) - min(b)) <= tolerance:
        within = f", within the tolerance of {tolerance:,.10g}" if sorted(a) != sorted(b) else " in every run"
        return Verdict.PASS, told + within
    raised, base = (max(b), min(a)) if metric.direction.sign > 0 else (max(a), min(b))
    if raised - base <= tolerance or raised < base * (1 + threshold):
        return Verdict.PASS, f"{told}, below the threshold of {100 * threshold:g}%"
    return Verdict.CANNOT_TELL, f"{told}: the runs of one side differ too much to tell"


def _beyond(low: list[float], high: list[float], threshold: float, tolerance: float) -> bool:
    """Whether every value of the second lies above every value of the first, by enough to matter."""
    apart = min(high) - max(low) > tolerance
    return apart and float(np.median(high)) >= float(np.median(low)) * (1 + threshold)


def _bounds(a: list[float], b: list[float]) -> tuple[float, float] | None:
    return (min(b) / max(a), max(b) / min(a)) if min(a) > 0 else None


def _ratio(a: float, b: float) -> float | None:
    return b / a if a else None


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.10g}" if low == high else f"{low:,.10g}-{high:,.10g}"


def _values(metric: Metric, values: Values, side: str) -> list[float]:
    numbers = [float(value) for value in values if value is not None and not np.isnan(value)]
    if not numbers or min(numbers) < 0 or bool(np.isinf(numbers).any()):
        what = "has a value below 0 or without end" if numbers else "did not measure it"
        raise UnusableInputError(f"{metric.name}: the {side} {what}", hint="collect the runs again")
    return numbers
