"""Integrity page: checks of whether a run's numbers can be trusted."""

from __future__ import annotations

from typing import Any

from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.render import cells
from tracekit.render.capture import of_result

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, html_table, show_answer
from ..components.finding import show_capture
from ..components.text import capitalize, section, with_code
from ..site import Section
from .overview import VERDICT_WORDS

_LEVELS = {"error": "✕ error", "warn": "! warning", "ok": "✓ passed", "info": "– info"}
"""Text of each level, most severe first."""
_CHECKS = (
    Column("result", "", "result of the check"),
    Column("check", "", "name of the check, or code of a diagnostic"),
    Column("found", "prose", "details"),
    Column("count", "count", "number of affected rows"),
    Column("share", "share", "affected share of rows or time"),
)


def _answer(results: PageResults) -> list[Component]:
    row = results.largest("verdict")
    word, meaning = VERDICT_WORDS.get(str(row["verdict"]), (str(row["verdict"]), ""))
    return [
        show_answer(
            html.Strong(f"{word}: "), f"{meaning}. ", *with_code(f"{capitalize(str(row['reason']))}.")
        )
    ]


def _figures(results: PageResults) -> list[Component]:
    checks = results.frame("checks")
    order = list(_LEVELS)
    ranked = checks.assign(rank=[order.index(level) for level in checks["level"]])
    records = ranked.sort_values("rank", kind="stable").to_dict("records")
    return [
        section(
            "Checks, most severe first",
            html_table(_CHECKS, [_record(record) for record in records], caption="Checks of the run"),
        ),
        *show_capture(of_result(results.context.result("capture")), opened=True),
    ]


def _record(row: dict[Any, Any]) -> dict[str, Any]:
    return {
        "result": html.Span(_LEVELS[row["level"]], className=f"tk-level-{row['level']}"),
        "check": str(row["check"]).replace("_", " "),
        "found": html.Span(with_code(str(row["detail"])), className="tk-wrapped"),
        "count": cells.plain(row["count"]),
        "share": cells.plain(row["share"]),
    }


PAGE = answer_page(
    "integrity",
    section=Section.MORE,
    order=890,
    answer=_answer,
    figures=_figures,
    analyses=("integrity", "capture"),
    hidden=("verdict", "checks", "missing", "lines"),
    height=560,
)
