"""Critical path page: the chain of host and device time that bounds each step."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import (
    DEVICE_TABLE,
    HOST_TABLE,
    PageResults,
    first_rows,
    show_answer,
    values_by_rank,
)
from ..components.charts import bar_chart, parts_chart
from ..site import Section

MAX_BARS = 12


def _answer(results: PageResults) -> list[Component]:
    kinds = results.frame("by_kind")
    if kinds.empty:
        return []
    where = " of rank {rank!s}" if kinds[C.RANK].nunique() > 1 else ""
    text = (
        f"The largest part of the critical path{where} is {{kind!r}}: {{path_ns}}, {{share}} of step time. "
    )
    parts = results.largest("by_kind", "path_ns").fill(text)
    saving = results.frame("what_if")
    if len(saving) and (best := results.largest("what_if", "saving_ns"))["saving_ns"] > 0:
        text = "Removing {removed!r} ({where!s}) saves the most: {saving_ns} per step, {saving_share}."
        parts += best.fill(text)
    return [show_answer(*parts)]


def _figures(results: PageResults) -> list[Component]:
    kinds = results.frame("by_kind").sort_values("path_ns", ascending=False)
    if kinds.empty:
        return []
    ranks, parts = values_by_rank(kinds, C.KIND, "path_ns")
    caption = "Critical path by kind; the parts sum to all steps."
    pair = [*_savings_chart(results), *_ops(results)]
    return [
        *parts_chart(results.context, "kinds", ranks, parts, title="time on the path", caption=caption),
        html.Div(pair, className="tk-pair"),
        *_segments(results),
    ]


def _with_ranks(frame: pd.DataFrame, names: list[str]) -> list[str]:
    """Add the rank to names if several ranks are shown."""
    if frame[C.RANK].nunique() <= 1:
        return names
    return [f"{name} (rank {rank})" for name, rank in zip(names, frame[C.RANK], strict=True)]


def _savings_chart(results: PageResults) -> list[Component]:
    frame = results.frame("what_if").sort_values("saving_ns", ascending=False, kind="stable").head(MAX_BARS)
    names = [f"{what} ({where})" for what, where in zip(frame["removed"], frame["where"], strict=True)]
    return bar_chart(
        results.context,
        "saved",
        _with_ranks(frame, names),
        frame["saving_ns"],
        title="saving per step",
        caption="Saving per step with each part removed. Savings overlap; don't sum them.",
    )


def _ops(results: PageResults) -> list[Component]:
    frame = results.frame("by_op").sort_values("path_ns", ascending=False, kind="stable").head(MAX_BARS)
    names = [f"{op} ({kind})" for op, kind in zip(frame["op"], frame[C.KIND], strict=True)]
    return bar_chart(
        results.context,
        "ops",
        _with_ranks(frame, names),
        frame["path_ns"],
        title="time on the path",
        caption="Ops and kernels with the most time on the path, by kind.",
    )


def _segments(results: PageResults) -> list[Component]:
    segments = results.frame("segments")
    columns = results.columns("segments", C.RANK, C.STEP, C.KIND, "op", C.DUR_NS)
    on_device = segments["device_row"].notna()
    places = {
        "a device": (segments[on_device], "device_row", DEVICE_TABLE),
        "the host": (segments[~on_device & segments["host_row"].notna()], "host_row", HOST_TABLE),
    }
    return [
        first_rows(results.context, rows, columns, title=f"Longest segments on {where}", row=row, table=table)
        for where, (rows, row, table) in places.items()
        if len(rows)
    ]


PAGE = answer_page(
    "critical_path", section=Section.TIME, order=150, answer=_answer, figures=_figures, height=520
)
