"""Report of `tracekit sweep`: a row per cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.analysis import Column
from tracekit.experiments.sweep_model import BatchSearch, Cell, Plan, Record
from tracekit.experiments.sweep_table import COLUMNS, DEVICE_COLUMNS, NO_GPU, SETTINGS, Row
from tracekit.render.cells import csv_text, json_text
from tracekit.render.document import Table, TableBlock, write
from tracekit.workloads.options import WorkloadOptions, list_options

PENDING = "pending"
_ALWAYS_COLUMNS = ("resolution", "batch_size")
_ALWAYS_NAMED = ("mode", "level", "dtype")
_MACHINE_ONLY = {"part", "seconds", "device_reason", "size", "device", "ran_on", "threads_used", "gpu"}


def render(
    name: str, plan: Plan, rows: Sequence[Row], output_format: str, *, notes: Sequence[str] = ()
) -> str:
    """Render the rows of a sweep in an output format.

    Args:
        name: Id of the sweep.
        plan: Plan of the sweep.
        rows: Rows from `tracekit.experiments.sweep_table.rows`.
        output_format: `table`, `json`, `csv` or `markdown`.
        notes: Notes, which JSON includes.
    """
    flat = [row.flat() for row in rows]
    if output_format == "json":
        return json_text(
            "sweep", sweep=name, name=plan.name, repeats=plan.repeats, rows=flat, notes=list(notes)
        )
    if output_format == "csv":
        return csv_text(flat, COLUMNS)
    table = Table(
        "sweep", f"{name}: {describe_shared_settings(rows)}", tuple(shown_columns(rows)), [*map(values, rows)]
    )
    return write(output_format, [TableBlock(table)])


def values(row: Row) -> dict[str, Any]:
    """Return a row for output to people; missing device values are replaced by the reason."""
    flat = row.flat()
    missing = [name for name in DEVICE_COLUMNS if row.device_reason and flat[name] is None]
    return flat | dict.fromkeys(missing, row.device_reason) | {"threads": row.settings.threads or "all"}


def shown_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the columns to show: settings that vary, and values that exist."""
    flat = [row.flat() for row in rows]

    def wanted(name: str) -> bool:
        values = [row[name] for row in flat]
        if name in _MACHINE_ONLY:
            return False
        if name in SETTINGS:
            return name in _ALWAYS_COLUMNS or len({repr(value) for value in values}) > 1
        return any(value not in {None, ""} for value in values)

    return [column for column in COLUMNS if wanted(column.name)]


def describe_shared_settings(rows: Sequence[Row]) -> str:
    """Describe the settings shared by all rows."""
    flat = [row.flat() for row in rows]
    names = [name for name in SETTINGS if name not in {*_ALWAYS_COLUMNS, "size", "device"}]
    same = {name: flat[0][name] for name in names if len({repr(row[name]) for row in flat}) == 1}
    usual = {
        option.name: option.default
        for option in list_options(WorkloadOptions)
        if option.name not in _ALWAYS_NAMED
    }
    return ", ".join(
        str(value) if name in {"workload", *_ALWAYS_NAMED} else f"{name.replace('_', ' ')} {value}"
        for name, value in same.items()
        if value != usual.get(name, "")
    )


def notes(name: str, plan: Plan, rows: Sequence[Row], done: Mapping[tuple[str, int], Record]) -> list[str]:
    """Return the notes below the table.

    Args:
        name: Id of the sweep.
        plan: Plan of the sweep.
        rows: As in `render`.
        done: Records by cell and repetition.
    """
    lines = [_describe_search(first, plan, done) for first in plan.cells] if plan.search else []
    outcomes = [row.outcome for row in rows]
    counts = {kind: outcomes.count(kind) for kind in dict.fromkeys(outcomes)}
    lines.append(f"{name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    if any(row.device_reason == NO_GPU for row in rows):
        lines.append(f"device memory and utilization: {NO_GPU}")
    return lines


def _describe_search(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> str:
    result, settings = BatchSearch(first, plan, done).result(), first.settings
    what = f"{settings.workload} {settings.mode} {settings.level}, resolution {settings.resolution}"
    if result.best is None:
        return f"{what}: no batch size measured: {result.why or 'search not finished'}"
    best = f"best batch size {result.best}, {result.samples_per_second:,.1f} samples/s"
    return f"{what}: {best}; {result.why or 'search not finished'}"
