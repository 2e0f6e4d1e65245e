"""Graphs page: what graph launches run, by op, and the layer that repeats in the graph with the most time."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis.kernel_names import brief, family
from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import PageResults, Row, answer, first_rows, named
from ..figures.bars import bars
from ..parts.charts import chart
from ..site import Section

SHOWN = 15
KERNELS = 24
"""Kernels of a layer in the chart; the table has all."""
_LABEL = 30
"""Characters of a bar's label, which must fit beside the bars on narrow screens."""
_LAYERS = "layers"


def _answer(results: PageResults) -> list[Component]:
    if results.frame("graphs").empty:
        return []
    top = results.largest("graphs", "union_ns")
    launches = top.number("launches")
    said = [
        "Graph ",
        named(top["graph"]),
        " takes the most device time: ",
        launches,
        " launch" if top["launches"] == 1 else " launches",
        " of ",
        top.number("kernels"),
        " kernels, ",
        top.number("union_ns"),
        ", ",
        top.number("share"),
        " of the work of its device. ",
    ]
    return [answer(*said, *_layer_sentence(results, top), *_op_sentence(results))]


def _layer_sentence(results: PageResults, top: Row) -> list[Any]:
    structure = _of_graph(results.frame("structure"), top["graph"])
    repeated = structure[structure["part"] == _LAYERS]
    if repeated.empty:
        return ["No part of it repeats. "]
    row = results.rows("structure", rows=repeated)[0]
    return [
        "A sequence of ",
        row.number("kernels"),
        " kernels (usually a layer) repeats ",
        row.number("repeats"),
        " times, ",
        row.number("mean_ns"),
        " each, ",
        row.number("share"),
        " of the graph. ",
    ]


def _op_sentence(results: PageResults) -> list[Any]:
    ops = results.frame("ops")
    known = ops[ops["op"] != ""]
    if known.empty:
        return ["The ops of its kernels are unknown."]
    op = results.rows("ops", rows=known.head(1))[0]
    inside = [" in ", named(op["module"])] if op["module"] else []
    return ["The op with the most time is ", named(op["op"]), *inside, ": ", op.number("share"), "."]


def _of_graph(frame: pd.DataFrame, graph: int) -> pd.DataFrame:
    return frame[frame["graph"] == graph].reset_index(drop=True)


def _figures(results: PageResults) -> list[Component]:
    if results.frame("graphs").empty:
        return []
    top = results.largest("graphs", "union_ns")["graph"]
    layer = _of_graph(results.frame("layer"), top)
    return [
        html.Div([*_ops(results), *_layer(results, layer)], className="tk-pair"),
        *_parts(results, _of_graph(results.frame("structure"), top)),
    ]


def _ops(results: PageResults) -> list[Component]:
    ops = results.frame("ops")
    if ops.empty:
        return []
    first, several = ops.head(SHOWN), ops["module"].nunique() > 1
    names = [
        brief((f"{module}: {op}" if module and several else str(op)) or "(unknown)", _LABEL)
        for op, module in first[["op", "module"]].itertuples(index=False, name=None)
    ]
    figure = bars(names, first["sum_ns"].tolist(), "ns", title="Σ of durations")
    which = f"{SHOWN} of {len(ops):,} with the most time" if len(ops) > SHOWN else "Time"
    return [chart(results.context, "ops", figure, caption=f"{which}, by module and captured op.")]


def _layer(results: PageResults, layer: pd.DataFrame) -> list[Component]:
    if layer.empty:
        return []
    first = layer.head(KERNELS)
    names = [
        brief(f"{position}. {op or family(str(name))}", _LABEL)
        for position, op, name in first[["position", "op", C.NAME]].itertuples(index=False, name=None)
    ]
    figure = bars(names, first["mean_ns"].tolist(), "ns", title="mean duration")
    which = f"First {KERNELS} of {len(layer):,} kernels" if len(layer) > KERNELS else "Kernels"
    return [chart(results.context, "layer", figure, caption=f"{which} of one repeat, in order.")]


def _parts(results: PageResults, structure: pd.DataFrame) -> list[Component]:
    wanted = ("part", "repeats", "kernels", "mean_ns", "sum_ns", "share")
    columns = results.columns("structure", *wanted)
    return [first_rows(results.context, structure, columns, title="Parts of the graph")]


PAGE = answer_page("graphs", section=Section.DEVICE, order=115, answer=_answer, figures=_figures, height=460)
