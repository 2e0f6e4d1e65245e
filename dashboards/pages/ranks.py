"""Ranks page: differences between ranks, and stragglers."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import PageResults, answer, first_rows, nothing
from ..figures.axis import extremes
from ..figures.bars import bars, composed
from ..figures.gaps import matrix
from ..parts.charts import chart
from ..parts.links import places
from ..site import Section

_PARTS = {
    "computation": "computation_ns",
    "exposed communication": "communication_exposed_ns",
    "copies and other": "other_ns",
    "idle": "idle_ns",
}


def _answer(results: PageResults) -> list[Component]:
    per_rank = results.frame("per_rank")
    if per_rank.empty:
        return []
    if len(per_rank) == 1:
        row = results.largest("per_rank")
        return [
            answer(
                f"Only rank {row[C.RANK]} on device {row[C.DEVICE]} is shown: computation ",
                row.number("computation_share"),
                ", idle ",
                row.number("idle_share"),
                " of its time.",
            )
        ]
    return [answer(*_last(results)), *_slowest(results)]


def _last(results: PageResults) -> list[object]:
    if results.frame("stragglers").empty:
        return ["No collective was recorded on all ranks."]
    top = results.largest("stragglers", "caused_ns")
    several = results.frame("per_rank")[C.RANK].nunique() > 1
    who = f"Rank {top[C.RANK]}" if several else f"Device {top[C.DEVICE]}"
    return [
        f"{who} causes the longest waits: it arrived last in ",
        top.number("last_count"),
        " of ",
        top.number("collectives"),
        " collectives; mean wait of the other ranks, summed over these collectives: ",
        top.number("caused_ns"),
        ".",
    ]


def _slowest(results: PageResults) -> list[Component]:
    if results.frame("steps").empty:
        return []
    top = results.largest("steps", "spread_ns")
    if not top["spread_ns"]:
        return [answer("All ranks have equal step times.")]
    return [
        answer(
            f"Largest spread in step {top[C.STEP]}: rank {top['slowest_rank']} took ",
            top.number("slowest_ns"),
            f" and rank {top['fastest_rank']} ",
            top.number("fastest_ns"),
            ".",
        )
    ]


def _figures(results: PageResults) -> list[Component]:
    context, per_rank = results.context, results.frame("per_rank")
    if per_rank.empty:
        return []
    shown, cut = extremes(per_rank, per_rank[_PARTS["computation"]], "computation")
    parts = {
        name: [int(value) for value in shown[column]]
        for name, column in _PARTS.items()
        if per_rank[column].any()
    }
    work = composed(places(shown, ranks=True), parts, "ns", title="time in the window")
    caption = f"Time breakdown per rank; the parts sum to its window. Waiting counts as communication.{cut}"
    return [chart(context, "work", work, caption=caption), *_waiting(results), *_skew(results)]


def _waiting(results: PageResults) -> list[Component]:
    frame = results.frame("stragglers").sort_values([C.RANK, C.DEVICE], ignore_index=True)
    if frame.empty:
        return [nothing("Wait times unavailable: no collective could be matched across ranks.")]
    charts = [
        _waits(results, frame, name, title, caption)
        for name, title, caption in (
            ("caused", "mean wait of the other ranks", "Wait time each rank caused by arriving last."),
            ("waited", "exposed wait", "Exposed time each rank waited for others."),
        )
    ]
    return [html.Div(charts, className="tk-pair")]


def _waits(results: PageResults, frame: pd.DataFrame, name: str, title: str, caption: str) -> Component:
    column = f"{name}_ns"
    shown, cut = extremes(frame, frame[column], title)
    figure = bars(places(shown, ranks=True), [int(value) for value in shown[column]], "ns", title=title)
    return chart(results.context, name, figure, caption=f"{caption}{cut}")


def _skew(results: PageResults) -> list[Component]:
    skew = results.frame("skew")
    known = skew[skew["last_rank"].notna() & skew["aligned"].astype(bool)]
    if known.empty:
        return []
    figure, by = matrix(known)
    caption = f"Total wait of the other ranks by the rank that arrived last, {by}. Empty cells: no wait."
    worst = known.sort_values("wait_ns", ascending=False, kind="stable")
    wanted = ("collective", "number", C.STEP, "last_rank", "wait_ns", "shortest_ns", "longest_ns", "ranks")
    columns = results.columns("skew", *wanted)
    return [
        chart(results.context, "skew", figure, caption=caption),
        first_rows(results.context, worst, columns, title="Collectives with the longest waits"),
    ]


PAGE = answer_page("ranks", section=Section.COMPARE, order=320, answer=_answer, figures=_figures, height=520)
