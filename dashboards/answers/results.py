"""Results of a page's analyses, and components for them: answer sentences, switches, short tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Column, Finding, TableSpec
from tracekit.analysis.kernel_names import brief
from tracekit.errors import clean
from tracekit.render import cells, human
from tracekit.render.cells import header

from ..parts import links
from ..parts.charts import aria
from ..parts.finding import coded
from ..parts.links import copyable, filtered

if TYPE_CHECKING:
    from ..site import Context


NUMBERS = {"ns", "bytes", "share", "count", "GB/s", "TFLOP/s", "FLOP", "×", "samples/s"}
WIDTH = 46
"""Maximum characters of a name in a short table; the tooltip has the full name."""
CROWDED, NARROW = 10, 30
"""With this many columns or more, names are cut to this many characters."""
DEVICE_TABLE = "device_intervals"
HOST_TABLE = "host_intervals"


@dataclass(frozen=True)
class Row:
    """A table row with plain Python values.

    Attributes:
        spec: Specification of the table.
        values: Values by column name.
    """

    spec: TableSpec
    values: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def number(self, column: str) -> Component:
        """Format a number inside a sentence, in the unit of its column.

        Raises:
            KeyError: The table has no such column.
        """
        return some(self.values[column], links.column(self.spec, column).unit)


@dataclass(frozen=True)
class PageResults:
    """Results of a page's analyses, filtered by the view's rank and device.

    Attributes:
        context: The current context.
        names: The analyses, the main one first.
    """

    context: Context
    names: tuple[str, ...]

    def frame(self, table: str, name: str = "") -> pd.DataFrame:
        """Return a table filtered by rank and device; empty if the analysis did not return it.

        Args:
            table: Name of the table.
            name: The analysis; default: the main one.
        """
        found = self.context.result(name or self.names[0]).tables.get(table)
        if found is None:
            return pd.DataFrame(columns=[column.name for column in self.spec(table, name).columns])
        return filtered(found, self.context.view).reset_index(drop=True)

    def rows(self, table: str, *, rows: pd.DataFrame | None = None, name: str = "") -> list[Row]:
        """Return a table's rows with plain values, or those of a selection of them."""
        frame = self.frame(table, name) if rows is None else rows
        plain = {str(column): [cells.plain(value) for value in frame[column]] for column in frame.columns}
        records = (dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True))
        return [Row(self.spec(table, name), values) for values in records]

    def largest(self, table: str, by: str = "", *, rows: pd.DataFrame | None = None, name: str = "") -> Row:
        """Return the row with the largest value of a column.

        Args:
            table: Name of the table, which has at least one row.
            by: The column; empty for the first row.
            rows: A selection of the table's rows; default: all.
            name: The analysis; default: the main one.
        """
        frame = self.frame(table, name) if rows is None else rows
        first = frame.sort_values(by, ascending=False, kind="stable") if by else frame
        return self.rows(table, rows=first.head(1), name=name)[0]

    def spec(self, table: str, name: str = "") -> TableSpec:
        """Return the specification of a table.

        Raises:
            KeyError: The analysis declares no such table.
        """
        return links.spec(analysis.get(name or self.names[0]), table)

    def columns(self, table: str, *wanted: str, name: str = "") -> list[Column]:
        """Return columns of a table, in the given order.

        Raises:
            KeyError: The table has no such column.
        """
        return [links.column(self.spec(table, name), each) for each in wanted]

    @property
    def notes(self) -> list[str]:
        """Notes of the analyses, without duplicates."""
        found = [note for name in self.names for note in self.context.result(name).notes]
        return list(dict.fromkeys(found))

    @property
    def findings(self) -> list[Finding]:
        """Findings of the analyses, largest saving first."""
        found = [one for name in self.names for one in self.context.result(name).findings]
        return sorted(found, key=lambda one: -(one.saving_ns_per_step or 0))


def some(value: Any, unit: str) -> Component:
    """Format a number inside a sentence."""
    return html.Strong(human(cells.plain(value), unit))


def named(text: Any) -> Component:
    """Format a name inside a sentence; long names are cut."""
    full = clean(str(text))
    return html.Code(brief(full, WIDTH), title=full, className="tk-quoted")


def answer(*sentence: Any) -> Component:
    """Show the answer to the page's question."""
    return html.P(list(sentence), className="tk-answer")


def nothing(text: str) -> Component:
    """Show why a section is empty."""
    return dmc.Text(text, c="dimmed", size="sm")


