"""Layout of tables on terminals, in cells: a wide character takes two."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tracekit.errors import clean
from tracekit.render.cells import cell, first_rows, header, is_text, visible_columns, wrap_heading
from tracekit.runs.text import ID, PROSE, shorten

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tracekit.analysis import Column
    from tracekit.render.cells import Record, Rows


PADDING = 2
_MIN_NAME = 20
_MIN_PROSE = 12
_MIN_TIGHT = 12
_GOALS = ((0, 16), (24, 40))
"""Widths that names and then prose grow to, in rounds, before either takes all it needs."""
_MIN_FIELD = 10
_MIN_WIDTH = 4
_MAX_FIELD_LINES = 3


@dataclass(frozen=True)
class MeasuredColumn:
    """Cells of a column as text, with their widths."""

    head: str
    cells: list[str]
    words: bool
    prose: bool
    identifies: bool

    @classmethod
    def of(cls, rows: list[Record], column: Column) -> MeasuredColumn:
        """Format the values of a column."""
        cells = [cell(row, column) for row in rows]
        head = wrap_heading(clean(header(column)), max(map(cell_len, cells)))
        return cls(head, cells, is_text(rows, column), column.unit == PROSE, column.unit == ID)

    @property
    def wraps(self) -> bool:
        """Whether long cells wrap instead of being shortened."""
        return self.prose or self.identifies

    @property
    def shrinks(self) -> bool:
        """Whether the column may be narrower than its cells; numbers never are."""
        return self.words and not self.identifies

    @cached_property
    def widest(self) -> int:
        """Width of the widest cell."""
        return max(map(cell_len, self.cells))

    @cached_property
    def needed(self) -> int:
        """Width of the widest line, the heading's included."""
        return max(self.widest, self._head)

    @cached_property
    def min_width(self) -> int:
        """Minimum width."""
        return self._at_least_heading(_MIN_PROSE if self.prose else _MIN_NAME)

    @cached_property
    def tight_width(self) -> int:
        """Minimum width if another column would not fit otherwise."""
        return self._at_least_heading(_MIN_TIGHT)

    @cached_property
    def _head(self) -> int:
        return max(map(cell_len, self.head.split("\n")))

    def _at_least_heading(self, width: int) -> int:
        return max(min(self.needed, width), self._head) if self.shrinks else self.needed

    def shorten_cells(self, width: int) -> list[str]:
        """Return the cells shortened to a width, unless they wrap."""
        return self.cells if self.wraps else [shorten(cell, width) for cell in self.cells]

    def shorten_fields(self, width: int) -> list[str]:
        """Return the cells for one field per line, which may take a few lines."""
        max_width = _MAX_FIELD_LINES * width
        return [
            cell
            if self.wraps or (cell_len(cell) <= max_width and _breaks(cell, width))
            else shorten(cell, width)
            for cell in self.cells
        ]


def _breaks(text: str, width: int) -> bool:
    """Tell whether the text can wrap between words at a width."""
    return all(cell_len(word) <= width for word in text.split())


def fits(columns: Sequence[MeasuredColumn], width: int) -> bool:
    """Tell whether all columns fit at their minimum widths."""
    return _total_width([column.min_width for column in columns]) <= width


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + PADDING * (len(widths) - 1)


def columns_that_fit(columns: Sequence[MeasuredColumn], width: int) -> list[MeasuredColumn]:
    """Return the columns that fit: the first and the prose, then the others in order."""
    min_widths = _min_widths(columns, width)
    chosen = {place for place, column in enumerate(columns) if column.prose or not place}
    for place in range(len(columns)):
        if place not in chosen:
            if _total_width([min_widths[column] for column in (*chosen, place)]) > width:
                break
            chosen.add(place)
    return [columns[place] for place in sorted(chosen)]


def _min_widths(columns: Sequence[MeasuredColumn], width: int) -> list[int]:
    """Return minimum widths; names after the first shrink if that keeps another column."""
    if fits(columns, width):
        return [column.min_width for column in columns]
    return [column.tight_width if place else column.min_width for place, column in enumerate(columns)]


def assign_widths(columns: Sequence[MeasuredColumn], width: int) -> list[int]:
    """Return the widths; spare room goes to names and prose alternately."""
    widths = _min_widths(columns, width)
    spare = width - _total_width(widths)
    prose = [place for place, column in enumerate(columns) if column.prose]
    others = [place for place in range(len(columns)) if place not in prose]
    shrinking = [place for place, column in enumerate(columns) if column.shrinks]
    while spare < 0 and shrinking and max(widths[place] for place in shrinking) > _MIN_WIDTH:
        widths[max(shrinking, key=widths.__getitem__)] -= 1
        spare += 1
    needed = [column.needed for column in columns]
    for names_goal, prose_goal in (*_GOALS, (max(needed), max(needed))):
        for place in others:  # the first are the most important
            spare = _grow(widths, [place], [min(need, names_goal) for need in needed], spare)
        spare = _grow(widths, prose, [min(need, prose_goal) for need in needed], spare)
    return widths


