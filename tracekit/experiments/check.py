"""Compare the runs of a head with a baseline, per configuration (`tracekit check`).

Slower configurations get causes from the profiles of both sides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

from tracekit.diff.engine import Options as DiffOptions
from tracekit.diff.engine import compare_with_inputs, diff, expand_varying, find_mixed
from tracekit.diff.model import Status
from tracekit.diff.noise import clock, group_alike, sessions_of
from tracekit.diff.verdicts import RunSides
from tracekit.errors import RunNotFoundError, TracekitError
from tracekit.experiments import check_baseline
from tracekit.experiments.check_baseline import Baseline, Candidates
from tracekit.experiments.check_model import CheckResult, Configuration, Outcome, Side
from tracekit.experiments.options import CheckOptions as Options
from tracekit.runs import revisions
from tracekit.runs.metrics import (
    DEVICE_PEAK,
    METRICS,
    SETTINGS,
    STEP_TIME,
    count_timed_steps,
    of_run,
    timing_settings,
)
from tracekit.runs.run import Run
from tracekit.runs.step_times import unprofiled_step_time
from tracekit.runs.store import Store
from tracekit.runs.text import shorten
from tracekit.stats import samples
from tracekit.stats.comparison import Comparison, Verdict
from tracekit.stats.decide import change
from tracekit.stats.tests import with_holm

__all__ = ["CheckResult", "Options", "check"]

MAX_EXPLAINED = 4
"""Maximum number of explained configurations, those that slowed down most."""
MIN_STEPS = 3
"""Timed steps below which the mean of a run says little."""
MAX_SETTING_CHARS = 40
"""Characters of a setting's value, which may be anything in a stored run."""
NEITHER = "not measured on either side"


def check(
    store: Store,
    against: str,
    *,
    runs: Sequence[str] = (),
    label: str | None = None,
    options: Options | None = None,
) -> CheckResult:
    """Check the runs of a head against the runs of its baseline.

    Args:
        store: Store of both.
        against: A git revision or a label.
        runs: Runs to check; by default all of the latest recorded commit.
        label: Check all runs of this label instead.
        options: Metrics, threshold and ignored differences.

    Raises:
        CollectionError: There is no run of the head, or the clone lacks the commits of a baseline.
        RunNotFoundError: Something named is unknown.
        UnusableInputError: Runs of several commits were named, or a field is unknown.

    Example:
        >>> check(store, "main").exit_code  # doctest: +SKIP
        <ExitCode.OK: 0>
    """
    options = options or Options()
    free = expand_varying(options.varying)
    head = check_baseline.select_head(store, runs, label=label)
    candidates = check_baseline.find_candidates(store, against, head, allow_dirty=options.allow_dirty)
    stored = tuple(store.readable())
    groups = [*map(tuple, group_alike(head, free))]
    configurations = []
    for group, name in zip(groups, check_baseline.names(groups), strict=True):
        others = [other[0] for other in groups if other is not group]
        baseline = check_baseline.pick(candidates, group[-1], free, least=options.least, others=others)
        workload, mode, device = check_baseline.kind(group[0])
        plain = Configuration(name, workload, mode, device, Outcome.NO_BASELINE, _side(group))
        configurations.append(
            _compare(plain, group, baseline, candidates, stored, options) if baseline else plain
        )
    # Holm's correction is over all metrics of all configurations: they are judged together.
    confirmed = iter(with_holm([metric for config in configurations for metric in config.comparisons]))
    configurations = [
        replace(config, comparisons=tuple(islice(confirmed, len(config.comparisons))))
        for config in configurations
    ]
    if options.explain:
        configurations = _add_causes(configurations, {run.id: run for run in (*stored, *head)}, options)
    return CheckResult(
        against=against,
        merge_base=candidates.merge_base,
        threshold=options.threshold,
        configurations=tuple(configurations),
        missing=_find_missing(candidates, configurations, head),
        unmeasured=check_baseline.find_unmeasured(
            head, [run for group in candidates.groups for run in group.runs]
        ),
        notes=(
            *([candidates.missing] if candidates.missing else []),
            *(() if runs or label else _note_commit(head[0])),
        ),
        varying=options.varying,
        on_unknown=options.on_unknown,
        allow_missing_baseline=options.allow_missing_baseline,
        command=check_baseline.command(against, head, stored, options, merge_base=candidates.merge_base),
    )


