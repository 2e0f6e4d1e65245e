"""Gate result for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.render import check_words as words
from tracekit.render.cells import clean
from tracekit.render.check_causes import causes
from tracekit.render.terminal import table_text

if TYPE_CHECKING:
    from tracekit.checking.model import Gate

_ALL_COLUMNS = "--format json shows all"


def as_text(gate: Gate) -> str:
    """Render verdict, metrics, differences and next commands."""
    parts = [clean(words.headline(gate)) + "\n"]
    parts.append("".join(f"  {clean(words.sides(each))}\n" for each in gate.configurations))
    if rows := words.rows(gate):
        parts.append(table_text(rows, words.COLUMNS, limit=0, all_columns=_ALL_COLUMNS))
    parts.append(_lines("Reasons:", words.reasons(gate)))
    for text, table in causes(gate):
        parts.append(f"{clean(text)}\n")
        if table.rows:
            parts.append(table_text(table.rows, table.columns, title=table.title, all_columns=_ALL_COLUMNS))
    if fields := words.fields(gate):
        parts.append(
            table_text(
                fields, words.FIELDS, title="Differences of the runs:", limit=0, all_columns=_ALL_COLUMNS
            )
        )
    parts.append(_lines("Notes:", words.notes(gate)))
    parts.append(_lines("Break down the difference:", words.differences(gate)))
    parts.append(_lines("Find the commit:", words.searches(gate)))
    parts.append(_lines("Reproduce:", [words.command(gate)]))
    return "\n".join(part for part in parts if part)


def _lines(title: str, lines: list[str]) -> str:
    return f"{title}\n" + "".join(f"  {clean(line)}\n" for line in lines) if lines else ""
