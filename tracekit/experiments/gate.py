"""Gate (`tracekit check`): compare the runs of a head with a baseline, per configuration.

Slower configurations get causes from the profiles of both sides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.diff import noise as noises
from tracekit.diff.engine import declared
from tracekit.diff.model import Status
from tracekit.diff.noise import clock
from tracekit.errors import RunNotFoundError, TracekitError
from tracekit.experiments import gate_baseline
from tracekit.experiments.gate_baseline import Baseline, Candidates
from tracekit.experiments.gate_model import Configuration, Gate, Options, Outcome, Side
from tracekit.runs import conditions, revisions
from tracekit.runs.conditions import Conditions
from tracekit.runs.metrics import (
    DEVICE_PEAK,
    EXACT,
    METRICS,
    SETTINGS,
    STEP_TIME,
    of_run,
    timed_steps,
    timing_settings,
)
from tracekit.runs.run import Run
from tracekit.runs.text import shorten
from tracekit.stats import samples
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison, Verdict
from tracekit.stats.samples import at_their_clocks
from tracekit.stats.tests import compare_exact, gate

if TYPE_CHECKING:
    from tracekit.runs.store import Store

__all__ = ["Gate", "Options", "check"]


MOST = 4
"""Maximum number of explained configurations, those that slowed down most."""


def explained(
    found: Sequence[Configuration], runs: Mapping[str, Run], options: Options
) -> tuple[Configuration, ...]:
    """Add comparisons of the profiles to the configurations with slower steps.

    Args:
        found: All configurations with their verdicts.
        runs: The runs of both sides by id.
        options: Ignored differences, and the threshold.
    """
    slower = {each.name: ratio for each in found if (ratio := _slower(each)) and each.base}
    worst = sorted(slower, key=lambda name: (-slower[name], name))[:MOST]
    return tuple(_explained(each, runs, options) if each.name in worst else each for each in found)


def _slower(each: Configuration) -> float | None:
    worse = (one for one in each.comparisons if one.verdict is Verdict.REGRESSION)
    return next((one.ratio for one in worse if one.name == STEP_TIME), None)


def _explained(each: Configuration, runs: Mapping[str, Run], options: Options) -> Configuration:
    from tracekit.diff import Options as How
    from tracekit.diff import diff

    base, head = ([runs[one] for one in side.runs] if side else [] for side in (each.base, each.head))
    how = How(varying=options.varying, threshold=options.threshold, explain=False)
    try:
        found = diff(base, head, options=how)
    except TracekitError as error:
        return replace(each, notes=(*each.notes, f"causes unavailable: {error.message}"))
    if found.work is None:
        refused = ", ".join(one.field for one in found.comparability.refused)
        why = f"causes unavailable: the profiles differ in {refused}"
        return replace(each, notes=(*each.notes, why))
    return replace(each, explained=found)


def values(run: Run) -> dict[str, float]:
    """Return medians and peaks of a run, without missing and zero values."""
    return {name: value for name, value in of_run(run).items() if value}


APART = (
    "all runs of one side are older than those of the other, so machine drift looks like a change; "
    "`tracekit ab` alternates them"
)


@dataclass(frozen=True)
class Judged:
    """Comparisons, notes on them, and the metrics measured on one side only."""

    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]
    one_sided: tuple[str, ...]


def compared(base: Sequence[Run], head: Sequence[Run], stored: Sequence[Run], options: Options) -> Judged:
    """Compare two sides in all metrics that both have.

    Args:
        base: Runs of the baseline, oldest first.
        head: Runs to check, oldest first.
        stored: All runs of the store; their repeats give the noise if a side has none.
        options: Metrics, threshold and tolerance.
    """
    place = {run.path: float(at) for at, run in enumerate(stored)}
    times = [[place.get(run.path, math.inf) for run in own] for own in (base, head)]
    order = samples.pairs(*times)
    if order:
        base, head = [base[at] for at in order[0]], [head[at] for at in order[1]]
    found = [conditions.of_run(run) for run in base], [conditions.of_run(run) for run in head]
    measured = [values(run) for run in base], [values(run) for run in head]
    sides = _Sides(base, head, stored, options, found, measured, paired=bool(order))
    lacking = {name: _sidedness(sides, name) for name in options.metrics}
    clocks = {clock(run) for run in (*base, *head)} - {None}
    notes = [APART] if samples.apart(*times) else []
    if len(clocks) > 1 and STEP_TIME in lacking:
        lacking[STEP_TIME] = "base and head were timed by different clocks"
    reasons = {name: why for name, why in lacking.items() if why}
    return Judged(
        tuple(_one(name, sides) for name in options.metrics if not lacking[name]),
        (
            *notes,
            *conditions.warnings(*found),
            *(() if lacking.get(STEP_TIME, NEITHER) else _timing(base, head)),
            *(f"{name}: {why}" for name, why in reasons.items() if why != NEITHER),
        ),
        tuple(name for name, why in reasons.items() if why != NEITHER),
    )


FEW_STEPS = 3
"""Timed steps below which the median of a run says little."""
NAME = 40
"""Characters of a setting's value, which may be anything in a stored run."""


