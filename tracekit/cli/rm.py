"""`tracekit rm`: delete runs from the store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


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
    chosen = _find(place, runs)
    if not yes:
        chosen = _confirm(chosen)
    for run in chosen:
        place.remove(run)
        click.echo(run.path.name)


def _find(store: Store, references: Sequence[str]) -> list[Run]:
    """Resolve the references to distinct runs, in order."""
    by_name: dict[str, Run] = {}
    for reference in references:
        run = store.resolve(reference)
        if run.path.resolve().parent != store.path.resolve():
            raise UnusableInputError(
                f"{reference} is not in the store {store.path}; nothing was deleted",
                hint="select its store with --store, or delete the folder yourself",
            )
        by_name.setdefault(run.path.resolve().name, run)
    return list(by_name.values())


def _confirm(runs: list[Run]) -> list[Run]:
    """Ask for confirmation; return no runs if declined."""
    names = ", ".join(run.path.name for run in runs)
    if not sys.stdin.isatty():
        raise UnusableInputError(f"nothing deleted: {names} need confirmation", hint="confirm with --yes")
    if click.confirm(f"Delete {names}?", err=True):
        return runs
    click.echo("tracekit: nothing deleted", err=True)
    return []