def _grow(widths: list[int], places: list[int], goals: list[int], spare: int) -> int:
    """Widen the narrowest of these columns, a cell at a time, up to their goals; return the spare room."""
    while spare > 0 and (short := [place for place in places if widths[place] < goals[place]]):
        widths[min(short, key=widths.__getitem__)] += 1
        spare -= 1
    return spare


def field_width(columns: Sequence[MeasuredColumn], width: int) -> int | None:
    """Return the width of cells with one column per line; None if they do not fit."""
    heads = max(cell_len(column.head.replace("\n", " ")) for column in columns)
    rows = len(columns[0].cells)
    least = max(min(column.widest, _MIN_FIELD) if column.shrinks else column.widest for column in columns)
    share = (width - heads) // rows - PADDING
    return min(share, max(column.widest for column in columns)) if share >= least else None


DEFAULT_LIMIT = 30
SHOW_ALL = "--limit 0 shows all"
ALL_COLUMNS = "--format csv shows all"
_MAX_TRANSPOSED_ROWS = 4


def table_text(
    data: Rows,
    columns: Sequence[Column],
    *,
    title: str = "",
    limit: int = DEFAULT_LIMIT,
    show_all: str = SHOW_ALL,
    all_columns: str = ALL_COLUMNS,
    width: int | None = None,
    transposed: bool = True,
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
        transposed: Whether a few rows that are too wide are shown one field per line.

    Returns:
        The table, ending in a newline.
    """
    shown, total = first_rows(data, columns, limit)
    lines = "(no rows)\n"
    if shown:
        measured = [MeasuredColumn.of(shown, column) for column in visible_columns(columns)]
        size = width or shutil.get_terminal_size((120, 40)).columns
        lines = layout_columns(measured, size, all_columns, transposed=transposed)
    left = total - len(shown)
    if left:
        lines += f"{left:,} more row{'s' * (left != 1)}; {show_all}\n"
    return (f"{clean(title)}\n" if title else "") + lines


def layout_columns(
    columns: list[MeasuredColumn], width: int, all_columns: str = ALL_COLUMNS, *, transposed: bool = True
) -> str:
    """Lay out columns with at least one row.

    Args:
        columns: The columns, most important first.
        width: Width of the terminal in cells.
        all_columns: How to see all columns, printed if columns do not fit.
        transposed: Whether a few rows that are too wide are shown one field per line.
    """
    rows = len(columns[0].cells)
    if (
        transposed
        and rows <= _MAX_TRANSPOSED_ROWS
        and not fits(columns, width)
        and (size := field_width(columns, width))
    ):
        return _transpose(columns, size)
    chosen = columns_that_fit(columns, width)
    widths = assign_widths(chosen, width)
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
    for row in zip(
        *(column.shorten_cells(size) for column, size in zip(chosen, widths, strict=True)), strict=True
    ):
        table.add_row(*map(_text, row))
    return _print(table, sum(widths) + PADDING * len(widths)) + _describe_omitted(
        columns, chosen, all_columns
    )


def _describe_omitted(columns: list[MeasuredColumn], chosen: list[MeasuredColumn], where: str) -> str:
    shown = {id(column) for column in chosen}
    heads = [column.head.replace("\n", " ") for column in columns if id(column) not in shown]
    if not heads:
        return ""
    return f"{len(heads)} more column{'s' * (len(heads) != 1)}: {', '.join(heads)}; {where}\n"


def _transpose(columns: list[MeasuredColumn], size: int) -> str:
    """Render one field per line and one row per column."""
    heads = [column.head.replace("\n", " ") for column in columns]
    widest = max(map(cell_len, heads))
    rows = len(columns[0].cells)
    table = _table(show_header=False)
    table.add_column(no_wrap=True, width=widest)
    for _ in range(rows):
        table.add_column(justify="right" if rows > 1 else "left", overflow="fold", width=size)
    for head, column in zip(heads, columns, strict=True):
        table.add_row(_text(head), *map(_text, column.shorten_fields(size)))
    return _print(table, widest + PADDING + (size + PADDING) * rows)


def _table(*, show_header: bool = True) -> Table:
    from rich.table import Table

    return Table(box=None, show_header=show_header, padding=(0, PADDING, 0, 0), pad_edge=False)


def _text(value: str) -> Text:
    from rich.text import Text

    return Text(value)  # Text is not parsed as markup, which a name could contain


def _print(table: Table, width: int) -> str:
    from rich.console import Console

    stream = io.StringIO()
    console = Console(  # with a height, as rich takes a dumb terminal of unknown height for 80 columns
        file=stream, width=width, height=1, force_terminal=sys.stdout.isatty(), highlight=False
    )
    console.print(table, crop=False, overflow="ignore")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
