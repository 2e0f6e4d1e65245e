"""Blocks of pages: placeholders that a separate request fills, their errors, and prefetching of results.

A block is a pure function from a `Context` to a component, called when the page is opened and whenever the
view changes. One that fails shows its error; the others are unaffected. The browser spends about a second
loading scripts before it asks for the first block; what a page shows first is computed in the meantime.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import Flask, abort, request

from tracekit.errors import TracekitError

from .components.charts import aria
from .components.elements import join_elements
from .site import Site, View

_LOG = logging.getLogger(__name__)
BLOCK_TYPE = "block"
AGAIN_TYPE = "again"
"""Type of the store whose change recomputes a block."""
RETRY_TYPE = "retry"


def block(page: str, name: str, *, height: int = 120) -> Component:
    """Create the placeholder of a block.

    Args:
        page: Name of the page.
        name: Name of the block, unique on the page.
        height: Height of the skeleton in pixels; close to the final height, to avoid layout shift.
    """
    place = html.Div(
        dmc.Skeleton(height=height, radius="sm"),
        id={"type": BLOCK_TYPE, "page": page, "name": name},
        className="tk-block",
        **aria(busy="true"),
    )
    return html.Div([place, dcc.Store(id={"type": AGAIN_TYPE, "page": page, "name": name})])


def connect(site: Site) -> None:
    """Register the callbacks that fill and retry blocks."""

    @site.app.callback(
        Output({"type": BLOCK_TYPE, "page": MATCH, "name": MATCH}, "children"),
        Output({"type": BLOCK_TYPE, "page": MATCH, "name": MATCH}, "aria-busy"),
        Input("view", "data"),
        Input("theme", "data"),
        Input({"type": AGAIN_TYPE, "page": MATCH, "name": MATCH}, "data"),
        State({"type": BLOCK_TYPE, "page": MATCH, "name": MATCH}, "id"),
    )
    def fill(view: dict[str, str] | None, theme: str, _: Any, place: dict[str, str]) -> tuple[Any, Any]:
        if view is None:
            return no_update, no_update
        requested = View.parse(view["path"], view["search"])
        if requested.page != place["page"]:
            return no_update, no_update  # the user has navigated away
        if requested.page not in site.pages or place["name"] not in site.pages[requested.page].blocks:
            abort(404)
        return join_elements(compute_block(site, requested, place["name"], dark=theme == "dark")), "false"

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "again"),
        Output({"type": AGAIN_TYPE, "page": MATCH, "name": MATCH}, "data"),
        Input({"type": RETRY_TYPE, "page": MATCH, "name": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )


def compute_block(site: Site, view: View, name: str, *, dark: bool) -> Any:
    """Compute a block, or an error message if it failed.

    Args:
        site: The site.
        view: The view that the browser shows.
        name: Name of the block.
        dark: Whether the dark theme is on.
    """
    try:
        return site.pages[view.page].blocks[name](site.context(view, dark=dark))
    except TracekitError as error:
        return error_alert(error.message, error.hint, again=(view.page, name))
    except Exception as error:
        _LOG.exception("block %s of page %s failed", name, view.page)
        return error_alert(
            f"this section failed: {type(error).__name__}",
            "see the traceback in the terminal that runs the dashboard",
            again=(view.page, name),
        )


PREFETCH_NAME = "tracekit-prefetch"
"""Name of the prefetch thread; at most one runs at a time."""


def connect_prefetch(site: Site) -> None:
    """Prefetch for each page that a browser opens; install after the request checks."""
    server: Flask = site.app.server
    free = threading.Lock()

    @server.before_request
    def start() -> None:
        if "text/html" not in request.headers.get("Accept", "") or request.method != "GET":
            return
        view = View.parse(request.path, request.query_string.decode(errors="replace"))
        if view.page in site.pages and free.acquire(blocking=False):
            threading.Thread(
                target=_prefetch_and_release, args=(site, view, free), name=PREFETCH_NAME, daemon=True
            ).start()


def _prefetch_and_release(site: Site, view: View, free: threading.Lock) -> None:
    try:
        prefetch(site, view)
    except TracekitError:
        pass  # the page shows the error
    except Exception:
        _LOG.exception("prefetch for page %s failed", view.page)
    finally:
        free.release()


def prefetch(site: Site, view: View) -> None:
    """Compute the results that a page shows first, if its run exists.

    Raises:
        PluginError: An analysis failed.
        UnusableInputError: The device of the peaks is not listed.
    """
    page, context = site.pages[view.page], site.context(view, dark=False)
    if context.chosen is not None:
        for name in page.prefetch or page.covers:
            context.result(name)


def error_alert(message: str, hint: str = "", *, again: tuple[str, str] | None = None) -> Component:
    """Show an error with its hint.

    Args:
        message: What went wrong.
        hint: What to do.
        again: Page and block that the retry button recomputes; None for no button.
    """
    content: list[Component] = [html.P(hint)] if hint else []
    if again:
        place = {"type": RETRY_TYPE, "page": again[0], "name": again[1]}
        content.append(html.Button("Try again", id=place, className="tk-button"))
    return dmc.Alert(content, title=message, color="red", variant="light", className="tk-error")
