"""A gate's result for a pull request or an issue: Markdown of less than 60 kB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import ExitCode
from tracekit.render import check_words as words
from tracekit.render.cells import shorten
from tracekit.render.plain import escape, markdown_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis import Column
    from tracekit.checking.model import Gate
    from tracekit.render.data import Record

MOST_BYTES = 60_000
_MOST_ROWS = 50
_WIDEST = 160
_SIGNS = {ExitCode.OK: "✅", ExitCode.REGRESSION: "❌"}


def as_markdown(gate: Gate) -> str:
    """The verdict line, the table, what differs and how to reproduce; the rest folds out."""
    parts = [
        f"## {_SIGNS.get(gate.exit_code, '⚠️')} {escape(words.headline(gate))}\n",
        _items([words.sides(each) for each in gate.configurations]),
        _table(words.rows(gate), words.COLUMNS),
        _items(words.reasons(gate)),
        _table(words.fields(gate), words.FIELDS, title="What differs"),
    ]
    end = [_folded("Notes", _items(words.notes(gate)))]
    end += [f"What it is made of: `{_code(line)}`\n" for line in words.explain(gate)[:_MOST_ROWS]]
    end.append(f"Reproduce: `{_code(shorten(words.command(gate), 2_000))}`\n")
    return _within(parts, end)


def _within(parts: Sequence[str], end: Sequence[str]) -> str:
    """All parts, or as many of the first as there is room for."""
    last = "\n".join(part for part in end if part)
    room = MOST_BYTES - len(last.encode()) - 200
    kept = []
    for part in parts:
        room -= len(part.encode()) + 1
        if room < 0:
            kept.append("More is in `--format json`.\n")
            break
        kept.append(part)
    return "\n".join(part for part in [*kept, last] if part)


def _items(lines: Sequence[str]) -> str:
    shown = [f"- {escape(shorten(line, 400))}\n" for line in lines[:_MOST_ROWS]]
    more = len(lines) - len(shown)
    return "".join(shown) + (f"- {more} more in `--format json`\n" if more else "")


def _table(rows: Sequence[Record], columns: Sequence[Column], *, title: str = "") -> str:
    short = [{key: shorten(str(value), _WIDEST) for key, value in row.items()} for row in rows]
    return markdown_text(short, columns, title=title, limit=_MOST_ROWS) if short else ""


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n</details>\n" if content else ""


def _code(text: str) -> str:
    return escape_code(text)


def escape_code(text: str) -> str:
    """Text between backticks, which it cannot close."""
    return text.replace("`", "'").replace("\n", " ")
