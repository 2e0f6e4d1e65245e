"""Ranks page: differences between ranks, and stragglers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.reading import answer, largest, nothing, short, some
from ..figures.axis import ends
from ..figures.bars import bars, composed
from ..figures.gaps import matrix
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

    from ..answers.reading import Reading

_PARTS = {
    "computation": "computation_ns",
    "exposed communication": "communication_exposed_ns",
    "copies and other": "other_ns",
    "idle": "idle_ns",
}


def _answer(reading: Reading) -> list[Component]:
    per_rank, stragglers = reading.frame("per_rank"), reading.frame("stragglers")
    if per_rank.empty:
        return []
    if len(per_rank) == 1:
        row = largest(per_rank)
        return [
            answer(
                f"Only rank {row[C.RANK]} on device {row[C.DEVICE]} is shown: computation ",
                some(row["computation_share"], "share"),
                ", idle ",
                some(row["idle_share"], "share"),
                " of its time.",
            )
        ]
    return [answer(*_last(stragglers)), *_slowest(reading)]


def _last(stragglers: pd.DataFrame) -> list[object]:
    if stragglers.empty:
        return ["No collective was recorded on all ranks."]
    top = largest(stragglers, "caused_ns")
    return [
        f"Rank {top[C.RANK]} causes the longest waits: it arrived last in ",
        some(top["last_count"], "count"),
        " of ",
        some(top["collectives"], "count"),
        " collectives; mean wait of the other ranks, summed over these collectives: ",
        some(top["caused_ns"], "ns"),
        ".",
    ]


def _slowest(reading: Reading) -> list[Component]:
    steps = reading.frame("steps")
    if steps.empty:
        return []
    top = largest(steps, "spread_ns")
    if not top["spread_ns"]:
        return [answer("All ranks have equal step times.")]
    return [
        answer(
            f"Largest spread in step {top[C.STEP]}: rank {top['slowest_rank']} took ",
            some(top["slowest_ns"], "ns"),
            f" and rank {top['fastest_rank']} ",
            some(top["fastest_ns"], "ns"),
            ".",
        )
    ]


def _names(frame: pd.DataFrame) -> list[str]:
    pairs = zip(frame[C.RANK], frame[C.DEVICE], strict=True)
    return [f"rank {rank}, device {device}" for rank, device in pairs]


def _figures(reading: Reading) -> list[Component]:
    context, per_rank = reading.context, reading.frame("per_rank")
    if per_rank.empty:
        return []
    shown, cut = ends(per_rank, per_rank[_PARTS["computation"]], "computation")
    parts = {
        name: [int(value) for value in shown[column]]
        for name, column in _PARTS.items()
        if per_rank[column].any()
    }
    work = composed(_names(shown), parts, "ns", title="time in the window")
    caption = f"Time breakdown per rank; the parts sum to its window. Waiting counts as communication.{cut}"
    return [chart(context, "work", work, caption=caption), *_waiting(reading), *_skew(reading)]


def _waiting(reading: Reading) -> list[Component]:
    frame = reading.frame("stragglers").sort_values([C.RANK, C.DEVICE], ignore_index=True)
    if frame.empty:
        return [nothing("Wait times unavailable: no collective could be matched across ranks.")]
    charts = [
        _waits(reading, frame, name, title, caption)
        for name, title, caption in (
            ("caused", "mean wait of the other ranks", "Wait time each rank caused by arriving last."),
            ("waited", "exposed wait", "Exposed time each rank waited for others."),
        )
    ]
    return [html.Div(charts, className="tk-pair")]


def _waits(reading: Reading, frame: pd.DataFrame, name: str, title: str, caption: str) -> Component:
    column = f"{name}_ns"
    shown, cut = ends(frame, frame[column], title)
    figure = bars(_names(shown), [int(value) for value in shown[column]], "ns", title=title)
    return chart(reading.context, name, figure, caption=f"{caption}{cut}")


def _skew(reading: Reading) -> list[Component]:
    skew = reading.frame("skew")
    known = skew[skew["last_rank"].notna() & skew["aligned"].astype(bool)]
    if known.empty:
        return []
    figure, by = matrix(known)
    caption = f"Total wait of the other ranks by the rank that arrived last, {by}. Empty cells: no wait."
    worst = known.sort_values("wait_ns", ascending=False, kind="stable")
    wanted = ("collective", "number", C.STEP, "last_rank", "wait_ns", "shortest_ns", "longest_ns", "ranks")
    columns = reading.columns("skew", *wanted)
    return [
        chart(reading.context, "skew", figure, caption=caption),
        short(reading.context, worst, columns, title="Collectives with the longest waits"),
    ]


PAGE = answer_page("ranks", section=Section.COMPARE, order=320, answer=_answer, figures=_figures, height=520)
