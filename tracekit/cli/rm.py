"""`tracekit rm`: delete runs from the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run
    from tracekit.store import Store


@click.command("rm")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
def command(*, runs: tuple[str, ...], yes: bool, store: str | None) -> None:
    """Delete runs from the store; asks first on a terminal, needs `--yes` elsewhere.

    RUN is a run id or a unique prefix, `latest`, `latest~N`, a label or `git:REV`. All of them are looked up
    before any is deleted: one that is wrong deletes nothing. A run outside the store is never deleted.

    The ids of the deleted runs are printed, one a line.
    """
    opened = open_store(store)
    doomed = _find(opened, runs)
    if not yes:
        doomed = _confirmed(doomed)
    for run in doomed:
        opened.remove(run)
        click.echo(run.path.name)


def _find(store: Store, references: Sequence[str]) -> list[Run]:
    """The runs meant, each once, in the order given."""
    from tracekit.errors import UnusableInputError

    found: dict[str, Run] = {}
    for reference in references:
        run = store.resolve(reference)
        if run.path.resolve().parent != store.path.resolve():
            raise UnusableInputError(
                f"{reference} is not in the store {store.path}; nothing was deleted",
                hint="name its store with --store, or delete the folder yourself",
            )
        found.setdefault(run.path.resolve().name, run)
    return list(found.values())


def _confirmed(runs: list[Run]) -> list[Run]:
    """The runs when the person agrees, none otherwise."""
    from tracekit.errors import UnusableInputError

    names = ", ".join(run.path.name for run in runs)
    if not sys.stdin.isatty():
        raise UnusableInputError(f"{names} would be deleted; nothing was", hint="confirm with --yes")
    if click.confirm(f"Delete {names}?", err=True):
        return runs
    click.echo("tracekit: nothing was deleted", err=True)
    return []
