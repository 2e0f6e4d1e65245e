"""Metrics of a comparison, and differences of its runs, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.render.diff_table import Table, filled

if TYPE_CHECKING:
    from tracekit.diff.model import Diff


def differences(diff: Diff) -> Table:
    """Return the fields in which the runs differ."""
    columns = (
        Column("field", "", "name for --varying"),
        Column("status", "", "effect on the comparison"),
        Column("base", "prose", "value of the base"),
        Column("head", "prose", "value of the head"),
    )
    rows = [
        {"field": one.field, "status": str(one.status), "base": _text(one.base), "head": _text(one.head)}
        for one in diff.comparability.differences
    ]
    return Table("differences", "Differences of the runs", columns, rows)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def metrics(diff: Diff) -> Table:
    """Return the metrics, each in its unit."""
    rows = [
        {
            "metric": one.name,
            "unit": one.unit,
            "base": one.a,
            "head": one.b,
            "change": None if one.ratio is None else one.ratio - 1,
            "95%_interval": None
            if one.ci95 is None
            else " to ".join(f"{100 * (end - 1):+z.1f}%" for end in one.ci95),
            "least_detectable": one.mde,
            "verdict": str(one.verdict),
            "basis": one.basis,
        }
        for one in diff.metrics
    ]
    return Table("metrics", "Metrics", filled(_METRICS, rows), rows)


_METRICS = (
    Column("metric", "", "metric"),
    Column("unit", "", "ns or bytes"),
    Column("base", "", "median of the base", unit_in="unit"),
    Column("head", "", "median of the head", unit_in="unit"),
    Column("change", "share", "head over base, minus 1"),
    Column(
        "95%_interval",
        "id",
        "95% confidence interval of the change; for exact metrics, the range over the runs",
    ),
    Column("least_detectable", "share", "minimum detectable effect: smallest change these runs can detect"),
    Column("verdict", "id", "verdict at the threshold"),
    Column("basis", "prose", "how it was measured"),
)
