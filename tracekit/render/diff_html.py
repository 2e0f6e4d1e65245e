"""Comparison of runs as one self-contained HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.diff.model import Verdict
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import clean, human
from tracekit.render.page import folding, page

if TYPE_CHECKING:
    from tracekit.diff.model import Diff
    from tracekit.render.diff_tables import Table

_TEMPLATE = "diff.html.j2"
_LIMIT = 200
_OPEN = ("metrics", "wall", "work", "causes", "differences")
COLOURS = 8
"""Number of bar colors in the template, one per part of a step."""


def as_html(diff: Diff, *, limit: int = _LIMIT) -> str:
    """Render as an HTML page that follows the reader's light or dark theme.

    Args:
        diff: The comparison.
        limit: Maximum rows per table, 0 for all.
    """
    return page(_TEMPLATE, _content(diff, limit))


def _content(diff: Diff, limit: int) -> dict[str, Any]:
    refused = diff.verdict is Verdict.NOT_COMPARABLE
    said = () if refused else (words.comparable(diff), words.compared(diff))
    return {
        "base": clean(words.title(diff.base)),
        "head": clean(words.title(diff.head)),
        "headline": clean(words.headline(diff)),
        "tone": _tone(diff),
        "lines": [clean(text) for text in said if text],
        "next_step": clean(words.next_step(diff)).replace("`", ""),
        "declaring": clean(words.declaring(diff)) if refused else "",
        "bars": _bars(diff),
        "colours": COLOURS,
        "tables": [_table(one, limit) for one in _tables(diff, refused=refused) if one.rows],
        "nothing": "" if refused or diff.causes else words.NOTHING_CHANGED,
        "analyses": _analyses(diff),
        "warnings": [clean(text) for text in diff.warnings],
        "command": clean(words.command(diff)),
    }


def _tone(diff: Diff) -> str:
    """Return the CSS class of the verdict."""
    good = diff.verdict in {Verdict.PASS, Verdict.IMPROVEMENT}
    if good and not words.worsens(diff):
        return "good"
    return "bad" if words.worsens(diff) or diff.verdict is Verdict.NOT_COMPARABLE else ""


def _tables(diff: Diff, *, refused: bool) -> list[Table]:
    if refused:
        return [tables.differences(diff)]
    return [
        tables.metrics(diff),
        tables.wall(diff),
        tables.work(diff),
        tables.causes(diff),
        tables.counts(diff),
        tables.alone(diff),
        tables.match(diff),
        tables.differences(diff),
        tables.groups(diff),
    ]


def _table(table: Table, limit: int) -> dict[str, Any]:
    return folding(table, limit=limit, unfolded=table.name in _OPEN)


def _bars(diff: Diff) -> list[dict[str, Any]]:
    """Return the step of each side as a bar of its parts, scaled to the longer step."""
    if diff.wall is None:
        return []
    scale = max(diff.wall.total.a_ns, diff.wall.total.b_ns, 1)
    lines = [(place % COLOURS, line) for place, line in enumerate(diff.wall.lines) if line.a_ns or line.b_ns]
    return [
        _bar("base", [(colour, line.name, line.a_ns) for colour, line in lines], scale),
        _bar("head", [(colour, line.name, line.b_ns) for colour, line in lines], scale),
    ]


def _bar(side: str, lines: list[tuple[int, str, int]], scale: int) -> dict[str, Any]:
    total = sum(length for _, _, length in lines) or 1
    parts = [
        {
            "name": name,
            "colour": colour,
            "width": f"{100 * length / scale:.3f}",
            "share": human(length / total, "share"),
            "shown": length > 0,
        }
        for colour, name, length in lines
    ]
    shares = ", ".join(f"{one['name']} {one['share']}" for one in parts if one["shown"])
    return {"name": side, "parts": parts, "label": f"step of the {side}: {shares}"}


def _analyses(diff: Diff) -> list[dict[str, Any]]:
    return [
        {
            "title": clean(analysis.title),
            "findings": [
                (str(one.severity), clean(one.title), clean(one.advice), clean(one.code))
                for one in result.findings
            ],
            "notes": [clean(note) for note in result.notes],
        }
        for analysis, result in diff.analyses
        if result.findings or result.notes
    ]
