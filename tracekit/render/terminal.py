"""Tables on a terminal, fitted to its width."""

from __future__ import annotations

import io
import shutil
import sys
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tracekit.render.cells import clean, for_people
from tracekit.render.data import first
from tracekit.render.layout import PADDING, Laid, field_width, fit, fitting, share_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from tracekit.analysis import Column
    from tracekit.render.data import Record, Rows

DEFAULT_LIMIT = 30
SHOW_ALL = "--limit 0 shows all"
ALL_COLUMNS = "--format csv shows all"
_TRANSPOSED = 4


def table_text(
    data: Rows,
    columns: Sequence[Column],
    *,
    title: str = "",
    limit: int = DEFAULT_LIMIT,
    show_all: str = SHOW_ALL,
    all_columns: str = ALL_COLUMNS,
    width: int | None = None,
) -> str:
    """Render a table for a terminal.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: The columns, most important first.
        title: Line above the table.
        limit: Maximum rows; 0 shows all.
        show_all: How to see all rows, printed if rows are omitted.
        all_columns: How to see all columns, printed if columns do not fit.
        width: Characters per line; by default the terminal's.

    Returns:
        The table, ending in a newline. A few rows too wide for the terminal are shown one field per line.
    """
    shown, total = first(data, columns, limit)
    columns_wide = width or shutil.get_terminal_size((120, 40)).columns
    lines = _lay_out(shown, columns, columns_wide, all_columns) if shown else "(no rows)\n"
    left = total - len(shown)
    if left:
        lines += f"{left:,} more row{'s' * (left != 1)}; {show_all}\n"
    return (f"{clean(title)}\n" if title else "") + lines


def _lay_out(rows: list[Record], columns: Sequence[Column], width: int, all_columns: str) -> str:
    return lay_out([Laid.of(rows, column) for column in for_people(columns)], width, all_columns)


def lay_out(laid: list[Laid], width: int, all_columns: str = ALL_COLUMNS) -> str:
    """Lay out columns with at least one row; a few rows that are too wide get one field per line."""
    rows = len(laid[0].cells)
    if rows <= _TRANSPOSED and not fit(laid, width) and (size := field_width(laid, width)):
        return _transposed(laid, size)
    chosen = fitting(laid, width)
    widths = share_out(chosen, width)
    table = _table()
    for column, size in zip(chosen, widths, strict=True):
        table.add_column(
            _text(column.head),
            justify="left" if column.words else "right",
            vertical="top",
            no_wrap=not column.wraps,
            overflow="fold",
            width=size,
        )
    for row in zip(*(column.fitted(size) for column, size in zip(chosen, widths, strict=True)), strict=True):
        table.add_row(*map(_text, row))
    return _printed(table, sum(widths) + PADDING * len(widths)) + _left_out(laid, chosen, all_columns)


def _left_out(columns: list[Laid], chosen: list[Laid], where: str) -> str:
    shown = {id(column) for column in chosen}
    heads = [column.head.replace("\n", " ") for column in columns if id(column) not in shown]
    if not heads:
        return ""
    return f"{len(heads)} more column{'s' * (len(heads) != 1)}: {', '.join(heads)}; {where}\n"


def _transposed(columns: list[Laid], size: int) -> str:
    """Render one field per line and one row per column."""
    heads = [column.head.replace("\n", " ") for column in columns]
    widest = max(map(cell_len, heads))
    rows = len(columns[0].cells)
    table = _table(show_header=False)
    table.add_column(no_wrap=True, width=widest)
    for _ in range(rows):
        table.add_column(justify="right" if rows > 1 else "left", overflow="fold", width=size)
    for head, column in zip(heads, columns, strict=True):
        table.add_row(_text(head), *map(_text, column.fields(size)))
    return _printed(table, widest + PADDING + (size + PADDING) * rows)


def _table(*, show_header: bool = True) -> Table:
    from rich.table import Table

    return Table(box=None, show_header=show_header, padding=(0, PADDING, 0, 0), pad_edge=False)


def _text(value: str) -> Text:
    from rich.text import Text

    return Text(value)  # Text is not parsed as markup, which a name could contain


def _printed(table: Table, width: int) -> str:
    from rich.console import Console

    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=sys.stdout.isatty(), highlight=False)
    console.print(table, crop=False, overflow="ignore")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
