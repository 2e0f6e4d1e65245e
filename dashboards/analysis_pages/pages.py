"""Pages that answer a question: one sentence, figures, tables, and definitions.

Every registered analysis without a page of its name gets one, including those of plug-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from tracekit import analysis, registry
from tracekit.analysis import Analysis, Result, TableSpec
from tracekit.errors import TracekitError

from ..blocks import block
from ..components.charts import chart
from ..components.finding import show_definition, show_finding
from ..components.text import capitalize, sentence, show_note
from ..figures.standard import result_figure
from ..site import Block, Context, Page, Section
from ..tables.table import show_table
from .results import PageResults, show_advice, show_answer, show_nothing

Part: TypeAlias = Callable[[PageResults], list[Component]]


def answer_page(
    name: str,
    *,
    section: Section,
    order: int,
    answer: Part,
    figures: Part,
    analyses: Sequence[str] = (),
    title: str = "",
    question: str = "",
    needs: str = "",
    hidden: Sequence[str] = (),
    height: int = 360,
) -> Page:
    """Create a page of one or more analyses.

    Args:
        name: Name of the page.
        section: Menu heading.
        order: Sort key in the menu.
        answer: Returns the answer.
        figures: Returns the figures.
        analyses: The analyses shown; default: the one with the page's name.
        title: Heading; default: the analysis' title.
        question: The question answered; default: the analysis' question.
        needs: Table without whose rows there is neither an answer nor a figure; default: any table.
        hidden: Tables to leave out because the figures show them.
        height: Skeleton height of the figures, in pixels.
    """
    names = tuple(analyses) or (name,)
    main = analysis.get(names[0])
    return Page(
        name=name,
        title=title or main.title,
        question=question or main.question,
        section=section,
        order=order,
        layout=lambda _: [
            block(name, "answer", height=28),
            block(name, "figures", height=height),
            block(name, "tables", height=420),
            *(show_definition(analysis.get(name), named=len(names) > 1) for name in names),
        ],
        blocks=result_blocks(
            names,
            answer=lambda results: _answer(results, answer(results) if _has_rows(results, needs) else []),
            figures=lambda results: figures(results) if _has_rows(results, needs) else [],
            tables=lambda results: _tables(results.context, names, frozenset(hidden)),
        ),
        covers=names,
    )


def result_blocks(names: Sequence[str], **parts: Part) -> dict[str, Block]:
    """Return blocks of a page, by name, computed from the results of analyses, the main one first."""

    def compute(part: Part, context: Context) -> list[Component]:
        results = PageResults(context, tuple(names))
        return context.keep((part, results.names), lambda: part(results))

    return {name: partial(compute, part) for name, part in parts.items()}


def _has_rows(results: PageResults, table: str) -> bool:
    """Return whether a table has rows in the view; without one, whether any table has rows."""
    if table:
        return len(results.frame(table)) > 0
    tables = (results.context.result(name).tables for name in results.names)
    return any(len(frame) for frames in tables for frame in frames.values())


def _answer(results: PageResults, answer: list[Component]) -> list[Component]:
    notes = results.show_notes()
    if not answer and not notes:
        answer = [show_nothing("This run has no data for this page.")]
    return [*answer, *notes, *show_advice(results)]


def _tables(context: Context, names: Sequence[str], hidden: frozenset[str]) -> list[Component]:
    """Show every table in a tab, that of the order in the address first; comparison tables come first."""
    shown: list[tuple[str, str, TableSpec, Result]] = []
    for name in names:
        page_analysis, result = analysis.get(name), context.result(name)
        if context.base is not None and page_analysis.compare is not None:
            compared = context.results.between(context.base, context.run, name)
            shown += _list_tables(page_analysis, compared, page_analysis.comparison, "vs. baseline: ")
        prefix = f"{page_analysis.title}: " if len(names) > 1 else ""
        specs = [spec for spec in page_analysis.tables if spec.name not in hidden]
        shown += _list_tables(page_analysis, result, specs, prefix)
    if not shown:
        return []
    sort = context.view.options.get("sort", "")
    active = (tab for tab, (_, _, spec, _) in enumerate(shown) if sort.startswith(f"{spec.name}:"))
    panels = []
    for tab, (_, name, spec, result) in enumerate(shown):
        own_table = spec in analysis.get(name).tables  # else of a comparison, without ranks and devices
        rows = PageResults(context, (name,)).frame(spec.name) if own_table else result.tables[spec.name]
        grid = html.Div(show_table(context, name, spec, rows), className="tk-panel")
        panels.append(dmc.TabsPanel(grid, value=f"{tab}"))
    return [
        dmc.Title("Tables", order=2, size="h4"),
        dmc.Tabs(
            [
                dmc.TabsList([dmc.TabsTab(title, value=f"{tab}") for tab, (title, *_) in enumerate(shown)]),
                *panels,
            ],
            value=f"{next(active, 0)}",
            keepMounted=False,
            className="tk-tabs",
            id={"type": "tabs", "name": shown[0][2].name},
        ),
    ]


def _list_tables(
    analysis_shown: Analysis, result: Result, specs: Sequence[TableSpec], prefix: str
) -> list[tuple[str, str, TableSpec, Result]]:
    present = [spec for spec in specs if spec.name in result.tables]
    titles = (capitalize(prefix + spec.title.split(";")[0]) for spec in present)
    return [(title, analysis_shown.name, spec, result) for title, spec in zip(titles, present, strict=True)]


FIRST_GENERATED = 1_000
"""Generated pages come after the hand-written ones."""


def generate_page(analysis: Analysis) -> Page:
    """Create the page of an analysis."""
    return Page(
        name=analysis.name,
        title=analysis.title,
        question=analysis.question,
        section=Section.MORE,
        order=FIRST_GENERATED + analysis.order,
        layout=lambda _: [block(analysis.name, "result", height=640), show_definition(analysis)],
        prefetch=(analysis.name,),
        blocks=result_blocks((analysis.name,), result=partial(_result, analysis)),
    )


def _result(analysis: Analysis, results: PageResults) -> list[Component]:
    """Show the comparison with the baseline, and the result of the run with its figure."""
    context = results.context
    shown, result = _comparison(analysis, context), context.result(analysis.name)
    first = analysis.tables[0].name
    if analysis.answer and len(results.frame(first)):
        shown.insert(0, show_answer(*results.largest(first).fill(analysis.answer)))
    shown += [*results.show_findings(), *results.show_notes()]
    figure = result_figure(analysis, result)
    if figure:
        shown.append(chart(context, "standard", figure.figure, caption=figure.caption))
    shown += _show_tables(context, analysis.name, analysis.tables, result)
    return shown or [dmc.Text(f"This run has no data for {analysis.title.lower()}.", c="dimmed")]


def _comparison(analysis: Analysis, context: Context) -> list[Component]:
    """Compare with the baseline, or suggest choosing one."""
    if analysis.compare is None:
        return []
    if context.base is None:
        return [show_note("choose a baseline, another run of the store, to compare with it")]
    result = context.results.between(context.base, context.run, analysis.name)
    shown: list[Component] = [show_finding(context, finding) for finding in result.findings]
    shown += map(show_note, result.notes)
    return shown + _show_tables(context, analysis.name, analysis.comparison, result)


def _show_tables(context: Context, name: str, specs: Iterable[TableSpec], result: Result) -> list[Component]:
    """Show every table of a result under its title; empty tables show the notes."""
    why = " ".join(map(sentence, result.notes)) or "This run has no such data."
    return [
        show_table(context, name, spec, result.tables[spec.name], title=spec.title, empty=why)
        for spec in specs
        if spec.name in result.tables
    ]


def load_pages() -> dict[str, Page]:
    """Return all loadable pages, plus a generated page per remaining analysis, by name in menu order."""
    pages: list[Page] = []
    for name in registry.names(registry.PAGES):
        try:
            pages.append(registry.load(registry.PAGES, name))
        except TracekitError:
            continue  # reported by `tracekit doctor`
    named = {page.name for page in pages}
    pages += [generate_page(remaining) for remaining in analysis.available() if remaining.name not in named]
    return {page.name: page for page in sorted(pages, key=lambda page: (page.order, page.name))}
