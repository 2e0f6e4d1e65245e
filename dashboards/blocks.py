"""Blocks: places of a page that are filled by a computation of their own, with a skeleton until then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import MATCH, Input, Output, State, html, no_update

from tracekit.errors import TracekitError

from .aria import aria
from .view import View

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from .site import Site

_LOG = logging.getLogger(__name__)
KIND = "block"


def block(page: str, name: str, *, height: int = 120) -> Component:
    """The place of a block in a layout.

    Args:
        page: Name of the page.
        name: Name of the block among the page's.
        height: Height of the skeleton, in pixels: about that of what comes, so that nothing jumps.
    """
    return html.Div(
        dmc.Skeleton(height=height, radius="sm"),
        id={"type": KIND, "page": page, "name": name},
        className="tk-block",
        **aria(busy="true"),
    )


def connect(site: Site) -> None:
    """The one callback that fills every block of every page."""

    @site.app.callback(
        Output({"type": KIND, "page": MATCH, "name": MATCH}, "children"),
        Output({"type": KIND, "page": MATCH, "name": MATCH}, "aria-busy"),
        Input("view", "data"),
        Input("theme", "data"),
        State({"type": KIND, "page": MATCH, "name": MATCH}, "id"),
    )
    def fill(view: dict[str, str], theme: str, place: dict[str, str]) -> tuple[Any, Any]:
        looked_at = View.parse(view["path"], view["search"])
        if looked_at.page != place["page"]:
            return no_update, no_update  # the page is being left
        return content(site, looked_at, place["name"], dark=theme == "dark"), "false"


def content(site: Site, view: View, name: str, *, dark: bool) -> Any:
    """What a block shows: its component, or why there is none."""
    try:
        return site.pages[view.page].blocks[name](site.context(view, dark=dark))
    except TracekitError as error:
        return trouble(error.message, error.hint)
    except Exception as error:
        _LOG.exception("block %s of page %s failed", name, view.page)
        return trouble(
            f"this part failed: {type(error).__name__}", "the traceback is where the dashboard runs"
        )


def trouble(message: str, hint: str = "") -> Component:
    """Why something is not shown, and what to do."""
    return dmc.Alert(hint or None, title=message, color="red", variant="light", className="tk-trouble")
