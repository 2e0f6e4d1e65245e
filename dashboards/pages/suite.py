"""Suite: all workloads as the studies measured theirs, beside the numbers they published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.render.suite import NO_ROWS, absent, form, headline, outcomes, undrawn
from tracekit.suite import report
from tracekit.suite.figures import figures
from tracekit.sweeping import find, listed
from tracekit.sweeping.model import SUITE

from ..blocks import block
from ..page import Needs, Page, Section
from ..parts.charts import chart
from ..parts.finding import coded
from ..parts.links import Choice, choices, copyable
from ..parts.rows import rows

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.suite.figures import Figure
    from tracekit.suite.model import Table
    from tracekit.sweeping import Folder

    from ..context import Context

NAME, OPTION = "suite", "suite"
OFFERED = 12
"""Suites offered at most, the newest."""
PART = "The store holds no suite. `tracekit suite run` measures every workload, and goes on where it stopped."
TRY = "tracekit suite run --size test"


def _layout(_: Context) -> list[Component]:
    return [block(NAME, "report", height=640)]


def _report(context: Context) -> list[Component]:
    known = listed(context.store, kind=SUITE)
    if not known:
        return [html.P(coded(PART), className="tk-prose"), copyable(TRY, "Copy the command")]
    asked = context.view.options.get(OPTION, "")
    one = find(context.store, asked, kind=SUITE) if asked in {of.id for of in known} else known[-1]
    told = report(one)
    drawn = figures(told)
    there = {run.path.name for run in context.store.runs()}
    found: list[Component] = [_chosen(context, one, known), _said(headline(told))]
    found += [_said(line) for line in outcomes(told)]
    for table in told.tables.values():
        own = [figure for figure in drawn if figure.table == table.name]
        found.append(_section(context, table, own, there))
    return found


def _chosen(context: Context, one: Folder, known: list[Folder]) -> Component:
    view = context.view
    offered = [
        Choice(of.id, view.href(options=view.options | {OPTION: of.id}), of.id == one.id)
        for of in known[-OFFERED:][::-1]
    ]
    return choices("Suite", offered)


def _section(context: Context, table: Table, own: list[Figure], there: set[str]) -> Component:
    body: list[Any] = [dmc.Title(table.title, order=2, size="h4")]
    body += [
        chart(context, one.name, one.content, caption=one.caption) for one in own if one.content is not None
    ]
    records = [_linked(context, row, there) for row in table.told()]
    body.append(rows(table.filled, records, caption=table.title) if records else _said(NO_ROWS))
    said = [table.definition, *absent(table), form(table), *(undrawn(own) if records else [])]
    return html.Section([*body, *map(_said, said)], className="tk-section")


def _said(line: str) -> Component:
    return dmc.Text(coded(line), size="sm", className="tk-prose")


def _linked(context: Context, row: dict[str, Any], there: set[str]) -> dict[str, Any]:
    run = row.get("run_id")
    if run not in there:
        return row
    return row | {"run_id": dcc.Link(run, href=context.view.elsewhere("overview", run=run))}


PAGE = Page(
    name=NAME,
    title="Suite",
    question="How do all workloads do, beside what the studies published?",
    section=Section.COMPARE,
    order=515,
    layout=_layout,
    blocks={"report": _report},
    needs=Needs.NOTHING,
)
