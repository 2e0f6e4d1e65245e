"""Two runs compared: the comparison by `tracekit.diff`, and quantities of both sides as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.run import Run

if TYPE_CHECKING:  # loading it takes longer than most analyses, which do not compare runs
    from tracekit.diff import Diff
    from tracekit.diff.model import Metric


class Line(NamedTuple):
    """One quantity of both sides; None if unknown."""

    quantity: str
    unit: str
    base: float | None
    head: float | None


def sides(name: str, unit: str, meaning: str) -> tuple[Column, Column]:
    """Columns of a quantity of both runs; the meaning has a place for the side."""
    base, head = (Column(f"{side}_{name}", unit, meaning.format(side)) for side in ("base", "head"))
    return base, head


def metric_lines(metrics: Iterable[Metric]) -> list[Line]:
    """Convert the metrics of a comparison to lines."""
    return [
        Line(f"{metric.name}: {metric.basis}", metric.unit, float(metric.a), float(metric.b))
        for metric in metrics
    ]


def ratios(lines: Sequence[Line]) -> pd.DataFrame:
    """Table of lines: quantity, unit, base, head, and head over base (missing if base is not positive)."""
    table = pd.DataFrame(lines, columns=["quantity", "unit", "base", "head"])
    table[["base", "head"]] = table[["base", "head"]].astype("float64")
    table["ratio"] = table["head"] / table["base"].where(table["base"] > 0)
    return table


def diff_runs(base: Run, head: Run, varying: Sequence[str]) -> Diff:
    """Compare two runs without explanations by analyses, since an analysis calls this.

    The fields `varying` of the fingerprint may differ.
    """
    from tracekit.diff import Options, diff

    return diff([base], [head], options=Options(varying=tuple(varying), explain=False))


def refusal_note(comparison: Diff) -> str:
    """Reason why two runs are not comparable, empty if they are."""
    fields = [
        f"{difference.field} ({difference.base} and {difference.head})"
        for difference in comparison.comparability.refused
    ]
    return f"the runs differ in {', '.join(fields)}: nothing was compared" if fields else ""


def time_by_activity(base: Run, head: Run) -> tuple[dict[str, int], dict[str, int]]:
    """Time in the compared steps of both runs by kind of activity, with idle time by cause, in ns."""
    from tracekit.diff import compared_steps, step_time_breakdown

    shared = compared_steps.select_steps(base, head)
    causes = (step_time_breakdown.read_idle_causes(base, head)[0]) or (None, None)
    cuts = [
        step_time_breakdown.divide_device_time(run, span, cause).parts
        for run, span, cause in zip((base, head), shared, causes, strict=True)
    ]
    return cuts[0], cuts[1]


def setting(run: Run, name: str) -> Any:
    """A setting of a run from its fingerprint or its workload, None if unknown."""
    value = run.meta.fingerprint.get(name)
    return value if value is not None else (run.meta.workload or {}).get(name)
