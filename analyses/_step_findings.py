"""Advice on step times: what belongs to warm-up, and steps that differ by more than noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Basis, Finding, Rule, Severity
from tracekit.render.cells import human
from tracekit.savings import CONFIDENT
from tracekit.schema import C

from ._common import ints, percentile

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.savings import Budget

FEWEST_SETTLED = 8
UNSTEADY_SHARE = 0.25
SUGGESTIVE = 0.5
_NAMED_STEPS = 3

RULES = (
    Rule(
        "warmup_steps",
        "the first steps, without a gap, exceed the median by more than 10 % and by more than 3 scaled "
        "median absolute deviations; at least 4 steps",
        "lazy loading, autotuning and cold caches belong to no later step",
    ),
    Rule(
        "unsteady_steps",
        f"after warm-up p95 − p05 exceeds {human(UNSTEADY_SHARE, 'share')} of the median; at least "
        f"{FEWEST_SETTLED} steps",
        "steps of one shape differ by a few percent; fewer steps do not show a distribution",
    ),
)


def findings(steps: pd.DataFrame, times: str, against: Budget) -> tuple[Finding, ...]:
    """What stands out among the steps of each rank.

    Args:
        steps: Profiled steps with their rank, number, `warmup_outlier` and times.
        times: Column of the times to judge, null where unknown.
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
    most, middle = int(slow[times].max()), percentile(ints(settled, times), 50)
    return Finding(
        "warmup_steps",
        Severity.INFO,
        f"{len(slow):,} warm-up step{many} of rank {rank} took up to {human(most, 'ns')}; the median of the "
        f"others is {human(middle, 'ns')}",
        f"leave step{many} {_numbers(slow)} out of comparisons, or record after more warm-up: "
        "`tracekit collect --warmup`",
        confidence=CONFIDENT,
    )


def _unsteady(rank: object, settled: pd.DataFrame, times: str, against: Budget) -> list[Finding]:
    taken = ints(settled, times)
    low, middle, high = (percentile(taken, place) for place in (5, 50, 95))
    if high - low <= UNSTEADY_SHARE * middle:
        return []
    excess = int(np.maximum(taken - middle, 0).sum())
    slowest = settled.sort_values([times, C.STEP], ascending=[False, True]).head(_NAMED_STEPS)
    return [
        Finding(
            "unsteady_steps",
            against.severity(excess),
            f"steps of rank {rank} take from {human(low, 'ns')} (p05) to {human(high, 'ns')} (p95)",
            f"compare what the slowest steps ({_numbers(slowest)}) do with the others in "
            "`gpu_breakdown.per_step`: their shapes, copies or waits may differ",
            against.per_step(excess),
            Basis.ESTIMATED,
            f"what steps take above their median of {human(middle, 'ns')}, over all steps",
            confidence=SUGGESTIVE,
        )
    ]


def _numbers(steps: pd.DataFrame) -> str:
    return ", ".join(map(str, steps[C.STEP]))
