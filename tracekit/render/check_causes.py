"""Causes of slower steps, from the profiles: a sentence and a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.render import diff_tables
from tracekit.render.cells import human
from tracekit.render.check_words import name

if TYPE_CHECKING:
    from tracekit.checking.model import Gate
    from tracekit.diff.model import Diff
    from tracekit.render.diff_tables import Table

TOP = 5
_PARTS = 3
_KEPT = ("op", "delta_ns", "made_of", "n_base", "n_head", "what", "module")


def causes(gate: Gate) -> list[tuple[str, Table]]:
    """Return a sentence and the five largest causes of each configuration whose profiles were compared."""
    found = [(name(each), each.explained) for each in gate.configurations if each.explained]
    return [(f"{of}: {told(diff)}", _largest(of, diff)) for of, diff in found]


def _largest(of: str, diff: Diff) -> Table:
    table = diff_tables.causes(diff)
    columns = tuple(column for column in table.columns if column.name in _KEPT)
    rows = [] if _contrary(diff) else table.rows[:TOP]
    return replace(table, title=f"Top causes of {of}, per step", columns=columns, rows=rows)


def _contrary(diff: Diff) -> bool:
    """Tell whether the profiled steps did not get slower, so that they explain nothing."""
    return diff.wall is None or diff.wall.total.delta <= 0


def told(diff: Diff) -> str:
    """Describe the change of the profiled step and of its parts."""
    rows = {row["part"]: row for row in diff_tables.wall(diff).rows}
    total = diff.wall and rows.get(diff.wall.total.name)
    if not diff.wall or not total:
        return "the profiles have no steps"
    times = f"{human(total['base_ns'], 'ns')} → {human(total['head_ns'], 'ns')}"
    if _contrary(diff):
        return f"profiled step {times}: the slowdown does not show in the profiles; no causes listed"
    parts = [rows[line.name] for line in diff.wall.lines if line.name in rows]
    parts = sorted((row for row in parts if row["delta_ns"]), key=lambda row: -abs(row["delta_ns"]))
    made = ", ".join(f"{row['part']} {_signed(row['delta_ns'])}" for row in parts[:_PARTS])
    return f"profiled step {times}; largest changes: {made}"


def _signed(value: int) -> str:
    return f"{'+' if value > 0 else ''}{human(value, 'ns')}"
