"""What the pages of reports share: one self-contained file, its stylesheet, tables that fold out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.render.cells import PROSE, cell, clean, for_people, shorten
from tracekit.render.headers import header, is_text

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.render.data import Record
    from tracekit.render.diff_tables import Table

_SHORT = 24
_LONG = 100
"""Characters from which a name shows its two ends, and the whole where a reader opens it."""


def page(template: str, content: dict[str, Any]) -> str:
    """A template filled in; whatever it shows is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(template).render(content) + "\n"


def folding(table: Table, *, limit: int, unfolded: bool) -> dict[str, Any]:
    """A table as `page.html.j2` shows it, with so many rows at most, 0 for all."""
    shown, columns = table.rows[: limit or None], for_people(table.columns)
    sides = [_class(shown, one) for one in columns]
    return {
        "title": clean(table.title),
        "open": unfolded,
        "heads": [(clean(header(one)), side) for one, side in zip(columns, sides, strict=True)],
        "meanings": [(clean(header(one)), clean(one.meaning)) for one in columns],
        "rows": [
            [(*_parts(cell(row, one)), side) for one, side in zip(columns, sides, strict=True)]
            for row in shown
        ],
        "named": is_text(shown, columns[0]),
        "left": len(table.rows) - len(shown),
    }


def _class(rows: list[Record], column: Column) -> str:
    """How a column's cells are set: sentences and names wrap, what is short and numbers do not."""
    if not is_text(rows, column):
        return ""
    if column.unit == PROSE:
        return "words prose"
    longest = max(len(str(row[column.name] or "")) for row in rows)
    return "words" if longest > _SHORT else "words short"


def _parts(text: str) -> tuple[str, str]:
    """What a cell shows, and the whole of it where that is more."""
    brief = shorten(text, _LONG)
    return (brief, "") if brief == text else (brief, text)
