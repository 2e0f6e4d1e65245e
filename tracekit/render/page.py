"""What the pages of reports share: one self-contained file, its stylesheet, tables that fold out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.render.cells import clean, human
from tracekit.render.headers import header, is_text

if TYPE_CHECKING:
    from tracekit.render.diff_tables import Table


def page(template: str, content: dict[str, Any]) -> str:
    """A template filled in; whatever it shows is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(template).render(content) + "\n"


def folding(table: Table, *, limit: int, unfolded: bool) -> dict[str, Any]:
    """A table as `page.html.j2` shows it, with so many rows at most, 0 for all."""
    shown = table.rows[: limit or None]
    return {
        "title": clean(table.title),
        "open": unfolded,
        "heads": [(clean(header(one)), one.meaning, is_text(table.rows, one)) for one in table.columns],
        "rows": [
            [(human(row[one.name], one.unit), is_text(table.rows, one)) for one in table.columns]
            for row in shown
        ],
        "left": len(table.rows) - len(shown),
    }
