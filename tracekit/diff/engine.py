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
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit import analysis
from tracekit.analysis import Analysis, Result
from tracekit.diff import judge, matching, pieces, spans, wall
from tracekit.diff.judge import measure, step_times, typical
from tracekit.diff.ledgers import OneSided
from tracekit.diff.matching import GROUP, SIDE
from tracekit.diff.model import Comparability, Compared, Diff, Difference, Side, Status, Verdict
from tracekit.diff.pieces import CANONICAL, COUNT, ROLE, TOTAL_NS
from tracekit.errors import CollectionError, PluginError, TracekitError, UnusableInputError, did_you_mean
from tracekit.runs.meta import GPU_SETTINGS, PRECISION, WORKLOAD_FIELDS
from tracekit.runs.run import Run
from tracekit.schema import SERVING, C

if TYPE_CHECKING:
    from tracekit.diff.ledgers import Group, Wall
    from tracekit.diff.model import Design, Metric
    from tracekit.diff.pieces import Pieces
    from tracekit.diff.spans import Shapes, Span


NAMED = 3
"""Names that stand for a name on the other side, at most."""
_MATCHED_NS, _OTHER = "matched_ns", "_other"


def names(pieces: pd.DataFrame) -> tuple[tuple[OneSided, ...], tuple[OneSided, ...]]:
    """Return the names that only the base, and only the head, has, most time first.

    Args:
        pieces: What `matching.match` returns.
    """
    sides = [pieces[pieces[SIDE] == side] for side in (0, 1)]
    base, head = sides
    return _only(base, head), _only(head, base)


def _only(own: pd.DataFrame, other: pd.DataFrame) -> tuple[OneSided, ...]:
    alone = own[~own[CANONICAL].isin(other[CANONICAL].unique())]
    matched = np.isin(alone[GROUP], other[GROUP].unique())
    alone = alone.assign(**{_MATCHED_NS: np.where(matched, alone[TOTAL_NS], 0)})
    instead = _counterparts(alone, other)
    together = alone.sort_values([TOTAL_NS, ROLE]).groupby([CANONICAL, C.KIND], sort=True)
    sums = together.agg({ROLE: "last", COUNT: "sum", TOTAL_NS: "sum", _MATCHED_NS: "sum"})
    found = [
        OneSided(str(name), str(kind), role, int(count), int(total), int(with_other), instead.get(name, ()))
        for (name, kind), role, count, total, with_other in sums.itertuples(name=None)
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.name, one.kind)))


