"""`tracekit verify`: check stored runs for damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.progress import byte_progress, note
from tracekit.errors import UnusableInputError
from tracekit.runs.text import ID

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store
    from tracekit.runs.verify import Verdict

COLUMNS = (
    Column("run", ID, "folder of the run"),
    Column("state", "", "whole, damaged, or unsupported: stored by a newer tracekit"),
    Column("damage", "", "kind of damage"),
    Column("table", "", "damaged table"),
    Column("message", "prose", "description of the damage"),
    Column("tables", "count", "tables checked"),
    Column("rows", "count", "rows stored"),
    Column("size", "bytes", "Parquet files on disk"),
)


@click.command("verify")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=completion.run)
@click.option(
    "--quick",
    is_flag=True,
    help="Skip file contents: detects missing, truncated and mismatched files, but not changed bits.",
)
@format_option
@store_option
def command(*, runs: tuple[str, ...], quick: bool, output_format: str, store: str | None) -> None:
    """Check that runs are complete and unchanged; by default all runs of the store.

    Checks run.json against its checksum and the name of its folder, and for each table the files, their
    sizes and SHA-256, that all Parquet pages can be read, rows, columns, the schema version, and that rows
    are sorted by time. Nothing is modified. RUN is any run reference or a folder.

    The exit code is 0 if all runs are complete, and 2 if any is damaged, or unsupported: stored by a newer
    tracekit. Each damage is a row; its kind is metadata, missing, unknown, size, digest, parquet, rows,
    columns or order.

    \b
    tracekit verify
    tracekit verify latest --format json
    tracekit verify --quick && tracekit gc

    JSON: {"schema": "tracekit.verify/1", "runs": [{"run": ..., "state": "whole", ...}]}.
    """  # noqa: D301 (click reads the \b)
    from tracekit.runs.verify import verify

    place = open_store(store)
    chosen = _resolve_all(place, runs)
    with byte_progress("verifying") as progress:
        verdicts = [verify(run, quick=quick, progress=progress) for run in chosen]
    rows = [row for verdict in verdicts for row in _rows(verdict)]
    if rows or output_format != "table":
        click.echo(render.rows(rows, COLUMNS, output_format, command="verify", key="runs", limit=0), nl=False)
    _report(place, verdicts, quick=quick)


def _resolve_all(store: Store, references: Sequence[str]) -> list[Run]:
    """Resolve the references to distinct runs; without any, all of the store, readable or not."""
    from tracekit import storage
    from tracekit.runs.meta import RUN_ID
    from tracekit.runs.run import Run

    if references:
        return list({run.path.resolve(): run for run in map(store.resolve, references)}.values())
    with store.convert_read_errors():
        if not store.path.is_dir():
            return []
        paths = storage.inside(store.path)
    return [Run(path) for path in paths if RUN_ID.fullmatch(path.name) and path.is_dir()]


def _rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Return a row per damage; a single row for a run without damage."""
    about = {"run": verdict.run, "tables": verdict.tables, "rows": verdict.rows, "size": verdict.bytes}
    if not verdict.damage:
        state = "unsupported" if verdict.unsupported else "whole"
        return [{**about, "state": state, "message": verdict.unsupported or None}]
    about["state"] = "damaged"
    return [
        {**about, "damage": str(damage.kind), "table": damage.table or None, "message": damage.message}
        for damage in verdict.damage
    ]


def _report(store: Store, verdicts: Sequence[Verdict], *, quick: bool) -> None:
    """Print a summary on stderr; an error if a run is damaged, or of a newer version."""
    many = f"{len(verdicts)} run{'s' * (len(verdicts) != 1)}"
    if damaged := [verdict.run for verdict in verdicts if verdict.damage]:
        raise UnusableInputError(
            f"{len(damaged)} of {many} damaged: {_join_first(damaged)}",
            hint="delete them with `tracekit rm`, then import or collect them again",
        )
    if newer := [verdict.run for verdict in verdicts if verdict.unsupported]:
        raise UnusableInputError(
            f"{len(newer)} of {many} stored by a newer tracekit, and not checked: {_join_first(newer)}",
            hint="upgrade tracekit",
        )
    if not verdicts:
        note(f"tracekit: no runs in {store.path}")
        return
    how = " (quick check)" if quick else ""
    note(f"tracekit: {many} OK{how}")


def _join_first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
