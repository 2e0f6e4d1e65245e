"""The cells of a kept sweep: what was measured, what was not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.render.sweep import PENDING, held, notes, shown, told
from tracekit.sweeping import find, listed, rows
from tracekit.sweeping.model import SWEEP
from tracekit.sweeping.table import COLUMNS

from ...parts.links import Choice, choices
from ...parts.rows import rows as table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from tracekit.analysis import Column
    from tracekit.sweeping import Folder, Row

    from ...context import Context

OPTION = "cells"
OFFERED = 12
"""Sweeps offered at most, the newest."""
MOST = 400
"""Rows shown at most."""
_OUTCOME, _REASON = "outcome", "reason"


def cells(context: Context) -> list[Component]:
    """The rows of the sweep that the address names, by default of the newest that is no suite."""
    known = sorted(listed(context.store), key=lambda folder: folder.plan.kind == SWEEP)
    if not known:
        return []
    offered = known[-OFFERED:][::-1]
    asked = context.view.options.get(OPTION, "")
    one = find(context.store, asked) if asked in {folder.id for folder in known} else offered[0]
    return [html.Section([_title(context, one, offered), *_rows(context, one)], className="tk-section")]


def _title(context: Context, one: Folder, offered: Sequence[Folder]) -> Component:
    view = context.view
    links = [
        Choice(
            folder.id,
            view.href(options=view.options | {OPTION: folder.id}),
            folder.id == one.id,
            title=f"begun {folder.head.created_at}",
        )
        for folder in offered
    ]
    return html.Div([dmc.Title("Cells of a sweep", order=2, size="h4"), choices("Sweep", links)])


def _rows(context: Context, one: Folder) -> list[Component]:
    done = one.records()
    found = rows(one.plan, done)
    told_ = [f"Held: {held(found)}", *notes(one.id, one.plan, found, done)]
    said = [dmc.Text(f"{line}.", size="sm", className="tk-prose") for line in told_]
    columns = sorted(shown(found), key=_late)
    there = {run.path.name for run in context.store.runs()}
    records = [_record(context, row, there) for row in found[:MOST]]
    body = [*said, table(columns, records, caption=f"Cells of {one.id}")]
    left = len(found) - MOST
    more = f"{left} more rows; `tracekit sweep --show {one.id} --format csv` has all."
    return [*body, *([html.P(more, className="tk-prose")] if left > 0 else [])]


def _late(column: Column) -> int:
    """Puts why a cell has no values right behind how it ended."""
    names = [one.name for one in COLUMNS]
    return names.index(_OUTCOME if column.name == _REASON else column.name)


def _record(context: Context, row: Row, there: set[str]) -> dict[str, Any]:
    flat: dict[str, Any] = told(row)
    if row.run_id in there:
        href = context.view.elsewhere("overview", run=row.run_id)
        flat["run_id"] = dcc.Link(str(row.run_id).rpartition("-")[2], href=href, title=row.run_id)
    mark = "" if row.n else "… " if row.outcome == PENDING else "✕ "
    return flat | {_OUTCOME: f"{mark}{row.outcome}"}