def _counterparts(alone: pd.DataFrame, other: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Matched names of the other side, by name, most time first."""
    here = alone[[CANONICAL, GROUP]].drop_duplicates()
    there = other.loc[other[GROUP].isin(here[GROUP]), [CANONICAL, GROUP, TOTAL_NS]]
    pairs = here.merge(there, on=GROUP, suffixes=("", _OTHER))
    sums = pairs.groupby([CANONICAL, CANONICAL + _OTHER], sort=True)[TOTAL_NS].sum()
    found: dict[str, list[tuple[int, str]]] = {}
    for name, instead, total in sums.reset_index().itertuples(index=False, name=None):
        found.setdefault(name, []).append((-int(total), instead))
    return {name: tuple(instead for _, instead in sorted(own)[:NAMED]) for name, own in found.items()}


SHAPES, DTYPE, MODE, STEP_MARKER = "shapes", "dtype", "mode", "step_marker"
WITHOUT_MARKER, SERVED = "(none)", "serving step"
_MODES = {True: "train", False: "infer", None: None}
MUCH = 0.25
"""Share of the common ops whose shapes all differ from which the workload's shapes differ."""

DECIDES = (
    "workload",
    *WORKLOAD_FIELDS,
    SHAPES,
    "gpu",
    "sm_count",
    "compute_capability",
    "world_size",
    "profiler_record_shapes",
    "profiler_profile_memory",
    "profiler_with_stack",
    STEP_MARKER,
)
EXPLAINS = (
    "torch",
    "cuda",
    "hip",
    "cudnn",
    "nccl",
    "triton",
    "driver",
    "python",
    "cpu",
    "os",
    "gpu_uuid",
    "power_limit_w",
    "ecc",
    PRECISION,
    *GPU_SETTINGS,
    "collector",
)
FIELDS = (*DECIDES, *EXPLAINS)
_OF_GPU = ("sm_count", "compute_capability", "gpu_uuid", "power_limit_w", "ecc")
IMPLIED: Mapping[str, Collection[str]] = {
    "gpu": _OF_GPU,
    "level": ("backend",),
    "batch_size": (SHAPES,),
    "resolution": (SHAPES,),
    "workload": (*WORKLOAD_FIELDS, SHAPES),
    "device": ("gpu", *_OF_GPU, *GPU_SETTINGS),
}
"""Fields that vary when a field is declared to vary."""
_GRAVITY = (Status.NOT_COMPARABLE, Status.WARN, Status.UNKNOWN, Status.DECLARED)


def declared(varying: Sequence[str]) -> frozenset[str]:
    """The fields that may differ.

    Raises:
        UnusableInputError: There is no field of that name.

    Example:
        >>> sorted(declared(["batch_size"]))
        ['batch_size', 'shapes']
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
    free = declared(varying)
    a, b = _values(base), _values(head)
    if a[MODE] is None or b[MODE] is None:  # then like is compared with like: what was traced of both
        a[MODE], b[MODE] = (_MODES[side.trains] for side in shapes)
    found = [_difference(name, a[name], b[name], free) for name in FIELDS if name in a]
    found += [_traced(SHAPES, *(side.shapes for side in shapes), free=free)]
    if a[DTYPE] is None or b[DTYPE] is None:
        found += [_traced(DTYPE, *(side.dtypes for side in shapes), free=free)]
    by_field = {one.field: one for one in found if one}  # what was traced says more than what is unknown
    ordered = sorted(by_field.values(), key=lambda one: (_GRAVITY.index(one.status), FIELDS.index(one.field)))
    return Comparability(tuple(ordered))


def _difference(name: str, a: Any, b: Any, free: frozenset[str]) -> Difference | None:
    if a == b:
        return None
    if name in free:
        return Difference(name, a, b, Status.DECLARED)
    if a is None or b is None:
        return Difference(name, a, b, Status.UNKNOWN)
    return Difference(name, a, b, Status.NOT_COMPARABLE if name in DECIDES else Status.WARN)


def _traced(
    name: str, a: Mapping[str, Collection[str]], b: Mapping[str, Collection[str]], *, free: frozenset[str]
) -> Difference | None:
    """Return the difference in the inputs of the outermost ops, by the ops that both sides have."""
    common = sorted(a.keys() & b.keys())
    apart = [one for one in common if not set(a[one]) & set(b[one])]
    if not apart:
        return None
    texts = [f"{apart[0]} {sorted(side[apart[0]])[0]}" for side in (a, b)]
    if len(apart) > 1:
        texts = [f"{text} and {len(apart) - 1} more ops" for text in texts]
    status = Status.NOT_COMPARABLE if len(apart) >= MUCH * len(common) else Status.WARN
    return Difference(name, texts[0], texts[1], Status.DECLARED if name in free else status)


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
    values[STEP_MARKER] = _marker(run)
    return values


def _marker(run: Run) -> str:
    """Return the name of the step markers without the step number."""
    names = run.table("steps", columns=[C.NAME])[C.NAME]
    kinds = sorted({_marker_kind(str(name)) for name in names.unique()})
    return ", ".join(kinds) or WITHOUT_MARKER


def _marker_kind(name: str) -> str:
    return SERVED if re.match(SERVING, name) else re.sub(r"\d+$", "", name)


if TYPE_CHECKING:
    Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a comparison.

    Attributes:
        by: What the lines of the work ledger are: `op`, `module` or `kernel`.
        varying: Fields declared to differ between the sides.
        threshold: Relative change of the step time that matters.
        explain: Whether to ask the analyses: for the causes of idle time, and for their own comparisons.
    """

    by: str = "op"
    varying: tuple[str, ...] = ()
    threshold: float = judge.THRESHOLD
    explain: bool = True


@dataclass(frozen=True)
class _Pair:
    """Input of an explanation: the two runs with traces, their compared parts, and all runs of each side."""

    base: Run
    head: Run
    spans: tuple[Span, Span]
    sides: tuple[Sequence[Run], Sequence[Run]]

    @property
    def on_device(self) -> bool:
        """Whether both have work on devices; else ops of the host are compared."""
        return all(judge.has_device(run) for run in (self.base, self.head))


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
        Metrics, wall and work ledgers in exact integer nanoseconds, matched groups, counts that changed, and
        warnings. Where the runs are not comparable, nothing but the differences.

    Raises:
        UnusableInputError: A side has no runs, or an option is unknown.
        CollectionError: A run holds nothing to compare.

    Example:
        >>> import tracekit
        >>> from tracekit.diff import diff
        >>> found = diff([tracekit.open("latest~1")], [tracekit.open("latest")])  # doctest: +SKIP
        >>> found.work.terms, found.causes[0].label  # doctest: +SKIP
    """
    chosen = options or Options()
    _check(base, head, chosen)
    base, head = judge.in_time(base), judge.in_time(head)
    progress("step times")
    steps = step_times(base, head)
    a, b = typical(base, steps.a), typical(head, steps.b)
    pair = _Pair(a, b, spans.shared(a, b), (base, head))
    _require_steps(pair)
    how = judge.design(base, head, threshold=chosen.threshold)
    sides = (_side(references[0], base, a), _side(references[1], head, b))
    progress("comparability")
    inputs = (spans.read(a, pair.spans[0]), spans.read(b, pair.spans[1]))
    found = compare(a, b, inputs, varying=chosen.varying)
    if found.refused:
        return Diff(*sides, found, how, chosen.by, Verdict.NOT_COMPARABLE)
    given = judge.read(base, head, recorded)
    metrics = judge.judged(measure(base, head, steps), how, given)
    result = _explained(pair, sides, found, judge.settled(how, metrics), metrics, chosen, progress)
    return replace(result, warnings=(*result.warnings, *given.warnings))


def _check(base: Sequence[Run], head: Sequence[Run], options: Options) -> None:
    declared(options.varying)
    if options.by not in matching.VIEWS:
        raise UnusableInputError(f"cannot group by {options.by!r}", hint=f"use {', '.join(matching.VIEWS)}")
    if not base or not head:
        raise UnusableInputError("a side has no runs", hint="list runs with `tracekit runs`")


def _require_steps(pair: _Pair) -> None:
    for run, span in zip((pair.base, pair.head), pair.spans, strict=True):
        if not span.steps:
            raise CollectionError(
                f"run {run.id} or the other run has neither steps nor intervals",
                hint="record it again with a profile; `tracekit show RUN` lists its tables",
            )


def _explained(
    pair: _Pair,
    sides: tuple[Side, Side],
    found: Comparability,
    how: Design,
    metrics: tuple[Metric, ...],
    options: Options,
    progress: Progress,
) -> Diff:
    on_device = pair.on_device
    progress("matching")
    shared = pieces.shared_names(pair.base, pair.head)
    a = pieces.read(pair.base, pair.spans[0], on_device=on_device, names=shared)
    b = pieces.read(pair.head, pair.spans[1], on_device=on_device, names=shared)
    matched = matching.match(a, b, by_module=options.by == "module")
    groups = matching.groups(matched, a, b)
    ranges = matching.step_ranges(matched, (a, b), groups, by=options.by) if a.steps > 1 else {}
    only_base, only_head = names(matched)
    progress("idle time")
    walls, why = _wall(pair, (a, b), groups, explain=options.explain)
    progress("analyses")
    analyses, failed = _compared(pair) if options.explain else ((), ())
    misleading = _misleading(pair) if options.explain else ()
    warnings = (*_doubts(pair, (a, b), options.by), *judge.doubts(how), *why, *failed)
    return Diff(
        *sides,
        found,
        how,
        options.by,
        judge.overall(metrics),
        metrics=metrics,
        compared=_steps(pair, on_device=on_device),
        wall=walls,
        work=matching.ledger(matched, groups),
        match=matching.matched(matched),
        causes=matching.causes(groups, by=options.by, steps=ranges),
        groups=groups,
        counts=matching.counts(groups),
        only_base=only_base,
        only_head=only_head,
        analyses=analyses,
        warnings=warnings,
        misleading=misleading,
    )


def _doubts(pair: _Pair, both: tuple[Pieces, Pieces], by: str) -> list[str]:
    base, head = (
        judge.Explained(name, runs, run, span, part)
        for name, runs, run, span, part in zip(
            ("base", "head"), pair.sides, (pair.base, pair.head), pair.spans, both, strict=True
        )
    )
    return judge.warnings((base, head), by=by)


def _wall(
    pair: _Pair, both: tuple[Pieces, Pieces], groups: Sequence[Group], *, explain: bool
) -> tuple[Wall, tuple[str, ...]]:
    totals = (both[0].total_ns, both[1].total_ns)
    runs = (pair.base, pair.head)
    if not both[0].on_device:
        cuts = [wall.cut_host(run, span) for run, span in zip(runs, pair.spans, strict=True)]
        return wall.ledger(cuts[0], cuts[1], pair.spans, totals, groups), ()
    known, why = wall.causes(*runs) if explain else (None, "")
    causes = known or (None, None)
    cuts = [
        wall.cut_device(run, span, cause) for run, span, cause in zip(runs, pair.spans, causes, strict=True)
    ]
    return wall.ledger(cuts[0], cuts[1], pair.spans, totals, groups), (why,) if why else ()


def _misleading(pair: _Pair) -> tuple[str, ...]:
    """Return the reason for each side whose trace `integrity` calls misleading."""
    found = []
    for name, run in (("base", pair.base), ("head", pair.head)):
        with suppress(PluginError):  # without its verdict there is nothing to say
            verdict = analysis.analyze(run, "integrity").tables["verdict"].iloc[0]
            if verdict["verdict"] == "misleading":
                found.append(f"{name}: {verdict['reason']}")
    return tuple(found)


def _compared(pair: _Pair) -> tuple[tuple[tuple[Analysis, Result], ...], tuple[str, ...]]:
    """Return the comparisons of analyses that apply to both runs, and the failed ones."""
    found, failed = [], []
    for one in analysis.available():
        if one.compare is None:
            continue
        try:
            result = analysis.compare(pair.base, pair.head, one.name)
        except TracekitError as error:
            failed.append(f"{one.name}: {error.message}")
            continue
        if result.tables or result.findings:  # else it does not apply to these runs
            found.append((one, result))
    return tuple(found), tuple(failed)


def _steps(pair: _Pair, *, on_device: bool) -> Compared:
    a, b = pair.spans
    means = [span.total_ns / span.steps if span.steps else 0.0 for span in pair.spans]
    ranges = [(min(lengths), max(lengths)) for lengths in (a.step_ns(), b.step_ns())]
    return Compared(
        a.steps,
        a.marked,
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
