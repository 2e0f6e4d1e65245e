"""Tables and columns beside the editor, and examples for the tables that a run has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from tracekit.export.views import KNOWN, RUN_ID, RUNS, unit
from tracekit.runs.run import Run
from tracekit.schema import Table

from ...components.charts import data


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


def schema(run: Run, *, several: bool) -> list[Component]:
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
