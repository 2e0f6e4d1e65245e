"""Frame around every page: header, menu, theme, help dialog, and routing."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update

from ..exports import offers
from ..page import Needs
from ..parts.aria import aria, data
from ..view import View
from . import shortcuts
from .pickers import pickers

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..context import Context
    from ..page import Page
    from ..site import Site

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
REFRESH_MS = 4_000
INDEX = """<!DOCTYPE html>
<html lang="en">
  <head>
    {%metas%}
    <title>{%title%}</title>
    <link rel="icon" type="image/svg+xml" href="/assets/favicon.svg">
    <script src="/assets/early.js"></script>
    {%css%}
  </head>
  <body>
    {%app_entry%}
    <footer>{%config%}{%scripts%}{%renderer%}</footer>
  </body>
</html>"""
"""Index page; `early.js` sets the theme before first paint."""


def frame(pages: dict[str, Page]) -> Component:
    """Create the static layout."""
    return dmc.MantineProvider(
        id="mantine",
        defaultColorScheme="auto",
        theme={"primaryColor": "indigo", "fontFamily": FONT, "defaultRadius": "sm", "cursorType": "pointer"},
        children=[
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="view"),
            dcc.Store(id="theme"),
            dcc.Store(id="theme-chosen", storage_type="local"),
            dcc.Store(id="shown"),
            dcc.Interval(id="tick", interval=REFRESH_MS),
            html.A("Skip to content", href="#page", className="tk-skip"),
            _body(),
            dmc.Modal(shortcuts.lists(pages), id="help-sheet", title="Keyboard shortcuts", size="lg"),
            html.Div(id="imports", className="tk-imports", role="status", **aria(label="Imports")),
            html.Div("Drop traces to import them", id="drop", className="tk-drop", hidden=True),
        ],
    )


def _body() -> Component:
    return dmc.AppShell(
        [
            dmc.AppShellHeader(_header(), className="tk-header"),
            dmc.AppShellNavbar(html.Nav(id="menu", **aria(label="Pages")), className="tk-navbar"),
            dmc.AppShellMain(html.Main(id="page", tabIndex="-1", className="tk-page")),
        ],
        id="frame",
        header={"height": {"base": 88, "lg": 52}},
        navbar={"width": 216, "breakpoint": "sm", "collapsed": {"mobile": True, "desktop": False}},
        padding="md",
        transitionDuration=0,
    )


def _header() -> Component:
    return html.Div(
        [
            dmc.Burger(id="burger", size="sm", hiddenFrom="sm", opened=False, **aria(label="Menu")),
            html.A("tracekit", href="/", className="tk-brand tk-go"),
            html.Div(pickers(), className="tk-choices"),
            html.Div(
                [
                    html.Button("Import", className="tk-button tk-import-pick", title="Import traces"),
                    _icon("help-open", "?", "Keyboard shortcuts"),
                    _icon(
                        "theme-toggle",
                        html.Span(className="tk-icon tk-icon-theme"),
                        "Toggle light/dark theme",
                    ),
                ],
                className="tk-tools",
            ),
        ],
        className="tk-header-row",
    )


def _icon(name: str, sign: str | Component, label: str) -> Component:
    return html.Button(sign, id=name, className="tk-button tk-icon-button", title=label, **aria(label=label))


def connect(site: Site) -> None:
    """Register the callbacks of the frame."""
    _connect_route(site)
    client = site.app.clientside_callback
    client(
        ClientsideFunction("tracekit", "theme"),
        Output("mantine", "forceColorScheme"),
        Output("theme", "data"),
        Output("theme-chosen", "data"),
        Input("theme-toggle", "n_clicks"),
        State("theme-chosen", "data"),
    )
    client(
        ClientsideFunction("tracekit", "navbar"),
        Output("frame", "navbar"),
        Output("burger", "opened"),
        Input("burger", "opened"),
        Input("url", "pathname"),
        State("frame", "navbar"),
    )
    client(
        ClientsideFunction("tracekit", "sheet"),
        Output("help-sheet", "opened"),
        Input("help-open", "n_clicks"),
        prevent_initial_call=True,
    )
    client(
        ClientsideFunction("tracekit", "arrived"),
        Output("shown", "data"),
        Input("page", "children"),
        Input("view", "data"),
    )


def _connect_route(site: Site) -> None:
    @site.app.callback(
        Output("page", "children"),
        Output("menu", "children"),
        Output("view", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        State("view", "data"),
    )
    def route(path: str, search: str, before: dict[str, str] | None) -> tuple[Any, Any, Any]:
        view = View.parse(path, search)
        context = site.context(view, dark=False)
        stays = before is not None and View.parse(before["path"], "").page == view.page
        page = no_update if stays and context.chosen else laid_out(site, context)
        # Stay on the run that was the latest when the page was opened.
        return page, menu(site, context), {"path": path, "search": context.view.search()}


def laid_out(site: Site, context: Context) -> Component | list[Component]:
    """Return the layout of the view's page, or an error message."""
    page = site.pages.get(context.view.page)
    if page is None:
        return _notice("Page not found", "Choose a page from the menu.")
    if page.needs is Needs.RUN and context.chosen is None:
        if context.view.run:
            return _notice(page.title, f"The store has no readable run {context.view.run[:80]}.")
        return _notice(page.title, "The store has no runs yet.", "Import or record a run")
    body = page.layout(context)
    return [heading(page), *(body if isinstance(body, list) else [body])]


def heading(page: Page) -> Component:
    """Create the heading of a page: title, question and export toolbar."""
    return html.Header(
        [
            html.Div([html.H1(page.title, tabIndex="-1", className="tk-title"), html.P(page.question)]),
            offers.place(),
        ],
        className="tk-heading",
    )


def _notice(title: str, text: str, link: str = "All runs") -> Component:
    return html.Div(
        [
            html.Header(html.H1(title, tabIndex="-1", className="tk-title"), className="tk-heading"),
            html.P(text),
            html.A(link, href="/", className="tk-button tk-go"),
        ]
    )


def menu(site: Site, context: Context) -> list[Component]:
    """Create the menu; links keep the selected runs."""
    listed = {page.name: page for page in site.pages.values() if page.name not in site.covered}
    known = shortcuts.keys(listed)
    entries: list[Component] = []
    for section, pages in groupby(sorted(listed.values(), key=_place), key=lambda page: page.section):
        entries.append(html.H2(str(section), className="tk-menu-heading"))
        entries.append(html.Ul([_entry(page, context, known.get(page.name, "")) for page in pages]))
    return entries


def _place(page: Page) -> tuple[int, int, str]:
    return list(type(page.section)).index(page.section), page.order, page.name


def _entry(page: Page, context: Context, key: str) -> Component:
    here = page.name == context.view.page
    link = html.A(
        page.title,
        href=context.view.elsewhere(page.name),
        title=f"{page.question} (g {key})" if key else page.question,
        className="tk-menu-entry tk-go tk-current" if here else "tk-menu-entry tk-go",
        **(aria(current="page") if here else {}),
        **data(key=key),
    )
    return html.Li(link)