def no_runs(none: str, hint: str, how: str, command: str) -> list[Component]:
    """Show that a page has no runs to show, and how to record them.

    Args:
        none: What none of the runs has; empty for a store without runs.
        hint: How such runs come about.
        how: Lead of the command.
        command: The command that records them.
    """
    return [
        html.P([f"{none or 'The store has no runs yet.'} ", *coded(hint)], className="tk-prose"),
        dmc.Text(how, size="sm", mt="sm"),
        copyable(command),
    ]


def switch(context: Context, option: str, label: str, choices: Sequence[tuple[str, str]]) -> Component:
    """Show a segmented control whose state is in the address.

    Args:
        context: The current context.
        option: Query parameter; the first choice is the default.
        label: Accessible label.
        choices: Value and text of each choice.
    """
    chosen = chosen_of(context, option, choices)
    default = choices[0][0]
    links: list[Component] = []
    for value, words in choices:
        options = {name: other for name, other in context.view.options.items() if name != option}
        options |= {} if value == default else {option: value}
        here = value == chosen
        if here:
            current: Any = aria(current="true")
            links.append(html.Span(words, className="tk-choose tk-chosen", **current))
        else:
            links.append(dcc.Link(words, className="tk-choose", href=context.view.href(options=options)))
    return html.Div(links, role="group", className="tk-switch", **aria(label=label))


def chosen_of(context: Context, option: str, choices: Sequence[tuple[str, str]]) -> str:
    """Return the choice in the address, or the first one."""
    requested = context.view.options.get(option, "")
    return requested if requested in {value for value, _ in choices} else choices[0][0]


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
    columns = [column for column in columns if first[column.name].notna().any()]
    sides = {
        column.name: "tk-number"
        if not column.unit and first[column.name].dtype.kind == "f"
        else _kind(column)
        for column in columns
    }
    width = WIDTH if len(columns) < CROWDED else NARROW
    links = first[row].tolist() if row else [None] * len(first)
    body = [
        html.Tr([*link, *(_cell(record[one.name], one, sides[one.name], width) for one in columns)])
        for record, link in zip(
            cells.records(first, columns), (_link(context, table, at, row) for at in links), strict=True
        )
    ]
    head: list[Component] = [html.Th("Timeline", scope="col")] if row else []
    head += [_head(column, sides[column.name]) for column in columns]
    cut = f" (first {limit} of {len(frame):,})" if len(frame) > limit else ""
    return html.Section(
        [
            dmc.Title(f"{title}{cut}", order=2, size="h4"),
            html.Div(
                html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="tk-short"),
                className="tk-scroll",
                tabIndex="0",
                role="region",
                **aria(label=title),
            ),
        ],
        className="tk-section",
    )


def _head(column: Column, side: str) -> Component:
    return html.Th(header(column), scope="col", title=column.meaning, className=side)


def _cell(value: Any, column: Column, side: str, width: int) -> Component:
    text = human(value, column.unit)
    shown = text if side == "tk-number" else brief(text, width)
    return html.Td(shown, className=side, title=text if shown != text else None)


def _link(context: Context, table: str, value: Any, row: str) -> list[Component]:
    if not row:
        return []
    at = cells.plain(value)
    if at is None:
        return [html.Td("–")]
    href = context.view.elsewhere("timeline", row=f"{table}:{at}")
    return [html.Td(dcc.Link("show", href=href, title=f"Show row {at} of {table} on the timeline"))]


WIDEST = 56
"""Maximum characters of a cell; the tooltip has the full text."""


def rows(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], *, caption: str) -> Component:
    """Show a table.

    Args:
        columns: The columns; their units determine the format.
        records: One mapping per row; values may be components.
        caption: Accessible caption.
    """
    head = html.Tr([_head(column, _kind(column)) for column in columns])
    body = [
        html.Tr([_short_cell(column, record.get(column.name)) for column in columns]) for record in records
    ]
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


def _kind(column: Column) -> str:
    return "tk-number" if column.unit in NUMBERS else "tk-text"


def _short_cell(column: Column, value: Any) -> Component:
    if isinstance(value, Component | list):
        return html.Td(value, className=_kind(column))
    text = human(value, column.unit)
    if column.unit == "ns" and isinstance(value, int):
        return html.Td(text, title=f"{value:,} ns", className=_kind(column))
    shown = brief(text, WIDEST) if column.unit == "" else text
    return html.Td(shown, title=text if shown != text else None, className=_kind(column))
