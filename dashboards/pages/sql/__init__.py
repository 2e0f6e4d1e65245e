"""SQL page: a query over the tables of runs, its result as a grid, a chart and CSV; all of it in the address.

The statement is run by the same function as `tracekit query`, in a child process with limits. This process
does not even parse it. Beside the editor are the tables and columns of the run, and examples for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import Response, abort

from tracekit.errors import TracekitError
from tracekit.export.views import KNOWN, RUN_ID, RUNS, unit
from tracekit.runs.run import Run
from tracekit.schema import Table

from ...blocks import block, error_alert
from ...components.charts import aria, data
from ...components.elements import join_elements
from ...components.links import Choice, show_choices
from ...components.text import with_code
from ...query_runner import MAX_MEMORY_BYTES, MAX_ROWS, MAX_RUNNING, MAX_SECONDS, QUERIES
from ...security import is_same_origin
from ...site import MAX_SQL_CHARS, Context, Page, Section, Site
from . import result

NAME = "sql"
_LIMITS = (
    f"Read-only. At most {MAX_SECONDS} s, {MAX_MEMORY_BYTES / (1 << 30):g} GiB of memory, {MAX_ROWS:,} rows "
    f"on the page, {MAX_SQL_CHARS:,} characters, and {MAX_RUNNING} queries at once. "
    "`tracekit query` has options for more."
)


def _layout(context: Context) -> list[Component]:
    history = html.Details(
        [html.Summary("History"), html.Div(id="sql-history")], id="sql-history-fold", className="tk-more"
    )
    left = html.Div([*_editor(context), block(NAME, "examples", height=60), history])
    heading, label = html.H2("Tables", className="tk-sql-heading"), aria(label="Tables and columns")
    right = html.Section([heading, html.Div(id="sql-schema")], className="tk-sql-schema", **label)
    stores = [dcc.Store(id=name) for name in ("sql-schema-of", "sql-ran", "sql-cancelled")]
    return [html.Div([left, right], className="tk-sql"), block(NAME, "result", height=60), *stores]


def _editor(context: Context) -> list[Component]:
    options, longest = context.view.options, data(longest=str(MAX_SQL_CHARS))
    text = dmc.Textarea(
        id="sql-text",
        value=options.get("sql", ""),
        placeholder="SELECT name, dur_ns FROM device_intervals LIMIT 10",
        autosize=True,
        minRows=8,
        maxRows=20,
        spellCheck=False,
        className="tk-sql-text",
        **aria(label="Query"),
    )
    over = dmc.SegmentedControl(
        id="sql-over",
        size="xs",
        value=options.get("over", "") if options.get("over") in result.OVER else "",
        data=[{"value": value, "label": text} for value, text in result.OVER.items()],
        **aria(label="Runs to query"),
    )
    bar = [
        html.Button("Run", id="sql-run", className="tk-button tk-primary", title="Ctrl+Enter", **longest),
        over,
        html.Button("Cancel", id="sql-cancel", className="tk-button tk-sql-cancel"),
        html.Span(id="sql-status", className="tk-status", role="status"),
    ]
    return [
        text,
        html.Div(bar, className="tk-bar tk-sql-bar"),
        html.P(with_code(_LIMITS), className="tk-sql-limits"),
    ]


def _examples(context: Context) -> Component:
    view = context.view
    options = {"over": view.options["over"]} if view.options.get("over") in result.OVER else {}
    offered = [
        Choice(example.title, view.href(options=options | {"sql": example.sql}), title=example.sql)
        for example in list_examples(tables_with_rows(context.run))
    ]
    return show_choices("Examples", offered)


def _result(context: Context) -> list[Component]:
    if not context.view.options.get("sql", "").strip():
        return [html.P("Write a query or choose an example. Ctrl+Enter runs it.", className="tk-dim")]
    return result.show_result(context, QUERIES.result(result.read_query(context)))


def _connect(site: Site) -> None:
    client = site.app.clientside_callback
    client(
        ClientsideFunction("tracekit", "sqlRun"),
        Output("sql-ran", "data"),
        Input("sql-run", "n_clicks"),
        State("sql-over", "value"),
        prevent_initial_call=True,
    )
    client(
        ClientsideFunction("tracekit", "sqlArrived"),
        Output("sql-text", "value"),
        Output("sql-over", "value"),
        Input("view", "data"),
    )
    client(
        ClientsideFunction("tracekit", "sqlAxes"),
        Output("sql-axes", "data"),
        Input("sql-x", "value"),
        Input("sql-y", "value"),
        prevent_initial_call=True,
    )

    @site.app.callback(
        Output("sql-schema", "children"),
        Output("sql-schema-of", "data"),
        Input("view", "data"),
        State("sql-schema-of", "data"),
    )
    def schema(view: dict[str, str] | None, shown_before: str | None) -> tuple[Any, Any]:
        """List the tables of another run; those of the same run stay as they were opened."""
        if view is None:
            return no_update, no_update
        context = site.context_of(view)
        several = bool(context.view.options.get("over"))
        listed = f"{context.view.run} {several}"
        if listed == shown_before or context.chosen is None:
            return no_update, no_update
        try:
            return join_elements(_list_tables(context.chosen, several=several)), listed
        except TracekitError as error:
            return error_alert(error.message, error.hint), None

    @site.app.callback(
        Output("sql-cancelled", "data"),
        Input("sql-cancel", "n_clicks"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def cancel(clicks: int | None, view: dict[str, str] | None) -> Any:
        if clicks and view:
            QUERIES.cancel(result.read_query(site.context_of(view)))
        return no_update

    def export() -> Response:
        if not is_same_origin():
            abort(403, "not from a page of this dashboard")
        return result.csv_file(result.read_query(site.context_of_request(NAME)))

    site.app.server.add_url_rule("/export/query.csv", "export-query", export)


@dataclass(frozen=True)
class Example:
    """A query that is offered: what it answers, tables that must have rows, and the statement."""

    title: str
    tables: tuple[str, ...]
    sql: str


EXAMPLES: Final = (
    Example(
        "Kernels by total time",
        ("device_intervals",),
        "SELECT name, count(*) AS n, sum(dur_ns) AS sum_ns\n"
        "FROM device_intervals WHERE kind = 'kernel'\n"
        "GROUP BY name ORDER BY sum_ns DESC LIMIT 20",
    ),
    Example(
        "Idle time by cause",
        ("device_intervals",),
        "SELECT idle_cause, count(*) AS n, sum(dur_ns) AS idle_ns\n"
        "FROM device_intervals WHERE kind = 'idle'\n"
        "GROUP BY idle_cause ORDER BY idle_ns DESC",
    ),
    Example(
        "Copies and the ops that issued them",
        ("device_intervals", "host_intervals"),
        "SELECT h.name AS op, d.copy_kind, d.src_memory, count(*) AS n, sum(d.bytes) AS bytes\n"
        "FROM device_intervals d LEFT JOIN host_intervals h ON h.row_id = d.op_row\n"
        "WHERE d.kind = 'memcpy'\n"
        "GROUP BY ALL ORDER BY bytes DESC",
    ),
    Example(
        "Longest calls on the host",
        ("host_intervals",),
        "SELECT name, kind, start_ns, dur_ns\nFROM host_intervals ORDER BY dur_ns DESC LIMIT 20",
    ),
    Example(
        "Steps",
        ("steps",),
        "SELECT rank, step, dur_ns FROM steps ORDER BY rank, step",
    ),
    Example(
        "Counters",
        ("counters",),
        "SELECT metric, unit, count(*) AS samples, min(value) AS min, max(value) AS max\n"
        "FROM counters GROUP BY metric, unit ORDER BY metric",
    ),
    Example(
        "Memory over time",
        ("allocations",),
        "SELECT t_ns, total_allocated\n"
        "FROM allocations WHERE total_allocated IS NOT NULL ORDER BY t_ns LIMIT 5000",
    ),
    Example(
        "Runs of the store",
        (),
        "SELECT run_id, label, workload, unprofiled_step_ns\nFROM runs ORDER BY created_at DESC",
    ),
)


def tables_with_rows(run: Run) -> set[str]:
    """Return the names of the tables that have rows in a run."""
    return {RUNS.name, *(name for name in KNOWN if name != RUNS.name and run.rows(name))}


def list_examples(present: set[str]) -> list[Example]:
    """Return the examples whose tables are among those with rows."""
    return [example for example in EXAMPLES if present.issuperset(example.tables)]


def _list_tables(run: Run, *, several: bool) -> list[Component]:
    """List the tables of a run with their columns, which a click inserts into the query.

    With `several`, rows of several runs are read, which begin with the id of their run.
    """
    present = tables_with_rows(run)
    shown: list[Component] = []
    absent: list[Component] = []
    for name, table in KNOWN.items():
        (shown if name in present else absent).append(_table(table, several=several))
    if absent:
        summary = html.Summary("Tables without rows in this run")
        shown.append(html.Details([summary, *absent], className="tk-sql-absent"))
    return shown


def _table(table: Table, *, several: bool) -> Component:
    columns = []
    for column in table.columns:
        kind = "text" if "string" in str(column.type) else str(column.type)
        facts = [kind, unit(column.name), "can be NULL" if column.nullable else ""]
        columns.append(_entry(column.name, f"{', '.join(filter(None, facts))}; {column.meaning}"))
    if several and table is not RUNS:
        columns.insert(0, _entry(RUN_ID, "text; id of the run"))
    summary = html.Summary([html.Strong(table.name), f": a row is {table.row}"])
    return html.Details([summary, html.Ul([_entry(table.name, "the table", className="tk-dim"), *columns])])


def _entry(name: str, meaning: str, **span: Any) -> Component:
    """List a name, which a click inserts into the query."""
    title = f"Insert {name}"
    button = html.Button(name, type="button", className="tk-sql-insert", title=title, **data(insert=name))
    return html.Li([button, html.Span(meaning, **span)])


PAGE = Page(
    name=NAME,
    title="SQL",
    question="What do the tables of this run, or of all runs, say that no other page shows?",
    section=Section.MORE,
    order=900,
    layout=_layout,
    blocks={"examples": _examples, "result": _result},
    connect=_connect,
)
