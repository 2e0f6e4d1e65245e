"""The frame around every page: header with the choice of run, rank and device, the menu, and the theme."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, ctx, dcc, html, no_update

from . import exports
from .aria import aria
from .devices import present
from .page import Needs
from .view import View

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.run import Run

    from .context import Context
    from .page import Page
    from .site import Site

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
REFRESH_MS = 4_000
ALL = ""


def frame() -> Component:
    """What is there before anything is known of the runs."""
    return dmc.MantineProvider(
        id="mantine",
        theme={"primaryColor": "indigo", "fontFamily": FONT, "defaultRadius": "sm", "cursorType": "pointer"},
        children=[
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="view"),
            dcc.Store(id="theme", storage_type="local"),
            dcc.Store(id="shown"),
            dcc.Interval(id="tick", interval=REFRESH_MS),
            html.A("Skip to the page", href="#page", className="tk-skip"),
            dmc.AppShell(
                [
                    dmc.AppShellHeader(_header(), className="tk-header"),
                    dmc.AppShellNavbar(
                        dmc.ScrollArea(html.Nav(id="menu", **aria(label="Pages")), type="auto"),
                        className="tk-navbar",
                    ),
                    dmc.AppShellMain(html.Main(id="page", tabIndex="-1", className="tk-page")),
                ],
                id="frame",
                header={"height": 52},
                navbar={"width": 216, "breakpoint": "sm", "collapsed": {"mobile": True}},
                padding="md",
            ),
        ],
    )


def _header() -> Component:
    return dmc.Group(
        [
            dmc.Burger(id="burger", size="sm", hiddenFrom="sm", **aria(label="Menu")),
            dcc.Link("tracekit", href="/", className="tk-brand"),
            _select("run", "Run", width=330, searchable=True),
            _select("base", "Baseline", width=240, searchable=True, clearable=True),
            _select("rank", "Rank", width=110),
            _select("device", "Device", width=110),
            html.Div(className="tk-grow"),
            dmc.ActionIcon(
                html.Span(className="tk-icon tk-icon-theme", **aria(hidden="true")),
                id="theme-toggle",
                variant="default",
                size="lg",
                **aria(label="Light or dark"),
            ),
        ],
        h="100%",
        px="md",
        gap="sm",
        wrap="nowrap",
    )


def _select(name: str, label: str, *, width: int, **options: Any) -> Component:
    return dmc.Select(
        id=name,
        data=[],
        placeholder=label,
        w=width,
        size="sm",
        allowDeselect=False,
        className="tk-choice",
        **aria(label=label),
        **options,
    )


def connect(site: Site) -> None:
    """Callbacks of the frame."""
    _connect_route(site)
    _connect_choices(site)
    site.app.clientside_callback(
        ClientsideFunction("tracekit", "theme"),
        Output("mantine", "forceColorScheme"),
        Output("theme", "data"),
        Input("theme-toggle", "n_clicks"),
        State("theme", "data"),
    )
    site.app.clientside_callback(
        ClientsideFunction("tracekit", "navbar"),
        Output("frame", "navbar"),
        Input("burger", "opened"),
        Input("url", "pathname"),
        State("frame", "navbar"),
    )
    site.app.clientside_callback(
        ClientsideFunction("tracekit", "arrived"), Output("shown", "data"), Input("page", "children")
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
        page = no_update if stays else laid_out(site, context)
        return page, menu(site, context), {"path": path, "search": search}


def laid_out(site: Site, context: Context) -> Component | list[Component]:
    """The layout of the page that a view names, or why there is none."""
    page = site.pages.get(context.view.page)
    if page is None:
        return _notice("There is no such page", f"/{context.view.page}", dcc.Link("All runs", href="/"))
    if page.needs is Needs.RUN and context.chosen is None:
        what = f"run {context.view.run}" if context.view.run else "any run"
        return _notice(page.title, f"The store does not hold {what}.", dcc.Link("All runs", href="/"))
    body = page.layout(context)
    return [heading(page), *(body if isinstance(body, list) else [body])]


def heading(page: Page) -> Component:
    """Title and question of a page."""
    return html.Header(
        [
            html.Div(
                [dmc.Title(page.title, order=1, size="h2"), dmc.Text(page.question, c="dimmed", size="sm")]
            ),
            exports.place(),
        ],
        className="tk-heading",
    )


def _notice(title: str, text: str, link: Component) -> Component:
    return dmc.Stack([dmc.Title(title, order=1, size="h2"), dmc.Text(text), link], gap="xs")


def menu(site: Site, context: Context) -> list[Component]:
    """The pages under their headings, each with an address on the same runs."""
    listed = [page for page in site.pages.values() if page.name not in site.covered]
    entries: list[Component] = []
    for section, pages in groupby(sorted(listed, key=_place), key=lambda page: page.section):
        entries.append(html.H2(str(section), className="tk-menu-heading"))
        entries += [_entry(page, context) for page in pages]
    return entries


def _place(page: Page) -> tuple[int, int, str]:
    return list(type(page.section)).index(page.section), page.order, page.name


def _entry(page: Page, context: Context) -> Component:
    here = page.name == context.view.page
    return dcc.Link(
        page.title,
        href=context.view.elsewhere(page.name),
        className="tk-menu-entry tk-here" if here else "tk-menu-entry",
    )


def _connect_choices(site: Site) -> None:
    names = ("run", "base", "rank", "device")

    @site.app.callback(
        *(Output(name, prop) for name in names for prop in ("data", "value")),
        Input("view", "data"),
        Input("tick", "n_intervals"),
        State("run", "data"),
    )
    def offer(view: dict[str, str] | None, _: int, known: list[dict[str, str]]) -> list[Any]:
        if view is None:
            return [no_update] * 8
        runs = [_choice(run) for run in reversed(site.store.readable())]
        if ctx.triggered_id == "tick" and runs == known:
            return [no_update] * 8
        context = site.context(View.parse(view["path"], view["search"]), dark=False)
        asked = context.view
        run = context.chosen
        ranks, devices = site.results.get((run.path, present), lambda: present(run)) if run else ([], [])
        return [
            *(runs, asked.run or None, runs, asked.base or None),
            *(_numbers("rank", ranks), _text(asked.rank), _numbers("device", devices), _text(asked.device)),
        ]

    @site.app.callback(
        Output("url", "search"),
        *(Input(name, "value") for name in names),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(
        run: str | None, base: str | None, rank: str | None, device: str | None, view: dict[str, str]
    ) -> Any:
        before = site.context(View.parse(view["path"], view["search"]), dark=False).view
        chosen = (run or "", base or "", _number(rank), _number(device))
        if chosen == (before.run, before.base, before.rank, before.device):
            return no_update
        if chosen[0] != before.run:  # what was chosen of another run means nothing in this one
            return View(run=chosen[0], base=chosen[1], options=before.options).search()
        return replace(before, base=chosen[1], rank=chosen[2], device=chosen[3]).search()


def _choice(run: Run) -> dict[str, str]:
    label = run.meta.label
    return {"value": run.path.name, "label": f"{label} · {run.path.name}" if label else run.path.name}


def _numbers(word: str, values: list[int]) -> list[dict[str, str]]:
    every = {"value": ALL, "label": f"all {word}s"}
    return [every, *({"value": str(value), "label": f"{word} {value}"} for value in values)]


def _text(value: int | None) -> str:
    return ALL if value is None else str(value)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None
