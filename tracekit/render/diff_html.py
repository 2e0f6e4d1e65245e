"""A comparison of runs as one HTML file that asks for nothing outside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.diff.model import Verdict
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import clean
from tracekit.render.page import folding, page

if TYPE_CHECKING:
    from tracekit.diff.ledgers import WallLine
    from tracekit.diff.model import Diff
    from tracekit.render.diff_tables import Table

_TEMPLATE = "diff.html.j2"
_LIMIT = 200
_OPEN = ("metrics_ns", "metrics_bytes", "wall", "work", "causes", "differences")


def as_html(diff: Diff, *, limit: int = _LIMIT) -> str:
    """One page, in the reader's light or dark colours.

    Args:
        diff: The comparison.
        limit: Rows of a table at most, 0 for all.
    """
    return page(_TEMPLATE, _content(diff, limit))


def _content(diff: Diff, limit: int) -> dict[str, Any]:
    refused = diff.verdict is Verdict.NOT_COMPARABLE
    return {
        "base": clean(words.title(diff.base)),
        "head": clean(words.title(diff.head)),
        "headline": clean(words.headline(diff)),
        "tone": str(diff.verdict).replace(" ", "-"),
        "lines": [clean(text) for text in (words.comparable(diff), words.compared(diff)) if text],
        "advice": clean(words.how_to_declare(diff)) if refused else "",
        "bars": [] if refused else _bars(diff),
        "tables": [_table(one, limit) for one in _tables(diff, refused=refused) if one.rows],
        "nothing": "" if refused or diff.causes else words.NOTHING_CHANGED,
        "analyses": _analyses(diff),
        "warnings": [clean(text) for text in diff.warnings],
        "command": clean(words.command(diff)),
    }


def _tables(diff: Diff, *, refused: bool) -> list[Table]:
    if refused:
        return [tables.differences(diff)]
    return [
        *tables.metrics(diff),
        tables.wall(diff),
        tables.work(diff),
        tables.causes(diff),
        tables.counts(diff),
        tables.match(diff),
        tables.differences(diff),
        tables.groups(diff),
    ]


def _table(table: Table, limit: int) -> dict[str, Any]:
    return folding(table, limit=limit, unfolded=table.name in _OPEN)


def _bars(diff: Diff) -> list[dict[str, Any]]:
    """Each side's step as a bar of its parts, both to the scale of the longer one."""
    if diff.wall is None:
        return []
    scale = max(diff.wall.total.a_ns, diff.wall.total.b_ns, 1)

    def parts(side: str) -> list[dict[str, Any]]:
        return [_part(place, line, getattr(line, side), scale) for place, line in enumerate(diff.wall.lines)]  # type: ignore[union-attr]

    return [{"name": "base", "parts": parts("a_ns")}, {"name": "head", "parts": parts("b_ns")}]


def _part(place: int, line: WallLine, length: int, scale: int) -> dict[str, Any]:
    return {"name": line.name, "colour": place, "width": f"{100 * length / scale:.3f}", "share": length > 0}


def _analyses(diff: Diff) -> list[dict[str, Any]]:
    return [
        {
            "title": clean(analysis.title),
            "findings": [(clean(one.title), clean(one.advice), one.code) for one in result.findings],
            "notes": [clean(note) for note in result.notes],
        }
        for analysis, result in diff.analyses
        if result.findings or result.notes
    ]
