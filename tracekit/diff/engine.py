"""Compare runs: check comparability, match their work, and judge the differences.

Fields that decide comparability (GPU, workload, configuration and shapes, dtype, profiler flags, step marker)
must be equal or declared as varying. Other fields (versions, host) only give warnings, as do fields that only
one side has: the fingerprint of an imported trace is incomplete, and unknown is not different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tracekit import analysis
from tracekit.analysis import Analysis, Result
from tracekit.diff import compared_steps, matching, side_notes, verdicts, work_items
from tracekit.diff import step_time_breakdown as step_time
from tracekit.diff.breakdowns import Group, OneSided, StepTimeBreakdown
from tracekit.diff.compared_steps import Shapes, StepRange, has_device
from tracekit.diff.matching import GROUP, SIDE
from tracekit.diff.model import Comparability, Compared, Diff, Difference, Side, Status, Verdict
from tracekit.diff.side_notes import ComparedSide
from tracekit.diff.verdicts import RunSides
from tracekit.diff.work_items import CANONICAL, COUNT, ROLE, TOTAL_NS
from tracekit.errors import CollectionError, PluginError, TracekitError, UnusableInputError, did_you_mean
from tracekit.runs.meta import CHANGE, CPU_FIELDS, GPU_SETTINGS, OF_PROGRAM, PRECISION
from tracekit.runs.range_names import SERVING
from tracekit.runs.run import Run
from tracekit.schema import C
from tracekit.stats.comparison import ALPHA, THRESHOLD
from tracekit.workloads.options import WORKLOAD_FIELDS

MAX_NAMES = 3
"""Names that stand for a name on the other side, at most."""
_MATCHED_NS, _OTHER = "matched_ns", "_other"


def _names_without(side: pd.DataFrame, other: pd.DataFrame) -> tuple[OneSided, ...]:
    """Return the names of a side that the other lacks, most time first."""
    alone = side[~side[CANONICAL].isin(other[CANONICAL].unique())]
    matched = np.isin(alone[GROUP], other[GROUP].unique())
    alone = alone.assign(**{_MATCHED_NS: np.where(matched, alone[TOTAL_NS], 0)})
    instead = _counterparts(alone, other)
    by_name = alone.sort_values([TOTAL_NS, ROLE]).groupby([CANONICAL, C.KIND], sort=True)
    sums = by_name.agg({ROLE: "last", COUNT: "sum", TOTAL_NS: "sum", _MATCHED_NS: "sum"})
    names = [
        OneSided(str(name), str(kind), role, int(count), int(total), int(with_other), instead.get(name, ()))
        for (name, kind), role, count, total, with_other in sums.itertuples(name=None)
    ]
    return tuple(sorted(names, key=lambda work: (-work.total_ns, work.name, work.kind)))


def _counterparts(alone: pd.DataFrame, other: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the matched names of the other side, by name, most time first."""
    here = alone[[CANONICAL, GROUP]].drop_duplicates()
    there = other.loc[other[GROUP].isin(here[GROUP]), [CANONICAL, GROUP, TOTAL_NS]]
    pairs = here.merge(there, on=GROUP, suffixes=("", _OTHER))
    sums = pairs.groupby([CANONICAL, CANONICAL + _OTHER], sort=True)[TOTAL_NS].sum()
    names: dict[str, list[tuple[int, str]]] = {}
    for name, instead, total in sums.reset_index().itertuples(index=False, name=None):
        names.setdefault(name, []).append((-int(total), instead))
    return {name: tuple(other for _, other in sorted(others)[:MAX_NAMES]) for name, others in names.items()}


SHAPES, DTYPE, MODE, STEP_MARKER = "shapes", "dtype", "mode", "step_marker"
_MODES = {True: "train", False: "infer", None: None}
MIN_SHAPE_SHARE = 0.25
"""Share of the common ops whose shapes all differ from which the workload's shapes differ."""

