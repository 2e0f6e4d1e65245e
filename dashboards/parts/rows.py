"""Short tables as plain HTML, accessible and easy to copy."""

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
"""Maximum characters of a cell; the tooltip has the full text."""


def rows(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], *, caption: str) -> Component:
    """Show a table.

    Args:
        columns: The columns; their units determine the format.
        records: One mapping per row; values may be components.
        caption: Accessible caption.
    """
    head = html.Tr([_head(column) for column in columns])
    body = [html.Tr([_cell(column, record.get(column.name)) for column in columns]) for record in records]
    return html.Div(
        html.Table(
            [html.Caption(caption, className="tk-visually-hidden"), html.Thead(head), html.Tbody(body)],
            className="tk-rows",
        ),
        className="tk-rows-frame",
        tabIndex="0",  # wide tables must scroll by keyboard
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
