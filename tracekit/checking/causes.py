"""Causes of slower configurations, from the profiles of both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError
from tracekit.measuring.metrics import STEP_TIME
from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.checking.model import Configuration, Options
    from tracekit.run import Run

MOST = 4
"""Maximum number of explained configurations, those that slowed down most."""


def explained(
    found: Sequence[Configuration], runs: Mapping[str, Run], options: Options
) -> tuple[Configuration, ...]:
    """Add comparisons of the profiles to the configurations with slower steps.

    Args:
        found: All configurations with their verdicts.
        runs: The runs of both sides by id.
        options: Ignored differences, and the threshold.
    """
    slower = {each.name: ratio for each in found if (ratio := _slower(each)) and each.base}
    worst = sorted(slower, key=lambda name: (-slower[name], name))[:MOST]
    return tuple(_explained(each, runs, options) if each.name in worst else each for each in found)


def _slower(each: Configuration) -> float | None:
    worse = (one for one in each.comparisons if one.verdict is Verdict.REGRESSION)
    return next((one.ratio for one in worse if one.name == STEP_TIME), None)


def _explained(each: Configuration, runs: Mapping[str, Run], options: Options) -> Configuration:
    from tracekit.diff import Options as How
    from tracekit.diff import diff

    base, head = ([runs[one] for one in side.runs] if side else [] for side in (each.base, each.head))
    how = How(varying=options.varying, threshold=options.threshold, explain=False)
    try:
        found = diff(base, head, options=how)
    except TracekitError as error:
        return replace(each, notes=(*each.notes, f"causes unavailable: {error.message}"))
    if found.work is None:
        refused = ", ".join(one.field for one in found.comparability.refused)
        why = f"causes unavailable: the profiles differ in {refused}"
        return replace(each, notes=(*each.notes, why))
    return replace(each, explained=found)
