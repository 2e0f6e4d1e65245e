"""Formats for programs and for pasting: JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.render.cells import clean, human
from tracekit.render.data import plain, records
from tracekit.render.headers import header, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis import Column
    from tracekit.render.data import Rows

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~&])")


def envelope(command: str, /, **content: Any) -> str:
    """A command's JSON output: one object that names its schema.

    Characters outside ASCII are escaped, so that no name can steer a terminal and none is altered.

    Example:
        >>> envelope("runs", runs=[])
        '{"schema": "tracekit.runs/1", "runs": []}'
    """
    return json.dumps({"schema": f"tracekit.{command}/1", **plain(content)}, allow_nan=False)


def csv_text(data: Rows, columns: Sequence[Column]) -> str:
    """Comma-separated values with a header: exact numbers, nothing where a value is missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for record in records(data, columns):
        writer.writerow([clean(value) if isinstance(value, str) else value for value in record.values()])
    return stream.getvalue()


def markdown_text(data: Rows, columns: Sequence[Column], *, title: str = "", limit: int = 0) -> str:
    """A Markdown table with human units; names cannot break out of their cell."""
    rows = records(data, columns)
    shown = rows[: limit or None]
    lines = [f"### {escape(title)}", ""] if title else []
    lines.append(_line([escape(header(column)) for column in columns]))
    lines.append(_line(["---" if is_text(rows, column) else "---:" for column in columns]))
    lines += [_line([escape(human(row[column.name], column.unit)) for column in columns]) for row in shown]
    if len(shown) < len(rows):
        lines += ["", f"{len(rows) - len(shown)} more rows"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", clean(text))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
