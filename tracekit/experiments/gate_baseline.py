"""Select the runs to check, their configurations, and the baseline.

The runs to check are the selected ones, else all of the latest recorded commit. Against a revision, the
baseline is the nearest commit at or before the merge-base that has enough clean runs with an equal
fingerprint; else the nearest that has any; else the nearest with runs of the same workload, which are then
not comparable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.errors import CollectionError, RunNotFoundError, UnusableInputError
from tracekit.experiments.gate_model import Options
from tracekit.runs import revisions
from tracekit.runs.meta import Git

if TYPE_CHECKING:
    from tracekit.diff.model import Comparability
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store
    from tracekit.storage import Place


_HEAD_GIT = "git:"
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
    if len({code(run.header.git) for run in found}) > 1:
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
    from tracekit.diff.model import runs_of

    named: dict[Place, Run] = {}
    for reference in references:
        found = _of_commit(runs, reference) if reference.startswith(_HEAD_GIT) else runs_of(store, reference)
        named |= {run.path: run for run in found}
    if label:
        named |= {run.path: run for run in runs if run.header.label == label}
    return tuple(sorted(named.values(), key=lambda run: (run.header.created_at, run.id)))


def _of_commit(runs: Sequence[Run], reference: str) -> tuple[Run, ...]:
    sha = revisions.commit(reference.removeprefix(_HEAD_GIT))
    found = tuple(run for run in runs if run.header.git and run.header.git.sha == sha)
    if not found:
        raise CollectionError(f"no runs at {reference} ({sha[:12]})", hint=NEXT)
    return found


def _latest(runs: Sequence[Run]) -> tuple[Run, ...]:
    newest = next((run for run in reversed(runs) if run.header.git), None)
    state = code(newest.header.git) if newest else None
    return tuple(run for run in runs if state and code(run.header.git) == state)


def command(
    against: str, head: Sequence[Run], stored: Sequence[Run], options: Options, *, merge_base: str | None
) -> tuple[str, ...]:
    """Return the command that repeats the check, with commit ids in place of branches."""
    plain = Options()
    words = ["tracekit", "check", "--against", f"git:{merge_base[:12]}" if merge_base else against]
    words += ["--threshold", f"{100 * options.threshold:g}%"]
    words += ["--metric", ",".join(options.metrics)] if options.metrics != plain.metrics else []
    words += [word for field in options.varying for word in ("--varying", field)]
    words += ["--min-runs", str(options.least)] if options.least != plain.least else []
    words += ["--byte-tolerance", str(options.tolerance)] if options.tolerance != plain.tolerance else []
    words += ["--allow-dirty"] if options.allow_dirty else []
    return (*words, *(word for name in _heads(head, stored) for word in ("--run", name)))


def _heads(head: Sequence[Run], stored: Sequence[Run]) -> tuple[str, ...]:
    """Return references to the runs of the head; a single one if they are all runs of a commit."""
    state = head[0].header.git
    same = [run for run in stored if state and run.header.git and run.header.git.sha == state.sha]
    if state and not state.dirty and len(same) == len(head):
        return (f"git:{state.sha[:12]}",)
    return tuple(run.id for run in head)


Kind: TypeAlias = "tuple[Any, Any, Any]"
"""Workload, mode and device."""
_KIND = ("workload", "mode", "device")
_MODES = ("train", "infer")


def kind(run: Run) -> Kind:
    """Return workload, mode and device of a run."""
    workload, mode, device = (run.header.fingerprint.get(name) for name in _KIND)
    return workload, mode, device


def describe(of: Kind) -> str:
    """Format a kind.

    Example:
        >>> describe(("resnet50", "train", "cuda")), describe((None, None, "cpu"))
        ('resnet50 train cuda', 'unnamed cpu')
    """
    return " ".join(str(one) for one in (of[0] or "unnamed", *of[1:]) if one is not None)


def alike(a: Run, b: Run, free: Collection[str]) -> bool:
    """Tell whether fingerprints match in all fields but the ignored; a missing field matches."""
    return not _apart(a.header.fingerprint, b.header.fingerprint, free)


def nearness(a: Run, b: Run, free: Collection[str]) -> int:
    """Count the fields in which two runs differ."""
    return len(_apart(a.header.fingerprint, b.header.fingerprint, free))


def _apart(a: dict[str, Any], b: dict[str, Any], free: Collection[str]) -> list[str]:
    return [name for name in a.keys() & b.keys() if name not in free and _differ(a[name], b[name])]


def _differ(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a != b


def groups(runs: Iterable[Run], free: Collection[str]) -> list[tuple[Run, ...]]:
    """Group runs by configuration: equal in all fields of the fingerprint that are not ignored."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        fields = {name: value for name, value in run.header.fingerprint.items() if name not in free}
        found.setdefault(repr(sorted(fields.items(), key=str)), []).append(run)
    return [tuple(own) for own in found.values()]


