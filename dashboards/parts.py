"""Parts that several pages place: notes, findings, definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.render import human
from tracekit.render.cells import clean

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Analysis, Finding

    from .context import Context


def note(text: str) -> Component:
    """What was absent, and how to get it."""
    return html.P(words(text), className="tk-note")


def words(text: str) -> list[Component | str]:
    """Sentences with what stands in backticks as code.

    Example:
        >>> words("call `step()` often")[1].children
        'step()'
    """
    pieces = clean(text).split("`")
    if len(pieces) % 2 == 0:  # one backtick stands alone
        return [clean(text)]
    return [
        html.Code(piece, className="tk-code") if place % 2 else piece
        for place, piece in enumerate(pieces)
        if piece
    ]


def finding(context: Context, one: Finding) -> Component:
    """One piece of advice, with a link to its evidence on the timeline."""
    saving = "" if one.saving_ns_per_step is None else f"saves {human(one.saving_ns_per_step, 'ns')} a step"
    head = [
        html.Span(str(one.severity), className="tk-severity"),
        html.Span(clean(one.title)),
        html.Span(saving, className="tk-saving"),
    ]
    return html.Section(
        [
            html.Div(head, className="tk-finding-head"),
            html.P(words(one.advice)),
            html.P([*words(one.how), " ", *_evidence(context, one)], className="tk-how"),
        ],
        className=f"tk-finding tk-finding-{one.severity}",
    )


def _evidence(context: Context, one: Finding) -> list[Component]:
    return [
        dcc.Link(
            "Show on the timeline",
            href=context.view.elsewhere("timeline", row=f"{name}:{rows[0]}"),
            className="tk-evidence",
        )
        for name, rows in list(one.evidence.items())[:1]
        if rows
    ]


def definition(analysis: Analysis) -> Component:
    """How the numbers of an analysis are defined, and where the definitions come from."""
    return dmc.Accordion(
        dmc.AccordionItem(
            [
                dmc.AccordionControl("How these numbers are defined"),
                dmc.AccordionPanel(
                    [
                        dmc.Text(analysis.definition, size="sm", className="tk-prose"),
                        html.Ul([html.Li(source) for source in analysis.sources], className="tk-sources"),
                    ]
                ),
            ],
            value="definition",
        ),
        variant="separated",
        className="tk-definition",
    )
