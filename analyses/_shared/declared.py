"""Comparisons by `tracekit.diff` of two runs with fields that may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from tracekit.diff import Options, diff
from tracekit.diff import idle as idle_causes
from tracekit.diff import spans as compared_spans
from tracekit.diff import wall as wall_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.diff import Diff
    from tracekit.diff.model import Metric
    from tracekit.run import Run


class Line(NamedTuple):
    """One quantity of both sides; None if unknown."""

    quantity: str
    unit: str
    base: float | None
    head: float | None


def measured(metrics: Iterable[Metric]) -> list[Line]:
    """Convert the metrics of a comparison to lines."""
    return [Line(f"{one.name}: {one.basis}", one.unit, float(one.a), float(one.b)) for one in metrics]


def ratios(lines: Sequence[Line]) -> pd.DataFrame:
    """Table of lines: quantity, unit, base, head, and head over base (missing if base is not positive)."""
    table = pd.DataFrame(lines, columns=["quantity", "unit", "base", "head"])
    table[["base", "head"]] = table[["base", "head"]].astype("float64")
    table["ratio"] = table["head"] / table["base"].where(table["base"] > 0)
    return table


def between(base: Run, head: Run, varying: Sequence[str]) -> Diff:
    """Compare two runs without explanations by analyses, since an analysis calls this."""
    return diff([base], [head], options=Options(varying=tuple(varying), explain=False))


def refusal(found: Diff) -> str:
    """Reason why two runs are not comparable, empty if they are."""
    fields = [f"{one.field} ({one.base} and {one.head})" for one in found.comparability.refused]
    return f"the runs differ in {', '.join(fields)}: nothing was compared" if fields else ""


def parts(base: Run, head: Run) -> tuple[dict[str, int], dict[str, int]]:
    """Time in the compared steps of both runs by kind of activity, with idle time by cause, in ns."""
    shared = compared_spans.shared(base, head)
    causes = (idle_causes.causes(base, head)[0]) or (None, None)
    cuts = [
        wall_ledger.cut_device(run, span, cause).parts
        for run, span, cause in zip((base, head), shared, causes, strict=True)
    ]
    return cuts[0], cuts[1]
