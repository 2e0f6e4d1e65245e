"""JSON, CSV and Markdown output."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.render.cells import cell, clean, for_people
from tracekit.render.data import first, plain, records
from tracekit.render.headers import header, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis import Column
    from tracekit.render.data import Rows

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~&])")


def envelope(command: str, /, **content: Any) -> str:
    """Return the JSON output of a command: one object that names its schema.

    Non-ASCII characters are escaped, so that names cannot control a terminal and are kept unchanged.

    Example:
        >>> envelope("runs", runs=[])
        '{"schema": "tracekit.runs/1", "runs": []}'
    """
    return json.dumps({"schema": f"tracekit.{command}/1", **plain(content)}, allow_nan=False)


def csv_text(data: Rows, columns: Sequence[Column]) -> str:
    """Render as CSV with a header: exact numbers, empty where a value is missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for record in records(data, columns):
        writer.writerow([clean(value) if isinstance(value, str) else value for value in record.values()])
    return stream.getvalue()


def markdown_text(data: Rows, columns: Sequence[Column], *, title: str = "", limit: int = 0) -> str:
    """Render as a Markdown table with human-readable units; names cannot break out of their cell."""
    shown, total = first(data, columns, limit)
    lines = [f"### {escape(title)}", ""] if title else []
    visible = for_people(columns)
    lines.append(_line([escape(header(column)) for column in visible]))
    lines.append(_line(["---" if is_text(shown, column) else "---:" for column in visible]))
    lines += [_line([escape(cell(row, column)) for column in visible]) for row in shown]
    if len(shown) < total:
        lines += ["", f"{total - len(shown)} more rows"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Escape text for Markdown."""
    return _MARKDOWN.sub(r"\\\1", clean(text))


def escape_prose(text: str) -> str:
    r"""Escape trusted prose for Markdown, except code in backticks.

    Example:
        >>> print(escape_prose("|K| by `record_shapes=True`"))
        \|K\| by `record_shapes=True`
    """
    if text.count("`") % 2:
        return escape(text)
    parts = text.split("`")
    parts[::2] = map(escape, parts[::2])
    parts[1::2] = [clean(part).replace("|", "\\|") for part in parts[1::2]]
    return "`".join(parts)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
