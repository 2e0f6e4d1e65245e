"""Generated page of an analysis: findings, notes, a standard figure, tables and definitions.

Every registered analysis without a page of its name gets one, including those of plug-ins.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import dash_mantine_components as dmc

from ..blocks import block
from ..figures.standard import first
from ..grids.table import table
from ..page import Page, Section
from ..parts import notes
from ..parts.charts import chart
from ..parts.prose import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dash.development.base_component import Component

    from tracekit.analysis import Analysis, Result, TableSpec

    from ..context import Context

FIRST = 1_000
"""Generated pages come after the hand-written ones."""


def of_analysis(analysis: Analysis) -> Page:
    """Create the page of an analysis."""
    return Page(
        name=analysis.name,
        title=analysis.title,
        question=analysis.question,
        section=Section.MORE,
        order=FIRST + analysis.order,
        layout=partial(_layout, analysis),
        prefetch=(analysis.name,),
        blocks={"result": partial(_result, analysis)},
    )


def _layout(analysis: Analysis, _: Context) -> list[Component]:
    return [block(analysis.name, "result", height=640), notes.definition(analysis)]


def _result(analysis: Analysis, context: Context) -> list[Component]:
    return [*_compared(analysis, context), *_own(analysis, context)] or [_nothing(analysis)]


def _compared(analysis: Analysis, context: Context) -> list[Component]:
    """Compare with the baseline, or suggest choosing one."""
    if analysis.compare is None:
        return []
    if context.base is None:
        return [notes.note("choose a baseline above to compare with it")]
    result = context.results.between(context.base, context.run, analysis.name)
    shown: list[Component] = [notes.finding(context, one) for one in result.findings]
    shown += [notes.note(note) for note in result.notes]
    return shown + tables(context, analysis, analysis.comparison, result)


def _own(analysis: Analysis, context: Context) -> list[Component]:
    result = context.result(analysis.name)
    ranked = sorted(result.findings, key=lambda one: -(one.saving_ns_per_step or 0))
    shown: list[Component] = [notes.finding(context, one) for one in ranked]
    shown += [notes.note(note) for note in result.notes]
    figure = first(analysis.tables, result.tables)
    if figure:
        shown.append(chart(context, "standard", figure.figure, caption=figure.caption))
    return shown + tables(context, analysis, analysis.tables, result)


def tables(
    context: Context, analysis: Analysis, specs: Iterable[TableSpec], result: Result
) -> list[Component]:
    """Show every table of a result under its title; empty tables show the notes."""
    why = " ".join(map(sentence, result.notes)) or "This run has no such data."
    return [
        table(context, analysis.name, spec, result.tables[spec.name], title=spec.title, empty=why)
        for spec in specs
        if spec.name in result.tables
    ]


def _nothing(analysis: Analysis) -> Component:
    return dmc.Text(
        f"This run has no data for {analysis.title.lower()}.",
        c="dimmed",
    )
