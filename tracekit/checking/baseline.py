"""Baseline runs of a head.

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
    """Runs of one code state, and its distance before the merge-base; None for a label."""

    runs: tuple[Run, ...]
    distance: int | None


@dataclass(frozen=True)
class Candidates:
    """Candidate baselines, nearest first; `merge_base` is None for a label."""

    groups: tuple[Group, ...]
    merge_base: str | None = None


def candidates(store: Store, against: str, head: Sequence[Run], *, allow_dirty: bool) -> Candidates:
    """Find the candidate baselines of a head.

    Args:
        store: Store of the runs.
        against: A label or a git revision, optionally prefixed with `label:` or `git:`.
        head: Runs of the head, all of one code state.
        allow_dirty: Whether to include runs with uncommitted changes.

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
        why = f"; {left_out} runs with uncommitted changes were skipped" if left_out else ""
        raise CollectionError(f"{_nothing(against, found, head)}{why}", hint=_next(found, head))
    return found


def _nothing(against: str, found: Candidates, head: Sequence[Run]) -> str:
    """Describe the missing baseline."""
    if found.merge_base is None:
        return f"no other run has the label {against.removeprefix(_LABEL)!r}"
    short = found.merge_base[:12]
    if _is_at(head, found.merge_base):
        return f"the checked runs are of {short}, which is part of {against}, and no older commit has runs"
    return f"no baseline: no runs at or before {short}, the merge-base with {against}"


def _next(found: Candidates, head: Sequence[Run]) -> str:
    collect = "record runs there with `tracekit collect --repeat 5 ...`"
    if found.merge_base is None:
        return "record runs with `tracekit collect --repeat 5 --label ...`"
    if history.is_shallow():
        return f"this clone is shallow and lacks older commits: run `git fetch --unshallow`, or {collect}"
    if _is_at(head, found.merge_base):
        return "select the runs to check with --run git:REV or --label, or record an older commit"
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
            f"{against!r} is both a label and a git revision", hint=f"use git:{against} or label:{against}"
        )
    return False


def _of_label(runs: Sequence[Run], label: str) -> tuple[Group, ...]:
    """Return the runs of a label by code state, newest first."""
    return tuple(
        Group(own, None) for own in reversed(_by_code(run for run in runs if run.meta.label == label))
    )


def _of_revision(runs: Sequence[Run], revision: str, head: Sequence[Run]) -> Candidates:
    state = head[0].meta.git
    if state is None:
        raise UnusableInputError(
            f"run {head[0].id} has no commit", hint="compare with a label: --against LABEL"
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
    """Tell whether runs are of the head's commit, with or without changes."""
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
    """The baseline of a configuration; `equal` tells whether the fingerprints match the head's."""

    runs: tuple[Run, ...]
    distance: int | None
    equal: bool


def pick(
    of: Candidates, head: Run, free: Collection[str], *, least: int, taken: Collection[Run] = ()
) -> Baseline | None:
    """Choose the baseline of a configuration.

    Args:
        of: Candidates.
        head: A run of the configuration.
        free: Fields whose difference is ignored.
        least: Runs a baseline should have.
        taken: A run of each other configuration of the head; runs closer to these are excluded.
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
