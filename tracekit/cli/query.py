"""`tracekit query`: run SQL over the tables of runs."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, store_option

COLUMNS = (
    Column("table", "", "table"),
    Column("column", "id", "name in SQL"),
    Column("type", "", "Arrow type"),
    Column("unit", "", "unit"),
    Column("nullable", "", "whether it can be NULL (unknown or not applicable)"),
    Column("meaning", "prose", "description"),
)


@click.command("query")
@click.argument("sql", required=False)
@click.option(
    "--run",
    "references",
    multiple=True,
    metavar="RUN",
    shell_complete=completion.run,
    help="Run to query, default `latest`; repeatable.",
)
@click.option("--all", "all_runs", is_flag=True, help="Query all runs of the store.")
@click.option("--tables", is_flag=True, help="List tables and columns with units and meanings.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Maximum rows, 0 for all; default 30 in a table, all in other formats.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=0,
    metavar="SECONDS",
    help="End the query after this time, whatever it does; 0 (default) for no limit.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Memory in GiB before the query spills to disk; it ends at 1.5 times as much. Default: half of "
    "the machine's, at most 4.",
)
@format_option
@store_option
def command(
    *,
    sql: str | None,
    references: tuple[str, ...],
    all_runs: bool,
    tables: bool,
    limit: int | None,
    timeout: float,
    memory: float | None,
    output_format: str,
    store: str | None,
) -> None:
    """Run SQL on a run's tables: device_intervals, host_intervals, steps, counters, allocations, and runs.

    The dialect is DuckDB's. Queries are read-only and see only these tables; allowed is one SELECT, WITH,
    FROM, VALUES, DESCRIBE, SUMMARIZE or EXPLAIN. Times and sizes are exact integers; column names end in
    their unit (ns, bytes). `tracekit query --tables`, or no SQL, lists all columns. Only the needed columns
    and row groups are read; EXPLAIN ANALYZE shows which. `-` reads the SQL from stdin.

    With several --run, or --all, rows have a run_id. The table `runs` lists the runs of the store.

    JSON: {"schema": "tracekit.query/1", "columns": [{"name", "type", "unit"}, ...], "rows": [{...}, ...],
    "more": rows left out by --limit}.

    \b
    Kernels by total time:
      tracekit query "SELECT name, count(*) AS n, sum(dur_ns) AS sum_ns
        FROM device_intervals WHERE kind = 'kernel'
        GROUP BY name ORDER BY sum_ns DESC LIMIT 10"
    \b
    Pageable copies and the ops that issued them:
      tracekit query "SELECT d.bytes, d.dur_ns, h.name
        FROM device_intervals d JOIN host_intervals h ON h.row_id = d.op_row
        WHERE d.src_memory = 'pageable'"
    \b
    Idle time by cause in two runs:
      tracekit query --run before --run after "SELECT run_id, idle_cause,
        sum(dur_ns) AS idle_ns FROM device_intervals
        WHERE kind = 'idle' GROUP BY ALL ORDER BY ALL"
    \b
    The runs of a branch:
      tracekit query "SELECT run_id, label, unprofiled_step_ns
        FROM runs WHERE git_branch = 'main'"
    """  # noqa: D301 (click reads the \b)
    if tables or sql is None:
        click.echo(_tables(output_format), nl=False)
        return
    from tracekit.export.query_process import Query, default_memory, run_query

    query = Query(
        sql=sys.stdin.read() if sql == "-" else sql,
        store=store,
        references=references,
        all_runs=all_runs,
        limit=limit,
        output_format=output_format,
        seconds=timeout,
        memory_bytes=round(memory * (1 << 30)) if memory else default_memory(),
    )
    with closing(run_query(query)) as texts:
        for text in texts:
            click.echo(text, nl=False)


def _tables(output_format: str) -> str:
    from tracekit.export.views import KNOWN, unit

    rows: list[dict[str, Any]] = [
        {
            "table": table.name,
            "column": column.name,
            "type": "text" if "string" in str(column.type) else str(column.type),
            "unit": unit(column.name),
            "nullable": column.nullable,
            "meaning": column.meaning,
        }
        for table in KNOWN.values()
        for column in table.columns
    ]
    if output_format != "table":
        return render.rows(rows, COLUMNS, output_format, command="query", key="columns")
    texts = []
    for table in KNOWN.values():
        of_table = [row for row in rows if row["table"] == table.name]
        title = f"{table.name}: a row is {table.row}"
        texts.append(render.table_text(of_table, COLUMNS[1:], title=title, limit=0))
    return "\n".join(texts)
