"""`tracekit runs`: list the runs of the store."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import Age, format_option, open_store, store_option
from tracekit.cli.progress import note
from tracekit.errors import RunNotFoundError, TracekitError
from tracekit.runs.text import ID, MISSING, ago

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

_CREATED = "created"
COLUMNS = (
    Column("run_id", ID, "run id; a unique prefix is enough"),
    Column("label", "", "label given by the user"),
    Column("workload", "", "workload or program"),
    Column("mode", "", "train or infer"),
    Column("device", "", "device type"),
    Column("collector", "", "collector, and whether there is no profile"),
    Column("created_at", ID, "time of creation, UTC"),
    Column("git", "", "commit; + marks uncommitted changes"),
    Column("unprofiled_step_ns", "ns", "mean of the steps timed without the profiler"),
    Column("rows", "count", "rows of all tables"),
    Column("size", "bytes", "Parquet files on disk"),
)
_ORDER = ("run_id", _CREATED, "label", "workload", "mode", "device", "collector", "git", "rows", "size")
"""Columns of the table, most important first."""


@click.command("runs")
@click.option("--limit", type=click.IntRange(min=0), help="List only the newest runs; 0 (default) lists all.")
@click.option("--label", shell_complete=completion.label, help="Only runs of this label.")
@click.option("--workload", shell_complete=completion.workload, help="Only runs of this workload or program.")
@click.option("--commit", metavar="REV", help="Only runs of this commit: a revision, or the start of its id.")
@click.option("--since", type=Age(), metavar="AGE", help="Only runs of the last 30m, 12h, 7d or 2w.")
@format_option
@store_option
def command(
    *,
    limit: int | None,
    label: str | None,
    workload: str | None,
    commit: str | None,
    since: float | None,
    output_format: str,
    store: str | None,
) -> None:
    """List the runs of the store, newest last.

    On a terminal, times are relative; elsewhere they are in UTC. Columns that do not fit are named below the
    table. A commit marked `+` had uncommitted changes. Commands accept as a run reference the id, a unique
    prefix of it, `latest`, `latest~1`, a label, `git:REV`, or a path.

    JSON: {"schema": "tracekit.runs/1", "runs": [{"run_id": ..., ...}]}.

    \b
    tracekit runs --workload resnet50 --since 7d
    tracekit runs --commit HEAD~1 --label before --format json
    """  # noqa: D301 (click reads the \b)
    opened = open_store(store)
    stored = _readable(opened)
    wanted = _select(stored, label=label, workload=workload, commit=commit, since_s=since)
    rows = [_row(run) for run in wanted]
    shown = rows[-limit:] if limit else rows
    if output_format != "table":
        text = render.rows(shown, COLUMNS, output_format, command="runs", key="runs", limit=0)
        click.echo(text, nl=False)
    elif shown:
        click.echo(_table(shown), nl=False)
    if stored and not rows:
        note(f"tracekit: none of {len(stored)} runs in {opened.path} is selected")
    elif not rows:
        note(
            f"tracekit: no runs in {opened.path}; record one with `tracekit collect --workload resnet50` "
            "or `tracekit import PATH`"
        )


def _select(
    runs: list[Run], *, label: str | None, workload: str | None, commit: str | None, since_s: float | None
) -> list[Run]:
    """Return the runs with all that is given."""
    sha = _find_commit(commit) if commit else ""
    oldest = datetime.now(UTC) - timedelta(seconds=since_s) if since_s is not None else None
    selected = []
    for run in runs:
        meta = run.header
        if label is not None and meta.label != label:
            continue
        if workload is not None and (meta.workload or {}).get("name") != workload:
            continue
        if sha and not (meta.git and meta.git.sha.startswith(sha)):
            continue
        if oldest is not None and not _is_after(meta.created_at, oldest):
            continue
        selected.append(run)
    return selected


def _find_commit(revision: str) -> str:
    """Return the commit of a revision; a start of an id need not be one of this repository."""
    from tracekit.runs import revisions

    try:
        return revisions.commit(revision)
    except RunNotFoundError:
        if re.fullmatch(r"[0-9a-f]{4,40}", revision):
            return revision
        raise


def _is_after(created_at: str, oldest: datetime) -> bool:
    try:
        return datetime.fromisoformat(created_at) >= oldest
    except (ValueError, TypeError):  # edited by hand
        return False


def _table(rows: list[dict[str, Any]]) -> str:
    """Render a table with a line per run, whatever its width."""
    columns = {column.name: column for column in (*COLUMNS, Column(_CREATED, ID, "time of creation"))}
    now = datetime.now(UTC) if sys.stdout.isatty() else None
    shown = [
        {name: MISSING if value is None else value for name, value in row.items()}
        | {_CREATED: ago(row["created_at"], now) if now else row["created_at"]}
        for row in rows
    ]
    return render.table_text(shown, [columns[name] for name in _ORDER], limit=0, transposed=False)


def _readable(store: Store) -> list[Run]:
    """Return the runs with readable metadata; report the others on stderr."""
    readable = []
    for run in store.runs():
        try:
            run.header  # noqa: B018 (read once, cached by the run)
        except TracekitError as error:
            click.echo(f"tracekit: skipped {run.path.name}: {error}", err=True)
        else:
            readable.append(run)
    return readable


def _row(run: Run) -> dict[str, Any]:
    from tracekit.runs.step_times import unprofiled_step_time

    meta = run.header
    workload = meta.workload or {}
    timed = unprofiled_step_time(meta.timings)
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
        "unprofiled_step_ns": timed.mean_ns if timed else None,
        "rows": sum(table.rows for table in meta.tables.values()),
        "size": sum(table.bytes for table in meta.tables.values()),
    }
