"""Blocks of pages: placeholders that a separate request fills, their errors, and prefetching of results.

A block is a pure function from a `Context` to a component, called when the page is opened and whenever the
view changes. One that fails shows its error; the others are unaffected. What is known of a page is part of
the first response: as HTML that the browser shows before any script has run, and as the layout that scripts
draw, so that they ask for nothing that is known. The rest is computed while the browser loads scripts.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeAlias

import dash_mantine_components as dmc
import msgspec
from dash import MATCH, ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash._utils import to_json
from dash.development.base_component import Component
from flask import Flask, abort, g, request

from tracekit.errors import TracekitError
from tracekit.runs.run import Run

from .components.charts import aria, data
from .components.elements import join_elements, write_html
from .shell import NAMES, PROPERTIES, list_offered, menu, page_layout, picker_states, shell
from .site import PLAIN, Context, Needs, Site, View

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
        is_dark = theme == "dark"
        known = _take_early(site, (requested.href(), place["name"], is_dark))
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
LAYOUT_S = 0.6
"""Seconds that its layout waits for blocks: scripts, which need it, take about as long to begin."""
PLAIN_S = 60
"""Seconds that it waits if no script will run."""
_FIRST = "tracekit_first"


_DONE = threading.Event()
_DONE.set()


@dataclass
class _First:
    """Blocks that are computed while the first response is prepared."""

    dark: bool  # whether they are for the dark theme
    plain: bool = False  # whether no script will ask for others
    blocks: dict[str, Any] = field(default_factory=dict)  # those that are, by name
    # time of the monotonic clock at which the page was asked for
    begun_s: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)  # set once none is being computed
    is_sent: bool = False  # whether the layout has been made
    guard: threading.Lock = field(default_factory=threading.Lock)  # for what the layout has

    @property
    def is_late(self) -> bool:
        """Whether the layout waits for no further block."""
        latest_s = PLAIN_S if self.plain else max(FIRST_S, LAYOUT_S)
        return time.monotonic() > self.begun_s + latest_s

    def add(self, name: str, content: Any) -> bool:
        """Add a block; returns whether it is part of the layout."""
        with self.guard:
            if not self.is_sent:
                self.blocks[name] = content
            return not self.is_sent

    def wait(self, seconds: float, *, is_last: bool = False) -> dict[str, Any]:
        """Wait for all blocks, at most until so long after the page was asked for; return those there are.

        Args:
            seconds: How long.
            is_last: Whether these are for the layout, so that others are asked for.
        """
        self.done.wait(max(0, self.begun_s + seconds - time.monotonic()))
        with self.guard:
            self.is_sent |= is_last
            return dict(self.blocks)


_NO_SCRIPTS = html.P(
    "JavaScript is off: tables cannot be filtered, and timelines are not drawn.",
    className="tk-note",
)
THEME_COOKIE = "tracekit_theme"
"""Cookie in which `assets/early.js` keeps the theme that is shown."""


def first_page(site: Site, styles: str) -> Iterator[str]:
    """Yield the requested page for before scripts draw it, then the layout that they draw, with known blocks.

    Names and ids of the former are those of a tree of its own, so that each is once in the page.

    Args:
        site: The site.
        styles: Tags of the styles.
    """
    view = View.parse(request.path, request.query_string.decode(errors="replace"))
    if view.page not in site.pages:
        return
    first: _First = g.get(_FIRST) or _First(dark=False, done=_DONE)
    context = site.context(view, dark=first.dark)
    links, page = menu(site, context), page_layout(site, context)
    parts = {
        "head": html.A("tracekit", href="/", className="tk-brand"),
        "menu": html.Div(links, className="tk-navbar"),
        "main": [_NO_SCRIPTS if PLAIN in view.options else None, html.Div(page, className="tk-page")],
    }
    blocks = first.wait(PLAIN_S if first.plain else FIRST_S)
    places = "".join(
        f'<div class="tk-first-{name}">{write_html(part, blocks)}</div>' for name, part in parts.items()
    )
    tree = f'<template shadowrootmode="closed">{styles}<div class="tk-first">{places}</div></template>'
    yield f'<div id="first">{tree}</div>'
    blocks = first.wait(LAYOUT_S, is_last=True)
    _fill_places(page, blocks)
    layout = _write_json(_fill_shell(site, context, links, page)).replace("<", "\\u003c")
    theme = "dark" if first.dark else "light"
    given = data(view=escape(context.view.search()), theme=theme, blocks=escape(json.dumps(list(blocks))))
    words = " ".join(f'{name}="{value}"' for name, value in given.items())
    yield f'<script type="application/json" id="first-layout" {words}>{layout}</script>'


def _write_json(layout: Component) -> str:
    """Return a layout as JSON, as Dash does, in a tenth of the time."""

    def describe(part: Any) -> Any:
        return part.to_plotly_json() if isinstance(part, Component) else msgspec.Raw(to_json(part).encode())

    return msgspec.json.encode(layout, enc_hook=describe).decode()


def _fill_shell(site: Site, context: Context, links: Any, page: Any) -> Component:
    """Create the layout of a page that is opened, as callbacks would make it of the static one.

    Args:
        site: The site.
        context: The context of the requested view.
        links: The menu.
        page: Layout of the page.
    """
    theme = "dark" if context.dark else "light"
    listed = str(site.catalog.list_runs().stamp)  # before what may list newer ones
    states, search = picker_states(site, context), request.query_string.decode(errors="replace")
    set_at_first: dict[str, dict[str, Any]] = {
        "url": {"pathname": request.path, "search": f"?{search}" if search else ""},
        "view": {"data": {"path": request.path, "search": context.view.search()}},
        "menu": {"children": join_elements(links)},
        "page": {"children": join_elements(page)},
        "offered": {"data": list_offered(states)},
        "listed": {"data": listed},
        "theme": {"data": theme},
        "mantine": {"forceColorScheme": theme},
    }
    for name, state in zip(NAMES, states, strict=True):
        for (place, prop), value in zip(PROPERTIES, state, strict=True):
            set_at_first.setdefault(f"{name}{place}", {})[prop] = value
    layout = shell(site.pages)
    for part in [*layout._traverse_ids()]:
        for prop, value in set_at_first.pop(part.id, {}).items():
            setattr(part, prop, value)
    return layout


def _fill_places(page: Component | list[Component], blocks: dict[str, Any]) -> None:
    """Fill the placeholders of a layout."""
    for place in html.Div(page)._traverse_ids():
        name = place.id["name"] if isinstance(place.id, dict) and place.id["type"] == BLOCK_TYPE else None
        if name in blocks:
            place.children = join_elements(blocks[name])
            setattr(place, "aria-busy", "false")


_EARLY = "tracekit_early"
_EARLY_S = 10  # seconds for which a block that no layout waited for is kept for the request after it
_Early: TypeAlias = tuple[str, str, bool]  # address and name of a block, and whether it is for the dark theme


def _keep_early(site: Site, key: _Early) -> Future[Any]:
    """Return where to put a block that is being computed, for the request that asks for it."""
    early, now = site.app.server.extensions.setdefault(_EARLY, {}), time.monotonic()
    for old, (kept_s, _) in list(early.items()):
        if now - kept_s > _EARLY_S:
            early.pop(old, None)
    future: Future[Any] = Future()
    early[key] = now, future
    return future


def _take_early(site: Site, key: _Early) -> Any:
    """Return a block that was begun for a layout, once, or wait for it; None without it."""
    kept_s, future = site.app.server.extensions.setdefault(_EARLY, {}).pop(key, (0.0, None))
    return future.result() if future and time.monotonic() - kept_s <= _EARLY_S else None


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
        is_plain = PLAIN in view.options
        if view.page in site.pages and free.acquire(timeout=PLAIN_S if is_plain else 0):
            first = _First(dark=request.cookies.get(THEME_COOKIE) == "dark", plain=is_plain)
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
        page, context = site.pages[view.page], site.context(view, dark=first.dark)
        if context.chosen is not None and page.needs is Needs.RUN:
            also(context.run)
        prefetch(site, view)
        has_results = page.prefetch or page.covers  # else it is of no run, or of a query
        for name in page.blocks if has_results or first.plain else ():
            if first.is_late:
                break
            key = (context.view.href(), name, first.dark)
            early = _keep_early(site, key)
            early.set_result(compute_block(site, view, name, dark=first.dark))
            if first.add(name, early.result()):
                _take_early(site, key)  # which no request asks for
    except TracekitError:
        pass  # the page shows the error
    except Exception:
        _LOG.exception("prefetch for page %s failed", view.page)
    finally:
        free.release()
        first.done.set()


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
