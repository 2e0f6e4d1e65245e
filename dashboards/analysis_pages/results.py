"""Results of a page's analyses, and components for them: answer sentences, switches, short tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Column, TableSpec
from tracekit.analysis.kernel_names import brief
from tracekit.errors import clean
from tracekit.render import cells
from tracekit.schema import C

from ..components import links
from ..components.charts import aria, chart
from ..components.finding import show_finding
from ..components.links import filter_by_view, show_command
from ..components.text import block_title, human, show_note, with_code
from ..figures.axis import COLORWAY, LABEL, row_axis
from ..figures.bars import bars, compose_bars
from ..site import Context
from ..tables.columns import ROW_ID_TABLES
from ..tables.html import NAME_CHARS, first_rows
from ..tables.table import show_table

HOST_TABLE = "host_intervals"
_CONFIG = (C.GRID_X, C.GRID_Y, C.GRID_Z, C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z, "family")
_LAUNCHED = ("total_ns", "launches", "share")
_WORK = ("device_ns", "sum_ns", "calls", "share", "flops", C.BYTES, "roof_ns")
_LINES = (C.SOURCE_LINES, C.FUSED_OPS, C.NAME, C.KERNEL_BACKEND, C.KERNEL_KWARGS)
_SUMMED: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("compile", "lines"): (_LINES, ("sum_ns", "count", "share")),
    ("compile", "graphs"): ((C.NAME,), ("host_ns", "calls")),
    ("compile", "regions"): ((C.NAME, "frame", "variant"), ("host_ns", "calls")),
    ("launch_config", "configs"): (("op", *_CONFIG, "numel", C.REGISTERS, "shared_bytes"), _LAUNCHED),
    ("launch_config", "relu"): (("kind", "direction", "op", *_CONFIG, "told_by"), _LAUNCHED),
    ("roofline", "families"): (("op",), _WORK),
    ("roofline", "host"): (("op", C.INPUT_SHAPES, "dtype"), ("host_ns", "calls", "flops")),
    ("roofline", "ops"): (("op", C.INPUT_SHAPES, "precision"), _WORK),
}
"""Tables that are shown summed over ranks: by analysis and table, the columns that rows have in common, and
the columns that are summed, that of the time first. Kernels of `lines` have another hash on each rank."""


@dataclass(frozen=True)
class Row:
    """A row of a table with plain Python values by column name, and the specification of the table."""

    spec: TableSpec
    values: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def number(self, column: str) -> Component:
        """Format a number inside a sentence, in the unit of its column; KeyError without the column."""
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
    """Results of a page's analyses, the main one first, filtered by the view's rank and device."""

    context: Context
    names: tuple[str, ...]

    def frame(self, table: str, name: str = "") -> pd.DataFrame:
        """Return a table filtered by rank and device; empty if the analysis did not return it.

        Args:
            table: Name of the table.
            name: The analysis; default: the main one.
        """
        name = name or self.names[0]
        rows = self.context.result(name).tables.get(table)
        if rows is None:
            return pd.DataFrame(columns=[column.name for column in self.spec(table, name).columns])
        rows = filter_by_view(rows, self.context.view).reset_index(drop=True)
        if (name, table) not in _SUMMED or self._count_ranks(rows) < 2:
            return rows
        return sum_ranks(rows, *_SUMMED[name, table])

    def _count_ranks(self, rows: pd.DataFrame) -> int:
        """Return of how many ranks rows are, those of the run if they name none."""
        return rows[C.RANK].nunique() if C.RANK in rows else len(self.context.run.ranks)

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
        first = keep_largest(frame, by, 1) if by else frame.head(1)
        return self.rows(table, rows=first, name=name)[0]

    def spec(self, table: str, name: str = "") -> TableSpec:
        """Return the specification of a table.

        Raises:
            KeyError: The analysis declares no such table.
        """
        return {spec.name: spec for spec in analysis.get(name or self.names[0]).tables}[table]

    def columns(self, table: str, *wanted: str | Column, name: str = "") -> list[Column]:
        """Return columns of a table by name, in the given order; KeyError if it has no such column."""
        spec = self.spec(table, name)
        return [links.table_column(spec, of) if isinstance(of, str) else of for of in wanted]

    def first_rows(
        self,
        table: str,
        names: Sequence[str | Column],
        /,
        *,
        rows: pd.DataFrame | None = None,
        name: str = "",
        **shown: Any,
    ) -> list[Component]:
        """Show the first rows of a table as plain HTML; nothing without rows.

        Args:
            table: Name of the table.
            names: Its columns to show, in this order, and columns that `rows` has in addition.
            rows: A selection of its rows; default: all.
            name: The analysis; default: the main one.
            shown: Title and other arguments of `tables.html.first_rows`, such as its `table`.

        Raises:
            KeyError: The table has no such column.
        """
        frame = self.frame(table, name) if rows is None else rows
        columns = self.columns(table, *names, name=name)
        return [first_rows(self.context, frame, columns, **shown)] if len(frame) else []

    def grids(self, tables: Mapping[str, str], name: str = "") -> list[Component]:
        """Show the tables that have rows as grids.

        Args:
            tables: Names of the tables, with the heading of each; empty for its title.
            name: The analysis; default: the main one.
        """
        shown = [(self.spec(table, name), self.frame(table, name), title) for table, title in tables.items()]
        return [
            show_table(self.context, name or self.names[0], spec, frame, title=title or spec.title)
            for spec, frame, title in shown
            if len(frame)
        ]

    def bars(
        self,
        chart_name: str,
        labels: Iterable[Any],
        values: pd.Series[Any] | Mapping[str, pd.Series[Any]],
        unit: str = "ns",
        *,
        title: str,
        caption: str,
        label_width: int = LABEL,
        colors: Sequence[str] = COLORWAY,
    ) -> list[Component]:
        """Show a column as bars, or columns as stacked bars, the first at the top; nothing without rows.

        Args:
            chart_name: Id of the chart, unique on its page.
            labels: One label per bar; any text.
            values: One value per bar, or these by name of the part, in stacking order.
            unit: Unit of the values.
            title: What the values are, for the axis.
            caption: One sentence.
            label_width: Characters to which labels are shortened.
            colors: Colors of the parts.
        """
        names = list(map(str, labels))
        if not names:
            return []
        if isinstance(values, Mapping):
            parts = {part: lengths.tolist() for part, lengths in values.items()}
            figure = compose_bars(names, parts, unit, title=title, colors=colors)
        else:
            figure = bars(names, values.tolist(), unit, title=title)
        figure["layout"]["yaxis"] |= row_axis(names, width=label_width)
        return [chart(self.context, chart_name, figure, caption=caption)]

    def show_switch(self, option: str, label: str, choices: Sequence[tuple[str, str]]) -> Component:
        """Show a segmented control whose state is in the address.

        Args:
            option: Query parameter; the first choice is the default.
            label: Accessible label.
            choices: Value and text of each choice.
        """
        view, chosen = self.context.view, self.read_choice(option, choices)
        rest = {name: value for name, value in view.options.items() if name != option}
        links: list[Component] = []
        for value, words in choices:
            if value == chosen:
                current: Any = aria(current="true")
                links.append(html.Span(words, className="tk-choose tk-chosen", **current))
            else:
                options = rest if value == choices[0][0] else rest | {option: value}
                links.append(dcc.Link(words, className="tk-choose", href=view.href(options=options)))
        return html.Div(links, role="group", className="tk-switch", **aria(label=label))

    def read_choice(self, option: str, choices: Sequence[tuple[str, str]]) -> str:
        """Return the value of an option of the address, or that of the first choice."""
        requested = self.context.view.options.get(option, "")
        return requested if requested in dict(choices) else choices[0][0]

    def show_notes(self) -> list[Component]:
        """Show the notes of the analyses, without duplicates, and that tables are sums over ranks."""
        notes = [note for name in self.names for note in self.context.result(name).notes]
        results = {name: self.context.result(name).tables for name, _ in _SUMMED if name in self.names}
        summed = [results[name][table] for name, table in _SUMMED if table in results.get(name, {})]
        view = self.context.view
        ranks = max((self._count_ranks(filter_by_view(rows, view)) for rows in summed), default=0)
        if ranks > 1:
            notes.append(
                f"rows are sums over {ranks} ranks; medians and rates are those of the median rank: choose a "
                "rank at the top of the page for its own"
            )
        return [show_note(note) for note in dict.fromkeys(notes)]

    def show_findings(self, *, linked: bool = False) -> list[Component]:
        """Show the findings, largest saving first; if `linked`, with links to the pages of their analyses."""
        pairs = [(name, finding) for name in self.names for finding in self.context.result(name).findings]
        pairs.sort(key=lambda pair: -(pair[1].saving_ns_per_step or 0))
        return [show_finding(self.context, finding, analysis=name * linked) for name, finding in pairs]


def sum_ranks(frame: pd.DataFrame, keys: Sequence[str], sums: Sequence[str]) -> pd.DataFrame:
    """Sum rows of several ranks, the longest first; other numbers are the lower median of the rows'.

    Args:
        frame: Rows with the columns rank and, perhaps, device, which are missing in sums.
        keys: Columns that the rows of a sum have in common.
        sums: Columns to sum, that of the time first.

    Example:
        >>> frame = pd.DataFrame({"rank": [0, 1], "op": ["mm", "mm"], "sum_ns": [5, 7], "median_ns": [1, 3]})
        >>> sum_ranks(frame, ["op"], ["sum_ns"]).to_dict("records")
        [{'rank': nan, 'op': 'mm', 'sum_ns': 12, 'median_ns': 1}]
    """
    groups = frame.groupby(list(keys), sort=False, dropna=False, observed=True)
    columns = {}
    for name in frame.columns.difference([C.RANK, C.DEVICE, *keys]):
        values = groups[name]
        if name in sums:
            columns[name] = values.sum(min_count=1)
        elif pd.api.types.is_numeric_dtype(frame[name]) and name not in ROW_ID_TABLES:
            columns[name] = values.quantile(interpolation="lower")
        else:
            columns[name] = values.first()
    total = pd.DataFrame(columns).reset_index().reindex(columns=frame.columns)
    return total.sort_values(sums[0], ascending=False, kind="stable").reset_index(drop=True)


def show_advice(results: PageResults) -> list[Component]:
    """Show the findings under their heading; nothing without findings."""
    cards = results.show_findings(linked=True)
    return [block_title("Findings"), *cards] if cards else []


def format_number(value: Any, unit: str) -> Component:
    """Format a number inside a sentence."""
    return html.Strong(human(cells.plain(value), unit))


def format_name(text: Any) -> Component:
    """Format a name inside a sentence; long names are cut."""
    full = clean(str(text))
    return html.Code(brief(full, NAME_CHARS), title=full, className="tk-quoted")


def format_rows(frame: pd.DataFrame, template: str) -> list[str]:
    """Return a text for each row: the template with the values of the columns that it names.

    Example:
        >>> format_rows(pd.DataFrame({"op": ["mm", "add"], "rank": [0, 1]}), "{op} (rank {rank})")
        ['mm (rank 0)', 'add (rank 1)']
    """
    return [template.format_map(row) for row in frame.to_dict("records")]


def keep_largest(frame: pd.DataFrame, by: str, count: int | None = None) -> pd.DataFrame:
    """Return the rows with the largest values of a column, largest first; all by default."""
    return frame.sort_values(by, ascending=False, kind="stable")[:count]


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
