"""The page of any analysis, from its metadata: findings, notes, a standard figure, its tables, definitions.

An analysis that an outside package brings gets such a page by being registered, and nothing else.
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

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Analysis, Result

    from ..context import Context

FIRST = 1_000
"""Pages of analyses come after those made by hand."""


def of_analysis(analysis: Analysis) -> Page:
    """The page of one analysis."""
    return Page(
        name=analysis.name,
        title=analysis.title,
        question=analysis.question,
        section=Section.MORE,
        order=FIRST + analysis.order,
        layout=partial(_layout, analysis),
        ahead=(analysis.name,),
        blocks={"result": partial(_result, analysis)},
    )


def _layout(analysis: Analysis, _: Context) -> list[Component]:
    return [block(analysis.name, "result", height=640), notes.definition(analysis)]


def _result(analysis: Analysis, context: Context) -> list[Component]:
    result = context.result(analysis.name)
    ranked = sorted(result.findings, key=lambda one: -(one.saving_ns_per_step or 0))
    shown: list[Component] = [notes.finding(context, one) for one in ranked]
    shown += [notes.note(note) for note in result.notes]
    figure = first(analysis.tables, result.tables)
    if figure:
        shown.append(chart(context, "standard", figure.figure, caption=figure.caption))
    return shown + tables(context, analysis, result) or [_nothing(analysis)]


def tables(context: Context, analysis: Analysis, result: Result) -> list[Component]:
    """Every table of a result under its title; those without rows say why, or that there was nothing."""
    why = " ".join(result.notes) or "This run has nothing of the kind."
    return [
        table(context, analysis.name, spec, result.tables[spec.name], title=spec.title, empty=why)
        for spec in analysis.tables
        if spec.name in result.tables
    ]


def _nothing(analysis: Analysis) -> Component:
    return dmc.Text(
        f"This run has nothing that {analysis.title.lower()} could be told from, and no rule applied.",
        c="dimmed",
    )
