"""Flame graph page: call paths of ops, Python calls, samples or modules, by host or device time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
import numpy as np
import numpy.typing as npt
import pandas as pd
from dash import ClientsideFunction, Input, Output, dcc, html
from dash.development.base_component import Component

from tracekit.analysis import NODE, PARENT, Column
from tracekit.errors import clean
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import (
    PageResults,
    format_name,
    format_number,
    keep_largest,
    show_answer,
    show_nothing,
)
from ..components.charts import aria, data
from ..components.text import show_note
from ..site import Section, Site

_SIDES = [("host", "Host time"), ("device", "Device time")]
_OPS, _STACKS, _SAMPLES, _MODULES = "ops", "stacks", "samples", "modules"
_BY = [
    (_OPS, "By op"),
    (_STACKS, "By Python call"),
    (_SAMPLES, "By Python sample"),
    (_MODULES, "By module"),
]
_RECORD = "; record them with `tracekit collect --stacks`, or `with_stack=True` of torch.profiler"
_ABSENT = {
    _STACKS: f"showing ops: no Python calls were recorded{_RECORD}",
    _SAMPLES: "showing ops: no Python stacks were sampled; `tracekit collect -- PROGRAM` does",
    _MODULES: f"showing ops: no calls of torch.nn modules were recorded{_RECORD}",
}
_MEANT = {
    _OPS: "Ops and annotations by call path. ",
    _STACKS: "Python functions and ops by call path; ops of the autograd thread have no Python caller. ",
    _SAMPLES: "Python functions in samples of the thread of the steps, in profiled steps and in others; a "
    "sample counts as the median distance of samples. ",
    _MODULES: "Modules and the ops in them, forward and backward; Python outside of ops is left out. ",
}
MAX_PATHS, MAX_ANCESTORS = 10, 40
"""Rows of the table, and names in a path: an op nested thousands deep has as many ancestors."""
_PATH = Column("under", "", "names of its innermost 40 ancestors, outermost first")
_KEYS = "Click or Enter to zoom, Esc to zoom out, arrow keys to move, / to search."
Ints = npt.NDArray[np.int64]
MAX_DIVISIONS = 20_000
"""Nodes shorter than the total divided by this are dropped; they would be narrower than a pixel."""
_TIMES = {"host": ("host_total_ns", "host_self_ns"), "device": ("device_total_ns", "device_self_ns")}
_MAX_NAME_CHARS = 300  # maximum characters of a name


def flame_data(nodes: pd.DataFrame, side: str, *, finest: int = MAX_DIVISIONS) -> dict[str, Any]:
    """Return the visible nodes below a root node and, with several ranks, a node per rank.

    Args:
        nodes: The table of the call tree, parents before children.
        side: Time that sets the width: `host` or `device`.
        finest: Nodes shorter than the total divided by this are dropped.

    Returns:
        Columns with one value per node, the names, and the number of dropped nodes. Parents are indices into
        the columns; the first node is the root.
    """
    total, self_ns = (nodes[name].fillna(0).to_numpy(np.int64) for name in _TIMES[side])
    roots = nodes["parent"].isna().to_numpy()
    grand_total = int(total[roots].sum())
    drawn = np.flatnonzero((total > 0) & (total * finest >= grand_total))
    ranks = sorted(int(rank) for rank in nodes[C.RANK].unique())
    tops = [None, *ranks] if len(ranks) > 1 else [None]
    place = np.full(len(nodes), -1, np.int64)
    place[drawn] = len(tops) + np.arange(len(drawn))
    labels = [clean(str(name))[:_MAX_NAME_CHARS] for name in nodes[C.NAME].to_numpy()[drawn]]
    names = list(dict.fromkeys([*(_top(rank) for rank in tops), *labels]))
    code = {name: number for number, name in enumerate(names)}
    rank_of = nodes[C.RANK].to_numpy(np.int64)
    sums = [int(total[roots & (True if rank is None else rank_of == rank)].sum()) for rank in tops]
    above = [-1, *[0] * (len(tops) - 1)]
    return {
        "side": side,
        "names": names,
        "name": [*(code[_top(rank)] for rank in tops), *(code[name] for name in labels)],
        "parent": [*above, *_parents(nodes, drawn, place, ranks)],
        "total": [*sums, *total[drawn].tolist()],
        "self": [*[0] * len(tops), *self_ns[drawn].tolist()],
        "calls": [*[0] * len(tops), *nodes["calls"].to_numpy(np.int64)[drawn].tolist()],
        "left": len(nodes) - len(drawn),
    }


_ROW_PX, _WIDTH_PX = 22, 1_160
"""Height of a row, as in `assets/flame_draw.js`, and width of the graph in a window of 1,440 pixels."""


def compute_height(drawn: dict[str, Any]) -> int:
    """Return the height of a graph that was made by `flame_data`, in pixels, for its place until it is drawn.

    Example:
        >>> compute_height({"parent": [-1, 0, 1], "total": [1_000_000, 900_000, 1]})  # the last is too narrow
        44
    """
    depths = [0] * len(drawn["parent"])
    for node, parent in enumerate(drawn["parent"]):
        depths[node] = depths[parent] + 1 if parent >= 0 else 0
    visible = (
        depth
        for depth, total in zip(depths, drawn["total"], strict=True)
        if 2 * _WIDTH_PX * total >= drawn["total"][0]  # half a pixel
    )
    return _ROW_PX * (1 + max(visible))


def _top(rank: int | None) -> str:
    return "all" if rank is None else f"rank {rank}"


def _parents(nodes: pd.DataFrame, drawn: Ints, place: Ints, ranks: list[int]) -> list[int]:
    """Return the index of each drawn node's parent: a drawn node, or the root of its rank."""
    position = {int(node): index for index, node in enumerate(nodes["node"])}
    over = nodes["parent"].fillna(-1).to_numpy(np.int64)[drawn]
    rank_of = nodes[C.RANK].to_numpy(np.int64)[drawn]
    alone = len(ranks) == 1
    return [
        int(place[position[int(parent)]]) if parent >= 0 else 0 if alone else 1 + ranks.index(int(rank))
        for parent, rank in zip(over, rank_of, strict=True)
    ]


