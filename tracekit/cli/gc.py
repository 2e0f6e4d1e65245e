"""`tracekit gc`: delete leftovers of killed processes and caches of deleted runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import Age, format_option, open_store, store_option
from tracekit.cli.progress import note
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from tracekit.cli.leftovers import Leftover
    from tracekit.runs.store import Store

COLUMNS = (
    Column("kind", "", "kind of leftover"),
    Column("path", "", "path in the store, else absolute"),
    Column("size", "bytes", "bytes freed"),
    Column("age", "ns", "time since the last write"),
)


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="List what would be deleted, without deleting.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    default="0s",
    help="Delete only what was last written longer ago than this, such as 30m, 12h, 7d or 2w.",
)
@format_option
@store_option
def command(*, dry_run: bool, older_than: float, output_format: str, store: str | None) -> None:
    """Delete leftovers of killed processes and caches of deleted runs.

    In the store: unfinished or half-deleted runs (draft), cached results and indexes of deleted runs, and
    interrupted or inconclusive calls of `ab` and `try` not resumed for 30 days (result), interrupted uploads
    (upload), worktrees of `ab`, `check` and `bisect` (worktree). In the system's temporary folder: tracekit's
    folders (temporary). In the user's cache: compiled code over a week old that this installation does not
    use (code); another installation compiles it again if needed.

    Runs and files of running processes are never deleted. Prints one row per deletion.

    \b
    tracekit gc --dry-run
    tracekit gc --older-than 7d

    JSON: {"schema": "tracekit.gc/1", "freed": [{"kind": ..., "path": ..., "size": ...}]}.
    """  # noqa: D301 (click reads the \b)
    from tracekit.cli.leftovers import free, leftovers

    runs = open_store(store)
    rows: list[dict[str, Any]] = []
    failed = []
    for leftover in list(leftovers(runs, older_than_s=older_than)):
        size = leftover.bytes
        if not dry_run:
            outcome = free(leftover)
            size = outcome.bytes
            if not outcome.complete:
                failed.append(leftover.path)
        rows.append(_row(runs, leftover, size))
    if rows or output_format != "table":
        click.echo(render.rows(rows, COLUMNS, output_format, command="gc", key="freed", limit=0), nl=False)
    total = render.human(sum(row["size"] for row in rows), "bytes")
    done = "would be freed" if dry_run else "freed"
    many = f"{len(rows)} leftover{'s' * (len(rows) != 1)}"
    note(f"tracekit: {total} {done}, {many}" if rows else "tracekit: nothing to delete")
    if failed:
        raise UnusableInputError(
            f"{failed[0]} could not be deleted completely",
            hint="check its permissions and whether it is in use",
        )


def _row(store: Store, leftover: Leftover, size: int) -> dict[str, Any]:
    path = leftover.path
    inside = path.parts[: len(store.path.parts)] == store.path.parts
    shown = "/".join(path.parts[len(store.path.parts) :]) if inside else str(path)
    age_ns = int(leftover.age_s * 1e9)
    return {"kind": str(leftover.kind), "path": shown, "size": size, "age": age_ns}
