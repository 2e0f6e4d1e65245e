"""Flame graph page: the call tree of host ops, by host or device time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Input, Output, dcc, html

from tracekit.analysis import Column
from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import answer, chosen_of, first_rows, named, nothing, some, switch
from ..figures.svg import SIDES, flame
from ..parts.charts import aria, data
from ..site import Section

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..answers.results import PageResults
    from ..site import Site

_SIDES = [("host", "Host time"), ("device", "Device time")]
OWN = 10
_PATH = Column("under", "", "names of its ancestors, outermost first")
_KEYS = "Click or Enter to zoom, Esc to zoom out, arrow keys to move, / to search."


def _answer(results: PageResults) -> list[Component]:
    nodes = results.frame("nodes")
    if nodes.empty:
        return []
    side = _side(results, nodes)
    _, own = SIDES[side]
    top = results.largest("nodes", own)
    count = (some(len(nodes), "count"), f" call paths. Highest {side} self time on one path: ")
    return [answer(*count, named(top[C.NAME]), ", ", top.number(own), ".")]


def _side(results: PageResults, nodes: pd.DataFrame) -> str:
    chosen = chosen_of(results.context, "side", _SIDES)
    return chosen if nodes[SIDES[chosen][0]].fillna(0).any() else "host"


def _figures(results: PageResults) -> list[Component]:
    nodes = results.frame("nodes")
    if nodes.empty:
        return []
    context, side = results.context, _side(results, nodes)
    drawn = flame(nodes, side)
    controls = html.Div(
        [
            switch(context, "side", "Width of the bars", _SIDES),
            dmc.TextInput(
                id="flame-search", placeholder="Search names", size="xs", w=220, **aria(label="Search names")
            ),
            html.Span(id="flame-matches", role="status", className="tk-flame-matches"),
        ],
        className="tk-switches",
    )
    wanted = chosen_of(context, "side", _SIDES)
    missing = [] if wanted == side else [nothing("Showing host time: no device time is linked to ops.")]
    columns = results.columns("nodes", C.RANK, C.NAME, "calls", *SIDES[side][::-1])
    own = _under(nodes, nodes.sort_values(SIDES[side][1], ascending=False, kind="stable").head(OWN))
    hidden = f" {drawn['left']:,} nodes are too narrow to draw." if drawn["left"] else ""
    return [
        controls,
        *missing,
        dcc.Store(id="flame-data", data=drawn),
        html.Div(
            id="flame",
            className="tk-flame",
            role="application",
            **aria(label="Flame graph"),
            **data(side=side),
        ),
        html.Div(id="flame-status", className="tk-flame-status", role="status"),
        dmc.Text(_KEYS + hidden, size="xs", c="dimmed", mb="md"),
        first_rows(context, own, [*columns, _PATH], title="Paths with the highest self time", limit=OWN),
    ]


def _under(nodes: pd.DataFrame, some_nodes: pd.DataFrame) -> pd.DataFrame:
    """Add the names of each node's ancestors, outermost first."""
    parents = dict(zip(nodes["node"], nodes["parent"], strict=True))
    names = dict(zip(nodes["node"], nodes[C.NAME], strict=True))
    paths: list[str] = []
    for node in some_nodes["node"]:
        ancestors: list[str] = []
        parent = parents[node]
        while pd.notna(parent):
            ancestors.insert(0, str(names[parent]))
            parent = parents[parent]
        paths.append(" › ".join(ancestors) or "–")
    return some_nodes.assign(under=paths)


def _connect(site: Site) -> None:
    site.app.clientside_callback(
        ClientsideFunction("tracekit", "flame"),
        Output("flame-status", "children"),
        Input("flame-data", "data"),
        Input("theme", "data"),
    )
    site.app.clientside_callback(
        ClientsideFunction("tracekit", "flameSearch"),
        Output("flame-matches", "children"),
        Input("flame-search", "value"),
        Input("flame-status", "children"),
    )


PAGE = replace(
    answer_page(
        "flame",
        title="Flame graph",
        section=Section.HOST,
        order=210,
        answer=_answer,
        figures=_figures,
        analyses=("call_tree",),
        height=520,
    ),
    connect=_connect,
)