def _timing(base: Sequence[Run], head: Sequence[Run]) -> tuple[str, ...]:
    """Say which runs were timed with other settings than others, and whether few steps were timed."""
    sides = [[run for run in own if timed_steps(run)] for own in (base, head)]
    runs = [run for own in sides for run in own]
    found = []
    for name in SETTINGS:
        counts = [Counter(shorten(str(timing_settings(run)[name]), NAME) for run in own) for own in sides]
        if len({value for own in counts for value in own}) > 1:
            found.append(
                f"step_time: {name} was {_spread(*counts)}, so that part of a difference may come of it"
            )
    fewest = min((timed_steps(run) for run in runs), default=FEW_STEPS)
    if fewest < FEW_STEPS:
        only = f"{fewest} step{'s' * (fewest != 1)}"
        found.append(f"step_time: in some runs the median of only {only}; record more steps")
    return tuple(found)


def _spread(base: Counter[str], head: Counter[str]) -> str:
    """List the values of a setting with the number of runs of each side."""
    texts = []
    for value in sorted(base.keys() | head.keys()):
        sides = (("base", base[value]), ("head", head[value]))
        where = " and ".join(f"{count} {side} run{'s' * (count != 1)}" for side, count in sides if count)
        texts.append(f"{'unknown' if value == 'None' else value} in {where}")
    return ", ".join(texts)


NEITHER = "not measured on either side"


@dataclass(frozen=True)
class _Sides:
    base: Sequence[Run]
    head: Sequence[Run]
    stored: Sequence[Run]
    options: Options
    conditions: tuple[Sequence[Conditions], Sequence[Conditions]]
    measured: tuple[Sequence[Mapping[str, float]], Sequence[Mapping[str, float]]]
    paired: bool

    def values(self, name: str) -> tuple[list[float | None], list[float | None]]:
        a, b = ([one.get(name) for one in own] for own in self.measured)
        return a, b

    @property
    def clocks(self) -> tuple[list[float | None], list[float | None]]:
        a, b = ([one.clock_mhz for one in own] for own in self.conditions)
        return a, b


def _sidedness(sides: _Sides, name: str) -> str:
    """Return why a metric cannot be compared; empty if it can."""
    a, b = (any(one is not None for one in values) for values in sides.values(name))
    if a and b:
        return ""
    return f"not measured in any {'head' if a else 'base'} run" if a or b else NEITHER


def _one(name: str, sides: _Sides) -> Comparison:
    a, b = sides.values(name)
    metric, options = METRICS[name], sides.options
    if name in EXACT:
        return compare_exact(metric, a, b, threshold=options.threshold, tolerance=options.tolerance)
    fewest = min(sum(one is not None for one in values) for values in (a, b))
    noise = noises.known(name, (sides.base[-1], sides.head[-1]), sides.stored) if fewest == 1 else None
    found = compare(metric, a, b, paired=sides.paired, noise=noise, threshold=options.threshold)
    return at_their_clocks(found, (a, b), sides.clocks, noise=noise) if name == STEP_TIME else found


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
    head = gate_baseline.chosen(store, runs, label=label)
    candidates = gate_baseline.candidates(store, against, head, allow_dirty=options.allow_dirty)
    asked = _Asked(candidates, free, options, tuple(store.readable()))
    groups = gate_baseline.groups(head, free)
    names = gate_baseline.names(groups)
    found = [_configuration(own, name, groups, asked) for own, name in zip(groups, names, strict=True)]
    judged = _judged_together(found)
    if options.explain:
        judged = explained(judged, {run.id: run for run in (*asked.stored, *head)}, options)
    return Gate(
        against=against,
        merge_base=candidates.merge_base,
        threshold=options.threshold,
        configurations=judged,
        missing=_missing(candidates, judged, head),
        unmeasured=gate_baseline.unmeasured(head, asked.base),
        notes=() if runs or label else _checked_out(head[0]),
        varying=options.varying,
        command=gate_baseline.command(against, head, asked.stored, options, merge_base=candidates.merge_base),
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
    chosen = gate_baseline.pick(
        asked.candidates, head[-1], asked.free, least=asked.options.least, taken=others
    )
    workload, mode, device = gate_baseline.kind(head[0])
    plain = Configuration(name, workload, mode, device, Outcome.NO_BASELINE, _side(head))
    return _against(plain, head, chosen, asked) if chosen else plain


def _against(plain: Configuration, head: tuple[Run, ...], chosen: Baseline, asked: _Asked) -> Configuration:
    comparability = gate_baseline.differences(chosen.runs[-1], head[-1], asked.options.varying)
    found = replace(
        plain,
        base=_side(chosen.runs, chosen.distance),
        differences=comparability.differences,
        notes=_notes(chosen, asked),
    )
    if not chosen.equal or comparability.status is Status.NOT_COMPARABLE:
        return replace(found, outcome=Outcome.NOT_COMPARABLE)
    judged = compared(chosen.runs, head, asked.stored, asked.options)
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
    steps = [count for run in runs if (count := timed_steps(run))]
    return Side(
        runs=tuple(run.id for run in runs),
        commit=meta.git.sha if meta.git else None,
        dirty=bool(meta.git and meta.git.dirty),
        distance=distance,
        command=tuple(meta.command),
        timed_steps=(min(steps), max(steps)) if steps else None,
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
    base = {gate_baseline.kind(run) for group in groups[: last + 1] for run in group.runs}
    return tuple(
        sorted(gate_baseline.describe(one) for one in base - {gate_baseline.kind(run) for run in head})
    )


def _checked_out(run: Run) -> tuple[str, ...]:
    """Warn if the latest recorded commit is not the one checked out."""
    try:
        now = revisions.commit("HEAD")
    except RunNotFoundError:
        return ()
    if run.meta.git is None or run.meta.git.sha == now:
        return ()
    latest = run.meta.git.sha[:12]
    return (
        f"checked {latest}, the commit recorded last; use --run git:HEAD for {now[:12]}, now checked out",
    )
