"""Timeline page.

The scripts in `assets/timeline` draw it with data from the routes of `dashboards.timeline`; this module tells
them which run, rank and device to show.
"""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Input, Output, dcc, html
from dash.development.base_component import Component

from ..components.charts import aria
from ..site import WORDS, Context, Page, Section, Site, View
from ..timeline import routes

NAME = "timeline"
SOURCE = "timeline-source"


def _layout(_: Context) -> list[Component]:
    return [
        dcc.Store(id=SOURCE),
        dcc.Store(id="timeline-shown"),
        html.Div(
            [html.Div(id="timeline-controls"), html.Div(id="timeline-tools")],
            className="tkl-bar",
            role="toolbar",
            **aria(label="Timeline"),
        ),
        html.Div(id=NAME, className="tkl"),
    ]


def source(context: Context) -> dict[str, Any] | None:
    """Return the run, filters, range and selection for the scripts; None without a run."""
    if context.chosen is None:
        return None
    words = ("run", "rank", "device", "from", "to", "row")
    return {word: getattr(context.view, WORDS[word]) for word in words}


def connect(site: Site) -> None:
    """Register the data routes, and the callbacks that start the scripts and pass the view."""
    routes.connect(site)

    @site.app.callback(Output(SOURCE, "data"), Input("view", "data"))
    def send(view: dict[str, str] | None) -> dict[str, Any] | None:
        current = View.parse(view["path"], view["search"]) if view else View()
        return source(site.context(current, dark=False)) if current.page == NAME else None

    site.app.clientside_callback(
        ClientsideFunction("tracekit_timeline", "show"),
        Output("timeline-shown", "data"),
        Input(SOURCE, "data"),
    )


PAGE = Page(
    name=NAME,
    title="Timeline",
    question="What ran when on each device and thread, and why was the device idle?",
    section=Section.TIME,
    order=100,
    layout=_layout,
    connect=connect,
)
