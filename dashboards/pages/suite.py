"""Suite page: results of all workloads compared with published numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.experiments.suite import Figure, figures, report
from tracekit.experiments.suite_plan import Table
from tracekit.experiments.sweep_folder import find, list_sweeps
from tracekit.experiments.sweep_model import SUITE
from tracekit.render.suite import NO_ROWS, absent, form, headline, outcomes, undrawn

from ..answers.results import rows
from ..blocks import block
from ..parts.charts import chart
from ..parts.finding import coded
from ..parts.links import Choice, choices, copyable
from ..site import Context, Needs, Page, Section

if TYPE_CHECKING:
    from tracekit.experiments.sweep_folder import Folder


NAME, OPTION = "suite", "suite"
OFFERED = 12
"""Maximum number of suites listed, newest first."""
HINT = "The store has no suite. `tracekit suite run` measures every workload, and resumes if interrupted."
COMMAND = "tracekit suite run --size test"


def _layout(_: Context) -> list[Component]:
    return [block(NAME, "report", height=640)]


def _report(context: Context) -> list[Component]:
    known = list_sweeps(context.store, kind=SUITE)
    if not known:
        return [html.P(coded(HINT), className="tk-prose"), copyable(COMMAND)]
    requested = context.view.options.get(OPTION, "")
    one = find(context.store, requested, kind=SUITE) if requested in {of.id for of in known} else known[-1]
    content = report(one)
    all_figures = figures(content)
    stored = {run.path.name for run in context.store.runs()}
    found: list[Component] = [_chosen(context, one, known), _paragraph(headline(content))]
    found += [_paragraph(line) for line in outcomes(content)]
    for table in content.tables.values():
        own = [figure for figure in all_figures if figure.table == table.name]
        found.append(_section(context, table, own, stored))
    return found


def _chosen(context: Context, one: Folder, known: list[Folder]) -> Component:
    view = context.view
    offered = [
        Choice(of.id, view.href(options=view.options | {OPTION: of.id}), of.id == one.id)
        for of in known[-OFFERED:][::-1]
    ]
    return choices("Suite", offered)


def _section(context: Context, table: Table, own: list[Figure], stored: set[str]) -> Component:
    body: list[Any] = [dmc.Title(table.title, order=2, size="h4")]
    body += [
        chart(context, one.name, one.content, caption=one.caption) for one in own if one.content is not None
    ]
    records = [_linked(context, row, stored) for row in table.values()]
    body.append(rows(table.filled, records, caption=table.title) if records else _paragraph(NO_ROWS))
    paragraphs = [table.definition, *absent(table), form(table), *(undrawn(own) if records else [])]
    return html.Section([*body, *map(_paragraph, paragraphs)], className="tk-section")


def _paragraph(line: str) -> Component:
    return dmc.Text(coded(line), size="sm", className="tk-prose")


def _linked(context: Context, row: dict[str, Any], stored: set[str]) -> dict[str, Any]:
    run = row.get("run_id")
    if run not in stored:
        return row
    return row | {"run_id": dcc.Link(run, href=context.view.elsewhere("overview", run=run))}


PAGE = Page(
    name=NAME,
    title="Suite",
    question="How do all workloads perform compared with published results?",
    section=Section.COMPARE,
    order=515,
    layout=_layout,
    blocks={"report": _report},
    needs=Needs.NOTHING,
)
