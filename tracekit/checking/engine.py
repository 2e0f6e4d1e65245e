"""Engine of `tracekit check`: compares a head with its baseline, by configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit import gitinfo
from tracekit.checking import baseline, causes, configuration, heads, judge, reproduce
from tracekit.checking.model import Configuration, Gate, Options, Outcome, Side
from tracekit.diff.comparability import declared
from tracekit.diff.model import Status
from tracekit.errors import RunNotFoundError
from tracekit.measuring.metrics import DEVICE_PEAK
from tracekit.stats.multiple import gate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.checking.baseline import Baseline, Candidates
    from tracekit.checking.judge import Judged
    from tracekit.run import Run
    from tracekit.store import Store


def check(
    store: Store,
    against: str,
    *,
    runs: Sequence[str] = (),
    label: str | None = None,
    options: Options | None = None,
) -> Gate:
    """Check the runs of a head against the runs of its baseline.

    Args:
        store: Store of both.
        against: A git revision or a label.
        runs: Runs to check; by default all of the latest recorded commit.
        label: Check all runs of this label instead.
        options: Metrics, threshold and ignored differences.

    Raises:
        CollectionError: There is no run of one side.
        RunNotFoundError: Something named is unknown.
        UnusableInputError: Runs of several commits were named, or a field is unknown.

    Example:
        >>> check(store, "main").exit_code  # doctest: +SKIP
        <ExitCode.OK: 0>
    """
    options = options or Options()
    free = declared(options.varying)
    head = heads.chosen(store, runs, label=label)
    candidates = baseline.candidates(store, against, head, allow_dirty=options.allow_dirty)
    asked = _Asked(candidates, free, options, tuple(store.readable()))
    groups = configuration.groups(head, free)
    names = configuration.names(groups)
    found = [_configuration(own, name, groups, asked) for own, name in zip(groups, names, strict=True)]
    judged = _judged_together(found)
    if options.explain:
        judged = causes.explained(judged, {run.id: run for run in (*asked.stored, *head)}, options)
    return Gate(
        against=against,
        merge_base=candidates.merge_base,
        threshold=options.threshold,
        configurations=judged,
        missing=_missing(candidates, judged, head),
        unmeasured=configuration.unmeasured(head, asked.base),
        notes=() if runs or label else _checked_out(head[0]),
        varying=options.varying,
        command=reproduce.command(against, head, asked.stored, options, merge_base=candidates.merge_base),
    )


@dataclass(frozen=True)
class _Asked:
    candidates: Candidates
    free: frozenset[str]
    options: Options
    stored: tuple[Run, ...]

    @property
    def base(self) -> tuple[Run, ...]:
        """All runs of candidate baselines."""
        return tuple(run for group in self.candidates.groups for run in group.runs)


def _configuration(
    head: tuple[Run, ...], name: str, groups: Sequence[tuple[Run, ...]], asked: _Asked
) -> Configuration:
    others = [own[0] for own in groups if own is not head]
    chosen = baseline.pick(asked.candidates, head[-1], asked.free, least=asked.options.least, taken=others)
    workload, mode, device = configuration.kind(head[0])
    plain = Configuration(name, workload, mode, device, Outcome.NO_BASELINE, _side(head))
    return _against(plain, head, chosen, asked) if chosen else plain


def _against(plain: Configuration, head: tuple[Run, ...], chosen: Baseline, asked: _Asked) -> Configuration:
    comparability = configuration.differences(chosen.runs[-1], head[-1], asked.options.varying)
    found = replace(
        plain,
        base=_side(chosen.runs, chosen.distance),
        differences=comparability.differences,
        notes=_notes(chosen, asked),
    )
    if not chosen.equal or comparability.status is Status.NOT_COMPARABLE:
        return replace(found, outcome=Outcome.NOT_COMPARABLE)
    judged = judge.compared(chosen.runs, head, asked.stored, asked.options)
    return replace(
        found,
        outcome=Outcome.COMPARED,
        comparisons=judged.comparisons,
        notes=(*found.notes, *judged.notes, *_nowhere(plain, judged, asked.options)),
        one_sided=judged.one_sided,
    )


def _nowhere(each: Configuration, judged: Judged, options: Options) -> tuple[str, ...]:
    """Return requested metrics missing on both sides, except device metrics on a CPU."""
    known = {*(one.name for one in judged.comparisons), *judged.one_sided}
    on_cpu = {DEVICE_PEAK} if each.device == "cpu" and judged.comparisons else set()
    names = [name for name in options.metrics if name not in known | on_cpu]
    return (f"{', '.join(names)} not measured on either side",) if names else ()


def _notes(chosen: Baseline, asked: _Asked) -> tuple[str, ...]:
    found, least = [], asked.options.least
    of_revision = asked.candidates.merge_base is not None
    if chosen.equal and len(chosen.runs) < least:
        where = "ancestor" if of_revision else "commit of that label"
        found.append(f"no {where} has {least} runs of this configuration; the baseline has fewer")
    if chosen.distance:
        distance = f"{chosen.distance} commit{'s' * (chosen.distance != 1)} before the merge-base"
        found.append(f"the baseline is {distance}; changes of these commits are included")
    if not of_revision and (others := len(asked.candidates.groups) - 1):
        found.append(f"the label has runs of {others} more code state{'s' * (others != 1)}, skipped")
    return tuple(found)


def _side(runs: Sequence[Run], distance: int | None = None) -> Side:
    meta = runs[-1].meta
    return Side(
        runs=tuple(run.id for run in runs),
        commit=meta.git.sha if meta.git else None,
        dirty=bool(meta.git and meta.git.dirty),
        distance=distance,
        command=tuple(meta.command),
    )


def _judged_together(found: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """Apply Holm's correction over all metrics of all configurations."""
    judged = iter(gate([one for each in found for one in each.comparisons]))
    return tuple(replace(each, comparisons=tuple(next(judged) for _ in each.comparisons)) for each in found)


def _missing(candidates: Candidates, judged: Sequence[Configuration], head: Sequence[Run]) -> tuple[str, ...]:
    """Return configurations measured at the baselines, but not at the head."""
    used = {run for each in judged if each.base for run in each.base.runs}
    groups = candidates.groups
    last = max((at for at, group in enumerate(groups) if used & {run.id for run in group.runs}), default=0)
    base = {configuration.kind(run) for group in groups[: last + 1] for run in group.runs}
    return tuple(sorted(configuration.told(one) for one in base - {configuration.kind(run) for run in head}))


def _checked_out(run: Run) -> tuple[str, ...]:
    """Warn if the latest recorded commit is not the one checked out."""
    try:
        now = gitinfo.commit("HEAD")
    except RunNotFoundError:
        return ()
    if run.meta.git is None or run.meta.git.sha == now:
        return ()
    latest = run.meta.git.sha[:12]
    return (
        f"checked {latest}, the commit recorded last; use --run git:HEAD for {now[:12]}, now checked out",
    )
