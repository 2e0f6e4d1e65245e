"""Growth per step: Theil-Sen slope with confidence interval.

The slope is the median of the slopes between all pairs of steps; the 95% confidence interval follows from the
variance of Kendall's statistic. Neither assumes normal noise. After a single jump, or growth that ends, the
interval includes zero, while least squares would report growth. With 4 steps the interval covers all slopes,
with an exact confidence of 92%.

Sources: Sen, Estimates of the regression coefficient based on Kendall's tau, 1968; Hollander and Wolfe,
Nonparametric statistical methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.intervals import Ints

NORMAL_95 = 1.959964
MOST_POINTS = 1_000
"""Maximum number of points, evenly sampled, since the number of pairs is quadratic."""


@dataclass(frozen=True)
class Slope:
    """Growth per step in bytes, with the bounds of its 95% confidence interval."""

    slope: int
    low: int
    high: int


def theil_sen(values: Ints) -> Slope:
    """Slope of values over their indices.

    Args:
        values: At least two values.

    Example:
        >>> theil_sen(np.array([0, 10, 20, 30, 40, 50]))
        Slope(slope=10, low=10, high=10)
        >>> theil_sen(np.array([0, 10, 20, 20, 20, 20, 20, 20, 20]))
        Slope(slope=0, low=0, high=3)
    """
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).astype(np.int64))
    before, after = np.triu_indices(len(chosen), k=1)
    rise = values[chosen[after]] - values[chosen[before]]
    slopes = np.sort(rise / (chosen[after] - chosen[before]))
    count = len(chosen)
    reach = NORMAL_95 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    below = max(0, floor((len(slopes) - reach) / 2))
    ends = slopes[below], slopes[len(slopes) - 1 - below]
    return Slope(*(round(float(value)) for value in (np.median(slopes), *ends)))
