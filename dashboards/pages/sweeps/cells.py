"""Cells of a stored sweep, with outcome and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.experiments.sweep import find, listed, rows
from tracekit.experiments.sweep_model import SWEEP
from tracekit.experiments.sweep_table import COLUMNS
from tracekit.render.suite import PENDING, held, notes, shown, values

from ...answers.results import rows as table
from ...parts.links import Choice, choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from tracekit.analysis import Column
    from tracekit.experiments.sweep import Folder, Row

    from ...site import Context

OPTION = "cells"
OFFERED_CELLS = 12
"""Maximum number of sweeps listed, newest first."""
MOST = 400
"""Maximum number of rows."""
_OUTCOME, _REASON = "outcome", "reason"


def cells(context: Context) -> list[Component]:
    """Show the cells of the sweep in the address; default: the newest that is not a suite."""
    known = sorted(listed(context.store), key=lambda folder: folder.plan.kind == SWEEP)
    if not known:
        return []
    offered = known[-OFFERED_CELLS:][::-1]
    requested = context.view.options.get(OPTION, "")
    one = find(context.store, requested) if requested in {folder.id for folder in known} else offered[0]
    return [html.Section([_title(context, one, offered), *_rows(context, one)], className="tk-section")]


def _title(context: Context, one: Folder, offered: Sequence[Folder]) -> Component:
    view = context.view
    links = [
        Choice(
            folder.id,
            view.href(options=view.options | {OPTION: folder.id}),
            folder.id == one.id,
            title=f"started {folder.head.created_at}",
        )
        for folder in offered
    ]
    return html.Div([dmc.Title("Sweep cells", order=2, size="h4"), choices("Sweep", links)])


def _rows(context: Context, one: Folder) -> list[Component]:
    done = one.records()
    found = rows(one.plan, done)
    lines = [f"Fixed: {held(found)}", *notes(one.id, one.plan, found, done)]
    prose = [dmc.Text(f"{line}.", size="sm", className="tk-prose") for line in lines]
    columns = sorted(shown(found), key=_column_order)
    stored = {run.path.name for run in context.store.runs()}
    records = [_record(context, row, stored) for row in found[:MOST]]
    body = [*prose, table(columns, records, caption=f"Cells of {one.id}")]
    left = len(found) - MOST
    more = f"{left} more rows; `tracekit sweep --show {one.id} --format csv` prints all."
    return [*body, *([html.P(more, className="tk-prose")] if left > 0 else [])]


def _column_order(column: Column) -> int:
    """Sort the reason next to the outcome."""
    names = [one.name for one in COLUMNS]
    return names.index(_OUTCOME if column.name == _REASON else column.name)


def _record(context: Context, row: Row, stored: set[str]) -> dict[str, Any]:
    flat: dict[str, Any] = values(row)
    if row.run_id in stored:
        href = context.view.elsewhere("overview", run=row.run_id)
        flat["run_id"] = dcc.Link(str(row.run_id).rpartition("-")[2], href=href, title=row.run_id)
    mark = "" if row.n else "… " if row.outcome == PENDING else "✕ "
    return flat | {_OUTCOME: f"{mark}{row.outcome}"}
