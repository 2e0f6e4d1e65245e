"""Check the runs of a head against their baseline, configuration by configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.checking import baseline, configuration, heads, judge
from tracekit.checking.model import Configuration, Gate, Options, Outcome, Side
from tracekit.diff.comparability import declared
from tracekit.diff.model import Status
from tracekit.stats.multiple import gate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.checking.baseline import Baseline, Candidates
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
        store: Where both are.
        against: A git revision or a label.
        runs: The runs in question; by default all of the latest recorded commit.
        label: Or all runs of a label.
        options: Metrics, threshold and what may differ.

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
    return Gate(
        against=against,
        merge_base=candidates.merge_base,
        threshold=options.threshold,
        configurations=_judged_together(found),
        missing=_missing(candidates, head),
        command=_command(against, head, options),
    )


@dataclass(frozen=True)
class _Asked:
    candidates: Candidates
    free: frozenset[str]
    options: Options
    stored: tuple[Run, ...]


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
        notes=_notes(chosen, asked.options),
    )
    if not chosen.equal or comparability.status is Status.NOT_COMPARABLE:
        return replace(found, outcome=Outcome.NOT_COMPARABLE)
    judged = judge.compared(chosen.runs, head, asked.stored, asked.options)
    return replace(
        found,
        outcome=Outcome.COMPARED,
        comparisons=judged.comparisons,
        notes=(*found.notes, *judged.notes),
        one_sided=judged.one_sided,
    )


def _notes(chosen: Baseline, options: Options) -> tuple[str, ...]:
    found = []
    if chosen.equal and len(chosen.runs) < options.least:
        found.append(f"no ancestor has {options.least} runs of this configuration: its baseline is smaller")
    if chosen.distance:
        found.append(
            f"the baseline lies {chosen.distance} commits before the merge-base: their changes count"
        )
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
    """Holm over all metrics of all configurations."""
    judged = iter(gate([one for each in found for one in each.comparisons]))
    return tuple(replace(each, comparisons=tuple(next(judged) for _ in each.comparisons)) for each in found)


def _missing(candidates: Candidates, head: Sequence[Run]) -> tuple[str, ...]:
    """What the nearest candidate measured and the head did not."""
    measured = {configuration.kind(run) for run in head}
    base = {configuration.kind(run) for run in candidates.groups[0].runs}
    return tuple(sorted(configuration.told(one) for one in base - measured))


def _command(against: str, head: Sequence[Run], options: Options) -> tuple[str, ...]:
    words = ["tracekit", "check", "--against", against, "--threshold", f"{100 * options.threshold:g}%"]
    words += ["--metric", ",".join(options.metrics)]
    words += [word for field in options.varying for word in ("--varying", field)]
    words += ["--min-runs", str(options.least), "--byte-tolerance", str(options.tolerance)]
    words += ["--allow-dirty"] if options.allow_dirty else []
    return (*words, *(word for run in head for word in ("--run", run.id)))
