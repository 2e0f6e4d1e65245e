"""Critical path page: the chain of host and device time that bounds each step."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis.savings import budget
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import (
    HOST_TABLE,
    PageResults,
    format_rows,
    keep_largest,
    show_answer,
    values_by_rank,
)
from ..site import Section
from ..tables.html import DEVICE_TABLE

MAX_BARS = 12


def _answer(results: PageResults) -> list[Component]:
    where = " of rank {rank!s}" if results.frame("by_kind")[C.RANK].nunique() > 1 else ""
    text = (
        f"The largest part of the critical path{where} is {{kind!r}}: {{path_ns}}, {{share}} of "
        f"{'step time' if _unit(results) == 'step' else 'the capture'}. "
    )
    parts = results.largest("by_kind", "path_ns").fill(text)
    saving = results.frame("what_if")
    if len(saving) and (best := results.largest("what_if", "saving_ns"))["saving_ns"] > 0:
        text = "Removing {removed!r} ({where!s}) saves the most: {saving_ns} per "
        parts += best.fill(f"{text}{_unit(results)}, {{saving_share}}.")
    return [show_answer(*parts)]


def _unit(results: PageResults) -> str:
    """Return what a window of the path is: a capture without marked steps is one."""
    return "step" if budget(results.context.run).marked else "capture"


def _figures(results: PageResults) -> list[Component]:
    kinds = results.frame("by_kind").sort_values("path_ns", ascending=False)
    ranks, parts = values_by_rank(kinds, C.KIND, "path_ns")
    unit = _unit(results)
    caption = f"Critical path by kind; the parts sum to {'all steps' if unit == 'step' else 'the capture'}."
    saved = keep_largest(results.frame("what_if"), "saving_ns", MAX_BARS)
    ops = keep_largest(results.frame("by_op"), "path_ns", MAX_BARS)
    pair = [
        *results.bars(
            "saved",
            _with_ranks(saved, "{removed} ({where})"),
            saved["saving_ns"],
            title=f"saving per {unit}",
            caption=f"Saving per {unit} with each part removed. Savings overlap; don't sum them.",
        ),
        *results.bars(
            "ops",
            _with_ranks(ops, "{op} ({kind})"),
            ops["path_ns"],
            title="time on the path",
            caption="Ops and kernels with the most time on the path, by kind.",
        ),
    ]
    return [
        *results.bars("kinds", ranks, parts, title="time on the path", caption=caption),
        html.Div(pair, className="tk-pair"),
        *_segments(results),
    ]


def _with_ranks(frame: pd.DataFrame, template: str) -> list[str]:
    """Format rows, with the rank if several ranks are shown."""
    several = frame[C.RANK].nunique() > 1
    return format_rows(frame, template.replace(")", ", rank {rank})") if several else template)


def _segments(results: PageResults) -> list[Component]:
    segments, columns = results.frame("segments"), (C.RANK, C.STEP, C.KIND, "op", C.DUR_NS)
    on_device = segments["device_row"].notna()
    places = {
        "a device": (segments[on_device], "device_row", DEVICE_TABLE),
        "the host": (segments[~on_device & segments["host_row"].notna()], "host_row", HOST_TABLE),
    }
    return [
        shown
        for where, (rows, row, table) in places.items()
        for shown in results.first_rows(
            "segments", columns, rows=rows, title=f"Longest segments on {where}", row=row, table=table
        )
    ]


PAGE = answer_page(
    "critical_path",
    section=Section.TIME,
    order=150,
    needs="by_kind",
    answer=_answer,
    figures=_figures,
    height=520,
)
