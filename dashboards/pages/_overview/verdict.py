"""Integrity verdict of a run, with failed checks."""

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
    "usable": ("Usable with care", "some numbers may be inaccurate"),
    "misleading": ("Not usable", "the numbers are misleading"),
}
_FAILED = ("error", "warn")


def shown(context: Context, integrity: Result) -> Component:
    """Show the verdict of `integrity` with the failed checks.

    Args:
        context: The current context, for links.
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
                    f" {meaning}. {passed} of {int(row['checks'])} checks passed. ",
                    dcc.Link("All checks", href=context.view.elsewhere("integrity")),
                ]
            ),
            *([html.Ul([html.Li(_check(*one)) for one in failed])] if failed else []),
        ],
        className=f"tk-verdict tk-verdict-{verdict}",
    )


def _failed(integrity: Result) -> list[tuple[str, str, str]]:
    """Return level, name and detail of each failed check, most severe first."""
    checks = integrity.tables["checks"]
    rows = list(
        zip(checks["level"].tolist(), checks["check"].tolist(), checks["detail"].tolist(), strict=True)
    )
    return sorted((row for row in rows if row[0] in _FAILED), key=lambda row: _FAILED.index(row[0]))


def _check(level: str, name: str, detail: str) -> list[Component | str]:
    word = "Error" if level == "error" else "Warning"
    return [html.Strong(f"{word}: {name.replace('_', ' ')}"), " – ", *coded(sentence(detail))]
