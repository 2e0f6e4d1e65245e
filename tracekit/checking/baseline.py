"""The runs a head is compared with.

Against a revision, the baseline is the nearest commit at or before the merge-base that has enough clean runs
with an equal fingerprint; failing that, the nearest that has any; failing that, the nearest whose runs
measured the same workload otherwise, which is then not comparable. It is never simply the latest run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import gitinfo, history
from tracekit.checking.configuration import alike, kind, nearness
from tracekit.checking.heads import code
from tracekit.errors import CollectionError, RunNotFoundError, UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tracekit.meta import Git
    from tracekit.run import Run
    from tracekit.store import Store

_LABEL, _GIT = "label:", "git:"


@dataclass(frozen=True)
class Group:
    """Runs of one state of the code, and how far it lies before the merge-base; None for a label."""

    runs: tuple[Run, ...]
    distance: int | None


@dataclass(frozen=True)
class Candidates:
    """Groups of runs that may be the baseline, nearest first; `merge_base` is None for a label."""

    groups: tuple[Group, ...]
    merge_base: str | None = None


def candidates(store: Store, against: str, head: Sequence[Run], *, allow_dirty: bool) -> Candidates:
    """What the head may be compared with.

    Args:
        store: Where runs are looked up.
        against: A label or a git revision; `label:` or `git:` before it tells which.
        head: The runs in question, all of one state of the code.
        allow_dirty: Whether runs with uncommitted changes count.

    Raises:
        CollectionError: No run fits.
        RunNotFoundError: It is neither a label nor a revision.
        UnusableInputError: It is both, or the head's commit is unknown.
    """
    own = {run.path for run in head}
    others = [run for run in store.readable() if run.path not in own]
    usable = [run for run in others if allow_dirty or not _is_dirty(run)]
    if _means_label(others, against):
        found = Candidates(_of_label(usable, against.removeprefix(_LABEL)))
    else:
        found = _of_revision(usable, against.removeprefix(_GIT), head)
    if not found.groups:
        left_out = len(others) - len(usable)
        why = f"; {left_out} runs with uncommitted changes were left out" if left_out else ""
        raise CollectionError(f"{_nothing(against, found, head)}{why}", hint=_next(found, head))
    return found


def _nothing(against: str, found: Candidates, head: Sequence[Run]) -> str:
    """What was looked for in vain."""
    if found.merge_base is None:
        return f"no run but those in question has the label {against.removeprefix(_LABEL)!r}"
    short = found.merge_base[:12]
    if _is_at(head, found.merge_base):
        return f"the runs in question are of {short}, which {against} has: no older commit has runs"
    return f"no run to compare with was recorded at {short}, the merge-base with {against}, or before"


def _next(found: Candidates, head: Sequence[Run]) -> str:
    collect = "record runs there with `tracekit collect --repeat 5 ...`"
    if found.merge_base is None:
        return "record runs with `tracekit collect --repeat 5 --label ...`"
    if history.is_shallow():
        return f"this clone is shallow, so older commits are not known: `git fetch --unshallow`, or {collect}"
    if _is_at(head, found.merge_base):
        return "name the runs to check with --run git:REV or --label, or record an older commit"
    return f"check that commit out and {collect}"


def _is_at(head: Sequence[Run], sha: str) -> bool:
    return bool(head[0].meta.git and head[0].meta.git.sha == sha)


def _means_label(runs: Sequence[Run], against: str) -> bool:
    if against.startswith((_LABEL, _GIT)):
        return against.startswith(_LABEL)
    label = any(run.meta.label == against for run in runs)
    try:
        gitinfo.commit(against)
    except RunNotFoundError:
        if label:
            return True
        raise
    if label:
        raise UnusableInputError(
            f"{against!r} is a label of runs and a git revision", hint=f"say git:{against} or label:{against}"
        )
    return False


def _of_label(runs: Sequence[Run], label: str) -> tuple[Group, ...]:
    """The runs of a label by state of the code, the newest state first."""
    return tuple(
        Group(own, None) for own in reversed(_by_code(run for run in runs if run.meta.label == label))
    )


def _of_revision(runs: Sequence[Run], revision: str, head: Sequence[Run]) -> Candidates:
    state = head[0].meta.git
    if state is None:
        raise UnusableInputError(
            f"run {head[0].id} does not know its commit", hint="compare with a label: --against LABEL"
        )
    base = history.merge_base(gitinfo.commit(revision), state.sha)
    known = [run for run in runs if run.meta.git and not _is_of(state, run.meta.git)]
    nearest = history.nearest({run.meta.git.sha for run in known if run.meta.git}, base)
    places = {sha: place for place, (sha, _) in enumerate(nearest)}
    states = [(own, own[0].meta.git) for own in _by_code(known)]
    found = [(places[git.sha], _is_dirty(own[0]), own) for own, git in states if git and git.sha in places]
    found.sort(key=lambda one: one[:2])
    return Candidates(tuple(Group(own, nearest[place][1]) for place, _, own in found), base)


def _is_of(head: Git, other: Git) -> bool:
    """Whether runs are of the code in question, or of changes to the commit in question."""
    return code(other) == code(head) or (not head.dirty and other.sha == head.sha)


def _is_dirty(run: Run) -> bool:
    return bool(run.meta.git and run.meta.git.dirty)


def _by_code(runs: Iterable[Run]) -> list[tuple[Run, ...]]:
    found: dict[object, list[Run]] = {}
    for run in runs:
        found.setdefault(code(run.meta.git), []).append(run)
    return [tuple(own) for own in found.values()]


@dataclass(frozen=True)
class Baseline:
    """The runs chosen for one configuration; `equal` tells whether their fingerprints are the head's."""

    runs: tuple[Run, ...]
    distance: int | None
    equal: bool


def pick(
    of: Candidates, head: Run, free: Collection[str], *, least: int, taken: Collection[Run] = ()
) -> Baseline | None:
    """The baseline of one configuration.

    Args:
        of: Where to choose from.
        head: A run of the configuration.
        free: Fields that are declared to vary.
        least: Runs that a baseline should have.
        taken: One run of each other configuration of the head; what is alike to these is theirs.
    """
    equal = [(group, tuple(run for run in group.runs if alike(run, head, free))) for group in of.groups]
    for enough in (least, 1):
        for group, runs in equal:
            if len(runs) >= enough:
                return Baseline(runs, group.distance, equal=True)
    for group in of.groups:
        rest = [run for run in group.runs if kind(run) == kind(head)]
        rest = [run for run in rest if not any(alike(run, other, free) for other in taken)]
        if rest:
            closest = min(rest, key=lambda run: nearness(run, head, free))
            return Baseline(
                tuple(run for run in rest if alike(run, closest, free)), group.distance, equal=False
            )
    return None
