"""Integrity page: checks of whether a run's numbers can be trusted."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.analysis.findings import read_capture

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, show_answer
from ..components.finding import show_capture
from ..components.text import capitalize, section, with_code
from ..site import Section
from ..tables.html import html_table
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
    reason = with_code(f"{capitalize(str(row['reason']))}.")
    return [show_answer(html.Strong(f"{word}: "), f"{meaning}. ", *reason)]


def _figures(results: PageResults) -> list[Component]:
    records = [
        {
            "result": html.Span(_LEVELS[row["level"]], className=f"tk-level-{row['level']}"),
            "check": row["check"].replace("_", " "),
            "found": html.Span(with_code(row["detail"]), className="tk-wrapped"),
            "count": row["count"],
            "share": row["share"],
        }
        for row in sorted(results.rows("checks"), key=lambda row: [*_LEVELS].index(row["level"]))
    ]
    table = html.Div(html_table(_CHECKS, records, caption="Checks of the run"), className="tk-checks")
    capture = show_capture(read_capture(results.context.result("capture")), opened=True)
    return [section("Checks, most severe first", table), *capture]


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
