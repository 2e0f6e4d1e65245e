"""Gate result for a pull request or an issue: Markdown of less than 60 kB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.errors import ExitCode
from tracekit.render import check_words as words
from tracekit.render.cells import clean, shorten
from tracekit.render.check_causes import causes
from tracekit.render.plain import escape, markdown_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis import Column
    from tracekit.checking.model import Gate
    from tracekit.render.data import Record

MOST_BYTES = 60_000
_MOST_ROWS = 50
_WIDEST = 160
_LONGEST = 4_000
_SIGNS = {ExitCode.OK: "✅", ExitCode.REGRESSION: "❌"}


def as_markdown(gate: Gate) -> str:
    """Render verdict, metrics, causes, differences and next commands; notes are folded."""
    parts = [
        f"## {_SIGNS.get(gate.exit_code, '⚠️')} {escape(words.headline(gate))}\n",
        _items([words.sides(each) for each in gate.configurations]),
        _table(words.rows(gate), words.COLUMNS),
        _items(words.reasons(gate)),
        *(
            f"{escape(text)}\n\n{_table(one.rows, one.columns, title=one.title)}"
            for text, one in causes(gate)
        ),
        _table(words.fields(gate), words.FIELDS, title="Differences of the runs"),
        _folded("Notes", _items(words.notes(gate))),
        *(f"Break down the difference: {code(line)}\n" for line in words.differences(gate)[:_MOST_ROWS]),
        *(f"Find the commit: {code(line)}\n" for line in words.searches(gate)[:_MOST_ROWS]),
    ]
    again = words.command(gate)
    known = len(again.encode()) <= _LONGEST
    return _within(parts, f"Reproduce: {code(again)}\n" if known else "Reproduce: in `--format json`\n")


def _within(parts: Sequence[str], end: str) -> str:
    """Join the parts that fit, and the end."""
    room = MOST_BYTES - len(end.encode()) - 200
    fitting, left = [], 0
    for part in parts:
        if (needed := len(part.encode()) + 1) > room:
            left += 1
            continue
        room -= needed
        fitting.append(part)
    if left:
        fitting.append(f"{left} more section{'s' * (left != 1)} omitted; see `--format json`\n")
    return "\n".join(part for part in [*fitting, end] if part)


def _items(lines: Sequence[str]) -> str:
    shown = [f"- {escape(shorten(line, 400))}\n" for line in lines[:_MOST_ROWS]]
    more = len(lines) - len(shown)
    return "".join(shown) + (f"- {more} more in `--format json`\n" if more else "")


def _table(rows: Sequence[Record], columns: Sequence[Column], *, title: str = "") -> str:
    short = [
        {key: shorten(value, _WIDEST) if isinstance(value, str) else value for key, value in row.items()}
        for row in rows
    ]
    return markdown_text(short, columns, title=title, limit=_MOST_ROWS) if short else ""


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n</details>\n" if content else ""


def code(text: str) -> str:
    """Format as inline code, with enough backticks that the text is kept unchanged.

    Example:
        >>> print(code("a"), code("a`b"))
        `a` `` a`b ``
    """
    shown = clean(text)
    runs = re.findall("`+", shown)
    if not runs:
        return f"`{shown}`"
    fence = "`" * (1 + max(map(len, runs)))
    return f"{fence} {shown} {fence}"