_GPU_MODEL, _GPU_DEVICE = ("sm_count", "compute_capability"), ("gpu_uuid", "power_limit_w", "ecc")
_PROFILER = ("profiler_record_shapes", "profiler_profile_memory", "profiler_with_stack")
_LIBRARIES = ("torch", "cuda", "hip", "cudnn", "nccl", "triton")
DECIDES = (
    "workload",
    *WORKLOAD_FIELDS,
    SHAPES,
    "gpu",
    *_GPU_MODEL,
    "world_size",
    *OF_PROGRAM,
    *_PROFILER,
    STEP_MARKER,
)
"""Fields that must be equal, or declared to vary, for runs to be comparable."""
_HOST = ("driver", "python", "cpu", *CPU_FIELDS, "os")
EXPLAINS = (*_LIBRARIES, *_HOST, *_GPU_DEVICE, PRECISION, *GPU_SETTINGS, "collector", CHANGE)
"""Fields whose difference is a warning."""
FIELDS = (*DECIDES, *EXPLAINS)
_OF_GPU = (*_GPU_MODEL, *_GPU_DEVICE)
IMPLIED: Mapping[str, Collection[str]] = {
    "gpu": _OF_GPU,
    "level": ("backend",),
    "batch_size": (SHAPES,),
    "resolution": (SHAPES,),
    "workload": (*WORKLOAD_FIELDS, SHAPES),
    "device": ("gpu", *_OF_GPU, *GPU_SETTINGS),
    CHANGE: (SHAPES, DTYPE, MODE),
}
"""Fields that vary when a field is declared to vary."""
_BY_SEVERITY = (Status.NOT_COMPARABLE, Status.WARN, Status.UNKNOWN, Status.DECLARED)


def expand_varying(varying: Sequence[str]) -> frozenset[str]:
    """Return the fields that may differ: the declared ones, and those that vary with them.

    Raises:
        UnusableInputError: There is no field of that name.
    """
    unknown = [name for name in varying if name not in FIELDS]
    if unknown:
        hint = did_you_mean(unknown[0], FIELDS) or f"known: {', '.join(FIELDS)}"
        raise UnusableInputError(f"--varying {unknown[0]}: unknown field", hint=hint)
    return frozenset(varying).union(*(IMPLIED.get(name, ()) for name in varying))


def compare(
    base: Run, head: Run, shapes: tuple[Shapes, Shapes], *, varying: Sequence[str] = ()
) -> Comparability:
    """Compare two runs field by field.

    Args:
        base: The run compared with.
        head: The run in question.
        shapes: What the outermost ops of each were given.
        varying: Fields declared to differ.

    Raises:
        UnusableInputError: There is no field of a declared name.
    """
    a, b = ({**run.compute_once(_values)} for run in (base, head))
    allowed = expand_varying(varying) | frozenset(IMPLIED[CHANGE] if a[CHANGE] != b[CHANGE] else ())
    if a[MODE] is None or b[MODE] is None:  # then both are told by their traces, like with like
        a[MODE], b[MODE] = (_MODES[side.trains] for side in shapes)
    fields = [_difference(name, a[name], b[name], allowed) for name in FIELDS if name in a]
    fields += [_input_difference(SHAPES, *(side.shapes for side in shapes), allowed=allowed)]
    if a[DTYPE] is None or b[DTYPE] is None:
        fields += [_input_difference(DTYPE, *(side.dtypes for side in shapes), allowed=allowed)]
    # A difference of the traces replaces an unknown one.
    by_field = {field.field: field for field in fields if field}

    def order(field: Difference) -> tuple[int, int]:
        return _BY_SEVERITY.index(field.status), FIELDS.index(field.field)

    return Comparability(tuple(sorted(by_field.values(), key=order)))