def names(of: Sequence[Sequence[Run]]) -> list[str]:
    """Name the configurations; those of one kind also by the fields that differ."""
    first = [own[0] for own in of]
    return [_name(run, [other for other in first if kind(other) == kind(run)]) for run in first]


def _name(run: Run, same_kind: Sequence[Run]) -> str:
    prints = [one.header.fingerprint for one in same_kind]
    fields = sorted(
        {name for each in prints for name in each if len({repr(p.get(name)) for p in prints}) > 1}
    )
    return ", ".join(
        [describe(kind(run)), *(f"{name} {run.header.fingerprint.get(name)}" for name in fields)]
    )


def unmeasured(head: Sequence[Run], base: Sequence[Run]) -> tuple[str, ...]:
    """Return the combinations of mode and device that were not measured.

    Only for workloads that the head has, where mode and device are known.
    """
    known = {kind(run) for run in (*head, *base)}
    workloads = {kind(run)[0] for run in head if None not in kind(run)}
    gpu = any(device == "cuda" for *_, device in known) or any(
        run.meta.environment.get("gpus") for run in head
    )
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    wanted = {(name, mode, device) for name in workloads for mode in _MODES for device in devices}
    return tuple(sorted(describe(one) for one in wanted - known))


def differences(base: Run, head: Run, varying: Sequence[str]) -> Comparability:
    """Return the differences of two runs, including the input shapes of ops."""
    from tracekit.diff import engine, spans

    a, b = spans.shared(base, head)
    return engine.compare(base, head, (spans.read(base, a), spans.read(head, b)), varying=varying)


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
        label = against.removeprefix(_LABEL)
        states = reversed(_by_code(run for run in usable if run.header.label == label))  # newest first
        found = Candidates(tuple(Group(own, None) for own in states))
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
    if revisions.is_shallow():
        return f"this clone is shallow and lacks older commits: run `git fetch --unshallow`, or {collect}"
    if _is_at(head, found.merge_base):
        return "select the runs to check with --run git:REV or --label, or record an older commit"
    return f"check that commit out and {collect}"


def _is_at(head: Sequence[Run], sha: str) -> bool:
    return bool(head[0].header.git and head[0].header.git.sha == sha)


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
    base = revisions.merge_base(revisions.commit(revision), state.sha)
    known = [run for run in runs if run.header.git and not _is_of(state, run.header.git)]
    nearest = revisions.nearest({run.header.git.sha for run in known if run.header.git}, base)
    places = {sha: place for place, (sha, _) in enumerate(nearest)}
    states = [(own, own[0].header.git) for own in _by_code(known)]
    found = [(places[git.sha], _is_dirty(own[0]), own) for own, git in states if git and git.sha in places]
    found.sort(key=lambda one: one[:2])
    return Candidates(tuple(Group(own, nearest[place][1]) for place, _, own in found), base)


def _is_of(head: Git, other: Git) -> bool:
    """Tell whether runs are of the head's commit, with or without changes."""
    return code(other) == code(head) or (not head.dirty and other.sha == head.sha)


def _is_dirty(run: Run) -> bool:
    return bool(run.header.git and run.header.git.dirty)


def _by_code(runs: Iterable[Run]) -> list[tuple[Run, ...]]:
    found: dict[object, list[Run]] = {}
    for run in runs:
        found.setdefault(code(run.header.git), []).append(run)
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
