"""Output formats of `tracekit sweep`; columns with a single value go into the title."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import render
from tracekit.sweeping import search
from tracekit.sweeping.table import COLUMNS, DEVICE_COLUMNS, NO_GPU, SETTINGS
from tracekit.workloads.options import WorkloadOptions, declared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis import Column
    from tracekit.sweeping.model import Cell, Plan, Record
    from tracekit.sweeping.table import Row

PENDING = "pending"
_ALWAYS_COLUMNS = ("resolution", "batch_size")
_ALWAYS_NAMED = ("mode", "level", "dtype")
_MACHINE_ONLY = {"part", "seconds", "device_reason", "size", "device", "ran_on", "threads_used", "gpu"}


def as_text(
    name: str, plan: Plan, found: Sequence[Row], output_format: str, *, said: Sequence[str] = ()
) -> str:
    """Render the rows of a sweep in an output format.

    Args:
        name: Id of the sweep.
        plan: Plan of the sweep.
        found: Rows from `tracekit.sweeping.rows`.
        output_format: `table`, `json`, `csv` or `markdown`.
        said: Notes, which JSON includes.
    """
    flat = [row.flat() for row in found]
    if output_format == "json":
        content = {
            "sweep": name,
            "name": plan.name,
            "repeats": plan.repeats,
            "rows": flat,
            "notes": list(said),
        }
        return render.envelope("sweep", **content) + "\n"
    if output_format == "csv":
        return render.csv_text(render.records(flat, COLUMNS), COLUMNS)
    columns = shown(found)
    title = f"{name}: {held(found)}"
    return render.rows(
        [told(row) for row in found], columns, output_format, command="sweep", title=title, limit=0
    )


def told(row: Row) -> dict[str, Any]:
    """Return a row for output to people; missing device values are replaced by the reason."""
    flat = row.flat()
    missing = [name for name in DEVICE_COLUMNS if row.device_reason and flat[name] is None]
    return flat | dict.fromkeys(missing, row.device_reason) | {"threads": row.settings.threads or "all"}


def shown(found: Sequence[Row]) -> list[Column]:
    """Return the columns to show: settings that vary, and values that exist."""
    flat = [row.flat() for row in found]

    def wanted(name: str) -> bool:
        values = [row[name] for row in flat]
        if name in _MACHINE_ONLY:
            return False
        if name in SETTINGS:
            return name in _ALWAYS_COLUMNS or len({repr(value) for value in values}) > 1
        return any(value not in {None, ""} for value in values)

    return [column for column in COLUMNS if wanted(column.name)]


def held(found: Sequence[Row]) -> str:
    """Describe the settings shared by all rows."""
    flat = [row.flat() for row in found]
    names = [name for name in SETTINGS if name not in {*_ALWAYS_COLUMNS, "size", "device"}]
    same = {name: flat[0][name] for name in names if len({repr(row[name]) for row in flat}) == 1}
    usual = {one.name: one.default for one in declared(WorkloadOptions) if one.name not in _ALWAYS_NAMED}
    return ", ".join(_setting(name, value) for name, value in same.items() if value != usual.get(name, ""))


def notes(name: str, plan: Plan, found: Sequence[Row], done: Mapping[tuple[str, int], Record]) -> list[str]:
    """Return the notes below the table."""
    lines = [_searched(first, plan, done) for first in plan.cells] if plan.search else []
    outcomes = [row.outcome for row in found]
    counts = {kind: outcomes.count(kind) for kind in dict.fromkeys(outcomes)}
    lines.append(f"{name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    if any(row.device_reason == NO_GPU for row in found):
        lines.append(f"device memory and utilization: {NO_GPU}")
    return lines


def _searched(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> str:
    result, settings = search.found(first, plan, done), first.settings
    what = f"{settings.workload} {settings.mode} {settings.level}, resolution {settings.resolution}"
    if result.best is None:
        return f"{what}: no batch size measured: {result.why or 'search not finished'}"
    best = f"best batch size {result.best}, {result.samples_per_second:,.1f} samples/s"
    return f"{what}: {best}; {result.why or 'search not finished'}"


def _setting(name: str, value: Any) -> str:
    plain = name in {"workload", "mode", "level", "dtype"}
    return str(value) if plain else f"{name.replace('_', ' ')} {value}"