def _compare(
    plain: Configuration,
    head: tuple[Run, ...],
    baseline: Baseline,
    candidates: Candidates,
    stored: Sequence[Run],
    options: Options,
) -> Configuration:
    comparability = compare_with_inputs(baseline.runs[-1], head[-1], varying=options.varying)
    configuration = replace(
        plain,
        base=_side(baseline.runs, baseline.distance),
        differences=comparability.differences,
        notes=_baseline_notes(baseline, candidates, options.least),
    )
    if not baseline.equal or comparability.status is Status.NOT_COMPARABLE:
        return replace(configuration, outcome=Outcome.NOT_COMPARABLE)
    sides = (("base", baseline.runs), ("head", head))
    if mixed := [mixture for side in sides if (mixture := find_mixed(*side, varying=options.varying))]:
        differences, notes = zip(*mixed, strict=True)
        return replace(
            configuration,
            outcome=Outcome.NOT_COMPARABLE,
            differences=(*configuration.differences, *differences),
            notes=(*configuration.notes, *notes),
        )
    compared = compare_sides(baseline.runs, head, stored, options)
    notes = (*configuration.notes, *compared.notes)
    # Device metrics do not exist on a CPU, so their absence is not worth a note there.
    on_cpu = {DEVICE_PEAK} if plain.device == "cpu" and compared.comparisons else set()
    measured = {*(comparison.name for comparison in compared.comparisons), *compared.one_sided, *on_cpu}
    if absent := [name for name in options.metrics if name not in measured]:
        notes = (*notes, f"{', '.join(absent)} {NEITHER}")
    return replace(
        configuration,
        outcome=Outcome.COMPARED,
        comparisons=compared.comparisons,
        notes=notes,
        one_sided=compared.one_sided,
    )


@dataclass(frozen=True)
class SideComparison:
    """Comparisons, notes on them, and the metrics measured on one side only."""

    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]
    one_sided: tuple[str, ...]


def compare_sides(
    base: Sequence[Run], head: Sequence[Run], stored: Sequence[Run], options: Options
) -> SideComparison:
    """Compare two sides in all metrics that both have.

    Args:
        base: Runs of the baseline, oldest first.
        head: Runs to check, oldest first.
        stored: All runs of the store; earlier sessions show how much occasions differ.
        options: Metrics, threshold and tolerance.
    """
    position = {run.path: float(number) for number, run in enumerate(stored)}
    times = [[position.get(run.path, math.inf) for run in side] for side in (base, head)]
    blocks = samples.pairs(*times)
    if blocks:
        base, head = [base[number] for number in blocks.a], [head[number] for number in blocks.b]
    sides = RunSides(base, head, stored, blocks.base_first if blocks else None)
    # 0 is no measurement: an allocator that was not used, or steps that were not timed.
    measured = [
        [{name: value or None for name, value in of_run(run).items()} for run in side]
        for side in (base, head)
    ]
    comparisons, missing = [], {}
    compared = {run.path for run in (*base, *head)}
    unused = [run for run in stored if run.path not in compared]
    for name in options.metrics:
        a, b = ([values.get(name) for values in side] for side in measured)
        if reason := _reason_missing(name, a, b, (*base, *head)):
            missing[name] = reason
            continue
        # Sides that did not alternate were recorded on two occasions, which differ in speed, not in memory.
        apart = not blocks and METRICS[name].unit == "ns"
        sessions = sessions_of(name, base[-1], unused) if apart else None
        comparisons.append(
            sides.compare(
                name, a, b, threshold=options.threshold, tolerance=options.tolerance, noise=sessions
            )
        )
    one_sided = {name: reason for name, reason in missing.items() if reason != NEITHER}
    timed = STEP_TIME in options.metrics and missing.get(STEP_TIME) is None
    notes = (
        *sides.warnings,
        *(_timing_notes(base, head) if timed else ()),
        *(f"{name}: {reason}" for name, reason in one_sided.items()),
    )
    return SideComparison(tuple(comparisons), notes, tuple(one_sided))


def _reason_missing(
    name: str, a: Sequence[float | None], b: Sequence[float | None], runs: Sequence[Run]
) -> str:
    """Return why a metric cannot be compared; empty if it can."""
    if name == STEP_TIME and len({clock(run) for run in runs} - {None}) > 1:
        return "base and head were timed by different clocks"
    in_base, in_head = (any(value is not None for value in values) for values in (a, b))
    if in_base and in_head:
        return ""
    return f"not measured in any {'head' if in_base else 'base'} run" if in_base or in_head else NEITHER


def _timing_notes(base: Sequence[Run], head: Sequence[Run]) -> tuple[str, ...]:
    """Say which runs were timed with other settings than others, and whether few steps were timed."""
    sides = [[run for run in side if count_timed_steps(run)] for side in (base, head)]
    notes = []
    for name in SETTINGS:
        counts = [
            Counter(shorten(str(timing_settings(run)[name]), MAX_SETTING_CHARS) for run in side)
            for side in sides
        ]
        if len({value for side in counts for value in side}) > 1:
            notes.append(
                f"step_time: {name} was {_list_values(*counts)}, so that part of a difference may come of it"
            )
    fewest = min((count_timed_steps(run) for side in sides for run in side), default=MIN_STEPS)
    if fewest < MIN_STEPS:
        steps = f"{fewest} step{'s' * (fewest != 1)}"
        notes.append(f"step_time: in some runs the mean of only {steps}; record more steps")
    return (*notes, *_uneven_notes(base, head))


