"""Report of a suite: its tables with definitions and sources, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.experiments import suite_tables
from tracekit.experiments.suite_plan import GEOMEAN, SIZES, UNMEASURED, Kind, Table, plan
from tracekit.experiments.sweep_table import rows

if TYPE_CHECKING:
    from tracekit.experiments.sweep_folder import Folder

__all__ = ["SIZES", "Report", "plan", "report"]


_TABLES = (
    suite_tables.domain_table,
    suite_tables.workload_table,
    suite_tables.compiled_table,
    suite_tables.memory_table,
    suite_tables.speedup_table,
    suite_tables.curve_table,
    suite_tables.epoch_table,
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a suite.

    Attributes:
        id: Id of the suite.
        size: `test` or `gpu`.
        created_at: Time of creation, UTC.
        machine: Properties of the machine.
        tables: Tables by name, in the order of the page.
        outcomes: Number of cells by outcome.
    """

    id: str
    size: str
    created_at: str
    machine: dict[str, Any]
    tables: dict[str, Table]
    outcomes: dict[str, int]


def report(folder: Folder) -> Report:
    """Create the report of a suite, finished or not.

    Args:
        folder: Folder of the suite's sweep.

    Example:
        >>> report(find(store, "latest", kind="suite")).tables["domains"].rows  # doctest: +SKIP
    """
    head = folder.head
    found = rows(head.plan, folder.records())
    kind = Kind.of(found)
    outcomes = [row.outcome for row in found]
    return Report(
        id=folder.id,
        size=head.plan.size,
        created_at=head.created_at,
        machine=head.machine,
        tables={one.name: one for one in (make(kind) for make in _TABLES)},
        outcomes={name: outcomes.count(name) for name in dict.fromkeys(outcomes)},
    )


_SHARES = {"active_share": "active", "movement_share": "movement", "idle_share": "idle"}
_DOWN: dict[str, Any] = {"yaxis": {"autorange": "reversed"}}
"""Bars in table order, from the top."""
_MIB, _MS = 1 << 20, 1e6
_AXES = {"resolution": "resolution", "batch_size": "batch size"}
_CURVES = {
    "sample_ns": ("time per sample (ms)", _MS),
    "host_peak_bytes": ("host peak (MiB)", _MIB),
    "used_peak_bytes": ("device memory in use (MiB)", _MIB),
    "utilization": ("GPU utilization", 1.0),
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure, or the reason for its absence.

    Attributes:
        name: Name of its file.
        table: The table that it draws.
        caption: Description.
        content: `data` and `layout` for plotly; None where there is nothing to draw.
        reason: Why the figure is missing.
    """

    name: str
    table: str
    caption: str
    content: dict[str, Any] | None
    reason: str = ""


def figures(of: Report) -> list[Figure]:
    """Return the figures of a report, in the order of its tables.

    Args:
        of: The report.
    """
    found = [
        _shares(of.tables["domains"], "domain", "Time shares by domain."),
        _shares(of.tables["workloads"], "workload", "Time shares by workload."),
        _bars(
            of.tables["compiled"], "speedup", "Eager over compiled step time; above 1, compiled is faster."
        ),
        _memory(of.tables["memory"]),
        _bars(
            of.tables["speedups"], "speedup", "Speedups of single changes; above 1 is faster.", by="change"
        ),
    ]
    over = [(value, x) for x in _AXES for value in _CURVES]
    return [*found, *(_curve(of.tables["curves"], value, x) for value, x in over)]


def _shares(table: Table, key: str, caption: str) -> Figure:
    rows = [row for row in table.rows if row["active_share"] is not None]
    names = [f"{row[key]}, {row['mode']}" for row in rows]
    data = [
        {"type": "bar", "orientation": "h", "name": name, "y": names, "x": [row[column] for row in rows]}
        for column, name in _SHARES.items()
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"tickformat": ".0%", "range": [0, 1]},
        "height": _tall(names),
        **_DOWN,
    }
    return _figure(table, table.name, caption, data if rows else [], layout, "active_share")


def _bars(table: Table, value: str, caption: str, *, by: str = "mode") -> Figure:
    rows = [row for row in table.rows if row[value] is not None]
    groups = dict.fromkeys(row[by] for row in rows)
    data = []
    for group in groups:
        own = [row for row in rows if row[by] == group]
        names = [f"{row['workload']}, {row['mode' if by != 'mode' else 'level']}" for row in own]
        data.append(
            {"type": "bar", "orientation": "h", "name": group, "y": names, "x": [r[value] for r in own]}
        )
    layout = {
        "barmode": "group",
        "xaxis": {"title": {"text": "×"}},
        "height": _tall(rows),
        **_DOWN,
        "shapes": [
            {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot"}}
        ],
    }
    return _figure(table, table.name, caption, data, layout, value)


def _memory(table: Table) -> Figure:
    caption = "Peak memory of the host and of the device's allocator, if any."
    columns = {"host_peak_bytes": "host", "allocated_peak_bytes": "device"}
    rows = [row for row in table.rows if row["host_peak_bytes"] is not None and row["workload"] != GEOMEAN]
    names = [f"{row['workload']}, {row['mode']}, {row['level']}" for row in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": [row[column] and row[column] / _MIB for row in rows],
        }
        for column, name in columns.items()
        if any(row[column] for row in rows)
    ]
    layout = {"barmode": "group", "xaxis": {"title": {"text": "MiB"}}, "height": _tall(names), **_DOWN}
    return _figure(table, table.name, caption, data, layout, "host_peak_bytes")


def _curve(table: Table, value: str, x: str) -> Figure:
    title, scale = _CURVES[value]
    series = next(name for name in _AXES if name != x)
    rows = [row for row in table.rows if row[value] is not None]

    def key(row: dict[str, Any]) -> str:
        return f"{row['mode']}, {row['level']}, {_AXES[series]} {row[series]}"

    data = [
        _line([row for row in rows if key(row) == name], name, x, value, scale)
        for name in dict.fromkeys(map(key, rows))
    ]
    layout = {
        "xaxis": {"type": "log", "dtick": 0.30103, "title": {"text": _AXES[x]}},
        "yaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "height": 420,
    }
    caption = f"ResNet-50: {title} over {_AXES[x]}, one line per mode, level and {_AXES[series]}."
    name = f"{table.name}-{value.rsplit('_', 1)[0]}-{x}"
    return _figure(table, name, caption, data, layout, value)


def _line(rows: list[dict[str, Any]], name: str, x: str, value: str, scale: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [row[x] for row in rows],
        "y": [row[value] / scale for row in rows],
    }


def _figure(
    table: Table, name: str, caption: str, data: list[Any], layout: dict[str, Any], value: str
) -> Figure:
    if data:
        return Figure(name=name, table=table.name, caption=caption, content={"data": data, "layout": layout})
    reasons = (row["reasons"].get(value) for row in table.rows)
    reason = next(filter(None, reasons), UNMEASURED)
    return Figure(name=name, table=table.name, caption=caption, content=None, reason=reason)


def _tall(rows: list[Any]) -> int:
    return 120 + 22 * len(rows)
