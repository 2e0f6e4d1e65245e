"""Report of a suite: its tables with definitions and sources, and its figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tracekit.experiments.suite_plan import GEOMEAN, SIZES, UNMEASURED, SuiteRows, Table, plan
from tracekit.experiments.suite_tables import TABLES
from tracekit.experiments.sweep_folder import Folder
from tracekit.experiments.sweep_table import rows

__all__ = ["SIZES", "Report", "plan", "report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a suite."""

    id: str
    size: str  # `test` or `gpu`
    created_at: str  # time of creation, UTC
    machine: dict[str, Any]
    tables: dict[str, Table]  # tables by name, in the order of the page
    outcomes: dict[str, int]  # number of cells by outcome


def report(folder: Folder) -> Report:
    """Create the report of a suite, finished or not.

    Example:
        >>> report(find(store, "latest", kind="suite")).tables["domains"].rows  # doctest: +SKIP
    """
    head = folder.head
    cells = rows(head.plan, folder.records())
    suite = SuiteRows.of(cells)
    return Report(
        id=folder.id,
        size=head.plan.size,
        created_at=head.created_at,
        machine=head.machine,
        tables={table.name: table for table in (make(suite) for make in TABLES)},
        outcomes=dict(Counter(row.outcome for row in cells)),
    )


_SHARES = {"active_share": "active", "movement_share": "movement", "idle_share": "idle"}
_PEAKS = {"host_peak_bytes": "host", "allocated_peak_bytes": "device"}
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
    """A figure, or the reason for its absence."""

    name: str  # name of its file
    table: str
    caption: str
    content: dict[str, Any] | None  # `data` and `layout` for plotly; None where there is nothing to draw
    reason: str = ""  # why the figure is missing


def figures(of: Report) -> list[Figure]:
    """Return the figures of a report, in the order of its tables."""
    tables, over = of.tables, "Eager over compiled step time; above 1, compiled is faster."
    return [
        _shares(tables["domains"], "domain", "Time shares by domain."),
        _shares(tables["workloads"], "workload", "Time shares by workload."),
        _speedups(tables["compiled"], over, by="mode", label="level"),
        _memory(tables["memory"]),
        _speedups(
            tables["speedups"], "Speedups of single changes; above 1 is faster.", by="change", label="mode"
        ),
        *(_curve(tables["curves"], value, x) for x in _AXES for value in _CURVES),
    ]


def _bars(name: str, labels: list[str], values: list[Any]) -> dict[str, Any]:
    return {"type": "bar", "orientation": "h", "name": name, "y": labels, "x": values}


def _layout(barmode: str, rows: list[Any], xaxis: dict[str, Any]) -> dict[str, Any]:
    """Return the layout of bars in table order, from the top."""
    height = 120 + 22 * len(rows)
    return {"barmode": barmode, "xaxis": xaxis, "height": height, "yaxis": {"autorange": "reversed"}}


def _shares(table: Table, key: str, caption: str) -> Figure:
    rows = [row for row in table.rows if row["active_share"] is not None]
    labels = [f"{row[key]}, {row['mode']}" for row in rows]
    data = [_bars(name, labels, [row[column] for row in rows]) for column, name in _SHARES.items() if rows]
    layout = _layout("stack", rows, {"tickformat": ".0%", "range": [0, 1]})
    return _figure(table, table.name, caption, data, layout, "active_share")


def _speedups(table: Table, caption: str, *, by: str, label: str) -> Figure:
    rows = [row for row in table.rows if row["speedup"] is not None]
    data = []
    for group in dict.fromkeys(row[by] for row in rows):
        members = [row for row in rows if row[by] == group]
        labels = [f"{row['workload']}, {row[label]}" for row in members]
        data.append(_bars(group, labels, [row["speedup"] for row in members]))
    layout = _layout("group", rows, {"title": {"text": "speedup (×)"}})
    layout["shapes"] = [
        {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot"}}
    ]
    return _figure(table, table.name, caption, data, layout, "speedup")


def _memory(table: Table) -> Figure:
    caption = "Peak memory of the host and of the device's allocator, if any."
    rows = [row for row in table.rows if row["host_peak_bytes"] is not None and row["workload"] != GEOMEAN]
    labels = [f"{row['workload']}, {row['mode']}, {row['level']}" for row in rows]
    data = [
        _bars(name, labels, [row[column] and row[column] / _MIB for row in rows])
        for column, name in _PEAKS.items()
        if any(row[column] for row in rows)
    ]
    layout = _layout("group", rows, {"title": {"text": "MiB"}})
    return _figure(table, table.name, caption, data, layout, "host_peak_bytes")


def _curve(table: Table, value: str, x: str) -> Figure:
    title, scale = _CURVES[value]
    series = next(name for name in _AXES if name != x)
    rows = [row for row in table.rows if row[value] is not None]

    def key(row: dict[str, Any]) -> str:
        return f"{row['mode']}, {row['level']}, {_AXES[series]} {row[series]}"

    data = []
    for name in dict.fromkeys(map(key, rows)):
        points = [row for row in rows if key(row) == name]
        x_values, y_values = [row[x] for row in points], [row[value] / scale for row in points]
        data.append({"type": "scatter", "mode": "lines+markers", "name": name, "x": x_values, "y": y_values})
    ticks = sorted({row[x] for row in rows})
    layout = {
        "xaxis": {
            "type": "log",
            "tickvals": ticks,
            "ticktext": [*map(str, ticks)],
            "title": {"text": _AXES[x]},
        },
        "yaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "height": 420,
    }
    caption = f"ResNet-50: {title} over {_AXES[x]}, one line per mode, level and {_AXES[series]}."
    name = f"{table.name}-{value.rsplit('_', 1)[0]}-{x}"
    return _figure(table, name, caption, data, layout, value)


def _figure(
    table: Table, name: str, caption: str, data: list[Any], layout: dict[str, Any], value: str
) -> Figure:
    if data:
        return Figure(name=name, table=table.name, caption=caption, content={"data": data, "layout": layout})
    reasons = (row["reasons"].get(value) for row in table.rows)
    reason = next(filter(None, reasons), UNMEASURED)
    return Figure(name=name, table=table.name, caption=caption, content=None, reason=reason)
