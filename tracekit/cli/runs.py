"""`tracekit runs`: list the runs of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


@click.command("runs")
@click.option("--limit", type=click.IntRange(min=0), help="List only the newest runs; 0 (default) lists all.")
@format_option
@store_option
def command(*, limit: int | None, output_format: str, store: str | None) -> None:
    """List the runs of the store, newest last.

    A commit marked `+` had uncommitted changes. Commands accept as a run reference the id, a unique prefix
    of it, `latest`, `latest~1`, a label, `git:REV`, or a path.

    JSON: {"schema": "tracekit.runs/1", "runs": [{"run_id": ..., ...}]}.
    """
    from tracekit import render

    opened = open_store(store)
    rows = [_row(run) for run in _readable(opened)]
    shown = rows[-limit:] if limit else rows
    if rows or output_format != "table":
        click.echo(
            render.rows(shown, _columns(), output_format, command="runs", key="runs", limit=0), nl=False
        )
    if not rows:
        click.echo(
            f"tracekit: no runs in {opened.path}; record one with `tracekit collect --workload resnet50` "
            "or `tracekit import PATH`",
            err=True,
        )


def _readable(store: Store) -> list[Run]:
    """Return the runs with readable metadata; report the others on stderr."""
    from tracekit.errors import TracekitError

    readable = []
    for run in store.runs():
        try:
            run.outline  # noqa: B018 (read once, cached by the run)
        except TracekitError as error:
            click.echo(f"tracekit: skipped {run.path.name}: {error}", err=True)
        else:
            readable.append(run)
    return readable


def _row(run: Run) -> dict[str, Any]:
    meta = run.outline
    workload = meta.workload or {}
    mark = "+" if meta.git and meta.git.dirty else ""
    return {
        "run_id": meta.run_id,
        "label": meta.label,
        "workload": workload.get("name"),
        "mode": workload.get("mode"),
        "device": workload.get("device"),
        "collector": meta.collector.name if meta.profiled else f"{meta.collector.name}, no profile",
        "created_at": meta.created_at,
        "git": f"{meta.git.sha[:9]}{mark}" if meta.git else None,
        "rows": sum(table.rows for table in meta.tables.values()),
        "size": sum(table.bytes for table in meta.tables.values()),
    }


def _columns() -> list[Column]:
    from tracekit.analysis import Column
    from tracekit.runs.text import ID

    return [
        Column("run_id", ID, "run id; a unique prefix is enough"),
        Column("label", "", "label given by the user"),
        Column("workload", "", "workload or program"),
        Column("mode", "", "train or infer"),
        Column("device", "", "device type"),
        Column("collector", "", "collector, and whether there is no profile"),
        Column("created_at", "", "time of creation, UTC"),
        Column("git", "", "commit; + marks uncommitted changes"),
        Column("rows", "count", "rows of all tables"),
        Column("size", "bytes", "Parquet files on disk"),
    ]
