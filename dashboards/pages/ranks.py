"""Ranks page: differences between ranks, and stragglers."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, keep_largest, show_answer, show_nothing
from ..components.charts import chart
from ..components.links import device_names
from ..figures.axis import keep_extremes
from ..figures.gaps import matrix
from ..site import Section

_PARTS = {
    "computation": "computation_ns",
    "exposed communication": "communication_exposed_ns",
    "copies and other": "other_ns",
    "idle": "idle_ns",
}


def _answer(results: PageResults) -> list[Component]:
    if len(results.frame("per_rank")) == 1:
        text = (
            "Only rank {rank!s} on device {device!s} is shown: computation {computation_share}, idle "
            "{idle_share} of its time."
        )
        return [show_answer(*results.largest("per_rank").fill(text))]
    return [show_answer(*_last(results)), *_slowest(results)]


def _last(results: PageResults) -> list[object]:
    if results.frame("stragglers").empty:
        return ["No collective was recorded on all ranks."]
    top = results.largest("stragglers", "caused_ns")
    several = results.frame("per_rank")[C.RANK].nunique() > 1
    who, each = ("Rank {rank!s}", "rank") if several else ("Device {device!s}", "device")
    text = (
        f"{who} causes the longest waits: it arrived last in {{last_count}} of {{collectives}} collectives; "
        f"on average, each other {each} waited {{caused_ns}} in total."
    )
    return top.fill(text)


def _slowest(results: PageResults) -> list[Component]:
    if results.frame("steps").empty:
        return []
    top = results.largest("steps", "spread_ns")
    if not top["spread_ns"]:
        return [show_answer("All ranks have equal step times.")]
    text = (
        "Largest spread in step {step!s}: rank {slowest_rank!s} took {slowest_ns} and rank {fastest_rank!s} "
        "{fastest_ns}."
    )
    return [show_answer(*top.fill(text))]


def _figures(results: PageResults) -> list[Component]:
    per_rank = results.frame("per_rank")
    shown, cut = keep_extremes(per_rank, per_rank[_PARTS["computation"]], "computation")
    parts = {name: shown[column] for name, column in _PARTS.items() if per_rank[column].any()}
    names, title = device_names(shown, ranks=True), "time in the window"
    caption = f"Time breakdown per rank; the parts sum to its window. Waiting counts as communication.{cut}"
    work = results.bars("work", names, parts, title=title, caption=caption)
    return [*work, *_wait_charts(results), *_skew(results)]


def _wait_charts(results: PageResults) -> list[Component]:
    frame = results.frame("stragglers").sort_values([C.RANK, C.DEVICE], ignore_index=True)
    if frame.empty:
        return [show_nothing("Wait times unavailable: no collective could be matched across ranks.")]
    charts: list[Component] = []
    for name, title, caption in (
        ("caused", "mean wait of the other ranks", "Wait time each rank caused by arriving last."),
        ("waited", "exposed wait", "Exposed time each rank waited for others."),
    ):
        column = f"{name}_ns"
        shown, cut = keep_extremes(frame, frame[column], title)
        names, caption = device_names(shown, ranks=True), f"{caption}{cut}"
        charts += results.bars(name, names, shown[column], title=title, caption=caption)
    return [html.Div(charts, className="tk-pair")]


def _skew(results: PageResults) -> list[Component]:
    skew = results.frame("skew")
    collectives = skew[skew["last_rank"].notna() & skew["aligned"].astype(bool)]
    if collectives.empty:
        return []
    worst, title = keep_largest(collectives, "wait_ns"), "Collectives with the longest waits"
    columns = ["collective", "number", C.STEP, "last_rank", "wait_ns", "shortest_ns", "longest_ns", "ranks"]
    if results.frame("per_rank")[C.RANK].nunique() < 2:  # of devices of a rank, none is named as the last
        columns.remove("last_rank")
        return results.first_rows("skew", columns, rows=worst, title=title)
    table = results.first_rows("skew", columns, rows=worst, title=title)
    figure, by = matrix(collectives)
    caption = f"Total wait of the other ranks by the rank that arrived last, {by}. Empty cells: no wait."
    return [chart(results.context, "skew", figure, caption=caption), *table]


PAGE = answer_page(
    "ranks",
    section=Section.COMPARE,
    order=320,
    needs="per_rank",
    answer=_answer,
    figures=_figures,
    height=520,
)