def _answer(results: PageResults) -> list[Component]:
    nodes = _visible_nodes(results)[1]
    if nodes.empty:
        return []
    side = _side(results, nodes)
    _, self_column = _TIMES[side]
    top = results.largest("nodes", self_column, rows=nodes)
    count = (format_number(len(nodes), "count"), f" call paths. Highest {side} self time on one path: ")
    return [show_answer(*count, format_name(top[C.NAME]), ", ", top.number(self_column), ".")]


def _visible_nodes(results: PageResults) -> tuple[str, pd.DataFrame]:
    """Return what the graph is by, and its nodes; ops if what the address asks for was not recorded."""
    by = results.read_choice("by", _BY)
    nodes = results.frame(by if by in (_STACKS, _SAMPLES) else "nodes")
    nodes = _module_nodes(results) if by == _MODULES else nodes
    return (by, nodes) if len(nodes) else (_OPS, results.frame("nodes"))


def _module_nodes(results: PageResults) -> pd.DataFrame:
    """Return modules, and below each the ops called in it, as nodes of a call tree."""
    tree, ops = results.frame("tree", _MODULES), results.frame("ops", _MODULES)
    modules = tree.rename(columns={C.MODULE: C.NAME}).assign(host_self_ns=0, device_self_ns=0)  # all in ops
    leaves = ops.copy()
    leaves[PARENT], leaves[NODE] = ops[NODE], len(tree) + ops.index
    for side in _TIMES:
        leaves[f"{side}_total_ns"] = leaves[f"{side}_self_ns"]
    nodes = pd.concat([modules, leaves], ignore_index=True)
    columns = [NODE, PARENT, C.NAME, "calls", *(name for pair in _TIMES.values() for name in pair)]
    return nodes[columns].fillna({"calls": 0}).assign(**{C.RANK: 0})


def _side(results: PageResults, nodes: pd.DataFrame) -> str:
    chosen = results.read_choice("side", _SIDES)
    return chosen if nodes[_TIMES[chosen][0]].fillna(0).any() else "host"


def _figures(results: PageResults) -> list[Component]:
    by, nodes = _visible_nodes(results)
    if nodes.empty:
        return []
    side = _side(results, nodes)
    drawn = flame_data(nodes, side)
    label = "Search names"
    find = dmc.TextInput(id="flame-search", placeholder=label, size="xs", w=220, **aria(label=label))
    controls = [
        results.show_switch("by", "Call paths", _BY),
        results.show_switch("side", "Width of the bars", _SIDES),
        find,
        html.Span(id="flame-matches", role="status", className="tk-flame-matches"),
    ]
    wanted = results.read_choice("by", _BY)
    missing = [] if wanted == by else [show_note(_ABSENT[wanted])]
    if results.read_choice("side", _SIDES) != side:
        missing.append(show_nothing("Showing host time: no device time is linked to ops."))
    hidden = f" {drawn['left']:,} nodes are too narrow to draw." if drawn["left"] else ""
    named = aria(label="Flame graph") | data(side=side, by=by)
    room = {"minHeight": f"{compute_height(drawn)}px"}
    return [
        html.Div(controls, className="tk-switches"),
        *missing,
        dcc.Store(id="flame-data", data=drawn),
        html.Div(id="flame", className="tk-flame", role="application", style=room, **named),
        html.Div(id="flame-status", className="tk-flame-status", role="status"),
        dmc.Text(_MEANT[by] + _KEYS + hidden, size="xs", c="dimmed", mb="md"),
        *_longest(results, nodes, side),
    ]


def _longest(results: PageResults, nodes: pd.DataFrame, side: str) -> list[Component]:
    """List the call paths with the highest self time."""
    ranks = [C.RANK] if nodes[C.RANK].nunique() > 1 else []
    longest = keep_largest(nodes, _TIMES[side][1], MAX_PATHS)
    longest = longest.assign(under=list_ancestors(nodes, longest))
    columns: list[str | Column] = [*ranks, C.NAME, "calls", *_TIMES[side][::-1], _PATH]
    title = "Paths with the highest self time"
    return results.first_rows("nodes", columns, rows=longest, title=title, limit=MAX_PATHS)


def list_ancestors(nodes: pd.DataFrame, some_nodes: pd.DataFrame) -> list[str]:
    """Return the names of each node's `MAX_ANCESTORS` innermost ancestors, outermost first."""
    parents = dict(zip(nodes[NODE], nodes[PARENT], strict=True))
    names = dict(zip(nodes[NODE], nodes[C.NAME], strict=True))
    paths: list[str] = []
    for node in some_nodes[NODE]:
        ancestors: list[str] = []
        parent = parents[node]
        while pd.notna(parent) and len(ancestors) < MAX_ANCESTORS:
            ancestors.append(str(names[parent]))
            parent = parents[parent]
        outer: list[str] = ["…"] if pd.notna(parent) else []
        paths.append(" › ".join([*outer, *reversed(ancestors)]) or "–")
    return paths


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
