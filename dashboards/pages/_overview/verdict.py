"""The verdict on a run's numbers, in one glance: a word, a sentence, and each check that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import dcc, html

from ...parts.finding import coded
from ...parts.prose import sentence

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Result

    from ...context import Context

WORDS = {
    "good": ("Good", "the numbers can be trusted"),
    "usable": ("Usable with care", "some numbers may be off"),
    "misleading": ("Not usable", "the numbers mislead"),
}
_FAILED = ("error", "warn")


def shown(context: Context, integrity: Result) -> Component:
    """The verdict of `integrity` with the checks that led to it.

    Args:
        context: What is looked at, for links.
        integrity: Result of that analysis.
    """
    row = integrity.tables["verdict"].iloc[0]
    verdict = str(row["verdict"])
    word, meaning = WORDS.get(verdict, (verdict, ""))
    failed = _failed(integrity)
    passed = int(row["checks"]) - len(failed)
    return html.Section(
        [
            html.P(
                [
                    html.Strong(f"{word}:"),
                    f" {meaning}. {passed} of {int(row['checks'])} checks raised no doubt. ",
                    dcc.Link("All checks", href=context.view.elsewhere("integrity")),
                ]
            ),
            *([html.Ul([html.Li(_check(*one)) for one in failed])] if failed else []),
        ],
        className=f"tk-verdict tk-verdict-{verdict}",
    )


def _failed(integrity: Result) -> list[tuple[str, str, str]]:
    """Level, name and detail of each check that failed, the gravest first."""
    checks = integrity.tables["checks"]
    rows = list(
        zip(checks["level"].tolist(), checks["check"].tolist(), checks["detail"].tolist(), strict=True)
    )
    return sorted((row for row in rows if row[0] in _FAILED), key=lambda row: _FAILED.index(row[0]))


def _check(level: str, name: str, detail: str) -> list[Component | str]:
    word = "Error" if level == "error" else "Warning"
    return [html.Strong(f"{word}: {name.replace('_', ' ')}"), " – ", *coded(sentence(detail))]
