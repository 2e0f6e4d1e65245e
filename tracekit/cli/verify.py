"""`tracekit verify`: whether runs are what was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis import Column
    from tracekit.run import Run
    from tracekit.store import Store
    from tracekit.verifying import Verdict


@click.command("verify")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--quick",
    is_flag=True,
    help="Read no content: finds what is missing, cut or of another version, and not a changed bit.",
)
@format_option
@store_option
def command(*, runs: tuple[str, ...], quick: bool, output_format: str, store: str | None) -> None:
    """Check that runs are whole and are what was stored; without a RUN, all runs of the store.

    Of each run: run.json against its seal and its folder's name; of each table the files, their size, their
    SHA-256, that every page of the Parquet files can be read, rows, columns, the schema's version, and that
    rows are sorted by time. Nothing is changed. RUN is whatever names one, or a folder.

    The exit code is 0 where all is whole, and 2 where something is damaged: a row for each damage, whose kind
    is metadata, missing, unknown, size, digest, parquet, rows, columns or order.

    \b
    tracekit verify
    tracekit verify latest --format json
    tracekit verify --quick && tracekit gc

    JSON: {"schema": "tracekit.verify/1", "runs": [{"run": ..., "state": "whole", ...}]}.
    """  # noqa: D301 (click reads the \b)
    from tracekit import render
    from tracekit.cli.progress import byte_progress
    from tracekit.verifying import verify

    opened = open_store(store)
    chosen = _chosen(opened, runs)
    with byte_progress("verifying") as progress:
        verdicts = [verify(run, quick=quick, progress=progress) for run in chosen]
    rows = [row for one in verdicts for row in _rows(one)]
    if rows or output_format != "table":
        click.echo(
            render.rows(rows, _columns(), output_format, command="verify", key="runs", limit=0), nl=False
        )
    _told(opened, verdicts, quick=quick)


def _chosen(store: Store, references: Sequence[str]) -> list[Run]:
    """The runs meant, each once; without any, all of the store, with the folders that should be some."""
    from tracekit import places
    from tracekit.meta import RUN_ID
    from tracekit.run import Run

    if references:
        return list({run.path.resolve(): run for run in map(store.resolve, references)}.values())
    with store.reading():
        if not store.path.is_dir():
            return []
        found = places.inside(store.path)
    return [Run(path) for path in found if RUN_ID.fullmatch(path.name) and path.is_dir()]


def _rows(verdict: Verdict) -> list[dict[str, Any]]:
    """A row for each damage; one for a run without any."""
    about = {"run": verdict.run, "tables": verdict.tables, "rows": verdict.rows, "size": verdict.bytes}
    if verdict.is_whole:
        return [{**about, "state": "whole", "damage": None, "table": None, "told": None}]
    return [
        {**about, "state": "damaged", "damage": str(one.kind), "table": one.table or None, "told": one.told}
        for one in verdict.damage
    ]


def _told(store: Store, verdicts: Sequence[Verdict], *, quick: bool) -> None:
    """What it comes to, on stderr.

    Raises:
        UnusableInputError: A run is damaged.
    """
    from tracekit.errors import UnusableInputError

    damaged = [one.run for one in verdicts if not one.is_whole]
    many = f"{len(verdicts)} run{'s' * (len(verdicts) != 1)}"
    if damaged:
        shown = ", ".join(damaged[:3]) + (", ..." if len(damaged) > 3 else "")
        raise UnusableInputError(
            f"{len(damaged)} of {many} damaged: {shown}",
            hint="delete them with `tracekit rm`, and import or collect them again",
        )
    if not verdicts:
        click.echo(f"tracekit: no runs in {store.path}; there is nothing to verify", err=True)
        return
    how = "as far as a quick look tells, " if quick else ""
    click.echo(f"tracekit: {how}{many} whole", err=True)


def _columns() -> list[Column]:
    from tracekit.analysis import Column
    from tracekit.render.cells import ID

    return [
        Column("run", ID, "name of the run's folder"),
        Column("state", "", "whole or damaged"),
        Column("damage", "", "kind of damage, one a row"),
        Column("table", "", "which table is damaged"),
        Column("told", "prose", "what is wrong"),
        Column("tables", "count", "tables that were checked"),
        Column("rows", "count", "rows that were stored"),
        Column("size", "bytes", "Parquet files on disk"),
    ]
