"""Modules page: host and device time by class of torch.nn modules, and as a tree of instances."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import html
from dash.development.base_component import Component

from ..answers.pages import answer_page
from ..answers.results import PageResults, Row, answer, chosen_of, named, switch
from ..figures.bars import bars, composed
from ..grids.table import table
from ..parts.charts import chart
from ..site import Section

SHOWN = 15
_MEASURES = [
    ("device_self_ns", "Device self"),
    ("device_total_ns", "Device total"),
    ("host_self_ns", "Host self"),
    ("host_total_ns", "Host total"),
    ("call_ns", "Call duration"),
]
_MEANING = {
    "device_self_ns": "Device time launched in modules of a class, without the modules below them.",
    "device_total_ns": "Device time launched in modules of a class and in the modules below them.",
    "host_self_ns": "Time in ops called by modules of a class, without the modules below them.",
    "host_total_ns": "Time in ops called by modules of a class and by the modules below them.",
    "call_ns": "Duration of the calls on the host, including Python.",
}


def _side(frame: pd.DataFrame) -> str:
    return "device" if (frame["device_self_ns"].fillna(0) != 0).any() else "host"


def _answer(results: PageResults) -> list[Component]:
    types = results.frame("types")
    if types.empty:
        return []
    side = _side(types)
    first = results.largest("types", f"{side}_self_ns")
    verb = "launched the most device time" if side == "device" else "took the most host time"
    parts = [
        named(first["type"]),
        f" modules {verb}: ",
        first.number(f"{side}_self_ns"),
        ", ",
        first.number(f"{side}_share"),
        f" of the {side} time, in ",
        first.number("calls"),
        " calls of ",
        first.number("instances"),
        " instances. ",
    ]
    return [answer(*parts, *_outside(results, side))]


def _outside(results: PageResults, side: str) -> list[Component | str]:
    """Say what is outside of any module: optimizers, graph replays, compiled code."""
    tree = results.frame("tree")
    last: Row = results.rows("tree", rows=tree.tail(1))[0]
    if not last[f"{side}_total_ns"]:
        return []
    return [last.number(f"{side}_share"), f" of the {side} time is outside of any module."]


def _figures(results: PageResults) -> list[Component]:
    context, types = results.context, results.frame("types")
    if types.empty:
        return []
    measures = [(name, title) for name, title in _MEASURES if (types[name].fillna(0) != 0).any()]
    measure = chosen_of(context, "measure", measures)
    return [
        switch(context, "measure", "Measure", measures),
        _by_class(results, types, measure, dict(measures)[measure]),
        html.Section(
            [
                dmc.Title("Tree of modules", order=2, size="h4"),
                table(context, "modules", results.spec("tree"), results.frame("tree")),
            ],
            className="tk-section",
        ),
    ]


def _by_class(results: PageResults, types: pd.DataFrame, measure: str, title: str) -> Component:
    positive = types[types[measure].fillna(0) > 0]
    first = positive.sort_values(measure, ascending=False, kind="stable").head(SHOWN)
    figure = _bars(first, measure, title)
    which = f"{len(first)} largest of {len(types):,} classes" if len(first) < len(types) else "all classes"
    caption = f"{_MEANING[measure]} {which[:1].upper()}{which[1:]}, over all instances, threads and ranks."
    return chart(results.context, "classes", figure, caption=caption)


def _bars(types: pd.DataFrame, measure: str, title: str) -> dict[str, Any]:
    """Draw a measure by class; totals are parted into forward and backward pass where both are known."""
    names, whole = types["type"].tolist(), [int(value) for value in types[measure]]
    part = types.get(measure.replace("_total_ns", "_backward_ns")) if measure.endswith("_total_ns") else None
    if part is None or not part.fillna(0).any():
        return bars(names, whole, "ns", title=title)
    backward = [int(value) for value in part]
    forward = [every - one for every, one in zip(whole, backward, strict=True)]
    return composed(names, {"forward": forward, "backward": backward}, "ns", title=title)


PAGE = answer_page(
    "modules",
    section=Section.HOST,
    order=205,
    answer=_answer,
    figures=_figures,
    hidden=("tree",),
    height=760,
)
"""The page; the tree is among the figures, so that the tables show the classes."""
