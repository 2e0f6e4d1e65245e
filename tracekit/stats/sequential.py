"""More runs until it can be told, without more false alarms.

Looking three times at level 0.05 raises a false alarm in 12 of 100 comparisons. A plan gives every look a
level of its own, and the levels sum to alpha. How alpha is spent follows Lan and DeMets after Pocock,
α(t) = α · log(1 + (e - 1) t) at the share t of the runs, so that early looks stay able to decide, which
is what saves runs. (O'Brien and Fleming's spending leaves 0.00009 for 5 of 20 blocks, which with 4
degrees of freedom asks for |t| > 14: such a first look decides nothing.)

Levels that sum to alpha hold by the union bound, whatever the looks have in common. Bounds that use their
correlation assume known noise: with t tests of few blocks they let 5.3 of 100 false alarms pass, and 5.8
once Holm divides them among 8 metrics. What the sum costs is 5% of the smallest effect that the last
look detects.

Sources: Pocock 1977, Lan & DeMets 1983.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tracekit.stats.comparison import ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEDULE = (5, 10, 20)


@dataclass(frozen=True)
class Look:
    """One look of a plan: runs per side, and the level at which to judge them."""

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
    spent = [alpha * math.log1p((math.e - 1) * k / schedule[-1]) for k in (0, *schedule)]
    return tuple(Look(k, late - early) for k, (early, late) in zip(schedule, pairwise(spent), strict=True))
