"""Results of `tracekit check`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tracekit.diff.model import Diff, Difference
from tracekit.errors import ExitCode
from tracekit.stats.comparison import Comparison, Verdict, exit_code, overall

MIB = 1 << 20


class Outcome(StrEnum):
    """Outcome for a configuration."""

    COMPARED = "compared"
    NOT_COMPARABLE = "not comparable"
    NO_BASELINE = "no baseline"


@dataclass(frozen=True)
class Side:
    """The runs of one side.

    Attributes:
        runs: Their ids, oldest first.
        commit: Full commit id; None if unknown.
        distance: Commits between it and the merge-base; None for a head or a label.
        command: Command that recorded the newest run; empty if unknown.
        timed_steps: Fewest and most steps whose mean is the step time of a run; None without step times.
    """

    runs: tuple[str, ...]
    commit: str | None
    dirty: bool
    distance: int | None = None
    command: tuple[str, ...] = ()
    timed_steps: tuple[int, int] | None = None


@dataclass(frozen=True)
class Configuration:
    """A configuration (workload, mode, device, ...) with the runs of both sides.

    Attributes:
        name: Such as `resnet50 train cuda`.
        workload: Name of the workload; None for an imported trace.
        mode: `train` or `infer`.
        device: `cpu` or `cuda`.
        base: Runs of the baseline; None without one.
        differences: Fields that differ, most severe first.
        comparisons: One per metric that both sides have.
        one_sided: Requested metrics measured on one side only.
        explained: Comparison of the profiles, if the steps got slower.
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
        """One verdict per requested metric that any side measured."""
        verdicts = tuple(comparison.verdict for comparison in self.comparisons)
        return (*verdicts, *(Verdict.CANNOT_TELL for _ in self.one_sided))


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        against: The requested revision or label.
        merge_base: Merge-base of the head and that revision; None for a label.
        missing: Configurations of the baseline that the head lacks.
        unmeasured: Combinations of mode and device that neither side has.
        varying: Fields whose difference is ignored.
        on_unknown: Whether "cannot tell" is to `fail` or to `pass`.
        allow_missing_baseline: Whether a missing baseline is to pass.
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
    on_unknown: str = "fail"
    allow_missing_baseline: bool = False

    @property
    def metrics(self) -> tuple[tuple[Configuration, Comparison], ...]:
        """All configurations with each of their comparisons."""
        return tuple((owner, comparison) for owner in self.configurations for comparison in owner.comparisons)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All comparisons of all configurations."""
        return tuple(comparison for _, comparison in self.metrics)

    @property
    def verdict(self) -> Verdict:
        """The verdict over all metrics of all configurations."""
        if {configuration.outcome for configuration in self.configurations} == {Outcome.NO_BASELINE}:
            return Verdict.NO_BASELINE
        return overall(verdict for configuration in self.configurations for verdict in configuration.verdicts)

    @property
    def exit_code(self) -> ExitCode:
        """That of the decision, or 0 if the team chose that the decision is to pass."""
        allowed = {
            ExitCode.CANNOT_TELL: self.on_unknown == "pass",
            ExitCode.NOTHING_MEASURED: self.allow_missing_baseline and self.verdict is Verdict.NO_BASELINE,
        }
        return ExitCode.OK if allowed.get(self.decision) else self.decision

    @property
    def decision(self) -> ExitCode:
        """1 for a regression, 4 if any configuration is not comparable, 5 if nothing was compared.

        A configuration without a baseline is new and decides nothing.
        """
        if self.verdict is Verdict.REGRESSION:
            return ExitCode.REGRESSION
        if Outcome.NOT_COMPARABLE in {configuration.outcome for configuration in self.configurations}:
            return ExitCode.NOT_COMPARABLE
        if self.verdict is Verdict.NONE and not self.comparisons:
            return ExitCode.NOTHING_MEASURED
        return exit_code(self.verdict)
