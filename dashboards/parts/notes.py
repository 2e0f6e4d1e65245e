"""Notes and definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import html

from .finding import coded, finding
from .prose import sentence

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Analysis

__all__ = ["definition", "finding", "note"]


def note(text: str) -> Component:
    """Show a note about missing data."""
    return html.P(coded(sentence(text)), className="tk-note")


def definition(analysis: Analysis, *, named: bool = False) -> Component:
    """Show the definitions of an analysis and their sources.

    Args:
        analysis: The analysis.
        named: Whether to include its title, for pages of several analyses.
    """
    words = "How these numbers are defined"
    return dmc.Accordion(
        dmc.AccordionItem(
            [
                dmc.AccordionControl(f"{words}: {analysis.title}" if named else words),
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
