"""Sweeps page: quantities as a function of run settings, and cells of stored sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.experiments.sweep_folder import find, list_sweeps
from tracekit.experiments.sweep_model import SWEEP
from tracekit.experiments.sweep_table import COLUMNS
from tracekit.experiments.sweep_table import rows as sweep_rows
from tracekit.render.suite import PENDING, held, notes, shown, values

from ...answers.results import no_runs, rows
from ...blocks import block
from ...figures import sweep
from ...parts.charts import chart, connect_clicks
from ...parts.links import Choice, choices, run_dot
from ...site import Context, Needs, Page, Section
from .points import (
    HEATMAP,
    QUANTITIES,
    chosen,
    controls,
    described,
    points,
    spelled,
    spreads,
    words,
    workloads,
)

if TYPE_CHECKING:
    from tracekit.experiments.sweep_folder import Folder
    from tracekit.experiments.sweep_table import Row

    from .points import Chosen, Point, Spread


NAME, CHART = "sweeps", "sweep"
SERIES = 16
"""Maximum lines drawn."""
RUNS = 4
"""Maximum runs linked per row."""
HINT = (
    "A sweep consists of runs of one workload with different batch size, resolution, level, mode, dtype, "
    "threads or machine, recorded by `tracekit sweep` or `tracekit collect`. Imported traces do not have "
    "these settings."
)
COMMAND = "tracekit sweep --workload resnet50 --batch-size 8..64*2 --repeat 3"


def _layout(_: Context) -> list[Component]:
    return [block(NAME, "sweep", height=640), block(NAME, "cells", height=240)]


def _sweep(context: Context) -> list[Component]:
    runs = context.store.readable()
    one = chosen(context.view, runs)
    if one is None:
        return _nothing(len(runs))
    offered = controls(context.view, one, list(workloads(points(runs))))
    series = _series(context, one)
    quantity = QUANTITIES[one.quantity]
    found: list[Component] = [html.Div(offered, className="tk-stacked")]
    if not any(line for _, line in series):
        caption_text = (
            f"None of the {len(one.shown)} runs shown has {quantity.title} ({quantity.definition})."
        )
        return [*found, dmc.Alert(caption_text, color="gray", variant="light")]
    return [*found, _chart(context, one, series), _table(context, one, series)]


def _nothing(count: int) -> list[Component]:
    none = f"None of the {count} runs is part of a sweep." if count else ""
    return no_runs(none, HINT, "Record a sweep:", COMMAND)


def _series(context: Context, one: Chosen) -> list[tuple[str, list[Spread]]]:
    """Group runs by the settings that are neither on the axis nor fixed."""
    free = [one.rows] if one.form == HEATMAP else one.free
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in one.shown:
        groups.setdefault(tuple(spelled(point.settings[name]) for name in free), []).append(point)
    order = {name: [spelled(value) for value in one.vary[name]] for name in free}
    keys = sorted(groups, key=lambda key: [order[n].index(k) for n, k in zip(free, key, strict=True)])
    plain = one.form == HEATMAP
    return [
        (
            key[0] if plain else ", ".join(described(n, k) for n, k in zip(free, key, strict=True)),
            spreads(groups[key], one.x, one.quantity, context.results.of),
        )
        for key in keys
    ]


def _chart(context: Context, one: Chosen, series: list[tuple[str, list[Spread]]]) -> Component:
    quantity = QUANTITIES[one.quantity]
    fixed = ", ".join(described(name, text) for name, text in one.fixed.items())
    what = f"{quantity.title.capitalize()} of {one.workload}: {quantity.definition}."
    fixed = f" Fixed: {fixed}." if fixed else ""
    if one.form == HEATMAP:
        return chart(
            context,
            CHART,
            _heatmap(one, series),
            caption=f"{what} Each cell is the median of its runs.{fixed}",
        )
    left = len(series) - SERIES
    more = f" {left} more series are in the table." if left > 0 else ""
    figure = sweep.lines(
        [sweep.Line(name or one.workload, _dots(context, line)) for name, line in series[:SERIES] if line],
        quantity.unit,
        x=words(one.x),
        y=quantity.title,
        log=one.log,
    )
    caption_text = f"{what} Points are medians, whiskers span min to max. Click a point to open its run."
    return chart(context, CHART, figure, caption=f"{caption_text}{fixed}{more}")


def _dots(context: Context, line: list[Spread]) -> tuple[sweep.Dot, ...]:
    return tuple(
        sweep.Dot(
            dot.x if dot.x is not None else "unknown",
            dot.median,
            dot.minimum,
            dot.maximum,
            len(dot.runs),
            context.view.elsewhere("overview", run=dot.typical.path.name),
        )
        for dot in line
    )


def _heatmap(one: Chosen, series: list[tuple[str, list[Spread]]]) -> dict[str, Any]:
    columns = [spelled(value) for value in one.vary[one.x]]
    known = [{spelled(dot.x): dot.median for dot in line} for _, line in series]
    return sweep.heatmap(
        [name for name, _ in series],
        columns,
        [[row.get(column) for column in columns] for row in known],
        QUANTITIES[one.quantity].unit,
        x=words(one.x),
        y=words(one.rows),
        z=QUANTITIES[one.quantity].title,
    )


def _table(context: Context, one: Chosen, series: list[tuple[str, list[Spread]]]) -> Component:
    unit = QUANTITIES[one.quantity].unit
    series_name = one.rows or "series"
    columns = (
        Column(series_name, "prose", "settings that are neither on the axis nor fixed"),
        Column(one.x, "prose", "setting on the axis"),
        Column("median", unit, QUANTITIES[one.quantity].definition),
        Column("min", unit, "minimum of the runs"),
        Column("max", unit, "maximum of the runs"),
        Column("n", "count", "number of runs"),
        Column("runs", "prose", "the runs, lowest value first"),
    )
    records = [
        {
            series_name: name or one.workload,
            one.x: spelled(dot.x),
            "median": dot.median,
            "min": dot.minimum,
            "max": dot.maximum,
            "n": len(dot.runs),
            "runs": _links(context, dot),
        }
        for name, line in series
        for dot in line
    ]
    title = dmc.Title("Data", order=2, size="h4")
    return html.Section([title, rows(columns, records, caption="Settings and runs")], className="tk-section")


def _links(context: Context, dot: Spread) -> list[Any]:
    links: list[Any] = [
        dcc.Link(
            [run_dot(run), run.path.name.rsplit("-", 1)[-1]],
            href=context.view.elsewhere("overview", run=run.path.name),
            title=run.path.name,
        )
        for run in dot.runs[:RUNS]
    ]
    spaced = [part for link in links for part in (" ", link)][1:]  # allows line breaks
    left = len(dot.runs) - RUNS
    return [*spaced, html.Span(f" and {left} more")] if left > 0 else spaced


OPTION = "cells"
OFFERED_CELLS = 12
"""Maximum number of sweeps listed, newest first."""
MOST = 400
"""Maximum number of rows."""
_OUTCOME, _REASON = "outcome", "reason"


def cells(context: Context) -> list[Component]:
    """Show the cells of the sweep in the address; default: the newest that is not a suite."""
    known = sorted(list_sweeps(context.store), key=lambda folder: folder.plan.kind == SWEEP)
    if not known:
        return []
    offered = known[-OFFERED_CELLS:][::-1]
    requested = context.view.options.get(OPTION, "")
    one = find(context.store, requested) if requested in {folder.id for folder in known} else offered[0]
    return [
        html.Section(
            [_cells_title(context, one, offered), *_cells_table(context, one)], className="tk-section"
        )
    ]


def _cells_title(context: Context, one: Folder, offered: Sequence[Folder]) -> Component:
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


def _cells_table(context: Context, one: Folder) -> list[Component]:
    done = one.records()
    found = sweep_rows(one.plan, done)
    lines = [f"Fixed: {held(found)}", *notes(one.id, one.plan, found, done)]
    prose = [dmc.Text(f"{line}.", size="sm", className="tk-prose") for line in lines]
    order = [one.name for one in COLUMNS]
    # the reason comes next to the outcome
    columns = sorted(shown(found), key=lambda one: order.index(_OUTCOME if one.name == _REASON else one.name))
    stored = {run.path.name for run in context.store.runs()}
    records = [_cell_record(context, row, stored) for row in found[:MOST]]
    body = [*prose, rows(columns, records, caption=f"Cells of {one.id}")]
    left = len(found) - MOST
    more = f"{left} more rows; `tracekit sweep --show {one.id} --format csv` prints all."
    return [*body, *([html.P(more, className="tk-prose")] if left > 0 else [])]


def _cell_record(context: Context, row: Row, stored: set[str]) -> dict[str, Any]:
    flat: dict[str, Any] = values(row)
    if row.run_id in stored:
        href = context.view.elsewhere("overview", run=row.run_id)
        flat["run_id"] = dcc.Link(str(row.run_id).rpartition("-")[2], href=href, title=row.run_id)
    mark = "" if row.n else "… " if row.outcome == PENDING else "✕ "
    return flat | {_OUTCOME: f"{mark}{row.outcome}"}


PAGE = Page(
    name=NAME,
    title="Sweeps",
    question="How do time and memory depend on batch size, resolution and other settings?",
    section=Section.COMPARE,
    order=510,
    layout=_layout,
    blocks={"sweep": _sweep, "cells": cells},
    needs=Needs.NOTHING,
    connect=lambda site: connect_clicks(site, NAME, CHART),
)
