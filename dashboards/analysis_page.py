"""The page of any analysis, from its metadata: a standard figure, its tables, findings and notes.

An analysis that an outside package brings gets such a page by being registered, and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import html

from . import parts
from .blocks import block
from .page import Page, Section
from .tables import table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Analysis

    from .context import Context

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
        blocks={"result": partial(_result, analysis)},
    )


def _layout(analysis: Analysis, _: Context) -> list[Component]:
    return [block(analysis.name, "result", height=420), parts.definition(analysis)]


def _result(analysis: Analysis, context: Context) -> list[Component]:
    result = context.result(analysis.name)
    shown: list[Component] = [parts.note(note) for note in result.notes]
    shown += [parts.finding(context, one) for one in result.findings]
    for spec in analysis.tables:
        if spec.name in result.tables:
            shown.append(
                html.Section(
                    [
                        dmc.Title(spec.title, order=2, size="h4"),
                        table(context, analysis.name, spec, result.tables[spec.name]),
                    ],
                    className="tk-section",
                )
            )
    return shown or [dmc.Text("This run has nothing to show here.", c="dimmed")]
