"""Graphs page: what graph launches run, by op, and the layer that repeats in the graph with the most time."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis.kernel_names import brief, family
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, Row, first_rows, show_answer
from ..components.charts import bar_chart
from ..site import Section

MAX_OPS = 15
MAX_KERNELS = 24
"""Kernels of a layer in the chart; the table has all."""
_MAX_LABEL_CHARS = 30
"""Characters of a bar's label, which must fit beside the bars on narrow screens."""
_LAYERS = "layers"


def _answer(results: PageResults) -> list[Component]:
    if results.frame("graphs").empty:
        return []
    top = results.largest("graphs", "union_ns")
    text = (
        f"Graph {{graph!r}} takes the most device time: {{launches}} launch{'es' * (top['launches'] != 1)} "
        "of {kernels} kernels, {union_ns}, {share} of the work of its device. "
    )
    return [show_answer(*top.fill(text), *_layer_sentence(results, top), *_op_sentence(results))]


def _layer_sentence(results: PageResults, top: Row) -> list[Any]:
    structure = _of_graph(results.frame("structure"), top["graph"])
    repeated = structure[structure["part"] == _LAYERS]
    if repeated.empty:
        return ["No part of it repeats. "]
    text = (
        "A sequence of {kernels} kernels (usually a layer) repeats {repeats} times, {mean_ns} each, {share} "
        "of the graph. "
    )
    return results.rows("structure", rows=repeated)[0].fill(text)


def _op_sentence(results: PageResults) -> list[Any]:
    ops = results.frame("ops")
    with_op = ops[ops["op"] != ""]
    if with_op.empty:
        return ["The ops of its kernels are unknown."]
    op = results.rows("ops", rows=with_op.head(1))[0]
    inside = " in {module}" if op["module"] else ""
    return op.fill(f"The op with the most time is {{op}}{inside}: {{share}}.")


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
    first, several = ops.head(MAX_OPS), ops["module"].nunique() > 1
    names = [
        brief((f"{module}: {op}" if module and several else str(op)) or "(unknown)", _MAX_LABEL_CHARS)
        for op, module in first[["op", "module"]].itertuples(index=False, name=None)
    ]
    which = f"{MAX_OPS} of {len(ops):,} with the most time" if len(ops) > MAX_OPS else "Time"
    caption = f"{which}, by module and captured op."
    return bar_chart(results.context, "ops", names, first["sum_ns"], title="Σ of durations", caption=caption)


def _layer(results: PageResults, layer: pd.DataFrame) -> list[Component]:
    first = layer.head(MAX_KERNELS)
    names = [
        brief(f"{position}. {op or family(str(name))}", _MAX_LABEL_CHARS)
        for position, op, name in first[["position", "op", C.NAME]].itertuples(index=False, name=None)
    ]
    which = f"First {MAX_KERNELS} of {len(layer):,} kernels" if len(layer) > MAX_KERNELS else "Kernels"
    caption = f"{which} of one repeat, in order."
    return bar_chart(
        results.context, "layer", names, first["mean_ns"], title="mean duration", caption=caption
    )


def _parts(results: PageResults, structure: pd.DataFrame) -> list[Component]:
    wanted = ("part", "repeats", "kernels", "mean_ns", "sum_ns", "share")
    columns = results.columns("structure", *wanted)
    return [first_rows(results.context, structure, columns, title="Parts of the graph")]


PAGE = answer_page("graphs", section=Section.DEVICE, order=115, answer=_answer, figures=_figures, height=460)
