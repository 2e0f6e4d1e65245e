"""Comparison of runs as Markdown, and as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit.analysis import Column
from tracekit.diff.model import Diff, Verdict
from tracekit.errors import clean
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import details, escape, escape_prose, fenced, fitting, markdown_text, short
from tracekit.render.diff_tables import Table
from tracekit.render.page import folding, page
from tracekit.runs.text import human

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
        "tables": [
            folding(one, limit=limit, unfolded=one.name in _OPEN)
            for one in _tables(diff, refused=refused)
            if one.rows
        ],
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


MOST_BYTES = 60_000
_TOP = 5
_DETAILS = 25
_WIDEST = 120
_CAUSE_COLUMNS = ("delta_ns", "made_of", "n_base", "n_head", "what", "module")


def as_markdown(diff: Diff, *, limit: int = _DETAILS) -> str:
    """Render verdict, ledgers and top causes, and further folded sections that fit.

    Args:
        diff: The comparison.
        limit: Maximum rows of folded tables, 0 for all; tables that do not fit are omitted and counted.
    """
    parts = [
        f"## {_sign(diff)}{escape(words.headline(diff))}\n",
        f"- base: {escape(words.title(diff.base))}\n- head: {escape(words.title(diff.head))}",
    ]
    if diff.verdict is Verdict.NOT_COMPARABLE:
        parts += ["", _markdown_table(tables.differences(diff)), escape(words.next_step(diff)) + "\n"]
        return "\n".join([*parts, fenced(words.declaring(diff))])
    said = (words.comparable(diff), words.compared(diff), *diff.warnings)
    next_step = [f"- {escape_prose(words.next_step(diff))}"] if words.next_step(diff) else []
    parts += ["\n".join([*(f"- {escape(text)}" for text in said if text), *next_step]) + "\n"]
    parts += [_markdown_table(one) for one in (tables.metrics(diff), tables.wall(diff), tables.work(diff))]
    parts.append(_top_causes(diff))
    end = f"Reproduce:\n\n{fenced(words.command(diff))}"
    room = MOST_BYTES - len("\n".join([*parts, end]).encode())
    folded = fitting(_details(diff, limit), room, elsewhere="`--format html` or `--format json`")
    return "\n".join([*parts, *folded, end])


_SIGNS = {Verdict.REGRESSION: "❌ ", Verdict.IMPROVEMENT: "✅ ", Verdict.PASS: "✅ "}


def _sign(diff: Diff) -> str:
    """Return the sign of the verdict; never a check mark if any metric got worse."""
    if diff.verdict is not Verdict.REGRESSION and words.worsens(diff):
        return "⚠️ "
    return _SIGNS.get(diff.verdict, "")


def _top_causes(diff: Diff) -> str:
    table = tables.causes(diff)
    if not table.rows:
        return f"### Causes\n\n{words.NOTHING_CHANGED}\n"
    columns = [table.columns[0], *(column for column in table.columns if column.name in _CAUSE_COLUMNS)]
    return _shown(table, columns, limit=_TOP, title=f"Top causes by {diff.by}, per step")


def _details(diff: Diff, limit: int) -> list[str]:
    chosen = [
        tables.counts(diff),
        tables.alone(diff),
        tables.match(diff),
        tables.differences(diff),
        tables.causes(diff),
        tables.groups(diff),
    ]
    folded = [
        details(one.title, _markdown_table(one, limit=limit, title=False)) for one in chosen if one.rows
    ]
    return [*_analyses_markdown(diff), *folded]


def _analyses_markdown(diff: Diff) -> list[str]:
    found = []
    for analysis, result in diff.analyses:
        items = [
            f"- {one.severity}: **{escape(one.title)}**: {escape(one.advice)} ({escape(one.code)})"
            for one in result.findings
        ]
        items += [f"- note: {escape(note)}" for note in result.notes]
        if items:
            found.append(details(analysis.title, "\n".join(items) + "\n"))
    return found


def _markdown_table(table: Table, *, limit: int = 0, title: bool = True) -> str:
    return _shown(table, table.columns, limit=limit, title=table.title if title else "")


def _shown(table: Table, columns: Sequence[Column], *, limit: int, title: str) -> str:
    """Render the first rows with shortened names."""
    many = limit or len(table.rows)
    rows = [*(short(row, _WIDEST) for row in table.rows[:many]), *table.rows[many:]]
    return markdown_text(rows, columns, title=title, limit=limit)
