"""A comparison of runs for a pull request: Markdown of less than 60 kB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.diff.model import Verdict
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import shorten
from tracekit.render.plain import escape, markdown_text

if TYPE_CHECKING:
    from tracekit.diff.model import Diff
    from tracekit.render.diff_tables import Table

MOST_BYTES = 60_000
_TOP = 5
_DETAILS = 25
_WIDEST = 120
_CAUSE_COLUMNS = ("delta_ns", "made_of", "n_base", "n_head", "what", "module")


def as_markdown(diff: Diff, *, limit: int = 0) -> str:
    """The verdict, ledgers and top causes; the rest in sections that fold out, as far as there is room.

    Args:
        diff: The comparison.
        limit: Rows of the tables that fold out at most, 0 for as many as usual.
    """
    parts = [
        f"## {_SIGNS.get(diff.verdict, '')}{escape(words.headline(diff))}\n",
        f"- base: {escape(words.title(diff.base))}\n- head: {escape(words.title(diff.head))}\n"
        f"- {escape(words.comparable(diff))}",
    ]
    if diff.verdict is Verdict.NOT_COMPARABLE:
        parts += ["", _table(tables.differences(diff)), escape(words.how_to_declare(diff))]
        return "\n".join(parts) + "\n"
    parts += [f"- {escape(words.compared(diff))}\n"]
    parts += [_table(one) for one in (*tables.metrics(diff), tables.wall(diff), tables.work(diff))]
    parts.append(_top_causes(diff))
    end = f"Reproduce: `{words.command(diff)}`\n"
    room = MOST_BYTES - _size("\n".join([*parts, end]))
    return "\n".join([*parts, *_fitting(_details(diff, limit or _DETAILS), room), end])


_SIGNS = {Verdict.REGRESSION: "❌ ", Verdict.IMPROVEMENT: "✅ ", Verdict.PASS: "✅ "}


def _size(text: str) -> int:
    return len(text.encode())


def _fitting(sections: list[str], room: int) -> list[str]:
    """The sections there is room for, and a line that says how many there was none for."""
    kept: list[str] = []
    for section in sections:
        if (needed := _size(section) + 200) > room:
            break
        room -= needed
        kept.append(section)
    left = len(sections) - len(kept)
    return [*kept, *([f"{left} more sections: `--format html` or `--format json` has all\n"] if left else [])]


def _top_causes(diff: Diff) -> str:
    table = tables.causes(diff)
    if not table.rows:
        return f"### Causes\n\n{words.NOTHING_CHANGED}\n"
    columns = [table.columns[0], *(column for column in table.columns if column.name in _CAUSE_COLUMNS)]
    return markdown_text(
        [_short(row) for row in table.rows], columns, title=f"Top causes by {diff.by}, per step", limit=_TOP
    )


def _details(diff: Diff, limit: int) -> list[str]:
    chosen = [
        tables.counts(diff),
        tables.match(diff),
        tables.differences(diff),
        tables.causes(diff),
        tables.groups(diff),
    ]
    folded = [_folded(one.title, _table(one, limit=limit, title=False)) for one in chosen if one.rows]
    return [*_analyses(diff), *folded, *_warnings(diff)]


def _analyses(diff: Diff) -> list[str]:
    found = []
    for analysis, result in diff.analyses:
        told = [
            f"- **{escape(one.title)}**: {escape(one.advice)} ({escape(one.code)})" for one in result.findings
        ]
        told += [f"- note: {escape(note)}" for note in result.notes]
        if told:
            found.append(_folded(analysis.title, "\n".join(told) + "\n"))
    return found


def _warnings(diff: Diff) -> list[str]:
    told = "\n".join(f"- {escape(text)}" for text in diff.warnings)
    return [_folded("Notes", told + "\n")] if told else []


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n\n{content}\n</details>\n"


def _table(table: Table, *, limit: int = 0, title: bool = True) -> str:
    rows = [_short(row) for row in table.rows]
    return markdown_text(rows, table.columns, title=table.title if title else "", limit=limit)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {key: shorten(value, _WIDEST) if isinstance(value, str) else value for key, value in row.items()}
