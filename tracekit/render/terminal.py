"""Tables on a terminal: they fit its width, and what is left out is said."""

from __future__ import annotations

import io
import shutil
import sys
from typing import TYPE_CHECKING

from tracekit.render.cells import clean, human, shorten
from tracekit.render.data import records
from tracekit.render.headers import header, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from tracekit.analysis import Column
    from tracekit.render.data import Record, Rows

DEFAULT_LIMIT = 30
SHOW_ALL = "--limit 0 shows all"
_NARROWEST = 20
_PADDING = 2
_TRANSPOSED = 4


def table_text(
    data: Rows,
    columns: Sequence[Column],
    *,
    title: str = "",
    limit: int = DEFAULT_LIMIT,
    show_all: str = SHOW_ALL,
    width: int | None = None,
) -> str:
    """A table for people.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: Which columns, in which order; the first matter most when the terminal is narrow.
        title: Line above the table.
        limit: Rows shown at most; 0 shows all.
        show_all: How to see the rest, said when rows are left out.
        width: Characters of a line; the terminal's by default.

    Returns:
        The table, ending in a newline. A few rows too wide for the terminal are shown one field a line.
    """
    rows = records(data, columns)
    shown = rows[: limit or None]
    columns_wide = width or shutil.get_terminal_size((120, 40)).columns
    lines = _lay_out(shown, columns, columns_wide) if rows else "(no rows)\n"
    if len(shown) < len(rows):
        lines += f"{len(rows) - len(shown):,} more row{'s' * (len(rows) - len(shown) != 1)}; {show_all}\n"
    return (f"{clean(title)}\n" if title else "") + lines


def _lay_out(rows: list[Record], columns: Sequence[Column], width: int) -> str:
    cells = [[human(row[column.name], column.unit) for row in rows] for column in columns]
    text = [is_text(rows, column) for column in columns]
    heads = [clean(header(column)) for column in columns]
    needed = [max(map(len, [head, *column])) for head, column in zip(heads, cells, strict=True)]
    least = [min(need, _NARROWEST) if words else need for need, words in zip(needed, text, strict=True)]
    if sum(least) + _PADDING * len(least) > width and len(rows) <= _TRANSPOSED:
        return _transposed(heads, cells, width)
    kept = _fitting(least, width)
    widths = _share_out(needed[:kept], least[:kept], width)
    table = _table()
    for head, words in zip(heads[:kept], text[:kept], strict=True):
        table.add_column(_text(head), justify="left" if words else "right", no_wrap=True)
    for row in zip(*cells[:kept], strict=True):
        table.add_row(*(_text(shorten(cell, size)) for cell, size in zip(row, widths, strict=True)))
    left_out = ", ".join(heads[kept:])
    note = f"{len(heads) - kept} more columns: {left_out}; --format csv has all\n" if left_out else ""
    return _printed(table, width) + note


def _fitting(least: list[int], width: int) -> int:
    """How many of the first columns fit."""
    used = 0
    for count, need in enumerate(least):
        used += need + _PADDING
        if used > width and count:
            return count
    return len(least)


def _share_out(needed: list[int], least: list[int], width: int) -> list[int]:
    """Give the room that is left to the text columns, first come first served."""
    spare = width - sum(least) - _PADDING * len(least)
    widths = []
    for need, low in zip(needed, least, strict=True):
        more = max(0, min(need - low, spare))
        spare -= more
        widths.append(low + more)
    return widths


def _transposed(heads: list[str], cells: list[list[str]], width: int) -> str:
    table = _table(show_header=False)
    table.add_column(no_wrap=True)
    share = max(_NARROWEST, (width - max(map(len, heads))) // max(len(cells[0]), 1) - _PADDING)
    for _ in cells[0]:
        table.add_column(justify="right", no_wrap=True)
    for head, values in zip(heads, cells, strict=True):
        table.add_row(_text(head), *(_text(shorten(value, share)) for value in values))
    return _printed(table, max(map(len, heads)) + (share + _PADDING) * (len(cells[0]) + 1))


def _table(*, show_header: bool = True) -> Table:
    from rich.table import Table

    return Table(box=None, show_header=show_header, padding=(0, _PADDING, 0, 0), pad_edge=False)


def _text(value: str) -> Text:
    from rich.text import Text

    return Text(value)  # a Text is never parsed as markup, which a name could contain


def _printed(table: Table, width: int) -> str:
    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream, width=max(width, _NARROWEST), force_terminal=sys.stdout.isatty(), highlight=False
    )
    console.print(table, crop=False, overflow="ignore", no_wrap=True)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
