"""Sweeps page: quantities as a function of run settings, and cells of stored sweeps."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.experiments.sweep_folder import Folder, find, list_sweeps
from tracekit.experiments.sweep_model import SWEEP
from tracekit.experiments.sweep_table import COLUMNS
from tracekit.experiments.sweep_table import rows as sweep_rows
from tracekit.render.sweep import PENDING, describe_shared_settings, notes, shown_columns, values

from ...analysis_pages.results import no_runs
from ...blocks import block
from ...components.charts import chart, connect_clicks
from ...components.links import color_dot, show_option
from ...components.text import capitalize, section
from ...figures import sweep
from ...figures.lines import heatmap
from ...site import Context, Needs, Page, Section
from ...tables.html import html_table
from .points import (
    HEATMAP,
    QUANTITIES,
    Point,
    SweepView,
    describe_setting,
    format_setting,
    list_workloads,
    read_points,
    read_sweep_view,
    show_controls,
    spell,
    summarize_repeats,
)

NAME, CHART = "sweeps", "sweep"
MAX_SERIES = 16
"""Maximum lines drawn."""
MAX_LINKS = 4
"""Maximum runs linked per row."""
HINT = (
    "A sweep consists of runs of one workload with different batch size, resolution, level, mode, dtype, "
    "threads or machine, recorded by `tracekit sweep` or `tracekit collect`. Imported traces do not have "
    "these settings."
)
COMMAND = "tracekit sweep --workload resnet50 --batch-size 8..64*2 --repeat 3"


def _sweep(context: Context) -> list[Component]:
    runs = context.store.readable()
    sweep_view = read_sweep_view(context.view, runs)
    if sweep_view is None:
        none = "No run of the store is part of a sweep." if runs else ""
        return no_runs(none, HINT, "Record a sweep:", COMMAND)
    offered = show_controls(context.view, sweep_view, list(list_workloads(read_points(runs))))
    series = _series(context, sweep_view)
    quantity = QUANTITIES[sweep_view.quantity]
    sections: list[Component] = [html.Div(offered, className="tk-stacked")]
    if not any(line for _, line in series):
        count, what = len(sweep_view.shown), f"{quantity.name} ({quantity.meaning})"
        text = f"None of the {count} runs shown has {what}."
        return [*sections, dmc.Alert(text, color="gray", variant="light")]
    return [*sections, _chart(context, sweep_view, series), _table(context, sweep_view, series)]


def _series(context: Context, sweep_view: SweepView) -> sweep.Series:
    """Group runs by the settings that are neither on the axis nor fixed."""
    free = [sweep_view.rows] if sweep_view.form == HEATMAP else sweep_view.free
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in sweep_view.shown:
        groups.setdefault(tuple(spell(point.settings[name]) for name in free), []).append(point)
    order = {name: [spell(value) for value in sweep_view.vary[name]] for name in free}
    keys = sorted(groups, key=lambda key: [order[n].index(k) for n, k in zip(free, key, strict=True)])
    series = []
    for key in keys:
        name = ", ".join(describe_setting(n, k) for n, k in zip(free, key, strict=True))
        line = summarize_repeats(groups[key], sweep_view.x, sweep_view.quantity, context.results.of)
        series.append((key[0] if sweep_view.form == HEATMAP else name, line))
    return series


def _chart(context: Context, sweep_view: SweepView, series: sweep.Series) -> Component:
    quantity = QUANTITIES[sweep_view.quantity]
    fixed = ", ".join(describe_setting(name, text) for name, text in sweep_view.fixed.items())
    what = f"{quantity.name.capitalize()} of {sweep_view.workload}: {quantity.meaning}."
    fixed = f" Fixed: {fixed}." if fixed else ""
    if sweep_view.form == HEATMAP:
        caption = f"{what} Each cell is the median of its runs; empty ones have none.{fixed}"
        return chart(context, CHART, _heatmap(sweep_view, series), caption=caption)
    left = len(series) - MAX_SERIES
    more = f" {left} more series are in the table." if left > 0 else ""
    figure = sweep.lines(
        [(name or sweep_view.workload, line) for name, line in series[:MAX_SERIES] if line],
        quantity.unit,
        x=format_setting(sweep_view.x),
        y=quantity.name,
        href=lambda run: context.view.elsewhere("overview", run=run.path.name),
        log=sweep_view.log,
    )
    caption_text = f"{what} Points are medians, whiskers span min to max. Click a point to open its run."
    return chart(context, CHART, figure, caption=f"{caption_text}{fixed}{more}")


def _heatmap(sweep_view: SweepView, series: sweep.Series) -> dict[str, Any]:
    columns = [spell(value) for value in sweep_view.vary[sweep_view.x]]
    median_rows = [{spell(dot.x): dot.median for dot in line} for _, line in series]
    quantity = QUANTITIES[sweep_view.quantity]
    return heatmap(
        [name for name, _ in reversed(series)],  # sizes grow upwards
        columns,
        [[row.get(column) for column in columns] for row in reversed(median_rows)],
        quantity.unit,
        title=quantity.name,
        row_title=format_setting(sweep_view.rows),
        column_title=format_setting(sweep_view.x),
    )


def _table(context: Context, sweep_view: SweepView, series: sweep.Series) -> Component:
    unit = QUANTITIES[sweep_view.quantity].unit
    series_name = sweep_view.rows or "series"
    columns = (
        Column(series_name, "prose", "settings that are neither on the axis nor fixed"),
        Column(sweep_view.x, "prose", "setting on the axis"),
        Column("median", unit, QUANTITIES[sweep_view.quantity].meaning),
        Column("min", unit, "minimum of the runs"),
        Column("max", unit, "maximum of the runs"),
        Column("n", "count", "number of runs"),
        Column("runs", "prose", "the runs, lowest value first"),
    )
    records = [
        {
            series_name: name or sweep_view.workload,
            sweep_view.x: spell(dot.x),
            "median": dot.median,
            "min": dot.minimum,
            "max": dot.maximum,
            "n": len(dot.runs),
            "runs": _links(context, dot),
        }
        for name, line in series
        for dot in line
    ]
    return section("Data", html_table(columns, records, caption="Settings and runs"))


def _links(context: Context, dot: sweep.Spread) -> list[Any]:
    links: list[Any] = []
    for run in dot.runs[:MAX_LINKS]:
        name, href = run.path.name, context.view.elsewhere("overview", run=run.path.name)
        link = dcc.Link([color_dot(run), name.rsplit("-", 1)[-1]], href=href, title=name)
        links += [" ", link] if links else [link]  # the space allows a line break
    left = len(dot.runs) - MAX_LINKS
    return [*links, html.Span(f" and {left} more")] if left > 0 else links


OPTION = "cells"
MAX_SWEEPS = 12
"""Maximum number of sweeps listed, newest first."""
MAX_ROWS = 400
"""Maximum number of rows."""
_OUTCOME, _REASON = "outcome", "reason"


def _show_cells(context: Context) -> list[Component]:
    """Show the cells of the sweep in the address; default: the newest that is not a suite."""
    view = context.view
    sweeps = sorted(list_sweeps(context.store), key=lambda folder: folder.plan.kind == SWEEP)
    if not sweeps:
        return []
    offered = sweeps[-MAX_SWEEPS:][::-1]
    requested = view.options.get(OPTION, "")
    chosen = find(context.store, requested) if requested in {folder.id for folder in sweeps} else offered[0]
    texts = {folder.id: folder.id for folder in offered}
    titles = {folder.id: f"started {folder.head.created_at}" for folder in offered}
    choices = show_option(view, "Sweep", OPTION, texts, chosen.id, titles)
    title = html.Div([dmc.Title("Sweep cells", order=2, size="h4"), choices])
    return [html.Section([title, *_cells_table(context, chosen)], className="tk-section")]


def _cells_table(context: Context, folder: Folder) -> list[Component]:
    done = folder.records()
    cell_rows = sweep_rows(folder.plan, done)
    lines = [
        f"Fixed: {describe_shared_settings(cell_rows)}",
        *notes(folder.id, folder.plan, cell_rows, done),
    ]
    texts = (line if line.startswith(folder.id) else capitalize(line) for line in lines)
    prose = [dmc.Text(f"{text}.", size="sm", className="tk-prose") for text in texts]
    order = [column.name for column in COLUMNS]
    # the reason comes next to the outcome
    columns = sorted(
        shown_columns(cell_rows),
        key=lambda column: order.index(_OUTCOME if column.name == _REASON else column.name),
    )
    stored = {run.path.name for run in context.store.runs()}
    records = []
    for row in cell_rows[:MAX_ROWS]:
        mark = "" if row.n else "… " if row.outcome == PENDING else "✕ "
        record: dict[str, Any] = values(row) | {_OUTCOME: f"{mark}{row.outcome}"}
        if row.run_id in stored:
            href = context.view.elsewhere("overview", run=row.run_id)
            record["run_id"] = dcc.Link(str(row.run_id).rpartition("-")[2], href=href, title=row.run_id)
        records.append(record)
    body = [*prose, html_table(columns, records, caption=f"Cells of {folder.id}")]
    left = len(cell_rows) - MAX_ROWS
    more = f"{left} more rows; `tracekit sweep --show {folder.id} --format csv` prints all."
    return [*body, *([html.P(more, className="tk-prose")] if left > 0 else [])]


PAGE = Page(
    name=NAME,
    title="Sweeps",
    question="How do time and memory depend on batch size, resolution and other settings?",
    section=Section.COMPARE,
    order=510,
    layout=lambda _: [block(NAME, "sweep", height=640), block(NAME, "cells", height=240)],
    blocks={"sweep": _sweep, "cells": _show_cells},
    needs=Needs.NOTHING,
    find_lack=lambda _, runs: "" if list_workloads(read_points(runs)) else HINT,
    connect=lambda site: connect_clicks(site, NAME, CHART),
)
