"""Medians, ratios and exponents."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and extremes.

    Example:
        >>> spread([3.0, 1.0, 2.0])
        {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(value: float, base: float) -> float | None:
    """How many times the base; None where the base is nothing.

    Example:
        >>> ratio(3.0, 2.0), ratio(1.0, 0.0)
        (1.5, None)
    """
    return value / base if base > 0 else None


def exponent(events: Sequence[float], costs: Sequence[float]) -> float | None:
    """The power of the number of events with which a cost grows: least squares on both logarithms.

    Returns:
        1 for a cost that doubles with the events; None where there are not two sizes with a cost.

    Example:
        >>> round(exponent([10, 100, 1000], [0.2, 2.0, 20.0]), 6), exponent([10], [1.0])
        (1.0, None)
    """
    pairs = [(math.log(x), math.log(y)) for x, y in zip(events, costs, strict=True) if x > 0 and y > 0]
    if len({x for x, _ in pairs}) < 2:
        return None
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope
