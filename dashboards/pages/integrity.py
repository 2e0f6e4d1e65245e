"""Integrity page: checks of whether a run's numbers can be trusted."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.render import cells
from tracekit.render.capture import of_result

from ..answers.pages import answer_page
from ..answers.results import PageResults, answer, rows
from ..parts import capture
from ..parts.finding import capitalized, coded
from ..site import Section
from .overview import WORDS

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
    word, meaning = WORDS.get(str(row["verdict"]), (str(row["verdict"]), ""))
    return [answer(html.Strong(f"{word}: "), f"{meaning}. ", *coded(f"{capitalized(str(row['reason']))}."))]


def _figures(results: PageResults) -> list[Component]:
    checks = results.frame("checks")
    order = list(_LEVELS)
    ranked = checks.assign(rank=[order.index(level) for level in checks["level"]])
    records = ranked.sort_values("rank", kind="stable").to_dict("records")
    return [
        html.Section(
            [
                dmc.Title("Checks, most severe first", order=2, size="h4"),
                rows(_CHECKS, [_record(one) for one in records], caption="Checks of the run"),
            ],
            className="tk-section",
        ),
        *capture.advice(of_result(results.context.result("capture")), opened=True),
    ]


def _record(row: dict[Any, Any]) -> dict[str, Any]:
    return {
        "result": html.Span(_LEVELS[row["level"]], className=f"tk-level-{row['level']}"),
        "check": str(row["check"]).replace("_", " "),
        "found": html.Span(coded(str(row["detail"])), className="tk-wrapped"),
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
