"""Findings on step times: warm-up steps and unsteady steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Basis, Finding, Rule, Severity
from tracekit.render.cells import human
from tracekit.savings import CONFIDENT
from tracekit.schema import C

from .._shared.common import ints, percentile

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.intervals import Ints
    from tracekit.savings import Budget

FEWEST_SETTLED = 8
UNSTEADY_SHARE = 0.25
SUGGESTIVE = 0.5
_NAMED_STEPS = 3
FEWEST_PERIODS = 3
_LONGEST_PERIOD = 64

RULES = (
    Rule(
        "warmup_steps",
        "the first steps, without a gap, exceed the median by more than 10% and by more than 3 scaled "
        "median absolute deviations; at least 4 steps",
        "lazy loading, autotuning and cold caches affect only the first steps",
    ),
    Rule(
        "unsteady_steps",
        f"after warm-up p95 − p05 exceeds {human(UNSTEADY_SHARE, 'share')} of the median; at least "
        f"{FEWEST_SETTLED} steps; without a saving if the times recur with a fixed period, as with "
        "accumulated gradients",
        "steps of one shape differ by a few percent; fewer steps do not show a distribution",
    ),
)


def findings(steps: pd.DataFrame, times: str, against: Budget) -> tuple[Finding, ...]:
    """Warm-up and unsteady steps of each rank.

    Args:
        steps: Profiled steps with their rank, number, `warmup_outlier` and times.
        times: Column of the times, null if unknown.
        against: What savings are measured against.
    """
    found = []
    for rank, rows in steps[steps[times].notna()].groupby(C.RANK, sort=True):
        slow = rows[rows["warmup_outlier"]]
        settled = rows[~rows["warmup_outlier"]]
        if len(slow):
            found.append(_warmed_up(rank, slow, settled, times))
        if len(settled) >= FEWEST_SETTLED:
            found += _unsteady(rank, settled, times, against)
    return tuple(found)


def _warmed_up(rank: object, slow: pd.DataFrame, settled: pd.DataFrame, times: str) -> Finding:
    many = "s" * (len(slow) != 1)
    took = "up to " * (len(slow) != 1)
    most, middle = int(slow[times].max()), percentile(ints(settled, times), 50)
    return Finding(
        "warmup_steps",
        Severity.INFO,
        f"{len(slow):,} warm-up step{many} of rank {rank} took {took}{human(most, 'ns')}; the median of the "
        f"others is {human(middle, 'ns')}",
        f"Exclude step{many} {_numbers(slow)} from comparisons, or record after more warm-up: "
        "`tracekit collect --warmup`",
        confidence=CONFIDENT,
    )


def _unsteady(rank: object, settled: pd.DataFrame, times: str, against: Budget) -> list[Finding]:
    taken = ints(settled.sort_values(C.STEP), times)
    low, middle, high = (percentile(taken, place) for place in (5, 50, 95))
    if high - low <= UNSTEADY_SHARE * middle:
        return []
    title = f"Steps of rank {rank} take from {human(low, 'ns')} (p05) to {human(high, 'ns')} (p95)"
    slowest = _numbers(settled.sort_values([times, C.STEP], ascending=[False, True]).head(_NAMED_STEPS))
    period = _period(taken, UNSTEADY_SHARE * middle)
    if period:
        return [
            Finding(
                "unsteady_steps",
                Severity.INFO,
                f"{title}, in a pattern that recurs every {period} steps",
                "Gradient accumulation causes such a pattern by design; logging or evaluation every "
                f"{period} steps may be avoidable: `gpu_breakdown.per_step` shows the slowest steps "
                f"({slowest})",
                confidence=CONFIDENT,
            )
        ]
    excess = int(np.maximum(taken - middle, 0).sum())
    return [
        Finding(
            "unsteady_steps",
            against.severity(excess),
            title,
            f"Compare the slowest steps ({slowest}) with the others in `gpu_breakdown.per_step`: their "
            "shapes, copies or waits may differ",
            against.per_step(excess),
            Basis.ESTIMATED,
            f"time of steps above their median of {human(middle, 'ns')}, over all steps",
            confidence=SUGGESTIVE,
        )
    ]


def _period(taken: Ints, most: float) -> int:
    """Number of steps after which their times recur, observed at least three times; 0 if none."""
    for period in range(2, min(len(taken) // FEWEST_PERIODS, _LONGEST_PERIOD) + 1):
        phases = [taken[place::period] for place in range(period)]
        if all(percentile(phase, 95) - percentile(phase, 5) <= most for phase in phases):
            return period
    return 0


def _numbers(steps: pd.DataFrame) -> str:
    return ", ".join(map(str, steps[C.STEP]))
