"""`tracekit rm`: delete runs from the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from tracekit.runs.run import Run


@click.command("rm")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=completion.run)
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@store_option
def command(*, runs: tuple[str, ...], yes: bool, store: str | None) -> None:
    """Delete runs from the store, after confirmation on a terminal or with `--yes`.

    RUN is a run id or a unique prefix, `latest`, `latest~N`, a label or `git:REV`. If any RUN cannot be
    found, nothing is deleted. Runs outside the store are never deleted.

    Prints the ids of the deleted runs, one per line.
    """
    place = open_store(store)
    distinct: dict[str, Run] = {}
    for reference in runs:
        run = place.resolve(reference)
        if run.path.resolve().parent != place.path.resolve():
            raise UnusableInputError(
                f"{reference} is not in the store {place.path}; nothing was deleted",
                hint="select its store with --store, or delete the folder yourself",
            )
        distinct.setdefault(run.path.resolve().name, run)
    for run in distinct.values() if yes else _confirm(list(distinct.values())):
        place.remove(run)
        click.echo(run.path.name)


def _confirm(runs: list[Run]) -> list[Run]:
    """Ask for confirmation; return no runs if declined."""
    names = ", ".join(run.path.name for run in runs)
    if not sys.stdin.isatty():
        raise UnusableInputError(f"nothing deleted: {names} need confirmation", hint="confirm with --yes")
    if click.confirm(f"Delete {names}?", err=True):
        return runs
    click.echo("tracekit: nothing deleted", err=True)
    return []
