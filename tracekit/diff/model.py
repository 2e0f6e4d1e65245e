"""Result of a comparison of runs, with all that renderers show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tracekit.analysis import Analysis, Result
from tracekit.diff.breakdowns import (
    Cause,
    Changed,
    Group,
    Matched,
    OneSided,
    Range,
    StepTimeBreakdown,
    WorkBreakdown,
)
from tracekit.diff.noise import is_alike
from tracekit.errors import UnusableInputError
from tracekit.ingest.references import resolve
from tracekit.runs import revisions
from tracekit.runs.display import Displayed
from tracekit.runs.meta import RUN_ID
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.text import human, shorten
from tracekit.stats.comparison import Verdict, format_ratio

__all__ = ["Comparability", "Compared", "Design", "Diff", "Difference", "Metric", "Side", "Status", "Verdict"]


class Status(StrEnum):
    """Whether two runs can be compared; of a difference, what it means for that."""

    COMPARABLE = "comparable"
    DECLARED = "declared"
    WARN = "warn"
    UNKNOWN = "unknown"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Difference:
    """Field in which two runs differ.

    Attributes:
        field: Its name, as `--varying` takes it.
        base: Value of the run compared with; None where unknown.
        head: Value of the run in question; None where unknown.
        status: `not comparable`, `warn`, `unknown` (one side does not say) or `declared`.
    """

    field: str
    base: Any
    head: Any
    status: Status


@dataclass(frozen=True)
class Comparability:
    """Whether two runs can be compared, and in what they differ, the gravest first."""

    differences: tuple[Difference, ...] = ()

    @property
    def status(self) -> Status:
        """The most severe status of any difference; `comparable` without one."""
        statuses = {difference.status for difference in self.differences}
        if Status.NOT_COMPARABLE in statuses:
            return Status.NOT_COMPARABLE
        if statuses & {Status.WARN, Status.UNKNOWN}:
            return Status.WARN
        return Status.DECLARED if statuses else Status.COMPARABLE

    @property
    def refused(self) -> tuple[Difference, ...]:
        """The differences that prevent a comparison."""
        return tuple(field for field in self.differences if field.status is Status.NOT_COMPARABLE)


@dataclass(frozen=True)
class Side:
    """Side of a comparison.

    Attributes:
        reference: How the person named it.
        runs: Ids of all its runs.
        run: Id of the run whose trace explains the side: the one of median step time.
        commit: Commit it was recorded at; None where unknown.
        dirty: Whether there were uncommitted changes; None where unknown.
        fingerprint: Its stable identifiers.
    """

    reference: str
    runs: tuple[str, ...]
    run: str
    label: str | None
    commit: str | None
    dirty: bool | None
    fingerprint: dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """Measured quantity of both sides.

    Attributes that are not listed are those of `tracekit.stats.comparison.Comparison`.

    Attributes:
        basis: What was measured, and how it was summed up.
        a: The base: geometric mean over its runs; their median if the metric is exact or has no verdict.
        b: The same of the head.
    """

    name: str
    unit: str
    basis: str
    a: int | float
    b: int | float
    ratio: float | None
    ci95: tuple[float, float] | None = None
    p: float | None = None
    mde: float | None = None
    verdict: Verdict = Verdict.NONE
    reason: str = ""
    p_adjusted: float | None = None


@dataclass(frozen=True)
class Design:
    """Method of measurement and test.

    Attributes:
        k: Runs of the base and of the head.
        order: In which order the runs were taken, `A` being the base, oldest first; empty where unknown.
        paired: Whether runs were compared in pairs.
        alpha: Probability of a false alarm that was accepted; None without a verdict.
        theta: Relative change that matters.
    """

    k: tuple[int, int]
    order: str
    paired: bool
    alpha: float | None
    theta: float


@dataclass(frozen=True)
class Compared:
    """The steps that were compared.

    Attributes:
        steps: Number of them on each side, all ranks together.
        marked: Whether they are marked; else each rank's capture is one.
        left_out: Leading steps of each rank left out on both sides, as one side had such outliers.
        unused: Further steps of the base and of the head without a match on the other side.
        on_device: Whether work is time on devices; else it is self time of ops on the host.
        step_ns: Mean compared step of the base and of the head.
        range_ns: Shortest and longest compared step of the base and of the head; None where unknown.
        ranks: Number of compared ranks, of which each has the same number of steps.
    """

    steps: int
    marked: bool
    left_out: int
    unused: tuple[int, int]
    on_device: bool
    step_ns: tuple[float, float]
    range_ns: tuple[Range, Range] | None = None
    ranks: int = 1

    @property
    def each(self) -> int:
        """Number of compared steps of each rank."""
        return self.steps // max(1, self.ranks)


MAX_SHOWN, MAX_LABEL = 8, 80
"""Causes, and characters of each, in the `repr` of a difference."""


@dataclass(frozen=True)
class Diff(Displayed):
    """Difference between a head and a base.

    Attributes:
        by: What the lines of `work` are: `op`, `module` or `kernel`.
        compared: The steps that were compared; None if the sides are not comparable.
        wall: Breakdown of the difference in step time.
        work: Breakdown of the difference in work.
        match: How much of the work was matched, and how.
        causes: Lines of `work` that differ, the largest difference first.
        groups: The groups they are made of, in the same order.
        counts: What runs another number of times.
        only_base: Names of work that the head lacks, also where work of other names took its place.
        only_head: The same of the head.
        analyses: What the analyses that compare runs say.
        misleading: Why the numbers of a side are misleading, according to `integrity`; empty if they are not.
    """

    base: Side
    head: Side
    comparability: Comparability
    design: Design
    by: str
    verdict: Verdict
    metrics: tuple[Metric, ...] = ()
    compared: Compared | None = None
    wall: StepTimeBreakdown | None = None
    work: WorkBreakdown | None = None
    match: Matched | None = None
    causes: tuple[Cause, ...] = ()
    groups: tuple[Group, ...] = ()
    counts: tuple[Changed, ...] = ()
    only_base: tuple[OneSided, ...] = ()
    only_head: tuple[OneSided, ...] = ()
    analyses: tuple[tuple[Analysis, Result], ...] = ()
    warnings: tuple[str, ...] = ()
    misleading: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Describe the verdict, the metrics and the largest causes in a few lines."""
        lines = [f"<Diff of {self.head.reference} against {self.base.reference}: {self.verdict}"]
        for metric in self.metrics:
            sides = " to ".join(human(round(value), metric.unit) for value in (metric.a, metric.b))
            ratio = "" if metric.ratio is None else f" ({format_ratio(metric.ratio)})"
            lines.append(f"  {metric.name}: {sides}{ratio}, {metric.verdict}")
        shown = self.causes[:MAX_SHOWN]
        lines += [
            f"  {human(cause.b.total_ns - cause.a.total_ns, 'ns')}: {shorten(cause.label, MAX_LABEL)}"
            for cause in shown
        ]
        more = len(self.causes) - len(shown)
        return "\n".join([*lines, *([f"  and {more} more causes"] if more else [])]) + ">"


