"""Overlap page: how much of copies and communication overlaps with kernels."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, show_answer
from ..components.charts import chart
from ..components.links import device_names
from ..figures.bars import bars, compose_bars
from ..site import Section

MAX_BARS = 24
"""Maximum bars per figure."""


def _answer(results: PageResults) -> list[Component]:
    capture = results.frame("whole")
    if capture.empty:
        return []
    parts: list[object] = []
    for what in ("communication", "all copies"):
        rows = capture[(capture["what"] == what) & (capture["union_ns"] > 0)]
        if len(rows):
            top = results.largest("whole", "exposed_ns", rows=rows)
            where = ", most on rank {rank!s}, device {device!s}: " if len(rows) > 1 else ": "
            text = "{exposed_ns} of {union_ns}; overlapped {overlapped_share}. "
            parts += top.fill(f"Exposed (non-overlapped) {what}{where}{text}")
    return [show_answer(*parts)] if parts else []


def _names(frame: pd.DataFrame, column: str) -> list[str]:
    several = frame[C.RANK].nunique() > 1 or frame[C.DEVICE].nunique() > 1
    pairs = zip(frame[column], device_names(frame, ranks=True), strict=True)
    return [f"{what}, {place}" if several else str(what) for what, place in pairs]


def _parts(frame: pd.DataFrame, column: str) -> dict[str, object]:
    columns = {"overlapped by kernels": "overlapped_ns", "exposed": "exposed_ns"}
    parts = {name: [int(value) for value in frame[key]] for name, key in columns.items()}
    return compose_bars(_names(frame, column), parts, "ns", title="time")


def _figures(results: PageResults) -> list[Component]:
    capture = results.frame("whole")
    nonzero = capture[capture["union_ns"] > 0].sort_values("union_ns", ascending=False, kind="stable")
    is_communication = nonzero["what"] == "communication"
    pairs = [
        [*_overlap_chart(results, nonzero[is_communication], "communication"), *_collectives(results)],
        [
            *_overlap_chart(
                results, nonzero[~is_communication & (nonzero["what"] != "all copies")], "copies"
            ),
            *_streams(results),
        ],
    ]
    return [html.Div(pair, className="tk-pair") for pair in pairs if pair]


def _overlap_chart(results: PageResults, rows: pd.DataFrame, words: str) -> list[Component]:
    if rows.empty:
        return []
    cut = f" {MAX_BARS} longest of {len(rows)}." if len(rows) > MAX_BARS else ""
    caption = f"Overlapped and exposed {words}, whole capture.{cut}"
    return [chart(results.context, words, _parts(rows.head(MAX_BARS), "what"), caption=caption)]


def _collectives(results: PageResults) -> list[Component]:
    frame = (
        results.frame("collectives").sort_values("union_ns", ascending=False, kind="stable").head(MAX_BARS)
    )
    if frame.empty:
        return []
    caption = "Overlapped and exposed communication by collective type."
    return [chart(results.context, "collectives", _parts(frame, "collective"), caption=caption)]


def _streams(results: PageResults) -> list[Component]:
    frame = results.frame("streams").head(MAX_BARS)
    if frame.empty or not frame["concurrent_ns"].any():
        return []
    shares, title = frame["concurrent_share"].tolist(), "two or more streams busy"
    figure = bars(device_names(frame, ranks=True), shares, "share", title=title)
    caption = "Share of busy time with work on two or more streams."
    return [chart(results.context, "streams", figure, caption=caption)]


PAGE = answer_page(
    "overlap", title="Overlap", section=Section.TIME, order=140, answer=_answer, figures=_figures
)
