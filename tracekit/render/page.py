"""Parts shared by HTML reports: page, stylesheet, and folded tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import clean
from tracekit.render.cells import Record, cell, for_people, header, is_text
from tracekit.runs.text import PROSE, shorten

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.render.diff_tables import Table

_SHORT = 24
_LONG = 100
"""Length from which a name is shortened, and shown in full when expanded."""


def page(template: str, content: dict[str, Any]) -> str:
    """Render a template with all content escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(template).render(content) + "\n"


def folding(table: Table, *, limit: int, unfolded: bool) -> dict[str, Any]:
    """Prepare a table for `page.html.j2`, with a maximum of rows, 0 for all."""
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
    """Return the CSS class of a column: sentences and long names wrap, short text and numbers do not."""
    if not is_text(rows, column):
        return ""
    if column.unit == PROSE:
        return "words prose"
    longest = max(len(str(row[column.name] or "")) for row in rows)
    return "words" if longest > _SHORT else "words short"


def _parts(text: str) -> tuple[str, str]:
    """Return the shortened text of a cell, and the full text if it differs."""
    brief = shorten(text, _LONG)
    return (brief, "") if brief == text else (brief, text)
