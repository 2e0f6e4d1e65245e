"""Timeline page.

The scripts in `assets/timeline` draw it with data from the routes of `dashboards.timeline`; this module tells
them which run, rank and device to show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import ClientsideFunction, Input, Output, dcc, html
from dash.development.base_component import Component

from ..components.charts import aria
from ..site import WORDS, Context, Page, Section, Site
from ..timeline import routes

NAME = "timeline"


def _layout(context: Context) -> list[Component]:
    return [
        dcc.Store(id="timeline-source", data=source(context)),
        dcc.Store(id="timeline-shown"),
        html.Div(
            [html.Div(id="timeline-controls"), html.Div(id="timeline-tools")],
            className="tkl-bar",
            role="toolbar",
            **aria(label="Timeline"),
        ),
        html.Div(id=NAME, className="tkl"),
        html.Noscript(_show_others(context)),
    ]


_TABLES = {
    "idle_gaps": ("Idle gaps", "the longest gaps of each device, and their causes"),
    "kernels": ("Kernels", "what ran on the devices"),
    "host_breakdown": ("Host breakdown", "what ran on the threads that drive them"),
    "critical_path": ("Critical path", "the longest segments between"),
}
"""Pages that have as tables what a timeline shows: title, and what is in them."""


def _show_others(context: Context) -> list[Component]:
    """Say, for browsers without scripts, which pages have as tables what the timeline shows."""
    links = [
        html.Li([html.A(title, href=context.view.elsewhere(page)), f": {what}"])
        for page, (title, what) in _TABLES.items()
    ]
    words = "Only JavaScript draws the timeline. These pages have its intervals as tables:"
    return [html.P(words, className="tk-prose"), html.Ul(links)]


def source(context: Context) -> dict[str, Any] | None:
    """Return the run, filters, range and selection for the scripts; None without a run."""
    if context.chosen is None:
        return None
    words = ("run", "rank", "device", "from", "to", "row")
    return {word: getattr(context.view, WORDS[word]) for word in words}


def connect_script(
    site: Site, page: str, name: str, read: Callable[[Context], dict[str, Any] | None], *, known: bool = False
) -> None:
    """Register the callbacks that pass the view to a script and start it.

    Args:
        site: The site.
        page: Page on which the script draws.
        name: Name of the script, with which the ids of its stores begin.
        read: Returns what the script reads of a view.
        known: Whether the layout of the page has it for the view that it is opened with.
    """

    @site.app.callback(Output(f"{name}-source", "data"), Input("view", "data"), prevent_initial_call=known)
    def send(view: dict[str, str] | None) -> dict[str, Any] | None:
        context = site.context_of(view) if view else None
        return read(context) if context and context.view.page == page else None

    site.app.clientside_callback(
        ClientsideFunction(f"tracekit_{name}", "show"),
        Output(f"{name}-shown", "data"),
        Input(f"{name}-source", "data"),
    )


def connect(site: Site) -> None:
    """Register the data routes, and the callbacks that start the scripts and pass the view."""
    routes.connect(site)
    connect_script(site, NAME, NAME, source, known=True)


PAGE = Page(
    name=NAME,
    title="Timeline",
    question="What ran when on each device and thread, and why was the device idle?",
    section=Section.TIME,
    order=100,
    layout=_layout,
    connect=connect,
)
