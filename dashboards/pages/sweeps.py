"""Sweeps: how a quantity depends on what runs were set to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.analysis import Column

from ..blocks import block
from ..figures import sweep
from ..page import Needs, Page, Section
from ..parts.charts import chart, visits
from ..parts.finding import coded
from ..parts.links import copyable
from ..parts.rows import rows
from ._sweeps.cells import cells
from ._sweeps.chosen import HEATMAP, chosen, controls, spelled, told, words, workloads
from ._sweeps.points import QUANTITIES, points, spreads

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..context import Context
    from ._sweeps.chosen import Chosen
    from ._sweeps.points import Point, Spread

NAME, CHART = "sweeps", "sweep"
SERIES = 16
"""Lines drawn at most."""
RUNS = 4
"""Runs linked from a row at most."""
PART = (
    "A sweep is made of runs of one workload that differ in batch size, resolution, level, mode, dtype, "
    "threads or machine, and that `tracekit sweep` or `tracekit collect` recorded: an imported trace does "
    "not know its settings."
)
TRY = "tracekit sweep --workload resnet50 --batch-size 8..64*2 --repeat 3"


def _layout(_: Context) -> list[Component]:
    return [block(NAME, "sweep", height=640), block(NAME, "cells", height=240)]


def _sweep(context: Context) -> list[Component]:
    runs = context.store.readable()
    one = chosen(context.view, runs)
    if one is None:
        return _nothing(len(runs))
    shown = controls(context.view, one, list(workloads(points(runs))))
    series = _series(context, one)
    quantity = QUANTITIES[one.quantity]
    found: list[Component] = [html.Div(shown, className="tk-stacked")]
    if not any(line for _, line in series):
        said = (
            f"None of the {len(one.shown)} runs shown measured the {quantity.title}: {quantity.definition}."
        )
        return [*found, dmc.Alert(said, color="gray", variant="light")]
    return [*found, _chart(context, one, series), _table(context, one, series)]


def _nothing(count: int) -> list[Component]:
    return [
        html.P([f"{_none(count)} ", *coded(PART)], className="tk-prose"),
        dmc.Text("To make one:", size="sm", mt="sm"),
        copyable(TRY, "Copy the command"),
    ]


def _none(count: int) -> str:
    return f"None of the {count} runs here is part of a sweep." if count else "The store holds no run yet."


def _series(context: Context, one: Chosen) -> list[tuple[str, list[Spread]]]:
    """Runs by the settings that are neither on the axis nor fixed, summed up over repeats."""
    free = [one.rows] if one.form == HEATMAP else one.free
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in one.shown:
        groups.setdefault(tuple(spelled(point.settings[name]) for name in free), []).append(point)
    order = {name: [spelled(value) for value in one.vary[name]] for name in free}
    keys = sorted(groups, key=lambda key: [order[n].index(k) for n, k in zip(free, key, strict=True)])
    plain = one.form == HEATMAP
    return [
        (
            key[0] if plain else ", ".join(told(n, k) for n, k in zip(free, key, strict=True)),
            spreads(groups[key], one.x, one.quantity, context.results.of),
        )
        for key in keys
    ]


def _chart(context: Context, one: Chosen, series: list[tuple[str, list[Spread]]]) -> Component:
    quantity = QUANTITIES[one.quantity]
    held = ", ".join(told(name, text) for name, text in one.fixed.items())
    what = f"{quantity.title.capitalize()} of {one.workload}: {quantity.definition}."
    held = f" Held: {held}." if held else ""
    if one.form == HEATMAP:
        return chart(
            context, CHART, _heatmap(one, series), caption=f"{what} A cell is the median of its runs.{held}"
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
    said = f"{what} Points are medians of runs, whiskers span the least to the most; a click opens the run."
    return chart(context, CHART, figure, caption=f"{said}{held}{more}")


def _dots(context: Context, line: list[Spread]) -> tuple[sweep.Dot, ...]:
    return tuple(
        sweep.Dot(
            dot.x if dot.x is not None else "unknown",
            dot.median,
            dot.least,
            dot.most,
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
        Column(series_name, "prose", "settings that are neither on the axis nor held"),
        Column(one.x, "prose", "setting on the axis"),
        Column("median", unit, QUANTITIES[one.quantity].definition),
        Column("least", unit, "of the runs"),
        Column("most", unit, "of the runs"),
        Column("n", "count", "number of runs"),
        Column("runs", "prose", "the runs, least first"),
    )
    records = [
        {
            series_name: name or one.workload,
            one.x: spelled(dot.x),
            "median": dot.median,
            "least": dot.least,
            "most": dot.most,
            "n": len(dot.runs),
            "runs": _links(context, dot),
        }
        for name, line in series
        for dot in line
    ]
    title = dmc.Title("Runs behind it", order=2, size="h4")
    return html.Section([title, rows(columns, records, caption="Settings and runs")], className="tk-section")


def _links(context: Context, dot: Spread) -> list[Any]:
    links: list[Any] = [
        dcc.Link(
            run.path.name.rsplit("-", 1)[-1],
            href=context.view.elsewhere("overview", run=run.path.name),
            title=run.path.name,
        )
        for run in dot.runs[:RUNS]
    ]
    spaced = [part for link in links for part in (" ", link)][1:]  # at spaces a line may break
    left = len(dot.runs) - RUNS
    return [*spaced, html.Span(f" and {left} more")] if left > 0 else spaced


PAGE = Page(
    name=NAME,
    title="Sweeps",
    question="How do time and memory depend on batch size, resolution and the other settings?",
    section=Section.COMPARE,
    order=510,
    layout=_layout,
    blocks={"sweep": _sweep, "cells": cells},
    needs=Needs.NOTHING,
    connect=lambda site: visits(site, NAME, CHART),
)
