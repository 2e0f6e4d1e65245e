"""A comparison's metrics, and in what its runs differ, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.render.diff_table import Table, filled

if TYPE_CHECKING:
    from tracekit.diff.model import Diff


def differences(diff: Diff) -> Table:
    """The fields in which the runs differ."""
    columns = (
        Column("field", "", "name, as --varying takes it"),
        Column("status", "", "what it means"),
        Column("base", "prose", "value of the base"),
        Column("head", "prose", "value of the head"),
    )
    rows = [
        {"field": one.field, "status": str(one.status), "base": _text(one.base), "head": _text(one.head)}
        for one in diff.comparability.differences
    ]
    return Table("differences", "In what the runs differ", columns, rows)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def metrics(diff: Diff) -> Table:
    """The metrics, each in its own unit."""
    rows = [
        {
            "metric": one.name,
            "unit": one.unit,
            "base": one.a,
            "head": one.b,
            "change": None if one.ratio is None else one.ratio - 1,
            "95_%_interval": None
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
    Column("metric", "", "what was measured"),
    Column("unit", "", "ns or bytes"),
    Column("base", "", "median of the base", unit_in="unit"),
    Column("head", "", "median of the head", unit_in="unit"),
    Column("change", "share", "head over base, minus 1"),
    Column(
        "95_%_interval",
        "id",
        "where the true change lies with 95%; of exact metrics, all that the runs show",
    ),
    Column(
        "least_detectable", "share", "minimal detectable effect: the smallest change this design can tell"
    ),
    Column("verdict", "id", "what can be said"),
    Column("basis", "prose", "how it was measured"),
)
