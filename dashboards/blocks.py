"""Blocks: places of a page that are filled by a computation of their own, with a skeleton until then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Input, Output, State, dcc, html, no_update

from tracekit.errors import TracekitError

from .parts.aria import aria
from .view import View

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from .site import Site

_LOG = logging.getLogger(__name__)
KIND = "block"
AGAIN = "again"
"""Type of the store whose change fills a block again."""
RETRY = "retry"


def block(page: str, name: str, *, height: int = 120) -> Component:
    """The place of a block in a layout.

    Args:
        page: Name of the page.
        name: Name of the block among the page's.
        height: Height of the skeleton, in pixels: about that of what comes, so that nothing jumps.
    """
    place = html.Div(
        dmc.Skeleton(height=height, radius="sm"),
        id={"type": KIND, "page": page, "name": name},
        className="tk-block",
        **aria(busy="true"),
    )
    return html.Div([place, dcc.Store(id={"type": AGAIN, "page": page, "name": name})])


def connect(site: Site) -> None:
    """The one callback that fills every block of every page, and the one that tries again."""

    @site.app.callback(
        Output({"type": KIND, "page": MATCH, "name": MATCH}, "children"),
        Output({"type": KIND, "page": MATCH, "name": MATCH}, "aria-busy"),
        Input("view", "data"),
        Input("theme", "data"),
        Input({"type": AGAIN, "page": MATCH, "name": MATCH}, "data"),
        State({"type": KIND, "page": MATCH, "name": MATCH}, "id"),
    )
    def fill(view: dict[str, str], theme: str, _: Any, place: dict[str, str]) -> tuple[Any, Any]:
        looked_at = View.parse(view["path"], view["search"])
        if looked_at.page != place["page"]:
            return no_update, no_update  # the page is being left
        return content(site, looked_at, place["name"], dark=theme == "dark"), "false"

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "again"),
        Output({"type": AGAIN, "page": MATCH, "name": MATCH}, "data"),
        Input({"type": RETRY, "page": MATCH, "name": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )


def content(site: Site, view: View, name: str, *, dark: bool) -> Any:
    """What a block shows: its component, or why there is none."""
    try:
        return site.pages[view.page].blocks[name](site.context(view, dark=dark))
    except TracekitError as error:
        return trouble(error.message, error.hint, again=(view.page, name))
    except Exception as error:
        _LOG.exception("block %s of page %s failed", name, view.page)
        return trouble(
            f"this part failed: {type(error).__name__}",
            "the traceback is where the dashboard runs",
            again=(view.page, name),
        )


def trouble(message: str, hint: str = "", *, again: tuple[str, str] | None = None) -> Component:
    """Why something is not shown, and what to do.

    Args:
        message: What went wrong.
        hint: The next step.
        again: Page and block that a button tries again; None for no button.
    """
    retry = []
    if again:
        place = {"type": RETRY, "page": again[0], "name": again[1]}
        retry.append(html.Button("Try again", id=place, className="tk-button"))
    return dmc.Alert(
        [*([html.P(hint)] if hint else []), *retry],
        title=message,
        color="red",
        variant="light",
        className="tk-trouble",
    )
