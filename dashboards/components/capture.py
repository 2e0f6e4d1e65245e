"""Advice on what to record, with lines to copy."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from tracekit.errors import clean
from tracekit.render.capture import TITLE, Capture

from .charts import aria
from .text import sentence, with_code

COPIED = "capture-lines"
"""Id of the lines, which a button copies."""


def show_capture(lacks: Capture | None, *, opened: bool = False) -> list[Component]:
    """Show what to record, folded by default; nothing if nothing is lacking.

    Args:
        lacks: What the run lacks.
        opened: Whether to unfold it.
    """
    if lacks is None:
        return []
    items = [html.Li(with_code(sentence(gap.text))) for gap in lacks.missing]
    lines = "\n".join(map(clean, lacks.lines))
    return [
        html.Details(
            [
                html.Summary(f"{TITLE} ({clean(lacks.framework)})"),
                html.Ul(items),
                html.Div(
                    [
                        html.Pre(lines, id=COPIED, tabIndex="0", **aria(label="Lines that record it")),
                        dcc.Clipboard(target_id=COPIED, title="Copy", className="tk-copy"),
                    ],
                    className="tk-lines",
                ),
            ],
            open=opened,
            className="tk-record",
        )
    ]