def compare_with_inputs(base: Run, head: Run, *, varying: Sequence[str] = ()) -> Comparability:
    """Compare two runs field by field, with the inputs of their ops."""
    steps = zip((base, head), compared_steps.select_steps(base, head), strict=True)
    a, b = (compared_steps.read_inputs(run, compared) for run, compared in steps)
    return compare(base, head, (a, b), varying=varying)


def find_mixed(
    side: str, runs: Sequence[Run], *, varying: Sequence[str] = ()
) -> tuple[Difference, str] | None:
    """Return a difference for which the runs of one side cannot be repeats, and a sentence; None without one.

    Args:
        side: Name of the side.
        runs: Its runs.
        varying: Fields declared to differ.
    """
    for run in runs[:-1]:
        for difference in compare_with_inputs(run, runs[-1], varying=varying).refused:
            values = f"{difference.base} in {run.id}, {difference.head} in {runs[-1].id}"
            return difference, f"the runs of the {side} differ in {difference.field}: {values}"
    return None


def _difference(name: str, a: Any, b: Any, allowed: frozenset[str]) -> Difference | None:
    if a == b:
        return None
    if name in allowed:
        return Difference(name, a, b, Status.DECLARED)
    if a is None or b is None:
        return Difference(name, a, b, Status.UNKNOWN)
    return Difference(name, a, b, Status.NOT_COMPARABLE if name in DECIDES else Status.WARN)


def _input_difference(
    name: str, a: Mapping[str, Collection[str]], b: Mapping[str, Collection[str]], *, allowed: frozenset[str]
) -> Difference | None:
    """Return the difference in the inputs of the outermost ops, by the ops that both sides have."""
    common = sorted(a.keys() & b.keys())
    differing = [op for op in common if not set(a[op]) & set(b[op])]
    if not differing:
        return None
    texts = [f"{differing[0]} {sorted(side[differing[0]])[0]}" for side in (a, b)]
    if len(differing) > 1:
        texts = [f"{text} and {len(differing) - 1} more ops" for text in texts]
    status = Status.NOT_COMPARABLE if len(differing) >= MIN_SHAPE_SHARE * len(common) else Status.WARN
    return Difference(name, texts[0], texts[1], Status.DECLARED if name in allowed else status)


