"""SQL page: a query over the tables of runs, its result as a grid, a chart and CSV; all of it in the address.

The statement is run by the same function as `tracekit query`, in a child process with limits. This process
does not even parse it.
"""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import Response, abort

from tracekit.errors import TracekitError

from ...blocks import block, error_alert
from ...components.charts import aria, data
from ...components.links import Choice, show_choices
from ...security import is_same_origin
from ...site import MAX_SQL_CHARS, Context, Page, Section, Site
from . import result, tables
from .query_runner import MAX_MEMORY_BYTES, MAX_ROWS, MAX_RUNNING, MAX_SECONDS, QUERIES

NAME = "sql"
_LIMITS = (
    f"Read-only. At most {MAX_SECONDS} s, {MAX_MEMORY_BYTES / (1 << 30):g} GiB of memory, {MAX_ROWS:,} rows "
    f"on the page, {MAX_SQL_CHARS:,} characters, and {MAX_RUNNING} queries at once. "
    "tracekit query has options for more."
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
    return [text, html.Div(bar, className="tk-bar tk-sql-bar"), html.P(_LIMITS, className="tk-sql-limits")]


def _examples(context: Context) -> Component:
    view = context.view
    options = {"over": view.options["over"]} if view.options.get("over") in result.OVER else {}
    offered = [
        Choice(example.title, view.href(options=options | {"sql": example.sql}), title=example.sql)
        for example in tables.list_examples(tables.tables_with_rows(context.run))
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
            return tables.schema(context.chosen, several=several), listed
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
