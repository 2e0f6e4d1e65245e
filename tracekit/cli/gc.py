"""`tracekit gc`: free what dead processes left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.ages import Age
from tracekit.cli.options import format_option, open_store, store_option

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.freeing import Leftover
    from tracekit.places import Place
    from tracekit.store import Store


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Say what would be freed, and free nothing.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    default="0s",
    help="Only what nobody wrote to for so long: 30m, 12h, 7d, 2w; by default whatever is of no use.",
)
@format_option
@store_option
def command(*, dry_run: bool, older_than: float, output_format: str, store: str | None) -> None:
    """Free what processes left that were killed, and what is kept for runs that are gone.

    That is, in the store: runs that were never finished or half deleted (draft), kept results and indexes
    without a run (result), files that a browser was sending (upload), checkouts of `ab`, `check` and `bisect`
    (worktree); in the system's temporary folder: folders of tracekit (temporary); in the user's cache:
    compiled code that this installation does not use and that is over a week old (code); another installation
    that needs it compiles it again.

    Nothing of a process that lives is touched, and no run, ever. What was freed is printed, one a row.

    \b
    tracekit gc --dry-run
    tracekit gc --older-than 7d

    JSON: {"schema": "tracekit.gc/1", "freed": [{"kind": ..., "path": ..., "size": ...}]}.
    """  # noqa: D301 (click reads the \b)
    from tracekit import render
    from tracekit.freeing import free, leftovers

    opened = open_store(store)
    rows: list[dict[str, Any]] = []
    kept: list[Place] = []
    for one in list(leftovers(opened, older_than_s=older_than)):
        freed = one.bytes
        if not dry_run:
            done = free(one)
            freed = done.bytes
            if not done.whole:
                kept.append(one.found.path)
        rows.append(_row(opened, one, freed))
    if rows or output_format != "table":
        click.echo(render.rows(rows, _columns(), output_format, command="gc", key="freed", limit=0), nl=False)
    _told(rows, kept, dry_run=dry_run)


def _row(store: Store, one: Leftover, freed: int) -> dict[str, Any]:
    path = one.found.path
    inside = path.parts[: len(store.path.parts)] == store.path.parts
    shown = "/".join(path.parts[len(store.path.parts) :]) if inside else str(path)
    return {"kind": str(one.found.kind), "path": shown, "size": freed, "age": int(one.age_s * 1e9)}


def _told(rows: list[dict[str, Any]], kept: list[Place], *, dry_run: bool) -> None:
    """What it comes to, on stderr.

    Raises:
        UnusableInputError: Something could not be deleted.
    """
    from tracekit.errors import UnusableInputError
    from tracekit.render import human

    size = human(sum(row["size"] for row in rows), "bytes")
    if not rows:
        click.echo("tracekit: nothing was left behind", err=True)
        return
    done = "would be freed" if dry_run else "freed"
    click.echo(f"tracekit: {size} {done}, {len(rows)} leftover{'s' * (len(rows) != 1)}", err=True)
    if kept:
        raise UnusableInputError(
            f"{kept[0]} could not be deleted whole", hint="see who may write there, or whether it is in use"
        )


def _columns() -> list[Column]:
    from tracekit.analysis import Column

    return [
        Column("kind", "", "what it was"),
        Column("path", "", "where: in the store, else from the root"),
        Column("size", "bytes", "bytes that are free now"),
        Column("age", "ns", "time since it was last written to"),
    ]
