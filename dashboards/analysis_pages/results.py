"""Results of a page's analyses, and components for them: answer sentences, switches, short tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

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
from tracekit.schema import C

from ..components import links
from ..components.charts import aria
from ..components.links import filter_by_view, show_command
from ..components.text import section, with_code
from ..site import Context

NUMBERS = {"ns", "bytes", "share", "count", "GB/s", "TFLOP/s", "FLOP", "×", "samples/s"}
NAME_CHARS = 46
"""Maximum characters of a name in a short table; the tooltip has the full name."""
MANY_COLUMNS, NARROW_CHARS = 10, 30
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
        return format_number(self.values[column], links.table_column(self.spec, column).unit)

    def fill(self, template: str) -> list[Any]:
        """Fill in a sentence: `{column}` is a name, or a number in the unit of its column.

        `{column!r}` is a name also if the value is a number, and `{column!s}` plain text.

        Raises:
            KeyError: The table has no such column.
        """
        parts: list[Any] = []
        for text, column, _, conversion in Formatter().parse(template):
            parts += [text] if text else []
            if column:
                value = self.values[column]
                if conversion == "s":
                    parts.append(str(value))
                else:
                    is_name = conversion == "r" or isinstance(value, str)
                    parts.append(format_name(value) if is_name else self.number(column))
        return parts


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
        rows = self.context.result(name or self.names[0]).tables.get(table)
        if rows is None:
            return pd.DataFrame(columns=[column.name for column in self.spec(table, name).columns])
        return filter_by_view(rows, self.context.view).reset_index(drop=True)

    def rows(self, table: str, *, rows: pd.DataFrame | None = None, name: str = "") -> list[Row]:
        """Return a table's rows with plain values, or those of a selection of them.

        Args:
            table: Name of the table.
            rows: A selection of its rows; default: all.
            name: The analysis; default: the main one.
        """
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
        return links.table_spec(analysis.get(name or self.names[0]), table)

    def columns(self, table: str, *wanted: str, name: str = "") -> list[Column]:
        """Return columns of a table, in the given order.

        Raises:
            KeyError: The table has no such column.
        """
        return [links.table_column(self.spec(table, name), number) for number in wanted]

    @property
    def notes(self) -> list[str]:
        """Notes of the analyses, without duplicates."""
        notes = [note for name in self.names for note in self.context.result(name).notes]
        return list(dict.fromkeys(notes))

    @property
    def findings(self) -> list[Finding]:
        """Findings of the analyses, largest saving first."""
        findings = [finding for name in self.names for finding in self.context.result(name).findings]
        return sorted(findings, key=lambda finding: -(finding.saving_ns_per_step or 0))


def format_number(value: Any, unit: str) -> Component:
    """Format a number inside a sentence."""
    return html.Strong(human(cells.plain(value), unit))


def format_name(text: Any) -> Component:
    """Format a name inside a sentence; long names are cut."""
    full = clean(str(text))
    return html.Code(brief(full, NAME_CHARS), title=full, className="tk-quoted")


def show_answer(*sentence: Any) -> Component:
    """Show the answer to the page's question."""
    return html.P(list(sentence), className="tk-answer")


def show_nothing(text: str) -> Component:
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
        html.P([f"{none or 'The store has no runs yet.'} ", *with_code(hint)], className="tk-prose"),
        dmc.Text(how, size="sm", mt="sm"),
        show_command(command),
    ]


def show_switch(context: Context, option: str, label: str, choices: Sequence[tuple[str, str]]) -> Component:
    """Show a segmented control whose state is in the address.

    Args:
        context: The current context.
        option: Query parameter; the first choice is the default.
        label: Accessible label.
        choices: Value and text of each choice.
    """
    rest = {name: value for name, value in context.view.options.items() if name != option}
    links: list[Component] = []
    for value, words in choices:
        if value == read_choice(context, option, choices):
            current: Any = aria(current="true")
            links.append(html.Span(words, className="tk-choose tk-chosen", **current))
        else:
            options = rest if value == choices[0][0] else rest | {option: value}
            links.append(dcc.Link(words, className="tk-choose", href=context.view.href(options=options)))
    return html.Div(links, role="group", className="tk-switch", **aria(label=label))


def read_choice(context: Context, option: str, choices: Sequence[tuple[str, str]]) -> str:
    """Return the choice in the address, or the first one.

    Args:
        context: The current context.
        option: Query parameter.
        choices: Value and text of each choice.
    """
    requested = context.view.options.get(option, "")
    return requested if requested in {value for value, _ in choices} else choices[0][0]


def values_by_rank(frame: pd.DataFrame, kind: str, value: str) -> tuple[list[str], dict[str, pd.Series[Any]]]:
    """Return the names of the ranks, and their values by kind, in order of the rows; 0 without a row.

    Args:
        frame: Rows of ranks and kinds.
        kind: Column that names the kind.
        value: Column of the values.
    """
    kinds = frame.astype({kind: str})
    by_kind = kinds.pivot(index=C.RANK, columns=kind, values=value).fillna(0).astype("int64")
    return [f"rank {rank}" for rank in by_kind.index], {name: by_kind[name] for name in kinds[kind].unique()}


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
    decimals = {column.name for column in columns if not column.unit and first[column.name].dtype.kind == "f"}
    sides = [(column, "tk-number" if column.name in decimals else _css_class(column)) for column in columns]
    width = NAME_CHARS if len(columns) < MANY_COLUMNS else NARROW_CHARS
    head: list[Component] = [html.Th("Timeline", scope="col")] if row else []
    head += [_head(column, side) for column, side in sides]
    body = []
    for place, record in enumerate(cells.records(first, columns)):
        link = [_link(context, table, first[row].iloc[place])] if row else []
        body.append(
            html.Tr([*link, *(_cell(record[column.name], column, side, width) for column, side in sides)])
        )
    cut = f" (first {limit} of {len(frame):,})" if len(frame) > limit else ""
    content: list[Component] = [html.Thead(html.Tr(head)), html.Tbody(body)]
    return section(f"{title}{cut}", _scrolling(content, title, "tk-scroll", table="tk-short"))


def _scrolling(content: list[Component], label: str, frame: str, *, table: str) -> Component:
    """Create a table that scrolls where it is too wide, by keyboard, too."""
    inner = html.Table(content, className=table)
    return html.Div(inner, className=frame, tabIndex="0", role="region", **aria(label=label))


def _head(column: Column, side: str) -> Component:
    return html.Th(header(column), scope="col", title=column.meaning, className=side)


def _cell(value: Any, column: Column, side: str, width: int) -> Component:
    text = human(value, column.unit)
    shown = text if side == "tk-number" else brief(text, width)
    return html.Td(shown, className=side, title=text if shown != text else None)


def _link(context: Context, table: str, value: Any) -> Component:
    row_id = cells.plain(value)
    if row_id is None:
        return html.Td("–")
    href = context.view.elsewhere("timeline", row=f"{table}:{row_id}")
    return html.Td(dcc.Link("show", href=href, title=f"Show row {row_id} of {table} on the timeline"))


MAX_CELL_CHARS = 56
"""Maximum characters of a cell; the tooltip has the full text."""


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
    if isinstance(value, Component | list):
        return html.Td(value, className=_css_class(column))
    text = human(value, column.unit)
    if column.unit == "ns" and isinstance(value, int):
        return html.Td(text, title=f"{value:,} ns", className=_css_class(column))
    shown = brief(text, MAX_CELL_CHARS) if column.unit == "" else text
    return html.Td(shown, title=text if shown != text else None, className=_css_class(column))
