"""A sweep for people and programs: columns that say nothing are named once instead of repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import render
from tracekit.sweeping import search
from tracekit.sweeping.table import COLUMNS, DEVICE_COLUMNS, NO_GPU, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis import Column
    from tracekit.sweeping.model import Cell, Plan, Record
    from tracekit.sweeping.table import Row

PENDING = "pending"
_NEVER_HELD = ("resolution", "batch_size")
_MACHINE_ONLY = {"part", "seconds", "device_reason", "size", "device", "ran_on", "threads_used", "gpu"}


def as_text(
    name: str, plan: Plan, found: Sequence[Row], output_format: str, *, said: Sequence[str] = ()
) -> str:
    """The rows of a sweep in a format of a command.

    Args:
        name: Its id.
        plan: What is measured.
        found: From `tracekit.sweeping.rows`.
        output_format: `table`, `json`, `csv` or `markdown`.
        said: What `notes` says, which JSON holds too.
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
    """A row for people: of a device that is not there, the reason stands in its columns."""
    flat = row.flat()
    missing = [name for name in DEVICE_COLUMNS if row.device_reason and flat[name] is None]
    return flat | dict.fromkeys(missing, row.device_reason) | {"threads": row.settings.threads or "all"}


def shown(found: Sequence[Row]) -> list[Column]:
    """The columns for people: settings that differ, and values of which there are any."""
    flat = [row.flat() for row in found]

    def wanted(name: str) -> bool:
        values = [row[name] for row in flat]
        if name in _MACHINE_ONLY:
            return False
        if name in SETTINGS:
            return name in _NEVER_HELD or len({repr(value) for value in values}) > 1
        return any(value not in {None, ""} for value in values)

    return [column for column in COLUMNS if wanted(column.name)]


def held(found: Sequence[Row]) -> str:
    """The settings that all rows share, in words."""
    flat = [row.flat() for row in found]
    names = [name for name in SETTINGS if name not in {*_NEVER_HELD, "size", "device"}]
    same = {name: flat[0][name] for name in names if len({repr(row[name]) for row in flat}) == 1}
    usual = {
        "dataset_shape": "none",
        "offload": "none",
        "pin_memory": False,
        "zero_grad": "default",
        "threads": None,
        "backend": None,
    }
    return ", ".join(_told(name, value) for name, value in same.items() if value != usual.get(name, ""))


def notes(name: str, plan: Plan, found: Sequence[Row], done: Mapping[tuple[str, int], Record]) -> list[str]:
    """What is said beside the table."""
    said = [_searched(first, plan, done) for first in plan.cells] if plan.search else []
    outcomes = [row.outcome for row in found]
    counts = {kind: outcomes.count(kind) for kind in dict.fromkeys(outcomes)}
    said.append(f"{name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    if any(row.device_reason == NO_GPU for row in found):
        said.append(f"device memory and utilization: {NO_GPU}")
    return said


def _searched(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> str:
    result, settings = search.found(first, plan, done), first.settings
    what = f"{settings.workload} {settings.mode} {settings.level}, resolution {settings.resolution}"
    if result.best is None:
        return f"{what}: no batch was measured: {result.why or 'the search goes on'}"
    best = f"best batch {result.best}, {result.samples_per_second:,.1f} samples/s"
    return f"{what}: {best}; {result.why or 'the search goes on'}"


def _told(name: str, value: Any) -> str:
    plain = name in {"workload", "mode", "level", "dtype"}
    return str(value) if plain else f"{name.replace('_', ' ')} {value}"
