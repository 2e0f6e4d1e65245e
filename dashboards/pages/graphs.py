"""Graphs page: what graph launches run, by op, and the layer that repeats in the graph with the most time."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis.kernel_names import brief, family
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, Row, show_answer
from ..site import Section

MAX_OPS = 15
MAX_KERNELS = 24
"""Kernels of a layer in the chart; the table has all."""
_MAX_LABEL_CHARS = 30  # characters of a bar's label, which must fit beside the bars on narrow screens
_LAYERS = "layers"


def _answer(results: PageResults) -> list[Component]:
    top = results.largest("graphs", "union_ns")
    text = (
        f"Graph {{graph!r}} takes the most device time: {{launches}} launch{'es' * (top['launches'] != 1)} "
        "of {kernels} kernels, {union_ns}, {share} of the work of its device. "
    )
    return [show_answer(*top.fill(text), *_layer_sentence(results, top), *_op_sentence(results))]


def _layer_sentence(results: PageResults, top: Row) -> list[Any]:
    structure = _of_graph(results, "structure", top["graph"])
    repeated = structure[structure["part"] == _LAYERS]
    if repeated.empty:
        return ["No part of it repeats. "]
    text = (
        "A sequence of {kernels} kernels (usually a layer) repeats {repeats} times, {mean_ns} each, {share} "
        "of the graph. "
    )
    return results.largest("structure", rows=repeated).fill(text)


def _op_sentence(results: PageResults) -> list[Any]:
    ops = results.frame("ops")
    with_op = ops[ops["op"] != ""]
    if with_op.empty:
        return ["The ops of its kernels are unknown."]
    op = results.largest("ops", rows=with_op)
    inside = " in {module}" if op["module"] else ""
    return op.fill(f"The op with the most time is {{op}}{inside}: {{share}}.")


def _of_graph(results: PageResults, table: str, graph: int) -> pd.DataFrame:
    frame = results.frame(table)
    return frame[frame["graph"] == graph]


def _figures(results: PageResults) -> list[Component]:
    top = results.largest("graphs", "union_ns")["graph"]
    columns = ("part", "repeats", "kernels", "mean_ns", "sum_ns", "share")
    structure = _of_graph(results, "structure", top)
    return [
        html.Div([*_ops(results), *_layer(results, _of_graph(results, "layer", top))], className="tk-pair"),
        *results.first_rows("structure", columns, rows=structure, title="Parts of the graph"),
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
    return results.bars("ops", names, first["sum_ns"], title="total time", caption=caption)


def _layer(results: PageResults, layer: pd.DataFrame) -> list[Component]:
    first = layer.head(MAX_KERNELS)
    names = [
        brief(f"{position}. {op or family(str(name))}", _MAX_LABEL_CHARS)
        for position, op, name in first[["position", "op", C.NAME]].itertuples(index=False, name=None)
    ]
    which = f"First {MAX_KERNELS} of {len(layer):,} kernels" if len(layer) > MAX_KERNELS else "Kernels"
    caption = f"{which} of one repeat, in order."
    return results.bars("layer", names, first["mean_ns"], title="mean duration", caption=caption)


PAGE = answer_page(
    "graphs", section=Section.DEVICE, order=115, needs="graphs", answer=_answer, figures=_figures, height=460
)
