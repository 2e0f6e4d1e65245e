"""Overlap page: how much of copies and communication overlaps with kernels."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, keep_largest, show_answer
from ..components.links import device_names
from ..components.text import capitalize
from ..site import Section

MAX_BARS = 24
"""Maximum bars per figure."""


def _answer(results: PageResults) -> list[Component]:
    capture = results.frame("whole")
    parts: list[object] = []
    for what in ("communication", "all copies"):
        rows = capture[(capture["what"] == what) & (capture["union_ns"] > 0)]
        if len(rows):
            top = results.largest("whole", "exposed_ns", rows=rows)
            where = ", most on rank {rank!s}, device {device!s}: " if len(rows) > 1 else ": "
            text = "{exposed_ns} of {union_ns} exposed (non-overlapped); overlapped {overlapped_share}. "
            parts += top.fill(f"{capitalize(what)}{where}{text}")
    return [show_answer(*parts)] if parts else []


def _figures(results: PageResults) -> list[Component]:
    capture = results.frame("whole")
    nonzero = keep_largest(capture[capture["union_ns"] > 0], "union_ns")
    is_communication = nonzero["what"] == "communication"
    copies = nonzero[~is_communication & (nonzero["what"] != "all copies")]
    collectives = keep_largest(results.frame("collectives"), "union_ns", MAX_BARS)
    by_type = "Overlapped and exposed communication by collective type."
    pairs = [
        [
            *_overlap_chart(results, nonzero[is_communication], "communication"),
            *_parts_chart(results, "collectives", collectives, "collective", by_type),
        ],
        [*_overlap_chart(results, copies, "copies"), *_streams(results)],
    ]
    return [html.Div(pair, className="tk-pair") for pair in pairs if pair]


def _overlap_chart(results: PageResults, rows: pd.DataFrame, words: str) -> list[Component]:
    cut = f" {MAX_BARS} longest of {len(rows)}." if len(rows) > MAX_BARS else ""
    caption = f"Overlapped and exposed {words}, whole capture.{cut}"
    return _parts_chart(results, words, rows.head(MAX_BARS), "what", caption)


def _parts_chart(
    results: PageResults, name: str, frame: pd.DataFrame, column: str, caption: str
) -> list[Component]:
    parts = {"overlapped by kernels": frame["overlapped_ns"], "exposed": frame["exposed_ns"]}
    several = frame[C.RANK].nunique() > 1 or frame[C.DEVICE].nunique() > 1
    pairs = zip(frame[column], device_names(frame, ranks=True), strict=True)
    names = [f"{what}, {place}" if several else str(what) for what, place in pairs]
    return results.bars(name, names, parts, title="time", caption=caption)


def _streams(results: PageResults) -> list[Component]:
    frame = results.frame("streams").head(MAX_BARS)
    if not frame["concurrent_ns"].any():
        return []
    names, shares = device_names(frame, ranks=True), frame["concurrent_share"]
    title, caption = "two or more streams busy", "Share of busy time with work on two or more streams."
    return results.bars("streams", names, shares, "share", title=title, caption=caption)


PAGE = answer_page(
    "overlap",
    title="Overlap",
    section=Section.TIME,
    order=140,
    needs="whole",
    answer=_answer,
    figures=_figures,
)
