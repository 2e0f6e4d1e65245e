"""Suite page: results of all workloads compared with published numbers."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.experiments.suite import Figure, figures, report
from tracekit.experiments.suite_plan import Table
from tracekit.experiments.sweep_folder import find, list_sweeps
from tracekit.experiments.sweep_model import SUITE
from tracekit.render.suite import NO_ROWS, absent, headline, outcomes, undrawn

from ..blocks import block
from ..components.charts import chart
from ..components.links import show_command, show_option
from ..components.text import section, with_code
from ..site import Context, Needs, Page, Section
from ..tables.html import html_table

NAME, OPTION = "suite", "suite"
MAX_SUITES = 12
"""Maximum number of suites listed, newest first."""
HINT = "The store has no suite. `tracekit suite run` measures every workload, and resumes if interrupted."
COMMAND = "tracekit suite run --size test"


def _report(context: Context) -> list[Component]:
    suites = list_sweeps(context.store, kind=SUITE)
    if not suites:
        return [html.P(with_code(HINT), className="tk-prose"), show_command(COMMAND)]
    requested = context.view.options.get(OPTION, "")
    is_stored = requested in {of.id for of in suites}
    suite = find(context.store, requested, kind=SUITE) if is_stored else suites[-1]
    content = report(suite)
    all_figures = figures(content)
    stored = {run.path.name for run in context.store.runs()}
    texts = {folder.id: folder.id for folder in suites[-MAX_SUITES:][::-1]}
    sections: list[Component] = [show_option(context.view, "Suite", OPTION, texts, suite.id)]
    sections += map(_paragraph, (headline(content), *outcomes(content)))
    for table in content.tables.values():
        table_figures = [figure for figure in all_figures if figure.table == table.name]
        sections.append(_section(context, table, table_figures, stored))
    return sections


def _section(context: Context, table: Table, table_figures: list[Figure], stored: set[str]) -> Component:
    body: list[Component] = [
        chart(context, figure.name, figure.content, caption=figure.caption)
        for figure in table_figures
        if figure.content is not None
    ]
    records = []
    for row in table.values():
        run = row.get("run_id")
        link = {"run_id": dcc.Link(run, href=context.view.elsewhere("overview", run=run))}
        records.append(row | link if run in stored else row)
    body.append(html_table(table.filled, records, caption=table.title) if records else _paragraph(NO_ROWS))
    paragraphs = [
        table.definition,
        *absent(table),
        table.layout,
        *(undrawn(table_figures) if records else []),
    ]
    return section(table.title, *body, *map(_paragraph, paragraphs))


def _paragraph(line: str) -> Component:
    return dmc.Text(with_code(line), size="sm", className="tk-prose")


PAGE = Page(
    name=NAME,
    title="Suite",
    question="How do all workloads perform compared with published results?",
    section=Section.COMPARE,
    order=515,
    layout=lambda _: [block(NAME, "report", height=640)],
    blocks={"report": _report},
    needs=Needs.NOTHING,
    find_lack=lambda store, _: "" if list_sweeps(store, kind=SUITE) else HINT,
)