_RANGE = ".."  # between the ends of a range of git revisions; three dots mean the same here


def pair(references: Sequence[str]) -> tuple[str, str]:
    """Return the two sides of the arguments: two references, or a range of git revisions.

    Raises:
        UnusableInputError: They name one side, or more than two.

    Example:
        >>> pair(["main..topic"]), pair(["before", "after"])
        (('git:main', 'git:topic'), ('before', 'after'))
    """
    if len(references) == 2:
        return references[0], references[1]
    if len(references) == 1 and _RANGE in references[0] and not Path(references[0]).exists():
        base, _, head = references[0].partition(_RANGE)
        ends = [f"git:{revision.lstrip('.') or 'HEAD'}" for revision in (base, head)]
        return ends[0], ends[1]
    raise UnusableInputError(
        f"expected two runs, got {len(references)}",
        hint="use `tracekit diff latest~1 latest` or `tracekit diff main..topic`",
    )


def runs_of(store: Store, reference: str) -> tuple[Run, ...]:
    """Return the runs of a side, oldest first: several if the reference is a label or a commit.

    Of these, the runs of the same configuration as the newest count.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
    """
    newest, named = _find_runs(store, reference)
    return tuple(run for run in named if is_alike(run, newest))


def note_left_out(store: Store, reference: str) -> str:
    """Return a note on runs of a label or commit that `runs_of` excludes; empty if none."""
    newest, named = _find_runs(store, reference)
    fields = newest.header.fingerprint
    others = [run.header.fingerprint for run in named if not is_alike(run, newest)]
    if not others:
        return ""
    differing = {
        name for other in others for name in {*fields, *other} if fields.get(name) != other.get(name)
    }
    single = len(others) == 1
    runs = "1 more run that differs" if single else f"{len(others)} more runs that differ"
    end = "it is left out" if single else "they are left out"
    return f"{reference!r} names {runs} from its newest in {', '.join(sorted(differing))}: {end}"


def _find_runs(store: Store, reference: str) -> tuple[Run, list[Run]]:
    """Return the newest run that a reference names, and all of them."""
    newest = resolve(store, reference)
    is_path = os.sep in reference and not reference.startswith("git:") and newest.meta.label != reference
    if is_path or newest.path.parent != store.path:  # else it is a run of another store
        return newest, [newest]
    if reference.startswith("git:"):
        sha = revisions.commit(reference.removeprefix("git:"))
        return newest, [run for run in store.readable() if run.header.git and run.header.git.sha == sha]
    # A label can be the beginning of a run's id, which then names this run alone.
    is_id = RUN_ID.fullmatch(reference) and newest.path.name.startswith(reference)
    if newest.meta.label == reference and not is_id:
        return newest, [run for run in store.readable() if run.header.label == reference]
    return newest, [newest]
