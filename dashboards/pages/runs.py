"""Runs page: list, compare, delete and import runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update

from ..blocks import error_alert
from ..page import Needs, Page, Section
from ..parts.aria import aria, data
from ..view import View
from ._runs.deleting import ask, connect_deleting, deleting
from ._runs.empty import welcome
from ._runs.rows import StepTimes, columns, rows

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..catalogue import Listing
    from ..context import Context
    from ..site import Site

REFRESH_MS = 1_200
_ROW, _HEADER = 30, 34
_OPTIONS = {
    "selectionColumnDef": {"pinned": "left", "width": 44, "maxWidth": 44},
    "rowSelection": {"mode": "multiRow", "checkboxes": True, "headerCheckbox": True},
    "rowHeight": _ROW,
    "headerHeight": _HEADER,
    "tooltipShowDelay": 400,
    "enableCellTextSelection": True,
    "ensureDomOrder": True,
}


def _layout(_: Context) -> list[Component]:
    grid = dag.AgGrid(
        id="runs-grid",
        className="tk-grid tk-runs",
        columnDefs=columns([]),
        defaultColDef={"sortable": True, "resizable": True},
        rowData=[],
        getRowId="params.data.run",
        dashGridOptions=_OPTIONS,
        style={"height": _height(3)},
    )
    listed = html.Div([_bar(), grid, html.Div(id="runs-unreadable")], id="runs-list", hidden=True)
    return [
        listed,
        html.Div(welcome(), id="runs-welcome", hidden=True),
        *deleting(),
        dcc.Store(id="runs-known"),
        dcc.Interval(id="runs-tick", interval=REFRESH_MS),
    ]


def _bar() -> Component:
    find = dmc.TextInput(id="runs-find", placeholder="Filter runs", size="xs", **aria(label="Filter runs"))
    return html.Div(
        [
            html.Div(find, className="tk-runs-find", **data(search="")),
            html.Span(_comparing(None, []), id="runs-compare"),
            ask(),
            html.Span(id="runs-count", className="tk-status", role="status"),
        ],
        className="tk-bar",
    )


def _height(count: int) -> str:
    return f"min(calc(100vh - 200px), {_HEADER + _ROW * max(count, 3) + 18}px)"


def connect(site: Site) -> None:
    """Register the callbacks of the list."""
    connect_deleting(site)
    _connect_list(site)

    @site.app.callback(
        Output("runs-compare", "children"),
        Input("runs-grid", "selectedRows"),
        State("view", "data"),
    )
    def comparing(selected: list[dict[str, Any]] | None, view: dict[str, str] | None) -> Any:
        known = [run.path.name for run in site.catalogue.listing().runs]
        chosen = sorted((row["run"] for row in selected or [] if row["run"] in known), key=known.index)
        before = View.parse(view["path"], view["search"]) if view else View()
        return _comparing(before, chosen)

    site.app.clientside_callback(
        ClientsideFunction("tracekit", "runsFind"),
        Output("runs-grid", "dashGridOptions"),
        Input("runs-find", "value"),
        State("runs-grid", "dashGridOptions"),
    )


def _connect_list(site: Site) -> None:
    times = StepTimes()

    @site.app.callback(
        Output("runs-grid", "rowData"),
        Output("runs-grid", "columnDefs"),
        Output("runs-grid", "style"),
        Output("runs-unreadable", "children"),
        Output("runs-list", "hidden"),
        Output("runs-welcome", "hidden"),
        Output("runs-count", "children"),
        Output("runs-known", "data"),
        Input("runs-tick", "n_intervals"),
        Input("tick", "n_intervals"),
        Input("runs-deleted", "data"),
        State("runs-known", "data"),
    )
    def refresh(_: int, __: int, ___: Any, known: str | None) -> list[Any]:
        listing = site.catalogue.listing()
        if known is None:  # show the list before computing step times
            return shown(listing, times)
        worked = times.work(listing.runs[::-1])
        return shown(listing, times) if worked or str(listing.stamp) != known else [no_update] * 8


def shown(listing: Listing, times: StepTimes) -> list[Any]:
    """Return the callback outputs that show a listing."""
    listed = rows(listing.runs, times)
    left_out = [error_alert(f"skipped {one.name}: {one.message}", one.hint) for one in listing.unreadable]
    empty = not listed and not left_out
    count = f"{len(listed):,} run{'s' * (len(listed) != 1)}"
    style = {"height": _height(len(listed))}
    return [listed, columns(listed), style, left_out, empty, not empty, count, str(listing.stamp)]


def _comparing(view: View | None, chosen: list[str]) -> Component:
    """Return a link that compares two runs with the older as baseline; a disabled button otherwise."""
    if view is None or len(chosen) != 2:
        return html.Button("Compare", className="tk-button", disabled=True, title="Select two runs")
    href = replace(view, run=chosen[1], base=chosen[0]).elsewhere("compare", rank=None, device=None)
    return html.A("Compare", href=href, className="tk-button tk-go", title="The older run is the baseline")


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
