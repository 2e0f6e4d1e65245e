"""Tables of a few rows as plain HTML, which screen readers and copying like best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html
from dash.development.base_component import Component

from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.render.headers import header

from ..answers.reading import NUMBERS
from .aria import aria

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis import Column

WIDEST = 56
"""Characters of a cell; the rest shows when it is pointed at."""


def rows(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], *, caption: str) -> Component:
    """A table.

    Args:
        columns: Which columns, in which order; their units say how values read.
        records: One mapping per row; a value may be a component.
        caption: What the table shows, for assistive technology.
    """
    head = html.Tr([_head(column) for column in columns])
    body = [html.Tr([_cell(column, record.get(column.name)) for column in columns]) for record in records]
    return html.Div(
        html.Table(
            [html.Caption(caption, className="tk-unseen"), html.Thead(head), html.Tbody(body)],
            className="tk-rows",
        ),
        className="tk-rows-frame",
        tabIndex="0",  # a table that is too wide is scrolled by keys, too
        role="region",
        **aria(label=caption),
    )


def _head(column: Column) -> Component:
    return html.Th(header(column), title=column.meaning, scope="col", className=_kind(column))


def _kind(column: Column) -> str:
    return "tk-number" if column.unit in NUMBERS or column.unit == "samples/s" else "tk-text"


def _cell(column: Column, value: Any) -> Component:
    if isinstance(value, Component | list):
        return html.Td(value, className=_kind(column))
    text = human(value, column.unit)
    if column.unit == "ns" and isinstance(value, int):
        return html.Td(text, title=f"{value:,} ns", className=_kind(column))
    shown = brief(text, WIDEST) if column.unit == "" else text
    return html.Td(shown, title=text if shown != text else None, className=_kind(column))
