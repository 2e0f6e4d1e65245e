"""Frame of every page: header with pickers, menu, and routing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import dash_mantine_components as dmc
import pyarrow.compute as pc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from tracekit import analysis
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.runs.devices import find_named
from tracekit.runs.devices import names as device_names
from tracekit.runs.run import Run
from tracekit.schema import C

from . import shortcuts
from .components.charts import aria, data
from .components.elements import join_elements
from .components.links import commit_name, display_name
from .exports import downloads
from .site import Context, Needs, Page, Section, Site, View


def find_ranks_and_devices(run: Run) -> tuple[list[int], list[int]]:
    """Return the ranks and devices that occur in a run's intervals, sorted."""
    device = run.arrow("device_intervals", columns=[C.RANK, C.DEVICE])
    host = run.arrow("host_intervals", columns=[C.RANK])
    ranks = {value for table in (device, host) for value in pc.unique(table[C.RANK]).to_pylist()}
    devices = set(pc.unique(device[C.DEVICE]).to_pylist())
    return sorted(ranks - {None}), sorted(devices - {None})


_RUN_NAMES = ("run", "base")
NAMES = (*_RUN_NAMES, "rank", "device", "peaks")
PROPERTIES = (("", "data"), ("", "value"), ("-box", "hidden"), ("-box", "title"))
"""What the fields of a `PickerState` set: properties of the picker, and of the box around it."""
ALL = ""


def _picker(name: str, label: str, *, section: int, **options: Any) -> Component:
    select = dmc.Select(
        id=name,
        data=[],
        size="xs",
        allowDeselect=False,
        leftSection=html.Span(label, className="tk-choice-label"),
        leftSectionWidth=section,
        limit=MAX_OPTIONS + 1,
        maxDropdownHeight=360,
        nothingFoundMessage="no match",
        comboboxProps={"width": "max-content", "position": "bottom-start", "shadow": "md"},
        **options,
        **aria(label=label),
    )
    return html.Div(select, id=f"{name}-box", className=f"tk-choice tk-choice-{name}", hidden=True)


class PickerState(NamedTuple):
    """State of a picker."""

    options: list[dict[str, str]]
    value: str | None  # the selected option
    hidden: bool  # whether there is nothing to choose
    title: str = ""  # full text of the value, for the tooltip


def picker_states(site: Site, context: Context) -> list[PickerState]:
    """Return the state of each picker, in the order of `NAMES`."""
    view, run = context.view, context.chosen
    ranks: list[int] = []
    devices: list[int] = []
    with suppress(TracekitError):  # the page shows the error
        if run:
            key = (run.path, find_ranks_and_devices)
            ranks, devices = site.results.get(key, lambda: find_ranks_and_devices(run))
    numbers = [_number_picker(ranks, view.rank), _number_picker(devices, view.device)]
    return [*offer_runs(site, view), *numbers, _peaks_picker(site, view)]


def offer_runs(site: Site, view: View) -> list[PickerState]:
    """Return the state of the pickers of the run and of its baseline."""
    runs = site.catalog.list_runs().runs
    run = list_run_options(runs, view.run)
    base = list_run_options(runs, view.base, without=view.run)
    return [
        PickerState(run, view.run or None, hidden=not runs, title=view.run),
        PickerState(base, view.base or None, hidden=len(runs) < 2, title=view.base),
    ]


MAX_OPTIONS = 100
"""Options at once, besides the chosen run."""


def list_run_options(
    runs: Sequence[Run], chosen: str | None, *, without: str = "", search: str = ""
) -> list[dict[str, str]]:
    """Return the newest runs that match a search, and the chosen one, as options of a picker.

    Args:
        runs: All runs, oldest first.
        chosen: Id of the chosen run, which is always an option.
        without: Id of a run that is none.
        search: Text in label or id, ignoring case; the label of the chosen run is no search.
    """
    current = next((run for run in runs if run.path.name == chosen), None)
    now = datetime.now(UTC)
    words = search.lower().split()
    if current and _without_age(search) == _without_age(display_name(current, now)):
        words = []
    others = (run for run in reversed(runs) if run.path.name != without and _matches(run, words))
    shown = list(islice(others, MAX_OPTIONS))
    if current and current not in shown:
        shown.append(current)
    return [{"value": run.path.name, "label": display_name(run, now)} for run in shown]