def _values(run: Run) -> dict[str, Any]:
    """Every field of a run but its shapes; None where unknown."""
    meta, environment = run.meta, run.meta.environment
    values = {name: meta.fingerprint.get(name) for name in FIELDS if name != SHAPES}
    packages = environment.get("packages") or {}
    values |= {name: values[name] or environment.get(name) for name in ("os", "nccl", "torch", "cuda")}
    values["triton"] = packages.get("triton")
    gpus = environment.get("gpus") or []
    values["gpu_uuid"] = gpus[0].get("uuid") if gpus and values["device"] != "cpu" else None
    values["collector"] = values["collector"] or meta.collector.name
    names = map(str, run.table("steps", columns=[C.NAME])[C.NAME].unique())
    markers = {"serving step" if re.match(SERVING, name) else re.sub(r"\d+$", "", name) for name in names}
    values[CHANGE] = ", ".join(values[CHANGE] or ()) or "(none)"
    values[STEP_MARKER] = ", ".join(sorted(markers)) or "(none)"
    return values


Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a comparison.

    Attributes:
        by: What the lines of the breakdown of work are: `op`, `module` or `kernel`.
        varying: Fields declared to differ between the sides.
        threshold: Relative change of the step time that matters.
        explain: Whether to ask the analyses: for the causes of idle time, and for their own comparisons.
    """

    by: str = "op"
    varying: tuple[str, ...] = ()
    threshold: float = THRESHOLD
    explain: bool = True


def diff(
    base: Sequence[Run],
    head: Sequence[Run],
    *,
    references: tuple[str, str] = ("", ""),
    options: Options | None = None,
    progress: Progress = lambda _: None,
    recorded: Sequence[Run] = (),
) -> Diff:
    """Compare runs of a head with runs of a base.

    Args:
        base: Runs of the side compared with, in any order; the one of median step time explains it.
        head: Runs of the side in question.
        references: How a person named the two sides.
        options: How to compare.
        progress: Called with the next stage.
        recorded: Runs of the same store; repeats among them tell the noise where a side has no repeats.

    Returns:
        Metrics, breakdowns of step time and work in integer nanoseconds, matched groups, counts that changed,
        and warnings. Where the runs are not comparable, nothing but the differences.

    Raises:
        UnusableInputError: A side has no runs, or an option is unknown.
        CollectionError: A run holds nothing to compare.

    Example:
        >>> import tracekit
        >>> from tracekit.diff import diff
        >>> found = diff([tracekit.open("latest~1")], [tracekit.open("latest")])  # doctest: +SKIP
        >>> found.work.terms, found.causes[0].label  # doctest: +SKIP
    """
    options = options or Options()
    expand_varying(options.varying)  # refuses an unknown field before anything is read
    if options.by not in matching.VIEWS:
        raise UnusableInputError(f"cannot group by {options.by!r}", hint=f"use {', '.join(matching.VIEWS)}")
    if not base or not head:
        raise UnusableInputError("a side has no runs", hint="list runs with `tracekit runs`")
    base, head = verdicts.by_creation_time(base), verdicts.by_creation_time(head)
    progress("step times")
    times = verdicts.step_times(base, head)
    runs = verdicts.median_run(base, times.a), verdicts.median_run(head, times.b)
    steps = compared_steps.select_steps(*runs)
    for run, compared in zip(runs, steps, strict=True):
        if not compared.steps:
            raise CollectionError(
                f"run {run.id} or the other run has neither steps nor intervals",
                hint="record it again with a profile; `tracekit show RUN` lists its tables",
            )
    design = verdicts.design(base, head, threshold=options.threshold)
    described = _side(references[0], base, runs[0]), _side(references[1], head, runs[1])
    progress("comparability")
    comparability = compare_with_inputs(*runs, varying=options.varying)
    refusal = Diff(*described, comparability, design, options.by, Verdict.NOT_COMPARABLE)
    if comparability.refused:
        return refusal
    named = (("base", base), ("head", head))
    mixed = [find_mixed(*side, varying=options.varying) for side in named]
    if any(mixed):
        differences, warnings = zip(*filter(None, mixed), strict=True)
        return replace(refusal, comparability=Comparability(differences), warnings=warnings)
    base_first = [side == "A" for side in design.order[::2]] if design.paired else None
    sides = RunSides(base, head, recorded, base_first, apart=bool(verdicts.order_warnings(design)))
    metrics = verdicts.with_verdicts(verdicts.measure(base, head, times), design, sides)
    if any(metric.verdict is not Verdict.NONE for metric in metrics):  # by known noise, of one run per side
        design = replace(design, alpha=ALPHA)
    result = replace(refusal, design=design, verdict=verdicts.overall(metrics), metrics=metrics)
    progress("matching")
    on_device = all(map(has_device, runs))  # else ops of the host are compared
    names = work_items.find_shared_names(*runs)
    explained = [
        ComparedSide(
            name, side, run, compared, work_items.read_items(run, compared, names, on_device=on_device)
        )
        for name, side, run, compared in zip(("base", "head"), (base, head), runs, steps, strict=True)
    ]
    result = _explain(result, explained[0], explained[1], options, progress)
    return replace(result, warnings=(*result.warnings, *sides.warnings))


def _explain(
    result: Diff, base: ComparedSide, head: ComparedSide, options: Options, progress: Progress
) -> Diff:
    """Add what the traces of two runs tell: both breakdowns, matched work, counts and warnings."""
    runs, a, b = (base.run, head.run), base.items, head.items
    items = matching.match(a, b, by_module=options.by == "module")
    groups = matching.groups(items, a, b)
    ranges = matching.step_ranges(items, (a, b), groups, by=options.by) if a.steps > 1 else {}
    of_base, of_head = (items[items[SIDE] == side] for side in (0, 1))
    progress("idle time")
    wall, idle_warning = _break_down(base, head, groups, explain=options.explain)
    progress("analyses")
    analyses, failed = _compare_analyses(*runs) if options.explain else ((), ())
    return replace(
        result,
        compared=_describe_steps(base.steps, head.steps, on_device=a.on_device),
        wall=wall,
        work=matching.sum_work(items, groups),
        match=matching.coverage(items),
        causes=matching.causes(groups, by=options.by, steps=ranges),
        groups=groups,
        counts=matching.counts(groups),
        only_base=_names_without(of_base, of_head),
        only_head=_names_without(of_head, of_base),
        analyses=analyses,
        warnings=(
            *side_notes.warnings((base, head), by=options.by),
            *verdicts.order_warnings(result.design),
            *idle_warning,
            *failed,
        ),
        misleading=_find_misleading(*runs) if options.explain else (),
    )


def _break_down(
    base: ComparedSide, head: ComparedSide, groups: Sequence[Group], *, explain: bool
) -> tuple[StepTimeBreakdown, tuple[str, ...]]:
    """Break down the steps; with a warning if causes of idle time are wanted and unknown."""
    warning = ""
    if base.items.on_device:
        causes, warning = step_time.read_idle_causes(base.run, head.run) if explain else (None, "")
        a, b = (
            step_time.divide_device_time(side.run, side.steps, idle)
            for side, idle in zip((base, head), causes or (None, None), strict=True)
        )
    else:
        runs, steps = (base.run, head.run), (base.steps, head.steps)
        a, b = step_time.divide_host_time(runs, steps, explain=explain)
    totals = base.items.total_ns, head.items.total_ns
    breakdown = step_time.break_down(a, b, (base.steps, head.steps), totals, groups)
    return breakdown, (warning,) * bool(warning)


def _find_misleading(base: Run, head: Run) -> tuple[str, ...]:
    """Return the reason for each side whose trace `integrity` calls misleading."""
    reasons = []
    for name, run in (("base", base), ("head", head)):
        with suppress(PluginError):  # without its verdict there is nothing to say
            verdict = analysis.analyze(run, "integrity").tables["verdict"].iloc[0]
            if verdict["verdict"] == "misleading":
                reasons.append(f"{name}: {verdict['reason']}")
    return tuple(reasons)


def _compare_analyses(base: Run, head: Run) -> tuple[tuple[tuple[Analysis, Result], ...], tuple[str, ...]]:
    """Return the comparisons of analyses that apply to both runs, and the failed ones."""
    results, failed = [], []
    for definition in analysis.available():
        if definition.compare is None:
            continue
        try:
            result = analysis.compare(base, head, definition.name)
        except TracekitError as error:
            failed.append(f"{definition.name}: {error.message}")
            continue
        if result.tables or result.findings:  # else it does not apply to these runs
            results.append((definition, result))
    return tuple(results), tuple(failed)


def _describe_steps(a: StepRange, b: StepRange, *, on_device: bool) -> Compared:
    means = [side.total_ns / side.steps if side.steps else 0.0 for side in (a, b)]
    ranges = [(min(lengths), max(lengths)) for lengths in (a.step_ns(), b.step_ns())]
    return Compared(
        a.steps,
        a.has_step_marks,
        a.left_out,
        (a.unused, b.unused),
        on_device,
        (means[0], means[1]),
        (ranges[0], ranges[1]),
        ranks=int(a.windows[C.RANK].nunique()),
    )


def _side(reference: str, runs: Sequence[Run], chosen: Run) -> Side:
    git = chosen.meta.git
    return Side(
        reference=reference or chosen.id,
        runs=tuple(run.id for run in runs),
        run=chosen.id,
        label=chosen.meta.label,
        commit=git.sha if git else None,
        dirty=git.dirty if git else None,
        fingerprint=dict(chosen.meta.fingerprint),
    )
