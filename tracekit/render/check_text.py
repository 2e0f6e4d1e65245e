"""A gate's result for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.render import check_words as words
from tracekit.render.cells import clean
from tracekit.render.check_causes import causes
from tracekit.render.terminal import table_text

if TYPE_CHECKING:
    from tracekit.checking.model import Gate

_ALL_COLUMNS = "--format json has all"


def as_text(gate: Gate) -> str:
    """Verdict, the table of metrics, differences, and what to do next."""
    parts = [clean(words.headline(gate)) + "\n"]
    parts.append("".join(f"  {clean(words.sides(each))}\n" for each in gate.configurations))
    if rows := words.rows(gate):
        parts.append(table_text(rows, words.COLUMNS, limit=0, all_columns=_ALL_COLUMNS))
    parts.append(_lines("Why:", words.reasons(gate)))
    for told, table in causes(gate):
        parts.append(f"{clean(told)}\n")
        if table.rows:
            parts.append(table_text(table.rows, table.columns, title=table.title, all_columns=_ALL_COLUMNS))
    if fields := words.fields(gate):
        parts.append(
            table_text(fields, words.FIELDS, title="What differs:", limit=0, all_columns=_ALL_COLUMNS)
        )
    parts.append(_lines("Notes:", words.notes(gate)))
    parts.append(_lines("What it is made of:", words.differences(gate)))
    parts.append(_lines("Which commit it was:", words.searches(gate)))
    parts.append(_lines("Check the same again:", [words.command(gate)]))
    return "\n".join(part for part in parts if part)


def _lines(title: str, lines: list[str]) -> str:
    return f"{title}\n" + "".join(f"  {clean(line)}\n" for line in lines) if lines else ""