def _without_age(name: str) -> list[str]:
    """Return the parts of the name of a run, without its age, which changes while it is shown."""
    return [part for part in name.split(" · ") if part != "now" and not part.endswith(" ago")]


def _matches(run: Run, words: Sequence[str]) -> bool:
    text = f"{run.header.label or ''} {run.path.name} {commit_name(run.header.git)}".lower() if words else ""
    return all(word in text for word in words)


def _connect_search(site: Site, name: str) -> None:
    site.app.clientside_callback(  # the picker itself searches in fewer runs
        ClientsideFunction("tracekit", "search"),
        Output(f"{name}-search", "data"),
        Input(name, "searchValue"),
        State(name, "data"),
        State(name, "limit"),
        prevent_initial_call=True,
    )

    @site.app.callback(
        Output(name, "data", allow_duplicate=True),
        Input(f"{name}-search", "data"),
        State(name, "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def search(text: str | None, chosen: str | None, view: dict[str, str] | None) -> Any:
        runs = site.catalog.list_runs().runs
        if view is None or len(runs) <= MAX_OPTIONS:
            return no_update  # the browser has all of them
        current = site.context_of(view).view.run
        without = current if name == "base" else ""
        return list_run_options(runs, chosen, without=without, search=text or "")


def _peaks_picker(site: Site, view: View) -> PickerState:
    """Return the state of the picker of peaks, for pages that use them, and while some are chosen."""
    page = site.pages.get(view.page)
    used = page is not None and any(analysis.get(name).uses_peaks for name in downloads.list_analyses(page))
    options = [{"value": name, "label": name} for name in device_names()]
    value = view.peaks
    with suppress(UnusableInputError):  # not listed
        value = find_named(value).name if value else ""
    if value and value not in device_names():
        options.insert(0, {"value": value, "label": f"{value} (not listed)"})
    title = f"Peaks of {value} instead of those of the recorded device" if value else ""
    return PickerState(options=options, value=value or None, hidden=not (used or value), title=title)


def _number_picker(values: list[int], chosen: int | None) -> PickerState:
    options = {ALL: "all"} | {str(value): str(value) for value in values}
    return PickerState(
        options=[{"value": value, "label": label} for value, label in options.items()],
        value=ALL if chosen is None else str(chosen),
        hidden=len(values) < 2 and chosen is None,
    )


def list_offered(states: Sequence[PickerState]) -> list[Any]:
    """Return what tells states of pickers from others, and their values."""
    return [str(hash(repr(states))), [state.value for state in states]]


def connect_pickers(site: Site) -> None:
    """Register the callbacks that fill the pickers and write choices to the address."""

    @site.app.callback(
        *(Output(f"{name}{place}", prop) for name in NAMES for place, prop in PROPERTIES),
        Output("offered", "data"),
        Input("view", "data"),
        State("offered", "data"),
        *(State(name, "value") for name in NAMES),
        prevent_initial_call=True,  # without a view
    )
    def offer(view: dict[str, str] | None, before: list[Any] | None, *values: str | None) -> list[Any]:
        if view is None:
            raise PreventUpdate
        states = picker_states(site, site.context_of(view))
        offered = list_offered(states)
        if offered == before and offered[1] == [*values]:
            raise PreventUpdate  # most pages offer the same, and to set all pickers costs the browser 0.1 s
        return [*(value for state in states for value in state), offered]

    # Not an input of `offer`: Dash drops a request in progress when its callback is triggered again.
    @site.app.callback(
        *(Output(name, "data", allow_duplicate=True) for name in _RUN_NAMES),
        *(Output(f"{name}-box", "hidden", allow_duplicate=True) for name in _RUN_NAMES),
        Output("listed", "data"),
        Input("tick", "n_intervals"),
        State("view", "data"),
        State("listed", "data"),
        prevent_initial_call=True,
    )
    def refresh(_: int, view: dict[str, str] | None, before: str | None) -> list[Any]:
        stamp = str(site.catalog.list_runs().stamp)
        if view is None or stamp == before:
            return [no_update] * 5
        offered = offer_runs(site, site.context_of(view).view)
        return [choice.options for choice in offered] + [choice.hidden for choice in offered] + [stamp]

    for name in _RUN_NAMES:
        _connect_search(site, name)

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "chosen"),
        Output("choice", "data"),
        *(Input(name, "value") for name in NAMES),
        State("offered", "data"),
        State("view", "data"),
        prevent_initial_call=True,
    )

    @site.app.callback(
        Output("url", "search"), Input("choice", "data"), State("view", "data"), prevent_initial_call=True
    )
    def choose(values: list[str | None], view: dict[str, str]) -> Any:
        run, base, rank, device, peaks = (value or "" for value in values)
        before = site.context_of(view).view
        after = view_after_choice(before, run, base, _parse_number(rank), _parse_number(device), peaks)
        return no_update if after == before else after.search()


