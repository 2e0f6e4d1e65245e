"""Parts shared by HTML reports: page, stylesheet, and folded tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracekit.analysis import Column
from tracekit.errors import clean
from tracekit.render.cells import Record, cell, header, is_text, visible_columns
from tracekit.render.document import Table
from tracekit.runs.text import PROSE, shorten

_MAX_SHORT = 24
_MAX_CHARS = 100  # length from which a name is shortened, and shown in full when expanded


def page(template: str, content: dict[str, Any], folder: Path | None = None) -> str:
    """Render a template with all content cleaned and escaped; it is in this folder by default."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder or Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_clean_text,
    )
    return environment.get_template(template).render(content) + "\n"


def _clean_text(value: object) -> object:
    """Return a value of a template cleaned, if it is text and no markup."""
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def fold_table(table: Table, *, limit: int = 0, is_open: bool = True) -> dict[str, Any]:
    """Prepare a table for `page.html.j2`.

    Args:
        table: The table.
        limit: Maximum rows, 0 for all.
        is_open: Whether it is unfolded at first.
    """
    rows, columns = table.rows[: limit or None], visible_columns(table.columns)
    classes = [_class(rows, column) for column in columns]
    return {
        "title": table.title,
        "open": is_open,
        "heads": [(header(column), kind) for column, kind in zip(columns, classes, strict=True)],
        "meanings": [(header(column), column.meaning) for column in columns],
        "rows": [
            [(*_parts(cell(row, column)), kind) for column, kind in zip(columns, classes, strict=True)]
            for row in rows
        ],
        "named": is_text(rows, columns[0]),
        "left": len(table.rows) - len(rows),
    }


def _class(rows: list[Record], column: Column) -> str:
    """Return the CSS class of a column: sentences and long names wrap, short text and numbers do not."""
    if not is_text(rows, column):
        return ""
    if column.unit == PROSE:
        return "words prose"
    longest = max(len(str(row[column.name] or "")) for row in rows)
    return "words" if longest > _MAX_SHORT else "words short"


def _parts(text: str) -> tuple[str, str]:
    """Return the shortened text of a cell, and the full text if it differs."""
    brief = shorten(text, _MAX_CHARS)
    return (brief, "") if brief == text else (brief, text)
