"""Parts that several pages place: notes, findings, definitions, figures of merit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.analysis import Severity
from tracekit.render import human

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Analysis, Finding

    from .context import Context

COLORS = {Severity.HIGH: "red", Severity.WARN: "orange", Severity.INFO: "blue"}


def note(text: str) -> Component:
    """What was absent, and how to get it."""
    return dmc.Alert(text, color="gray", variant="light", className="tk-note")


def finding(context: Context, one: Finding) -> Component:
    """One piece of advice, with a link to its evidence on the timeline."""
    saving = "" if one.saving_ns_per_step is None else f"saves {human(one.saving_ns_per_step, 'ns')} a step"
    evidence = [
        dcc.Link(
            "Show on the timeline",
            href=context.view.elsewhere("timeline", row=f"{name}:{rows[0]}"),
            className="tk-evidence",
        )
        for name, rows in list(one.evidence.items())[:1]
        if rows
    ]
    return dmc.Alert(
        [dmc.Text(one.advice, size="sm"), dmc.Text([one.how, " ", *evidence], size="xs", c="dimmed")],
        title=f"{str(one.severity).upper()}: {one.title}" + (f" ({saving})" if saving else ""),
        color=COLORS[one.severity],
        variant="light",
        className="tk-finding",
    )


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
