"""Format table cells for terminals, CSV, Markdown and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.cells import cell_len

from tracekit.errors import clean  # re-exported for the other renderers
from tracekit.runs.text import human
from tracekit.runs.text import plain as plain

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeIs

    from tracekit.analysis import Column


_INDENT = 2 * "\N{NO-BREAK SPACE}"  # indentation of a level of a tree, which HTML and Markdown keep


def cell(record: Mapping[str, Any], column: Column) -> str:
    """Format a record's value of a column, in the column's unit or the one named in the record.

    Example:
        >>> from tracekit.analysis import Column
        >>> base = Column("base", "", "", unit_in="unit")
        >>> [cell({"base": value, "unit": unit}, base) for value, unit in ((1500.0, "ns"), (2.0, "count"))]
        ['1.50 µs', '2']
    """
    value = record[column.name]
    if column.indent_by:
        return _INDENT * int(record.get(column.indent_by) or 0) + human(value, column.unit)
    if not column.unit_in:
        return human(value, column.unit)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # columns of several units store integers as floats
    return human(value, str(record.get(column.unit_in) or ""))


def visible_columns(columns: Sequence[Column]) -> list[Column]:
    """Drop columns that only name the unit of others, as their cells show it."""
    units = {column.unit_in for column in columns}
    return [column for column in columns if column.name not in units]


if TYPE_CHECKING:
    Rows: TypeAlias = pd.DataFrame | Iterable[Mapping[str, Any]]

Record: TypeAlias = dict[str, Any]


def records(data: Rows, columns: Sequence[Column]) -> list[Record]:
    """Return the rows as dictionaries of plain Python values; missing values are None.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: The columns, in order.

    Returns:
        One dictionary per row: exact integers, None for NaN, NA and absent keys.

    Example:
        >>> from tracekit.analysis import Column
        >>> records([{"a": float("nan"), "b": 2**60}], [Column("a", "", ""), Column("b", "", "")])
        [{'a': None, 'b': 1152921504606846976}]
    """
    names = [column.name for column in columns]
    if not _is_frame(data):
        return [{name: plain(row.get(name)) for name in names} for row in data]
    lists = [data[name].astype(object).tolist() for name in names]
    return [dict(zip(names, map(plain, row), strict=True)) for row in zip(*lists, strict=True)]


def first_rows(data: Rows, columns: Sequence[Column], limit: int) -> tuple[list[Record], int]:
    """Return the first rows like `records`, and the number of all rows.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: The columns, in order.
        limit: Maximum rows, 0 for all.

    Example:
        >>> from tracekit.analysis import Column
        >>> first_rows([{"a": 1}, {"a": 2}], [Column("a", "", "")], 1)
        ([{'a': 1}], 2)
    """
    if _is_frame(data):
        return records(data.head(limit) if limit else data, columns), len(data)
    rows = list(data)
    return records(rows[: limit or None], columns), len(rows)


def _is_frame(data: Rows) -> TypeIs[pd.DataFrame]:
    return hasattr(data, "to_dict")  # avoids importing pandas to print a list


_RATES = (("gb_per_s", "GB/s", "rate"), ("tflops", "TFLOP/s", "FLOP/s"))
"""Unit suffixes of column names, the units, and their spelling in headings: the prefix is in the cells."""


def header(column: Column) -> str:
    """Return the heading of a column; the unit suffix is dropped, as cells show the unit.

    Example:
        >>> from tracekit.analysis import Column
        >>> header(Column("kernel_sum_ns", "ns", ""))
        'kernel sum'
        >>> header(Column("median_gb_per_s", "GB/s", ""))
        'median rate'
    """
    from tracekit.schema import C  # which `--help` does without

    said = {"told_by": "identified by", C.T_NS: "time"}  # where the name is not the word that people use
    if column.name in said:
        return said[column.name]
    name = column.name.removesuffix("_ns") if column.unit == "ns" else column.name
    for written, unit, spelled in _RATES:
        if unit == column.unit and name.endswith(written):
            name = f"{name.removesuffix(written)}{spelled}"
    return name.replace("_", " ")


def wrap_heading(head: str, width: int) -> str:
    """Wrap a heading to two lines if it is wider than the cells.

    Example:
        >>> print(wrap_heading("kernel sum", 4))
        kernel
        sum
    """
    words = head.split(" ")
    if cell_len(head) <= width or len(words) < 2:
        return head
    cuts = [(" ".join(words[:n]), " ".join(words[n:])) for n in range(1, len(words))]
    return "\n".join(min(cuts, key=lambda cut: max(map(cell_len, cut))))


def is_text(rows: list[Record], column: Column) -> bool:
    """Tell whether a column holds text, which is left-aligned."""
    return any(isinstance(row[column.name], str) for row in rows)


_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~&])")


def json_text(command: str, /, **content: Any) -> str:
    r"""Return the JSON output of a command: a line with one object that names its schema.

    Non-ASCII characters are escaped, so that names cannot control a terminal and are kept unchanged.

    Example:
        >>> json_text("runs", runs=[])
        '{"schema": "tracekit.runs/1", "runs": []}\n'
    """
    return json.dumps({"schema": f"tracekit.{command}/1", **plain(content)}, allow_nan=False) + "\n"


def csv_text(data: Rows, columns: Sequence[Column]) -> str:
    """Render as CSV with a header: exact numbers, empty where a value is missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for record in records(data, columns):
        writer.writerow([clean(value) if isinstance(value, str) else value for value in record.values()])
    return stream.getvalue()


def markdown_text(data: Rows, columns: Sequence[Column], *, title: str = "", limit: int = 0) -> str:
    """Render as a Markdown table with human-readable units; names cannot break out of their cell.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: The columns, in order.
        title: Heading above the table.
        limit: Maximum rows, 0 for all.
    """
    rows, total = first_rows(data, columns, limit)
    visible = visible_columns(columns)
    table = grid(
        tuple(escape(header(column)) for column in visible),
        (tuple(escape(cell(row, column)) for column in visible) for row in rows),
        tuple("---" if is_text(rows, column) else "---:" for column in visible),
    )
    more = f"\n{total - len(rows)} more rows\n" if len(rows) < total else ""
    return (f"### {escape(title)}\n\n" if title else "") + table + more


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], sides: Sequence[str] = ()) -> str:
    """Render a Markdown table of Markdown cells.

    Args:
        heads: Headings of the columns.
        rows: Cells of each row.
        sides: `---` for each left-aligned column, the default, and `---:` for each right-aligned one.

    Example:
        >>> print(grid(("a", "b"), [("1", "2")]), end="")
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    lines = [heads, sides or ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


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


def code(text: str) -> str:
    """Format as inline code in Markdown, with enough backticks that the text is kept unchanged.

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
