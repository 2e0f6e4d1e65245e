"""Tables on a terminal: they fit its width, and what is left out is said."""

from __future__ import annotations

import io
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.render.cells import PROSE, clean, human, shorten
from tracekit.render.data import records
from tracekit.render.headers import folded, header, is_text

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
    laid = [_Laid.of(rows, column) for column in columns]
    if sum(column.least + _PADDING for column in laid) > width and len(rows) <= _TRANSPOSED:
        return _transposed(laid, width)
    kept = laid[: _fitting([column.least for column in laid], width)]
    widths = _share_out([c.needed for c in kept], [c.least for c in kept], width)
    table = _table()
    for column, size in zip(kept, widths, strict=True):
        table.add_column(
            _text(column.head),
            justify="left" if column.words else "right",
            vertical="top",
            no_wrap=not column.prose,
            width=size if column.prose else None,
        )
    for row in zip(*(column.fitted(size) for column, size in zip(kept, widths, strict=True)), strict=True):
        table.add_row(*map(_text, row))
    left_out = ", ".join(column.head.replace("\n", " ") for column in laid[len(kept) :])
    note = f"{len(laid) - len(kept)} more columns: {left_out}; --format csv has all\n" if left_out else ""
    return _printed(table, width) + note


@dataclass(frozen=True)
class _Laid:
    """One column's cells as text, and the room they take."""

    head: str
    cells: list[str]
    words: bool
    prose: bool

    @classmethod
    def of(cls, rows: list[Record], column: Column) -> _Laid:
        cells = [human(row[column.name], column.unit) for row in rows]
        head = folded(clean(header(column)), max(map(len, cells)))
        return cls(head, cells, is_text(rows, column), column.unit == PROSE)

    @property
    def needed(self) -> int:
        """Characters of the widest line."""
        return max(map(len, [*self.head.split("\n"), *self.cells]))

    @property
    def least(self) -> int:
        """Characters it can do with."""
        return min(self.needed, _NARROWEST) if self.words else self.needed

    def fitted(self, width: int) -> list[str]:
        """The cells cut to a width; prose is wrapped instead."""
        return self.cells if self.prose else [shorten(cell, width) for cell in self.cells]


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


def _transposed(columns: list[_Laid], width: int) -> str:
    """One field a line, one row a column."""
    heads = [column.head.replace("\n", " ") for column in columns]
    rows = len(columns[0].cells)
    share = max(_NARROWEST, (width - max(map(len, heads))) // rows - _PADDING)
    table = _table(show_header=False)
    table.add_column(no_wrap=True)
    for _ in range(rows):
        table.add_column(justify="right" if rows > 1 else "left", no_wrap=True)
    for head, column in zip(heads, columns, strict=True):
        table.add_row(_text(head), *map(_text, column.fitted(share)))
    return _printed(table, max(map(len, heads)) + (share + _PADDING) * (rows + 1))


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
    console.print(table, crop=False, overflow="ignore")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