def _uneven_notes(base: Sequence[Run], head: Sequence[Run]) -> tuple[str, ...]:
    """Say if the mean of the steps is far above their median, and what the median alone would show."""
    sides = [
        [time for run in side if (time := unprofiled_step_time(run.meta.timings))] for side in (base, head)
    ]
    uneven = [time for side in sides for time in side if time.is_uneven]
    if not uneven or not all(sides):
        return ()
    medians = [fmean(math.log(max(1, time.median_ns)) for time in side) for side in sides]
    worst = max(uneven, key=lambda time: time.mean_ns / time.median_ns)
    period = f"; the times recur every {worst.period} steps" if worst.period else ""
    ratio = worst.mean_ns / worst.median_ns
    text = f"step_time: in {len(uneven)} of the runs the mean is up to {ratio:.1f} times the median{period}"
    return (f"{text}; the median step, which is not judged, changed by {change(medians[1] - medians[0])}",)


def _list_values(base: Counter[str], head: Counter[str]) -> str:
    """List the values of a setting with the number of runs of each side."""
    texts = []
    for value in sorted(base.keys() | head.keys()):
        sides = (("base", base[value]), ("head", head[value]))
        where = " and ".join(f"{count} {side} run{'s' * (count != 1)}" for side, count in sides if count)
        texts.append(f"{'unknown' if value == 'None' else value} in {where}")
    return ", ".join(texts)


def _baseline_notes(baseline: Baseline, candidates: Candidates, least: int) -> tuple[str, ...]:
    notes, of_revision = [], candidates.merge_base is not None
    if baseline.equal and len(baseline.runs) < least:
        where = "ancestor" if of_revision else "commit of that label"
        notes.append(f"no {where} has {least} runs of this configuration; the baseline has fewer")
    if baseline.distance:
        distance = f"{baseline.distance} commit{'s' * (baseline.distance != 1)} before the merge-base"
        notes.append(f"the baseline is {distance}; changes of these commits are included")
    if not of_revision and (others := len(candidates.groups) - 1):
        notes.append(f"the label has runs of {others} more code state{'s' * (others != 1)}, skipped")
    return tuple(notes)


def _side(runs: Sequence[Run], distance: int | None = None) -> Side:
    meta = runs[-1].meta
    steps = [count for run in runs if (count := count_timed_steps(run))]
    return Side(
        runs=tuple(run.id for run in runs),
        commit=meta.git.sha if meta.git else None,
        dirty=bool(meta.git and meta.git.dirty),
        distance=distance,
        command=tuple(meta.command),
        timed_steps=(min(steps), max(steps)) if steps else None,
    )


def _add_causes(
    configurations: Sequence[Configuration], runs: Mapping[str, Run], options: Options
) -> list[Configuration]:
    """Add comparisons of the profiles, by run id, to the configurations whose steps slowed down most."""
    slower = {
        configuration.name: comparison.ratio
        for configuration in configurations
        for comparison in configuration.comparisons
        if comparison.name == STEP_TIME and comparison.verdict is Verdict.REGRESSION and comparison.ratio
    }
    worst = sorted(slower, key=lambda name: (-slower[name], name))[:MAX_EXPLAINED]
    return [_explain(config, runs, options) if config.name in worst else config for config in configurations]


def _explain(configuration: Configuration, runs: Mapping[str, Run], options: Options) -> Configuration:
    sides = [configuration.base.runs if configuration.base else (), configuration.head.runs]
    base, head = ([runs[name] for name in side] for side in sides)
    how = DiffOptions(varying=options.varying, threshold=options.threshold, explain=False)
    try:
        explained = diff(base, head, options=how)
        refused = ", ".join(difference.field for difference in explained.comparability.refused)
        why = "" if explained.work else f"the profiles differ in {refused}"
    except TracekitError as error:
        why = error.message
    if why:
        return replace(configuration, notes=(*configuration.notes, f"causes unavailable: {why}"))
    return replace(configuration, explained=explained)


def _find_missing(
    candidates: Candidates, configurations: Sequence[Configuration], head: Sequence[Run]
) -> tuple[str, ...]:
    """Return configurations measured at the baselines, but not at the head."""
    used = {run for config in configurations if config.base for run in config.base.runs}
    groups = candidates.groups
    with_used = [place for place, group in enumerate(groups) if used & {run.id for run in group.runs}]
    last = max(with_used, default=0)
    base = {check_baseline.kind(run) for group in groups[: last + 1] for run in group.runs}
    return tuple(sorted(map(check_baseline.describe, base - {check_baseline.kind(run) for run in head})))


def _note_commit(run: Run) -> tuple[str, ...]:
    """Warn if the latest recorded commit is not the one checked out."""
    try:
        current = revisions.commit("HEAD")
    except RunNotFoundError:
        return ()
    if run.meta.git is None or run.meta.git.sha == current:
        return ()
    latest = run.meta.git.sha[:12]
    return (
        f"checked {latest}, the commit recorded last; use --run git:HEAD for {current[:12]}, now checked out",
    )
