"""What a gate is asked, and what it says; renderers compute nothing more."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tracekit.errors import ExitCode
from tracekit.stats.comparison import THRESHOLD, Comparison, Verdict, exit_code, overall

if TYPE_CHECKING:
    from tracekit.diff.model import Diff, Difference

METRICS = ("step_time", "device_peak", "host_peak")
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to check.

    Attributes:
        metrics: The declared metrics of the gate.
        threshold: Relative change from which a worsening is a regression.
        varying: Fields of the fingerprint that differ on purpose.
        allow_dirty: Whether runs with uncommitted changes may be the baseline.
        least: Runs that a baseline should have.
        tolerance: Difference of the device's peak memory that is none, bytes.
        explain: Whether to compare the profiles of what got slower, for the causes.
    """

    metrics: tuple[str, ...] = METRICS
    threshold: float = THRESHOLD
    varying: tuple[str, ...] = ()
    allow_dirty: bool = False
    least: int = 3
    tolerance: int = MIB
    explain: bool = False


class Outcome(StrEnum):
    """What became of a configuration."""

    COMPARED = "compared"
    NOT_COMPARABLE = "not comparable"
    NO_BASELINE = "no baseline"


@dataclass(frozen=True)
class Side:
    """The runs of one side.

    Attributes:
        runs: Their ids, oldest first.
        commit: Full sha; None where unknown.
        dirty: Whether there were uncommitted changes.
        distance: Commits between it and the merge-base; None for a head or a label.
        command: What recorded the newest of them; empty where unknown.
    """

    runs: tuple[str, ...]
    commit: str | None
    dirty: bool
    distance: int | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """One thing that was measured (workload, mode, device, ...) on both sides.

    Attributes:
        name: Such as `resnet50 train cuda`.
        workload: Name of the workload; None for an imported trace.
        mode: `train` or `infer`.
        device: `cpu` or `cuda`.
        base: None without a baseline.
        differences: Fields that differ, the gravest first.
        comparisons: One for each metric that both sides have.
        one_sided: Declared metrics that only one side measured, so that nothing can be told of them.
        notes: What to know about the runs.
        explained: The profiles of both sides compared, where the steps got slower.
    """

    name: str
    workload: str | None
    mode: str | None
    device: str | None
    outcome: Outcome
    head: Side
    base: Side | None = None
    differences: tuple[Difference, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    one_sided: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    explained: Diff | None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One for each declared metric that any side measured."""
        told = tuple(one.verdict for one in self.comparisons)
        return (*told, *(Verdict.CANNOT_TELL for _ in self.one_sided))


@dataclass(frozen=True)
class Gate:
    """The result of a check.

    Attributes:
        against: The revision or label that was asked for.
        merge_base: Where the head left that revision; None for a label.
        configurations: Every configuration of the head.
        missing: Configurations that only the baseline has.
        unmeasured: Those of training and inference, CPU and GPU, that neither side has.
        notes: What to know about the choice of runs.
        varying: Fields that were declared to differ.
        command: The words that check the same again.
    """

    against: str
    merge_base: str | None
    threshold: float
    configurations: tuple[Configuration, ...]
    missing: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=())

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All comparisons of all configurations."""
        return tuple(one for each in self.configurations for one in each.comparisons)

    @property
    def verdict(self) -> Verdict:
        """The verdict over all metrics of all configurations."""
        return overall(one for each in self.configurations for one in each.verdicts)

    @property
    def exit_code(self) -> ExitCode:
        """1 for a regression, 4 where any configuration is not comparable, 5 without anything compared.

        A configuration without a baseline is new and decides nothing.
        """
        if self.verdict is Verdict.REGRESSION:
            return ExitCode.REGRESSION
        if any(one.outcome is Outcome.NOT_COMPARABLE for one in self.configurations):
            return ExitCode.NOT_COMPARABLE
        if self.verdict is Verdict.NONE and not self.comparisons:
            return ExitCode.NOTHING_MEASURED
        return exit_code(self.verdict)
