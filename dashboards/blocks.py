"""Blocks of pages: placeholders that a separate request fills, their errors, and prefetching of results.

A block is a pure function from a `Context` to a component, called when the page is opened and whenever the
view changes. One that fails shows its error; the others are unaffected. The browser spends about a second
loading scripts before it asks for the first block. What is known of a page is part of the first response, as
HTML that the browser shows until scripts have drawn the same; the rest is computed in the meantime.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import Flask, abort, g, request

from tracekit.errors import TracekitError
from tracekit.runs.run import Run

from .components.charts import aria
from .components.elements import join_elements, write_html
from .shell import menu, page_layout
from .site import Needs, Site, View

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
        id={"type": BLOCK_TYPE, "page": page, "name": name},
        className="tk-block",
        style={"--tk-height": f"{height}px"},
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
        is_dark, key = theme == "dark", (requested.href(), place["name"])
        known = None if is_dark else _take_early(site, key)  # whose charts are in light colors
        content = compute_block(site, requested, place["name"], dark=is_dark) if known is None else known
        return join_elements(content), "false"

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


FIRST_S = 0.15
"""Seconds that the first response waits for blocks, which it then shows before any script has run."""
_FIRST = "tracekit_first"


@dataclass
class _First:
    """Blocks that are computed while the first response is prepared.

    Attributes:
        blocks: Those that are, by name.
        latest_s: Time of the monotonic clock after which none is begun.
        done: Set once none is being computed.
    """

    blocks: dict[str, Any] = field(default_factory=dict)
    latest_s: float = field(default_factory=lambda: time.monotonic() + FIRST_S)
    done: threading.Event = field(default_factory=threading.Event)


def first_page(site: Site, styles: str) -> str:
    """Return the requested page as HTML, with the blocks that are known, for before scripts draw it.

    Its names and ids are those of a tree of its own, so that each is once in the page.

    Args:
        site: The site.
        styles: Tags of the styles.
    """
    view = View.parse(request.path, request.query_string.decode(errors="replace"))
    if view.page not in site.pages:
        return ""
    first: _First = g.get(_FIRST) or _First()
    first.done.wait(max(0, first.latest_s - time.monotonic()) if _FIRST in g else 0)
    context, blocks = site.context(view, dark=False), dict(first.blocks)
    parts = {
        "head": html.A("tracekit", href="/", className="tk-brand"),
        "menu": html.Div(menu(site, context), className="tk-navbar"),
        "main": html.Div(page_layout(site, context), className="tk-page"),
    }
    places = "".join(
        f'<div class="tk-first-{name}">{write_html(part, blocks)}</div>' for name, part in parts.items()
    )
    tree = f'<template shadowrootmode="closed">{styles}<div class="tk-first">{places}</div></template>'
    return f'<div id="first" data-blocks="{escape(json.dumps(list(blocks)))}">{tree}</div>'


_EARLY = "tracekit_early"
_EARLY_S = 10
"""Seconds for which blocks of a first response are kept for the request of the scripts, which follows."""


def _keep_early(site: Site, key: tuple[str, str], content: Any) -> None:
    early, now = site.app.server.extensions.setdefault(_EARLY, {}), time.monotonic()
    for old, (kept_s, _) in list(early.items()):
        if now - kept_s > _EARLY_S:
            early.pop(old, None)
    early[key] = now, content


def _take_early(site: Site, key: tuple[str, str]) -> Any:
    """Return a block that was computed for the first response, once; None without it."""
    kept_s, content = site.app.server.extensions.setdefault(_EARLY, {}).pop(key, (0.0, None))
    return content if time.monotonic() - kept_s <= _EARLY_S else None


PREFETCH_NAME = "tracekit-prefetch"
"""Name of the prefetch thread; at most one runs at a time."""


def connect_prefetch(site: Site, also: Callable[[Run], None] = lambda _: None) -> None:
    """Prefetch for each page that a browser opens; install after the request checks.

    Args:
        site: The site.
        also: Called with the run of each of these pages, to compute results of other pages.
    """
    server: Flask = site.app.server
    free = threading.Lock()

    @server.before_request
    def start() -> None:
        if "text/html" not in request.headers.get("Accept", "") or request.method != "GET":
            return
        view = View.parse(request.path, request.query_string.decode(errors="replace"))
        if view.page in site.pages and free.acquire(blocking=False):
            first = _First()
            setattr(g, _FIRST, first)
            threading.Thread(
                target=_prefetch_and_release,
                args=(site, view, first, free, also),
                name=PREFETCH_NAME,
                daemon=True,
            ).start()


def _prefetch_and_release(
    site: Site, view: View, first: _First, free: threading.Lock, also: Callable[[Run], None]
) -> None:
    try:
        page, context = site.pages[view.page], site.context(view, dark=False)
        filled = context.view
        if context.chosen is not None and page.needs is Needs.RUN:
            also(context.run)
        prefetch(site, view)
        for name in page.blocks if page.prefetch or page.covers else ():  # else of no run, or of a query
            if time.monotonic() > first.latest_s:
                break
            first.blocks[name] = compute_block(site, view, name, dark=False)
            _keep_early(site, (filled.href(), name), first.blocks[name])
    except TracekitError:
        pass  # the page shows the error
    except Exception:
        _LOG.exception("prefetch for page %s failed", view.page)
    finally:
        first.done.set()
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