def view_after_choice(
    before: View, run: str, base: str, rank: int | None, device: int | None, peaks: str = ""
) -> View:
    """Return the view after a choice; a new run resets rank, device, range, row and peaks.

    Args:
        before: The view before.
        run: Id of the run.
        base: Id of the baseline; empty for none.
        rank: The rank; None for all.
        device: The device; None for all.
        peaks: Device whose peaks are used; empty for the recorded ones.
    """
    if run and run != before.run:
        return View(page=before.page, run=run, base="" if base == run else base, options=before.options)
    return replace(before, base=base, rank=rank, device=device, peaks=peaks)


def _parse_number(text: str) -> int | None:
    return int(text) if text.removeprefix("-").isdecimal() else None


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
REFRESH_MS = 4_000
EARLY = (Path(__file__).parent / "assets" / "early.js").read_text("utf-8")
INDEX = """<!DOCTYPE html>
<html lang="en">
  <head>
    {%metas%}
    <title>{%title%}</title>
    <link rel="icon" type="image/svg+xml" href="/assets/favicon.svg">
    <template id="scripts">{%scripts%}</template>
    <script>{early}</script>
    {%css%}
  </head>
  <body>
    {%app_entry%}
    <noscript>This page needs JavaScript.</noscript>
    <footer>{%config%}{%renderer%}</footer>
  </body>
</html>""".replace("{early}", EARLY)
"""Index page; `early.js` sets the theme before first paint, and runs scripts while the page is computed."""


def shell(pages: dict[str, Page]) -> Component:
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
            dcc.Store(id="listed"),
            dcc.Store(id="offered"),
            dcc.Store(id="choice"),
            *(dcc.Store(id=f"{name}-search") for name in _RUN_NAMES),
            dcc.Interval(id="tick", interval=REFRESH_MS),
            html.A("Skip to content", href="#page", className="tk-skip"),
            _body(),
            dmc.Modal(
                join_elements(shortcuts.show_shortcuts(pages)),
                id="help-sheet",
                title="Keyboard shortcuts",
                size="lg",
            ),
            html.Div(id="imports", className="tk-imports", role="status", **aria(label="Imports")),
            html.Div("Drop traces to import them", id="drop", className="tk-drop", hidden=True),
        ],
    )


def _body() -> Component:
    return dmc.AppShell(
        [
            dmc.AppShellHeader(join_elements(_header()), className="tk-header"),
            dmc.AppShellNavbar(html.Nav(id="menu", **aria(label="Pages")), className="tk-navbar"),
            dmc.AppShellMain(html.Div(id="page", tabIndex="-1", className="tk-page")),
        ],
        id="frame",
        header={"height": {"base": 88, "lg": 52}},
        navbar={"width": 216, "breakpoint": "sm", "collapsed": {"mobile": True, "desktop": False}},
        padding="md",
        transitionDuration=0,
    )


def _header() -> Component:
    pickers = [  # each stays hidden until it has options
        _picker("run", "Run", section=44, searchable=True),
        _picker("base", "Baseline", section=72, searchable=True, clearable=True, placeholder="none"),
        _picker("rank", "Rank", section=48),
        _picker("device", "Device", section=58),
        _picker("peaks", "Peaks", section=52, searchable=True, clearable=True, placeholder="recorded device"),
    ]
    theme = html.Span(className="tk-icon tk-icon-theme")
    tools = [
        html.Button("Import", className="tk-button tk-import-pick", title="Import traces"),
        _icon("help-open", "?", "Keyboard shortcuts"),
        _icon("theme-toggle", theme, "Toggle light/dark theme"),
    ]
    return html.Div(
        [
            dmc.Burger(id="burger", size="sm", hiddenFrom="sm", opened=False, **aria(label="Menu")),
            html.A("tracekit", href="/", className="tk-brand tk-go"),
            html.Div(pickers, className="tk-choices"),
            html.Div(tools, className="tk-tools"),
        ],
        className="tk-header-row",
    )


