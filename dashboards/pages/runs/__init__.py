"""Runs page: list of runs, filtered, sorted and paged by the server; tags and notes, comparing, deletion."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.experiments.sweep_folder import list_sweeps
from tracekit.runs import notes
from tracekit.runs.run import Run

from ...blocks import error_alert
from ...catalog import Listing
from ...components.charts import aria, data
from ...components.several_runs import MAX_RUNS, with_ids
from ...site import PLAIN, Context, Needs, Page, Section, Site, View
from ...tables.html import html_table
from . import dialogs
from .dialogs import create_button
from .rows import SWEEP, Row, Steps, StepTimes, columns, filter_rows, group_sweeps, make_row, sort_rows

REFRESH_MS = 1_200
PAGE_ROWS = 50
"""Rows of a response: about 30 KB."""
STEP_FIELDS = {"step", "steps", "ranks"}
"""Fields of which sorting and filters need the step times of all runs."""
_ROW_PX, _HEADER_PX, _SCROLLBAR_PX = 30, 34, 18
_OPTIONS = {
    "selectionColumnDef": {"pinned": "left", "width": 44, "maxWidth": 44},
    "rowSelection": {
        "mode": "multiRow",
        "checkboxes": True,
        "headerCheckbox": False,
        "isRowSelectable": {"function": f"params.data && !params.data.{SWEEP}"},
    },
    "rowHeight": _ROW_PX,
    "headerHeight": _HEADER_PX,
    "tooltipShowDelay": 400,
    "enableCellTextSelection": True,
    "ensureDomOrder": True,
    "cacheBlockSize": PAGE_ROWS,
    "maxBlocksInCache": 20,
    "maxConcurrentDatasourceRequests": 1,
}


def _layout(context: Context) -> list[Component]:
    grid = dag.AgGrid(
        id="runs-grid",
        className="tk-grid tk-runs",
        columnDefs=columns([]),
        defaultColDef={"sortable": True, "resizable": True},
        rowModelType="infinite",
        getRowId="params.data.run",
        dashGridOptions=_OPTIONS,
        style={"height": _height(3)},
    )
    listed = html.Div([_bar(context.view), grid, html.Div(id="runs-unreadable")], id="runs-list", hidden=True)
    return [
        *([_list_plainly(context)] if PLAIN in context.view.options else []),
        listed,
        html.Div([dialogs.welcome()], id="runs-welcome", hidden=True),
        *dialogs.create_delete_dialog(),
        *dialogs.create_notes_dialog(),
        dcc.Store(id="runs-known"),  # stamp and fields of what the grid shows
        dcc.Store(id="runs-refreshed"),  # stays empty, like the next: a callback needs an output
        dcc.Store(id="runs-arrived"),
        dcc.Interval(id="runs-tick", interval=REFRESH_MS),
    ]


MAX_PLAIN_ROWS = 500
"""Maximum runs of the list without scripts."""
_PLAIN = (
    Column("run", "", "the run, with a link to its overview"),
    Column("label", "", "its label"),
    Column("gpu", "", "its GPU"),
    Column("created", "", "when it was recorded, UTC"),
)


def _list_plainly(context: Context) -> Component:
    """Return the newest runs as a table, for browsers that run no scripts."""
    listed = [
        make_row(run, None, notes.read(run))
        | {"run": html.A(run.path.name, href=context.view.elsewhere("overview", run=run.path.name))}
        for run in reversed(context.store.readable()[-MAX_PLAIN_ROWS:])
    ]
    return html_table(_PLAIN, listed, caption="Runs of the store")


def _bar(view: View) -> Component:
    find = dmc.TextInput(
        id="runs-find",
        value=view.options.get("find", ""),
        placeholder="Filter runs",
        size="xs",
        **aria(label="Filter runs"),
    )
    single = dmc.Switch(
        id="runs-cells",
        label="Runs of sweeps",
        size="xs",
        checked=view.options.get("sweeps") == "1",
        persistence=True,
        persistence_type="local",
    )
    name = "Name of this view"
    field = dmc.TextInput(id="runs-view-name", placeholder=name, size="xs", **aria(label=name))
    save = html.Button("Save", id="runs-view-save", className="tk-button")
    words = "Saved in this browser. To share a view, copy the address: it has filters, order and columns."
    views = [html.Ul(id="runs-views"), html.Div([field, save], className="tk-view-new"), html.P(words)]
    return html.Div(
        [
            html.Div(find, className="tk-runs-find", **data(search="")),
            html.Span(_compare_link(None, []), id="runs-compare"),
            create_button("runs-notes", "Notes…", "Select one run"),
            create_button("runs-delete", "Delete…", "Select runs to delete"),
            _create_fold("runs-columns", "Columns", html.Ul(id="runs-columns")),
            _create_fold("runs-views", "Views", views),
            single,
            html.Span(id="runs-count", className="tk-status", role="status"),
        ],
        className="tk-bar",
    )


def _create_fold(name: str, title: str, content: Component | list[Component]) -> Component:
    """Create a button that opens a panel, which `assets/runs_views.js` fills."""
    panel = html.Div(content, className="tk-fold-panel")
    summary = html.Summary(title, className="tk-button")
    return html.Details([summary, panel], id=f"{name}-fold", className="tk-fold")


def _height(count: int) -> str:
    """Return the height of a grid of some rows: all of them, or what the bars above leave of the window."""
    return f"min(calc(100vh - 200px), {_HEADER_PX + _ROW_PX * max(count, 3) + _SCROLLBAR_PX}px)"


@dataclass
class Table:
    """Rows of all runs; a row is made again when its run, its step times or its notes change."""

    site: Site
    times: StepTimes = field(default_factory=StepTimes)  # step times of the runs
    _edits: int = 0  # how often notes changed
    # rows by run id, each with what it was made of
    _made: dict[str, tuple[Run, Steps | None, Row]] = field(default_factory=dict)
    _all: tuple[str, list[Row]] = ("", [])  # the same rows as a list, with their stamp
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def stamp(self, listing: Listing) -> str:
        """Return a text that changes with the rows."""
        return f"{listing.stamp}:{self.times.computed}:{self._edits}"

    def forget_row(self, name: str) -> None:
        """Read the notes of a run again."""
        with self._guard:
            self._made.pop(name, None)
            self._edits += 1

    def all_rows(self, listing: Listing) -> list[Row]:
        """Return the rows of all runs, newest first."""
        with self._guard:
            stamp = self.stamp(listing)
            if self._all[0] != stamp:
                made = {}
                for run in reversed(listing.runs):
                    steps, before = self.times.of(run), self._made.get(run.path.name)
                    is_same = before and before[0] is run and before[1] is steps
                    row = before[2] if before and is_same else make_row(run, steps, notes.read(run))
                    made[run.path.name] = run, steps, row
                self._made, self._all = made, (stamp, [row for _, _, row in made.values()])
            return self._all[1]

    def select_rows(
        self, listing: Listing, text: str | None, request: Mapping[str, Any], single: Any
    ) -> list[Row]:
        """Return the rows that pass all filters, sorted.

        Args:
            listing: The runs of the store.
            text: Words of the text filter.
            request: Request of the grid, with its filters and order.
            single: Whether each run of a sweep has a row; else those of a sweep are one row.
        """
        rows = filter_rows(self.all_rows(listing), text or "", request.get("filterModel") or {})
        if not single:
            sweeps = {folder.id: folder.plan.kind for folder in list_sweeps(self.site.store)}
            rows = group_sweeps(rows, sweeps)
        return sort_rows(rows, request.get("sortModel") or [])


def _page(request: Mapping[str, Any], *, around: int = 0) -> slice:
    """Return the requested rows, and some around them."""
    start = max(0, int(request.get("startRow") or 0) - around)
    return slice(start, start + PAGE_ROWS + 2 * around)


def connect(site: Site) -> None:
    """Register the callbacks of the list."""
    table = Table(site)
    site.app.clientside_callback(
        ClientsideFunction("tracekit", "runsArrived"),
        Output("runs-arrived", "data"),
        Input("view", "data"),
        Input("runs-find", "value"),
        Input("runs-cells", "checked"),
    )
    dialogs.connect_delete(site)
    dialogs.connect_notes(site, table.forget_row)
    _connect_list(site, table)
    _connect_refresh(site, table)

    @site.app.callback(
        Output("runs-compare", "children"),
        Input("runs-grid", "selectedRows"),
        State("view", "data"),
        prevent_initial_call=True,  # nothing is selected, as the layout says
    )
    def link_comparison(selected: list[dict[str, Any]] | None, view: dict[str, str] | None) -> Any:
        run_ids = [run.path.name for run in site.catalog.list_runs().runs]
        chosen = sorted({row["run"] for row in selected or []} & set(run_ids), key=run_ids.index)
        before = View.parse(view["path"], view["search"]) if view else View()
        return _compare_link(before, chosen)


def _connect_list(site: Site, table: Table) -> None:
    @site.app.callback(
        Output("runs-grid", "getRowsResponse"),
        Output("runs-count", "children"),
        Input("runs-grid", "getRowsRequest"),
        State("runs-find", "value"),
        State("runs-cells", "checked"),
        prevent_initial_call=True,
    )
    def answer(request: dict[str, Any] | None, text: str | None, single: Any) -> Any:
        if request is None:
            return no_update, no_update
        listing = site.catalog.list_runs()
        rows = table.select_rows(listing, text, request, single)
        # Runs, of which one row can stand for several.
        passing = len(filter_rows(table.all_rows(listing), text or "", request.get("filterModel") or {}))
        response = {"rowData": rows[_page(request)], "rowCount": len(rows)}
        return response, describe_count(passing, len(listing.runs))

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "runsAgain"),
        Output("runs-refreshed", "data"),
        Input("runs-known", "data"),
        Input("runs-find", "value"),
        Input("runs-cells", "checked"),
        prevent_initial_call=True,
    )


def _connect_refresh(site: Site, table: Table) -> None:
    @site.app.callback(
        Output("runs-grid", "columnDefs"),
        Output("runs-grid", "style"),
        Output("runs-unreadable", "children"),
        Output("runs-list", "hidden"),
        Output("runs-welcome", "hidden"),
        Output("runs-known", "data"),
        Input("runs-tick", "n_intervals"),
        Input("runs-deleted", "data"),
        Input("runs-noted", "data"),
        State("runs-known", "data"),
        State("runs-grid", "getRowsRequest"),
        State("runs-find", "value"),
        State("runs-cells", "checked"),
        # No tick during a refresh: Dash would drop the response to the request before.
        running=[(Output("runs-tick", "disabled"), True, False)],
    )
    def refresh(*values: Any) -> list[Any]:
        before, request, text, single = values[3:]  # those of the inputs only say when
        listing = site.catalog.list_runs()
        if before is not None and request:  # show the list before computing step times
            table.times.work(_runs_to_time(listing, table, request, text, single))
        if before is not None and before["stamp"] == table.stamp(listing):
            return [no_update] * 6
        shown = list_properties(listing, table.all_rows(listing))
        fields = [row["field"] for row in shown[0]]
        if before is not None and before["fields"] == fields:
            shown[0] = no_update  # keeps widths that the user chose
        return [*shown, {"stamp": table.stamp(listing), "fields": fields}]


def _runs_to_time(
    listing: Listing, table: Table, request: Mapping[str, Any], text: str | None, single: Any
) -> Sequence[Run]:
    """Return the runs whose step times are wanted: around the page, or all to sort or filter by them."""
    sort_fields = {entry.get("colId") for entry in request.get("sortModel") or []}
    if STEP_FIELDS & (sort_fields | set(request.get("filterModel") or {})):
        return listing.runs[::-1]
    shown = table.select_rows(listing, text, request, single)[_page(request, around=PAGE_ROWS)]
    names = {row["run"] for row in shown}
    return [run for run in reversed(listing.runs) if run.path.name in names]


def list_properties(listing: Listing, listed: Sequence[Row]) -> list[Any]:
    """Return columns and height of the grid, what cannot be read, and whether list and welcome are hidden."""
    left_out = [error_alert(f"skipped {of.name}: {of.message}", of.hint) for of in listing.unreadable]
    empty = not listed and not left_out
    return [columns(listed), {"height": _height(len(listed))}, left_out, empty, not empty]


def describe_count(passing: int, total: int) -> str:
    """Return the number of runs that pass the filters."""
    runs = f"{total:,} run{'s' * (total != 1)}"
    return runs if passing == total else f"{passing:,} of {runs}"


def _compare_link(view: View | None, chosen: list[str]) -> Component:
    """Return a link that compares runs with the oldest as baseline; a disabled button otherwise.

    Args:
        view: The current view; None before there is one.
        chosen: Ids of the selected runs, oldest first.
    """
    if view is None or not 2 <= len(chosen) <= MAX_RUNS:
        title = f"Select 2 to {MAX_RUNS} runs"
        return html.Button("Compare", className="tk-button", disabled=True, title=title)
    base, *further, run = chosen
    pair = replace(view, page="compare", run=run, base=base, rank=None, device=None, options={})
    # The time range and the row of the current view are of another run.
    href = with_ids(pair, further, start_ns=None, end_ns=None, row="")
    return html.A("Compare", href=href, className="tk-button tk-go", title="The oldest run is the baseline")


PAGE = Page(
    name="runs",
    title="Runs",
    question="Which runs are in the store?",
    section=Section.START,
    order=0,
    layout=_layout,
    needs=Needs.NOTHING,
    connect=connect,
)
