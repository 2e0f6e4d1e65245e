"""Compare two runs, or two groups of runs: comparability first, then what changed and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit import analysis
from tracekit.diff import (
    alone,
    comparability,
    doubts,
    idle,
    judge,
    matching,
    pieces,
    rollup,
    shapes,
    spans,
    wall,
    work,
)
from tracekit.diff.metrics import measure, step_times, typical
from tracekit.diff.model import Compared, Diff, Side, Verdict
from tracekit.errors import CollectionError, TracekitError, UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.analysis import Analysis, Result
    from tracekit.diff.ledgers import Wall
    from tracekit.diff.model import Comparability, Design, Metric
    from tracekit.diff.pieces import Pieces
    from tracekit.diff.spans import Span
    from tracekit.run import Run

    Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to compare.

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
    """The two runs whose traces explain a difference, what is compared of them, and all runs of each side."""

    base: Run
    head: Run
    spans: tuple[Span, Span]
    sides: tuple[Sequence[Run], Sequence[Run]]

    @property
    def on_device(self) -> bool:
        """Whether both have work on devices; else ops of the host are compared."""
        return all(doubts.has_device(run) for run in (self.base, self.head))


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
        progress: Told what is done next.
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
    inputs = (shapes.read(a, pair.spans[0]), shapes.read(b, pair.spans[1]))
    found = comparability.compare(a, b, inputs, varying=chosen.varying)
    if found.refused:
        return Diff(*sides, found, how, chosen.by, Verdict.NOT_COMPARABLE)
    given = judge.read(base, head, recorded)
    metrics = judge.judged(measure(base, head, steps), how, given)
    told = _explained(pair, sides, found, judge.settled(how, metrics), metrics, chosen, progress)
    return replace(told, warnings=(*told.warnings, *given.warnings))


def _check(base: Sequence[Run], head: Sequence[Run], options: Options) -> None:
    comparability.declared(options.varying)
    if options.by not in rollup.VIEWS:
        raise UnusableInputError(f"cannot group by {options.by!r}", hint=f"use {', '.join(rollup.VIEWS)}")
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
    a = pieces.read(pair.base, pair.spans[0], on_device=on_device)
    b = pieces.read(pair.head, pair.spans[1], on_device=on_device)
    matched = matching.match(a, b, by_module=options.by == "module")
    groups = work.groups(matched, a, b)
    only_base, only_head = alone.names(matched)
    progress("idle time")
    walls, why = _wall(pair, (a, b), explain=options.explain)
    progress("analyses")
    analyses, failed = _compared(pair) if options.explain else ((), ())
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
        work=work.ledger(matched, groups),
        match=work.matched(matched),
        causes=rollup.causes(groups, by=options.by),
        groups=groups,
        counts=rollup.counts(groups),
        only_base=only_base,
        only_head=only_head,
        analyses=analyses,
        warnings=warnings,
    )


def _doubts(pair: _Pair, both: tuple[Pieces, Pieces], by: str) -> list[str]:
    base, head = (
        doubts.Explained(name, runs, run, span, part)
        for name, runs, run, span, part in zip(
            ("base", "head"), pair.sides, (pair.base, pair.head), pair.spans, both, strict=True
        )
    )
    return doubts.warnings((base, head), by=by)


def _wall(pair: _Pair, both: tuple[Pieces, Pieces], *, explain: bool) -> tuple[Wall, tuple[str, ...]]:
    totals = (both[0].total_ns, both[1].total_ns)
    runs = (pair.base, pair.head)
    if not both[0].on_device:
        cuts = [wall.cut_host(run, span) for run, span in zip(runs, pair.spans, strict=True)]
        return wall.ledger(cuts[0], cuts[1], pair.spans, totals), ()
    known, why = idle.causes(*runs) if explain else (None, "")
    causes = known or (None, None)
    cuts = [
        wall.cut_device(run, span, cause) for run, span, cause in zip(runs, pair.spans, causes, strict=True)
    ]
    return wall.ledger(cuts[0], cuts[1], pair.spans, totals), (why,) if why else ()


def _compared(pair: _Pair) -> tuple[tuple[tuple[Analysis, Result], ...], tuple[str, ...]]:
    """What the analyses that apply to both runs say, and those that failed."""
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
    return Compared(a.steps, a.marked, a.left_out, (a.unused, b.unused), on_device, (means[0], means[1]))


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
