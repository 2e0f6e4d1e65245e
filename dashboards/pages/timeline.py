"""Timeline: every interval of a run where it was, at any zoom.

The page is drawn by the scripts in `assets/timeline`, which ask the routes of `..timeline`; what is here says
which run, rank and device they show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Input, Output, dcc, html

from ..page import Page, Section
from ..parts.aria import aria
from ..timeline import routes
from ..view import View

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..context import Context
    from ..site import Site

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
    """What the scripts are told of a view: run, filters, and the place it names; None without a run."""
    view = context.view
    if context.chosen is None:
        return None
    return {
        "run": view.run,
        "rank": view.rank,
        "device": view.device,
        "from": view.start_ns,
        "to": view.end_ns,
        "row": view.row,
    }


def connect(site: Site) -> None:
    """The routes that the scripts ask, and the callbacks that start them and tell them of the view."""
    routes.connect(site)

    @site.app.callback(Output(SOURCE, "data"), Input("view", "data"))
    def tell(view: dict[str, str] | None) -> dict[str, Any] | None:
        looked_at = View.parse(view["path"], view["search"]) if view else View()
        return source(site.context(looked_at, dark=False)) if looked_at.page == NAME else None

    site.app.clientside_callback(
        ClientsideFunction("tracekit_timeline", "show"),
        Output("timeline-shown", "data"),
        Input(SOURCE, "data"),
    )


PAGE = Page(
    name=NAME,
    title="Timeline",
    question="What ran when, on every device and thread, and why did the device wait?",
    section=Section.TIME,
    order=100,
    layout=_layout,
    connect=connect,
)
