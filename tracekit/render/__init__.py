"""Renderers of finished tables; they compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracekit.errors import clean
from tracekit.render.cells import csv_text, json_text, markdown_text, records
from tracekit.render.layout import DEFAULT_LIMIT, table_text
from tracekit.runs.text import human

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.render.cells import Rows

__all__ = ["clean", "csv_text", "human", "json_text", "markdown_text", "records", "rows", "table_text"]


def rows(
    data: Rows,
    columns: Sequence[Column],
    output_format: str,
    *,
    command: str,
    key: str = "rows",
    title: str = "",
    limit: int | None = None,
) -> str:
    """Render a table in one of the output formats of a command.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: The columns to render, in order, with their units.
        output_format: One of `tracekit.cli.options.FORMATS`.
        command: Command in the name of the JSON schema, `tracekit.<command>/1`.
        key: Key of the rows in the JSON object.
        title: Line above the table, in formats for people.
        limit: Maximum rows, 0 for all; by default 30 in a table and all elsewhere.

    Returns:
        The text, ending in a newline.

    Example:
        >>> from tracekit.analysis import Column
        >>> print(rows([{"dur_ns": 1500}], [Column("dur_ns", "ns", "")], "table", command="show"), end="")
            dur
        1.50 µs
    """
    if output_format == "table":
        return table_text(data, columns, title=title, limit=DEFAULT_LIMIT if limit is None else limit)
    if output_format == "markdown":
        return markdown_text(data, columns, title=title, limit=limit or 0)
    chosen = records(data, columns)[: limit or None]
    if output_format == "csv":
        return csv_text(chosen, columns)
    return json_text(command, **{key: chosen})
