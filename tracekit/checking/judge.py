"""Statistical comparison of head and baseline, with one value per run and metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import noise as noises
from tracekit.checking.values import values
from tracekit.measuring import conditions
from tracekit.measuring.metrics import EXACT, METRICS, STEP_TIME
from tracekit.noise import clock
from tracekit.stats import blocks
from tracekit.stats.clocks import at_their_clocks
from tracekit.stats.compare import compare
from tracekit.stats.exact import compare_exact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.checking.model import Options
    from tracekit.measuring.conditions import Conditions
    from tracekit.run import Run
    from tracekit.stats.comparison import Comparison

APART = (
    "all runs of one side are older than those of the other, so machine drift looks like a change; "
    "`tracekit ab` alternates them"
)


@dataclass(frozen=True)
class Judged:
    """Comparisons, notes on them, and the metrics measured on one side only."""

    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]
    one_sided: tuple[str, ...]


def compared(base: Sequence[Run], head: Sequence[Run], stored: Sequence[Run], options: Options) -> Judged:
    """Compare two sides in all metrics that both have.

    Args:
        base: Runs of the baseline, oldest first.
        head: Runs to check, oldest first.
        stored: All runs of the store; their repeats give the noise if a side has none.
        options: Metrics, threshold and tolerance.
    """
    place = {run.path: float(at) for at, run in enumerate(stored)}
    times = [[place.get(run.path, math.inf) for run in own] for own in (base, head)]
    order = blocks.pairs(*times)
    if order:
        base, head = [base[at] for at in order[0]], [head[at] for at in order[1]]
    found = [conditions.of_run(run) for run in base], [conditions.of_run(run) for run in head]
    measured = [values(run) for run in base], [values(run) for run in head]
    sides = _Sides(base, head, stored, options, found, measured, paired=bool(order))
    lacking = {name: _sidedness(sides, name) for name in options.metrics}
    clocks = {clock(run) for run in (*base, *head)} - {None}
    notes = [APART] if blocks.apart(*times) else []
    if len(clocks) > 1 and STEP_TIME in lacking:
        lacking[STEP_TIME] = "base and head were timed by different clocks"
    reasons = {name: why for name, why in lacking.items() if why}
    return Judged(
        tuple(_one(name, sides) for name in options.metrics if not lacking[name]),
        (
            *notes,
            *conditions.warnings(*found),
            *(f"{name}: {why}" for name, why in reasons.items() if why != NEITHER),
        ),
        tuple(name for name, why in reasons.items() if why != NEITHER),
    )


NEITHER = "not measured on either side"


@dataclass(frozen=True)
class _Sides:
    base: Sequence[Run]
    head: Sequence[Run]
    stored: Sequence[Run]
    options: Options
    conditions: tuple[Sequence[Conditions], Sequence[Conditions]]
    measured: tuple[Sequence[Mapping[str, float]], Sequence[Mapping[str, float]]]
    paired: bool

    def values(self, name: str) -> tuple[list[float | None], list[float | None]]:
        a, b = ([one.get(name) for one in own] for own in self.measured)
        return a, b

    @property
    def clocks(self) -> tuple[list[float | None], list[float | None]]:
        a, b = ([one.clock_mhz for one in own] for own in self.conditions)
        return a, b


def _sidedness(sides: _Sides, name: str) -> str:
    """Return why a metric cannot be compared; empty if it can."""
    a, b = (any(one is not None for one in values) for values in sides.values(name))
    if a and b:
        return ""
    return f"not measured in any {'head' if a else 'base'} run" if a or b else NEITHER


def _one(name: str, sides: _Sides) -> Comparison:
    a, b = sides.values(name)
    metric, options = METRICS[name], sides.options
    if name in EXACT:
        return compare_exact(metric, a, b, threshold=options.threshold, tolerance=options.tolerance)
    fewest = min(sum(one is not None for one in values) for values in (a, b))
    noise = noises.known(name, (sides.base[-1], sides.head[-1]), sides.stored) if fewest == 1 else None
    found = compare(metric, a, b, paired=sides.paired, noise=noise, threshold=options.threshold)
    return at_their_clocks(found, (a, b), sides.clocks, noise=noise) if name == STEP_TIME else found
