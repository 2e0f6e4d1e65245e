"""Short tables as plain HTML, formatted like the grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.analysis.kernel_names import brief
from tracekit.render import cells
from tracekit.render.cells import header

from ..components.charts import aria
from ..components.text import human, section, with_minus
from ..site import Context
from .columns import is_empty, with_places_first

DEVICE_TABLE = "device_intervals"
NUMBERS = {"ns", "bytes", "share", "count", "GB/s", "TFLOP/s", "FLOP", "×", "samples/s"}
NAME_CHARS = 46
"""Maximum characters of a name in a short table; the tooltip has the full name."""
MAX_ROW_CHARS, NARROW_CHARS = 138, 30
"""In tables with more characters side by side than fit a page, names are cut to this many characters."""
MAX_CELL_CHARS = 56
"""Maximum characters of a cell of other tables; the tooltip has the full text."""


def first_rows(
    context: Context,
    frame: pd.DataFrame,
    columns: Sequence[Column],
    *,
    title: str,
    row: str = "",
    table: str = DEVICE_TABLE,
    limit: int = 10,
) -> Component:
    """Show the first rows of a table as plain HTML, with a timeline link per row.

    Args:
        context: The current context.
        frame: The rows.
        columns: Columns to show; empty ones are left out.
        title: Heading.
        row: Column with the row id to link to; empty for none.
        table: Table that the row ids refer to.
        limit: Maximum number of rows.
    """
    first = frame.head(limit)
    shown = with_places_first(frame, columns)
    columns = [column for column in shown if not is_empty(first[column.name])]
    decimals = {column.name for column in columns if not column.unit and first[column.name].dtype.kind == "f"}
    sides = [(column, "tk-number" if column.name in decimals else _css_class(column)) for column in columns]
    records = cells.records(first, columns)
    width = NAME_CHARS if _count_chars(columns, records) <= MAX_ROW_CHARS else NARROW_CHARS
    head: list[Component] = [html.Th("Timeline", scope="col")] if row else []
    head += [_head(column, side) for column, side in sides]
    body = []
    for place, record in enumerate(records):
        entries = [_link(context, table, first[row].iloc[place])] if row else []
        for column, side in sides:
            text = human(record[column.name], column.unit)
            entries.append(_cell(text, side, len(text) if side == "tk-number" else width))
        body.append(html.Tr(entries))
    cut = f" (first {limit} of {len(frame):,})" if len(frame) > limit else ""
    content: list[Component] = [html.Thead(html.Tr(head)), html.Tbody(body)]
    return section(f"{title}{cut}", _scrolling(content, title, "tk-scroll", table="tk-short"))


def _count_chars(columns: Sequence[Column], records: Sequence[cells.Record]) -> int:
    """Return the characters of the longest cells of all columns, next to each other."""
    return sum(
        max(
            len(header(column)),
            *(min(NAME_CHARS, len(human(row[column.name], column.unit))) for row in records),
        )
        for column in columns
    )


def _scrolling(content: list[Component], label: str, frame: str, *, table: str) -> Component:
    """Create a table that scrolls where it is too wide, by keyboard, too."""
    inner = html.Table(content, className=table)
    return html.Div(inner, className=frame, tabIndex="0", role="region", **aria(label=label))


def _head(column: Column, side: str) -> Component:
    return html.Th(header(column), scope="col", title=column.meaning, className=side)


def _cell(text: str, side: str, width: int) -> Component:
    shown = with_minus(brief(text, width))
    return html.Td(shown, className=side, title=text if shown != text else None)


def _link(context: Context, table: str, value: Any) -> Component:
    row_id = cells.plain(value)
    if row_id is None:
        return html.Td("–")
    href = context.view.elsewhere("timeline", row=f"{table}:{row_id}")
    return html.Td(dcc.Link("show", href=href, title=f"Show row {row_id} of {table} on the timeline"))


def html_table(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], *, caption: str) -> Component:
    """Show a table.

    Args:
        columns: The columns; their units determine the format.
        records: One mapping per row; values may be components.
        caption: Accessible caption.
    """
    head = html.Tr([_head(column, _css_class(column)) for column in columns])
    body = [
        html.Tr([_short_cell(column, record.get(column.name)) for column in columns]) for record in records
    ]
    hidden = html.Caption(caption, className="tk-visually-hidden")
    content: list[Component] = [hidden, html.Thead(head), html.Tbody(body)]
    return _scrolling(content, caption, "tk-rows-frame", table="tk-rows")


def _css_class(column: Column) -> str:
    return "tk-number" if column.unit in NUMBERS else "tk-text"


def _short_cell(column: Column, value: Any) -> Component:
    side = _css_class(column)
    if isinstance(value, Component | list):
        return html.Td(value, className=side)
    text = human(value, column.unit)
    if column.unit == "ns" and isinstance(value, int):
        return html.Td(text, title=with_minus(f"{value:,} ns"), className=side)
    return _cell(text, side, len(text) if column.unit else MAX_CELL_CHARS)
