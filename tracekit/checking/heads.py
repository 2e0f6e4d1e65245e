"""Runs to check: the selected ones, else all of the latest recorded commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import gitinfo
from tracekit.errors import CollectionError, UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.meta import Git
    from tracekit.places import Place
    from tracekit.run import Run
    from tracekit.store import Store

_GIT = "git:"
NEXT = "record runs with `tracekit collect --repeat 5`"


def chosen(store: Store, references: Sequence[str], *, label: str | None = None) -> tuple[Run, ...]:
    """Return the runs of the head, oldest first.

    Args:
        store: Store of the runs.
        references: Run references; a label or `git:REV` means all its runs.
        label: All runs of this label.

    Raises:
        CollectionError: There is no such run.
        UnusableInputError: The runs are of more than one state of the code.
    """
    runs = store.readable()
    found = _named(store, runs, references, label) if references or label else _latest(runs)
    if not found:
        what = f"no run has the label {label!r}" if label else f"no run in {store.path} has a commit"
        raise CollectionError(what, hint=NEXT)
    if len({code(run.meta.git) for run in found}) > 1:
        raise UnusableInputError(
            f"the {len(found)} runs of the head are of more than one commit, or of changes to it",
            hint="select runs of one commit with --run or --label",
        )
    return found


def code(git: Git | None) -> tuple[str, str | None] | None:
    """Identify the code of a run; None if unknown."""
    return (git.sha, git.diff_sha256) if git else None


def _named(
    store: Store, runs: Sequence[Run], references: Sequence[str], label: str | None
) -> tuple[Run, ...]:
    from tracekit.diff.sides import runs_of

    named: dict[Place, Run] = {}
    for reference in references:
        found = _of_commit(runs, reference) if reference.startswith(_GIT) else runs_of(store, reference)
        named |= {run.path: run for run in found}
    if label:
        named |= {run.path: run for run in runs if run.meta.label == label}
    return tuple(sorted(named.values(), key=lambda run: (run.meta.created_at, run.id)))


def _of_commit(runs: Sequence[Run], reference: str) -> tuple[Run, ...]:
    sha = gitinfo.commit(reference.removeprefix(_GIT))
    found = tuple(run for run in runs if run.meta.git and run.meta.git.sha == sha)
    if not found:
        raise CollectionError(f"no runs at {reference} ({sha[:12]})", hint=NEXT)
    return found


def _latest(runs: Sequence[Run]) -> tuple[Run, ...]:
    newest = next((run for run in reversed(runs) if run.meta.git), None)
    state = code(newest.meta.git) if newest else None
    return tuple(run for run in runs if state and code(run.meta.git) == state)
