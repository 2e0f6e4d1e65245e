"""Select the runs to check, their configurations, and the baseline.

The runs to check are the selected ones, else all of the latest recorded commit. Against a revision, the
baseline is the nearest commit at or before the merge-base that has enough clean runs with an equal
fingerprint; else the nearest that has any; else the nearest with runs of the same workload, which are then
not comparable.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tracekit.diff.model import runs_of
from tracekit.errors import CollectionError, RunNotFoundError, UnusableInputError
from tracekit.experiments.options import CheckOptions as Options
from tracekit.runs import revisions
from tracekit.runs.meta import Git
from tracekit.runs.run import Run
from tracekit.runs.store import Store

_LABEL, _GIT = "label:", "git:"
_MODES = ("train", "infer")
NEXT = "record runs with `tracekit collect --repeat 5`"
Kind: TypeAlias = "tuple[Any, Any, Any]"
"""Workload, mode and device."""


def select_head(store: Store, references: Sequence[str], *, label: str | None = None) -> tuple[Run, ...]:
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
    head = _find_runs(store, runs, references, label) if references or label else _latest(runs)
    if not head:
        what = f"no run has the label {label!r}" if label else f"no run in {store.path} has a commit"
        raise CollectionError(what, hint=NEXT)
    if len({code(run.header.git) for run in head}) > 1:
        raise UnusableInputError(
            f"the {len(head)} runs of the head are of more than one commit, or of changes to it",
            hint="select runs of one commit with --run or --label",
        )
    return head


def code(git: Git | None) -> tuple[str, str | None] | None:
    """Identify the code of a run; None if unknown."""
    return (git.sha, git.diff_sha256) if git else None


def _find_runs(
    store: Store, runs: Sequence[Run], references: Sequence[str], label: str | None
) -> tuple[Run, ...]:
    selected = {run.path: run for run in runs if label and run.header.label == label}
    for reference in references:
        of_commit = reference.startswith(_GIT)
        named = _runs_of_commit(runs, reference) if of_commit else runs_of(store, reference)
        selected |= {run.path: run for run in named}
    return tuple(sorted(selected.values(), key=lambda run: (run.header.created_at, run.id)))


def _runs_of_commit(runs: Sequence[Run], reference: str) -> tuple[Run, ...]:
    sha = revisions.commit(reference.removeprefix(_GIT))
    named = tuple(run for run in runs if run.header.git and run.header.git.sha == sha)
    if not named:
        raise CollectionError(f"no runs at {reference} ({sha[:12]})", hint=NEXT)
    return named


def _latest(runs: Sequence[Run]) -> tuple[Run, ...]:
    newest = next((run for run in reversed(runs) if run.header.git), None)
    state = code(newest.header.git) if newest else None
    return tuple(run for run in runs if state and code(run.header.git) == state)


def command(
    against: str, head: Sequence[Run], stored: Sequence[Run], options: Options, *, merge_base: str | None
) -> tuple[str, ...]:
    """Return the command that repeats the check, with commit ids in place of branches.

    Args:
        against: The requested revision or label.
        head: Runs of the head.
        stored: All runs of the store.
        options: Options of the check.
        merge_base: Merge-base of the head and the revision; None for a label.
    """
    plain = Options()
    words = ["tracekit", "check", "--against", f"git:{merge_base[:12]}" if merge_base else against]
    words += ["--threshold", f"{100 * options.threshold:g}%"]
    words += ["--metric", ",".join(options.metrics)] if options.metrics != plain.metrics else []
    words += [word for field in options.varying for word in ("--varying", field)]
    words += ["--min-runs", str(options.least)] if options.least != plain.least else []
    words += ["--byte-tolerance", str(options.tolerance)] if options.tolerance != plain.tolerance else []
    words += ["--allow-dirty"] if options.allow_dirty else []
    words += ["--on-unknown", options.on_unknown] if options.on_unknown != plain.on_unknown else []
    words += ["--allow-missing-baseline"] if options.allow_missing_baseline else []
    state = head[0].header.git
    same = [run for run in stored if state and run.header.git and run.header.git.sha == state.sha]
    if state and not state.dirty and len(same) == len(head):
        return (*words, "--run", f"git:{state.sha[:12]}")
    return (*words, *(word for run in head for word in ("--run", run.id)))


def kind(run: Run) -> Kind:
    """Return workload, mode and device of a run."""
    workload, mode, device = (run.header.fingerprint.get(name) for name in ("workload", "mode", "device"))
    return workload, mode, device


def describe(of: Kind) -> str:
    """Format a kind.

    Example:
        >>> describe(("resnet50", "train", "cuda")), describe((None, None, "cpu"))
        ('resnet50 train cuda', 'unnamed cpu')
    """
    return " ".join(str(part) for part in (of[0] or "unnamed", *of[1:]) if part is not None)


def compare_fields(a: Run, b: Run, free: Collection[str]) -> list[str]:
    """Return the fields of the fingerprint in which two runs differ; a field that one lacks is none.

    Args:
        a: A run.
        b: Another run.
        free: Fields whose difference is ignored.
    """
    left, right = a.header.fingerprint, b.header.fingerprint
    common = [name for name in left.keys() & right.keys() if name not in free]
    return [name for name in common if None not in (left[name], right[name]) and left[name] != right[name]]


def names(configurations: Sequence[Sequence[Run]]) -> list[str]:
    """Name the configurations; those of one kind also by the fields that differ."""
    first = [runs[0] for runs in configurations]
    return [_name(run, [other for other in first if kind(other) == kind(run)]) for run in first]


def _name(run: Run, same_kind: Sequence[Run]) -> str:
    prints = [other.header.fingerprint for other in same_kind]
    names = {name for fields in prints for name in fields}
    differing = sorted(name for name in names if len({repr(fields.get(name)) for fields in prints}) > 1)
    fields = run.header.fingerprint
    return ", ".join([describe(kind(run)), *(f"{name} {fields.get(name)}" for name in differing)])


def find_unmeasured(head: Sequence[Run], base: Sequence[Run]) -> tuple[str, ...]:
    """Return the combinations of mode and device that were not measured.

    Only for workloads that the head has, where mode and device are known.
    """
    measured = {kind(run) for run in (*head, *base)}
    workloads = {kind(run)[0] for run in head if None not in kind(run)}
    gpu = any(device == "cuda" for *_, device in measured) or any(
        run.meta.environment.get("gpus") for run in head
    )
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    wanted = {(name, mode, device) for name in workloads for mode in _MODES for device in devices}
    return tuple(sorted(map(describe, wanted - measured)))


@dataclass(frozen=True)
class Group:
    """Runs of one code state, and its distance before the merge-base; None for a label."""

    runs: tuple[Run, ...]
    distance: int | None


@dataclass(frozen=True)
class Candidates:
    """Candidate baselines, nearest first, or why there is none; `merge_base` is None for a label."""

    groups: tuple[Group, ...]
    merge_base: str | None = None
    missing: str = ""


def find_candidates(store: Store, against: str, head: Sequence[Run], *, allow_dirty: bool) -> Candidates:
    """Find the candidate baselines of a head.

    Args:
        store: Store of the runs.
        against: A label or a git revision, optionally prefixed with `label:` or `git:`.
        head: Runs of the head, all of one code state.
        allow_dirty: Whether to include runs with uncommitted changes.

    Raises:
        CollectionError: No run fits, and the clone lacks older commits, of which some may.
        RunNotFoundError: It is neither a label nor a revision.
        UnusableInputError: It is both, or the head's commit is unknown.
    """
    of_head = {run.path for run in head}
    others = [run for run in store.readable() if run.path not in of_head]
    usable = [run for run in others if allow_dirty or not (run.header.git and run.header.git.dirty)]
    if _means_label(others, against):
        label = against.removeprefix(_LABEL)
        states = _by_code(run for run in usable if run.header.label == label)
        candidates = Candidates(tuple(Group(runs, None) for runs in reversed(states)))  # newest first
    else:
        candidates = _of_revision(usable, against.removeprefix(_GIT), head)
    if not candidates.groups:
        left_out = len(others) - len(usable)
        why = f"; {left_out} runs with uncommitted changes were skipped" if left_out else ""
        message, hint = _explain_missing(against, candidates.merge_base, head)
        if candidates.merge_base and revisions.is_shallow():
            collect = "record runs there with `tracekit collect --repeat 5 ...`"
            hint = f"this clone is shallow and lacks older commits: run `git fetch --unshallow`, or {collect}"
            raise CollectionError(f"{message}{why}", hint=hint)
        return replace(candidates, missing=f"{message}{why}; {hint}")
    return candidates


def _explain_missing(against: str, merge_base: str | None, head: Sequence[Run]) -> tuple[str, str]:
    """Return a message about the missing baseline, and what to do."""
    if merge_base is None:
        return (
            f"no other run has the label {against.removeprefix(_LABEL)!r}",
            "record runs with `tracekit collect --repeat 5 --label ...`",
        )
    short = merge_base[:12]
    message = f"no runs at or before {short}, the merge-base with {against}"
    hint = "check that commit out and record runs there, alternating with the head"
    if head[0].header.git and head[0].header.git.sha == merge_base:
        message = f"the checked runs are of {short}, which is part of {against}, and no older commit has runs"
        hint = "select the runs to check with --run git:REV or --label, or record an older commit"
    return message, hint


def _means_label(runs: Sequence[Run], against: str) -> bool:
    if against.startswith((_LABEL, _GIT)):
        return against.startswith(_LABEL)
    label = any(run.header.label == against for run in runs)
    try:
        revisions.commit(against)
    except RunNotFoundError:
        if label:
            return True
        raise
    if label:
        raise UnusableInputError(
            f"{against!r} is both a label and a git revision", hint=f"use git:{against} or label:{against}"
        )
    return False


def _of_revision(runs: Sequence[Run], revision: str, head: Sequence[Run]) -> Candidates:
    state = head[0].header.git
    if state is None:
        raise UnusableInputError(
            f"run {head[0].id} has no commit", hint="compare with a label: --against LABEL"
        )
    merge_base = revisions.merge_base(revisions.commit(revision), state.sha)
    # Runs of the head's commit are no baseline, unless the head has changes on top of it.
    others = [
        run
        for run in runs
        if (git := run.header.git) and code(git) != code(state) and (state.dirty or git.sha != state.sha)
    ]
    nearest = revisions.nearest({run.header.git.sha for run in others if run.header.git}, merge_base)
    places = {sha: place for place, (sha, _) in enumerate(nearest)}
    states = [(group, group[0].header.git) for group in _by_code(others)]
    ordered = sorted(
        ((places[git.sha], git.dirty, group) for group, git in states if git and git.sha in places),
        key=lambda entry: entry[:2],
    )
    return Candidates(tuple(Group(group, nearest[place][1]) for place, _, group in ordered), merge_base)


def _by_code(runs: Iterable[Run]) -> list[tuple[Run, ...]]:
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault(code(run.header.git), []).append(run)
    return [*map(tuple, groups.values())]


@dataclass(frozen=True)
class Baseline:
    """The baseline of a configuration; `equal` tells whether the fingerprints match the head's."""

    runs: tuple[Run, ...]
    distance: int | None
    equal: bool


def pick(
    of: Candidates, head: Run, free: Collection[str], *, least: int, others: Collection[Run] = ()
) -> Baseline | None:
    """Choose the baseline of a configuration.

    Args:
        of: Candidates.
        head: A run of the configuration.
        free: Fields whose difference is ignored.
        least: Runs a baseline should have.
        others: A run of each other configuration of the head; runs that are equal to these are excluded.
    """

    def equal_to(run: Run, runs: Iterable[Run]) -> tuple[Run, ...]:
        return tuple(other for other in runs if not compare_fields(other, run, free))

    equal = [(group.distance, equal_to(head, group.runs)) for group in of.groups]
    for enough in (least, 1):
        for distance, runs in equal:
            if len(runs) >= enough:
                return Baseline(runs, distance, equal=True)
    for group in of.groups:
        rest = [run for run in group.runs if kind(run) == kind(head) and not equal_to(run, others)]
        if rest:
            closest = min(rest, key=lambda run: len(compare_fields(run, head, free)))
            return Baseline(equal_to(closest, rest), group.distance, equal=False)
    return None