def _icon(name: str, sign: str | Component, label: str) -> Component:
    return html.Button(sign, id=name, className="tk-button tk-icon-button", title=label, **aria(label=label))


def connect(site: Site) -> None:
    """Register the callbacks of the frame."""

    @site.app.callback(
        Output("page", "children"),
        Output("menu", "children"),
        Output("view", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        State("view", "data"),
        prevent_initial_call=True,  # the first response has all of it, or no address
    )
    def route(path: str, search: str, before: dict[str, str] | None) -> tuple[Any, Any, Any]:
        view = View.parse(path, search)
        context = site.context(view, dark=False)
        stays = before is not None and View.parse(before["path"], "").page == view.page
        page = no_update if stays and context.chosen else join_elements(page_layout(site, context))
        # Stay on the run that was the latest when the page was opened.
        return page, join_elements(menu(site, context)), {"path": path, "search": context.view.search()}

    client = site.app.clientside_callback
    client(
        ClientsideFunction("tracekit", "theme"),
        Output("mantine", "forceColorScheme"),
        Output("theme", "data"),
        Output("theme-chosen", "data"),
        Input("theme-toggle", "n_clicks"),
        State("theme-chosen", "data"),
        State("theme", "data"),
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


def page_layout(site: Site, context: Context) -> Component | list[Component]:
    """Return the layout of the view's page, or an error message."""
    page = site.pages.get(context.view.page)
    if page is None:
        return _notice("Page not found", "Choose a page from the menu.")
    if page.needs is Needs.RUN and context.chosen is None:
        if context.view.run:
            return _notice(page.title, f"The store has no readable run {context.view.run[:80]}.")
        return _notice(page.title, "The store has no runs yet.", "Import or record a run")
    title = html.Div([html.H1(page.title, tabIndex="-1", className="tk-title"), html.P(page.question)])
    links = downloads.export_links(page, context)
    tools = html.Div(
        links, id=downloads.TOOLBAR, className="tk-exports", role="group", **aria(label="Exports")
    )
    body = page.layout(context)
    content = body if isinstance(body, list) else [body]
    return [html.Header([title, tools], className="tk-heading"), *content]


def _notice(title: str, text: str, link: str = "All runs") -> Component:
    heading = html.Header(html.H1(title, tabIndex="-1", className="tk-title"), className="tk-heading")
    return html.Div([heading, html.P(text), html.A(link, href="/", className="tk-button tk-go")])


def menu(site: Site, context: Context) -> list[Component]:
    """Create the menu; links keep the selected runs. Pages without data in the run come last, folded."""
    listed = {page.name: page for page in site.pages.values() if page.name not in site.covered}
    key_of_page = shortcuts.assign_keys(listed)
    order = [*Section]
    ordered = sorted(listed.values(), key=lambda page: (order.index(page.section), page.order, page.name))
    lacks = {page.name: site.find_lack(page, context.chosen) for page in ordered if context.chosen}
    without = [page for page in ordered if lacks.get(page.name)]
    entries: list[Component] = []
    for section, pages in groupby(ordered, key=lambda page: page.section):
        links = [_menu_entry(page, context, key_of_page) for page in pages if page not in without]
        if links:
            entries += [html.H2(str(section), className="tk-menu-heading"), html.Ul(links)]
    if without:
        links = [_menu_entry(page, context, key_of_page, lacks[page.name]) for page in without]
        heading = html.Summary("Not in this run", className="tk-menu-heading")
        is_open = any(page.name == context.view.page for page in without)
        entries.append(html.Details([heading, html.Ul(links)], open=is_open))
    return entries


def _menu_entry(page: Page, context: Context, key_of_page: Mapping[str, str], lack: str = "") -> Component:
    is_current, key = page.name == context.view.page, key_of_page.get(page.name, "")
    says = f"{lack[0].upper()}{lack[1:]}".replace("`", "") if lack else page.question
    link = html.A(
        page.title,
        href=context.view.elsewhere(page.name),
        title=f"{says} (g {key})" if key else says,
        className="tk-menu-entry tk-go tk-current" if is_current else "tk-menu-entry tk-go",
        **(aria(current="page") if is_current else {}),
        **data(key=key),
    )
    return html.Li(link)
