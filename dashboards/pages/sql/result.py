"""Result of a query: a grid, a chart, CSV, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component
from flask import Response

from tracekit.analysis import Column, TableSpec
from tracekit.errors import UnusableInputError, clean
from tracekit.export.views import unit

from ...components.charts import aria, chart
from ...components.links import show_command, show_option
from ...exports.downloads import csv_lines, download
from ...figures.bars import bars
from ...figures.lines import lines
from ...query_runner import MAX_CSV_ROWS, MAX_SECONDS, QUERIES, Query, Result, make_query
from ...site import Context
from ...tables.table import show_table
from ...timeline.query_lanes import can_be_lanes

ALL, BASE = "all", "base"
OVER: Final = {"": "This run", BASE: "Run and baseline", ALL: "All runs"}
"""What is queried, by the value of `over` in the address."""
CHARTS: Final = {"": "none", "bar": "bar", "line": "line", "scatter": "scatter"}
_MAX_BARS, _MAX_POINTS = 40, 5_000
"""Maximum bars and points."""


def read_query(context: Context) -> Query:
    """Return the query in an address.

    Raises:
        UnusableInputError: It is too long, or there is no baseline.
        RunNotFoundError: There is no run.
    """
    options = context.view.options
    sql, over = options.get("sql", ""), options.get("over", "")
    runs = [] if over == ALL else [context.run]
    if over == BASE:
        if context.base is None:
            raise UnusableInputError("no baseline is selected", hint="choose one at the top of the page")
        runs.insert(0, context.base)
    return make_query(context.store, sql, runs)


def show_result(context: Context, result: Result) -> list[Component]:
    """Show a result."""
    if [name for name, _ in result.columns] == ["explain_key", "explain_value"]:
        plan = "\n".join(clean(line) for row in result.rows for line in str(row[-1]).splitlines())
        shown = html.Pre(plan, className="tk-sql-plan", tabIndex="0")
        return [_summary(context, result), shown, _command(context)]
    columns = tuple(
        Column(name, "", ", ".join(filter(None, [kind, unit(name)]))) for name, kind in result.columns
    )
    spec = TableSpec("query", "Result of the query", columns)
    frame = pd.DataFrame(result.rows, columns=[column.name for column in columns], dtype=object)
    csv = f"/export/query.csv{context.view.search()}"
    grid = show_table(context, "sql", spec, frame, exact=True, csv=csv)
    return [
        _summary(context, result),
        *_show_lane_link(context, result),
        *_chart(context, result),
        grid,
        _command(context),
    ]


def _show_lane_link(context: Context, result: Result) -> list[Component]:
    """Link to the timeline with the rows of a result as a lane; nothing without times, or of several runs."""
    options = context.view.options
    if options.get("over") or not can_be_lanes([name for name, _ in result.columns]):
        return []
    queries = json.dumps([[1, "", options.get("sql", "")]], ensure_ascii=False)
    href = context.view.elsewhere("timeline", options={"queries": queries})
    link = html.A("Show as a lane in the timeline", href=href, className="tk-go tk-link")
    return [html.P(link, className="tk-sql-summary")]


def _summary(context: Context, result: Result) -> Component:
    count = f"{len(result.rows):,} row{'s' * (len(result.rows) != 1)}"
    if result.more:
        count = f"The first {count}; there are more, which the CSV has if there are at most {MAX_CSV_ROWS:,}"
    texts = [f"{count}, in {result.seconds:.2f} s including startup."]
    if context.view.rank is not None or context.view.device is not None:
        texts.append("The choice of rank and device above does not apply: use WHERE rank = … AND device = …")
    return html.P(" ".join(texts), className="tk-sql-summary", role="status")


def _command(context: Context) -> Component:
    query = read_query(context)
    runs = [word for run in query.runs for word in ("--run", run)] or ["--all"]
    # a query may begin with the dashes of a comment
    command = shlex.join(["tracekit", "query", *runs, "--timeout", str(MAX_SECONDS), "--", query.sql])
    return html.Details([html.Summary("Command"), show_command(command)], className="tk-more tk-sql-command")


def _chart(context: Context, result: Result) -> list[Component]:
    """Show the choice of a chart, and the chosen one."""
    names = [name for name, _ in result.columns]
    numeric = []
    for index, name in enumerate(names):
        kinds = {type(row[index]) for row in result.rows}
        if kinds & {int, float} and kinds <= {int, float, type(None)}:
            numeric.append(name)
    if not numeric:
        return []
    view, options = context.view, context.view.options
    kind = options.get("chart", "") if options.get("chart") in CHARTS else ""
    choice = show_option(view, "Chart", "chart", CHARTS, kind)
    if not kind:
        return [html.Div([choice], className="tk-bar")]
    x, y = _axes(names, numeric, options, kind)
    axes = [_axis("x", names if kind == "bar" else numeric, x), _axis("y", numeric, y)]
    bar = html.Div([choice, *axes, dcc.Store(id="sql-axes")], className="tk-bar")
    return [bar, _draw_chart(context, result, kind, names.index(x), names.index(y))]


def _axes(
    names: Sequence[str], numeric: Sequence[str], options: dict[str, str], kind: str
) -> tuple[str, str]:
    """Return the columns of both axes: those in the address if they fit, else the first that do."""
    allowed = names if kind == "bar" else numeric
    text = [name for name in names if name not in numeric]
    x = options.get("x", "")
    x = x if x in allowed else next(iter([*text, *names] if kind == "bar" else numeric))
    y, others = options.get("y", ""), [name for name in numeric if name != x]
    measured = [name for name in others if unit(name)]
    return x, y if y in numeric else next(iter([*measured, *others, *numeric]))


def _axis(axis: str, names: Sequence[str], value: str) -> Component:
    return dmc.Select(
        id=f"sql-{axis}",
        data=list(names),
        value=value,
        allowDeselect=False,
        size="xs",
        w=200,
        leftSection=axis,
        **aria(label=f"Column of the {axis} axis"),
    )


def _draw_chart(context: Context, result: Result, kind: str, x: int, y: int) -> Component:
    most = _MAX_BARS if kind == "bar" else _MAX_POINTS
    rows = [row for row in result.rows if row[x] is not None and row[y] is not None][:most]
    rows = sorted(rows, key=lambda row: row[x]) if kind == "line" else rows
    places, values = ([row[column] for row in rows] for column in (x, y))
    x_name, y_name = result.columns[x][0], result.columns[y][0]
    if kind == "bar":
        figure = bars(list(map(str, places)), values, unit(y_name), title=y_name)
    else:
        titles: dict[str, Any] = {"title": y_name, "x_title": x_name, "x_unit": unit(x_name)}
        figure = lines(places, {y_name: values}, unit(y_name), points=kind == "scatter", **titles)
    left = len(result.rows) - len(rows)
    are = "row without values or beyond {:,} is" if left == 1 else "rows without values or beyond {:,} are"
    rest = f"; {left:,} {are.format(most)} left out" if left else ""
    return chart(context, "query", figure, caption=clean(f"{y_name} by {x_name}{rest}."))


def csv_file(query: Query) -> Response:
    """Return the result of a query as a CSV file, in which no cell is a formula.

    It is complete before it is sent, since a response that has begun cannot say that the query failed.

    Raises:
        UnusableInputError: The query fails or exceeds a limit.
    """
    file = tempfile.SpooledTemporaryFile(max_size=8 << 20)  # noqa: SIM115 (closed after it is sent)
    try:
        with QUERIES.lines(query) as values:
            for line in _lines(values):
                file.write(line)
    except BaseException:
        file.close()
        raise
    size = file.tell()
    file.seek(0)
    name = f"{query.runs[-1] if query.runs else 'runs'}-query.csv"
    response = download(iter(lambda: file.read(1 << 16), b""), "text/csv; charset=utf-8", name)
    response.content_length = size
    response.call_on_close(file.close)
    return response


def _lines(values: Iterable[Any]) -> Iterable[bytes]:
    """Convert columns and rows to CSV; the last value tells whether rows are missing."""
    remaining = iter(values)
    for row in chain([[name for name, _ in next(remaining)]], remaining):
        if row is True:
            raise UnusableInputError(
                f"the result has more than {MAX_CSV_ROWS:,} rows", hint="use `tracekit query --format csv`"
            )
        if row is not False:
            yield csv_lines(
                [[json.dumps(value) if isinstance(value, bool | list | dict) else value for value in row]]
            ).encode()
