"""The runs that a person means by one side of a comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import gitinfo
from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.meta import RUN_ID
from tracekit.references import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run
    from tracekit.store import Store

RANGE = ".."


def pair(references: Sequence[str]) -> tuple[str, str]:
    """The two sides that arguments name: two references, or one range of git revisions.

    Raises:
        UnusableInputError: They name one side, or more than two.

    Example:
        >>> pair(["main..topic"]), pair(["before", "after"])
        (('git:main', 'git:topic'), ('before', 'after'))
    """
    if len(references) == 2:
        return references[0], references[1]
    if len(references) == 1 and RANGE in references[0] and not Path(references[0]).exists():
        base, _, head = references[0].partition(RANGE)
        revisions = [f"git:{revision.lstrip('.') or 'HEAD'}" for revision in (base, head)]
        return revisions[0], revisions[1]
    raise UnusableInputError(
        f"expected two runs, got {len(references)}",
        hint="use `tracekit diff latest~1 latest` or `tracekit diff main..topic`",
    )


def runs_of(store: Store, reference: str) -> tuple[Run, ...]:
    """All runs of one side, oldest first: of a label or a commit every run alike, else the one named.

    Runs are alike when they have one fingerprint; of several, the newest run's counts.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
    """
    newest, found = _named(store, reference)
    alike = tuple(run for run in found if run.meta.fingerprint == newest.meta.fingerprint)
    if not alike:
        raise RunNotFoundError(f"no run matches {reference!r}", hint="list runs with `tracekit runs`")
    return alike


def left_out(store: Store, reference: str) -> str:
    """What to say of the runs that a label or a commit means but `runs_of` leaves out; nothing if none."""
    newest, found = _named(store, reference)
    others = [run.meta.fingerprint for run in found if run.meta.fingerprint != newest.meta.fingerprint]
    if not others:
        return ""
    own = newest.meta.fingerprint
    differing = sorted({name for one in others for name in {*own, *one} if own.get(name) != one.get(name)})
    one = len(others) == 1
    runs = "1 more run that differs" if one else f"{len(others)} more runs that differ"
    end = "it is left out" if one else "they are left out"
    return f"{reference!r} names {runs} from its newest in {', '.join(differing)}: {end}"


def _named(store: Store, reference: str) -> tuple[Run, list[Run]]:
    """The newest run that a reference names, and all of them."""
    newest = resolve(store, reference)
    if os.sep in reference and not reference.startswith("git:") and newest.meta.label != reference:
        return newest, [newest]
    if newest.path.parent != store.path:
        return newest, [newest]
    if reference.startswith("git:"):
        sha = gitinfo.commit(reference.removeprefix("git:"))
        return newest, [run for run in store.readable() if run.meta.git and run.meta.git.sha == sha]
    if newest.meta.label == reference and not _names_a_run(reference, newest):
        return newest, [run for run in store.readable() if run.meta.label == reference]
    return newest, [newest]


def _names_a_run(reference: str, run: Run) -> bool:
    return bool(RUN_ID.fullmatch(reference)) and run.path.name.startswith(reference)
