"""Modules page: host and device time by class of torch.nn modules, and as a tree of instances."""

from __future__ import annotations

import pandas as pd
from dash.development.base_component import Component

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, keep_largest, show_answer
from ..components.text import capitalize, section
from ..site import Section
from ..tables.table import show_table

MAX_BARS = 15
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


def _answer(results: PageResults) -> list[Component]:
    types = results.frame("types")
    side = "device" if (types["device_self_ns"].fillna(0) != 0).any() else "host"
    first = results.largest("types", f"{side}_self_ns")
    verb = "launched the most device time" if side == "device" else "took the most host time"
    text = (
        f"{{type!r}} modules {verb}: {{{side}_self_ns}}, {{{side}_share}} of the {side} time, in {{calls}} "
        "calls of {instances} instances. "
    )
    # The last row is what is outside of any module: optimizers, graph replays, compiled code.
    last = results.largest("tree", rows=results.frame("tree").tail(1))
    outside = f"{{{side}_share}} of the {side} time is outside of any module."
    return [show_answer(*first.fill(text), *(last.fill(outside) if last[f"{side}_total_ns"] else []))]


def _figures(results: PageResults) -> list[Component]:
    context, types = results.context, results.frame("types")
    measures = [(name, title) for name, title in _MEASURES if (types[name].fillna(0) != 0).any()]
    measure = results.read_choice("measure", measures)
    return [
        results.show_switch("measure", "Measure", measures),
        *_by_class(results, types, measure, dict(measures)[measure]),
        section(
            "Tree of modules", show_table(context, "modules", results.spec("tree"), results.frame("tree"))
        ),
    ]


def _by_class(results: PageResults, types: pd.DataFrame, measure: str, title: str) -> list[Component]:
    """Chart a measure by class; totals are parted into forward and backward pass where both are known."""
    positive = types[types[measure].fillna(0) > 0]
    first = keep_largest(positive, measure, MAX_BARS)
    which = f"{len(first)} largest of {len(types):,} classes" if len(first) < len(types) else "all classes"
    caption = f"{_MEANING[measure]} {capitalize(which)}, over all instances, threads and ranks."
    backward = first.get(measure.replace("_total_ns", "_backward_ns")) if "_total_ns" in measure else None
    names, totals = first["type"], first[measure].astype("int64")
    if backward is None or not backward.fillna(0).any():
        return results.bars("classes", names, totals, title=title, caption=caption)
    parts = {"forward": totals - backward, "backward": backward}
    return results.bars("classes", names, parts, title=title, caption=caption)


PAGE = answer_page(
    "modules",
    section=Section.HOST,
    order=205,
    needs="types",
    answer=_answer,
    figures=_figures,
    hidden=("tree",),
    height=760,
)
"""The page; the tree is among the figures, so that the tables show the classes."""
