"""Search and result of a bisection."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracekit.errors import ExitCode
from tracekit.stats.comparison import THRESHOLD, Comparison, Metric


@dataclass(frozen=True)
class Subject:
    """A commit or a version.

    Attributes:
        key: Full sha, or the version.
        title: Subject of the commit, or the package with its version.
        author: Of the commit.
        date: When the commit was written, ISO 8601.
    """

    key: str
    title: str
    author: str = ""
    date: str = ""

    @property
    def short(self) -> str:
        """Short name for display."""
        return self.key[:12]


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search.

    Attributes:
        subjects: From the good one to the bad one, in order.
        metric: Searched for its jump.
        exact: Whether it is a count, which one measurement tells.
        repeats: Measurements of every subject.
        threshold: Relative change between the ends below which there is nothing to search.
        skipped: Keys of subjects not to measure.
        notes: What whoever reads the result has to know of how it was searched.
    """

    subjects: tuple[Subject, ...]
    metric: Metric
    exact: bool = False
    repeats: int = 3
    threshold: float = THRESHOLD
    skipped: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """Position of the bad end."""
        return len(self.subjects) - 1


@dataclass(frozen=True)
class Culprit:
    """A change of the metric, and the subjects that may have caused it.

    Attributes:
        suspects: What may have made it, the last being the first that was measured after it.
        before: The last that was measured before it.
        effect: Ratio after to before; of a count the difference.
        low: Lower bound of its 95% interval.
        high: Upper bound.
        posterior: Probability that it is a jump in the direction of the whole.
        commands: What shows the difference.
    """

    suspects: tuple[Subject, ...]
    before: Subject
    effect: float
    low: float
    high: float
    posterior: float
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A subject in the log.

    Attributes:
        position: Among all subjects, the good end being 0.
        values: Of the metric, in its unit.
        cached: How many of them are of an earlier call.
        problem: Why it could not be measured.
    """

    position: int
    subject: Subject
    values: tuple[float, ...] = ()
    cached: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Changed:
    """A count that differs between the ends in all runs."""

    name: str
    good: float
    bad: float


@dataclass(frozen=True)
class Bisection:
    """The result of a search.

    Attributes:
        ends: The bad end against the good one.
        culprits: Sure ones, in order.
        undecided: Steps that repeats did not make sure.
        log: What was measured, in order of the subjects.
        reason: Why there is no culprit, where there is none.
        changed: Counts that would find their commit in one run each.
        notes: What else to know.
    """

    metric: Metric
    exact: bool
    good: Subject
    bad: Subject
    subjects: int
    ends: Comparison
    culprits: tuple[Culprit, ...]
    undecided: tuple[Culprit, ...] = ()
    log: tuple[Measured, ...] = ()
    reason: str = ""
    changed: tuple[Changed, ...] = ()
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> ExitCode:
        """0 if a culprit was found, else 3."""
        return ExitCode.OK if self.culprits else ExitCode.CANNOT_TELL

    @property
    def runs(self) -> tuple[int, int]:
        """Numbers of measurements made now and taken from the cache."""
        known = sum(one.cached for one in self.log)
        return sum(len(one.values) for one in self.log) - known, known
