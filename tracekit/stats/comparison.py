"""Metrics, verdicts and results of comparisons, in the form of the reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.errors import ExitCode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

THRESHOLD = 0.07
"""Relative change from which a gate acts, TorchBench's own."""
ALPHA = 0.05
POWER = 0.8

Values: TypeAlias = "Sequence[float | None] | NDArray[np.float64]"
"""Values per run, in measurement order; None or NaN if a run did not measure it."""


class Verdict(StrEnum):
    """Verdict of a comparison."""

    REGRESSION = "regression"
    PASS = "pass"  # noqa: S105 - a verdict, no password
    IMPROVEMENT = "improvement"
    CANNOT_TELL = "cannot tell"
    NONE = "no verdict"
    NOT_COMPARABLE = "not comparable"
    NO_BASELINE = "no baseline"


class Direction(StrEnum):
    """Which values of a metric are better."""

    LOWER = "lower"
    HIGHER = "higher"

    @property
    def sign(self) -> int:
        """1 where an increase is worse, else -1."""
        return 1 if self is Direction.LOWER else -1


@dataclass(frozen=True)
class Metric:
    """Compared metric: name, unit (`ns`, `bytes`, `count`, `cycles`), and which values are better."""

    name: str
    unit: str = "ns"
    direction: Direction = Direction.LOWER


@dataclass(frozen=True)
class Comparison:
    """Comparison of a metric of base (a) and head (b).

    Attributes:
        unit: Of `a` and `b`.
        a: Geometric mean over the runs of the base; the median for exact metrics.
        b: The same of the head, so that `b / a` is the ratio.
        ratio: Head over base; None where the base is 0.
        ci95: Interval of the ratio that covers it in 95 of 100 comparisons, over all looks of a sequential
            plan together; None where nothing is known of the spread.
        p: Two-sided p value of "no change"; None for exact metrics and where there is no spread.
        mde: Smallest relative increase that this comparison finds in 80 of 100 cases (0.02 is 2%).
        k: Runs per side, of the smaller side.
        paired: Whether runs were compared within blocks.
        reason: Why, in one sentence.
        runs: Runs of each side that were used.
        threshold: Relative change from which the verdict is a regression.
        alpha: Level its interval and p value were judged at; below 0.05 at the looks of a sequential plan.
        sigma: Standard deviation of a run's logarithm, about its relative noise.
        more_runs: About how many more runs per side would tell; None if it is told, or would take too many.
        p_adjusted: `p` over the declared metrics of a gate (Holm), None outside one.

    Example:
        >>> one = Comparison("step_time", "ns", 100.0, 110.0, 1.1, (1.08, 1.12), 0.001, 0.02,
        ...     Verdict.REGRESSION, 5, True, "10% slower")
        >>> one.entry()["verdict"], one.entry()["ci95"]
        ('regression', [1.08, 1.12])
    """

    name: str
    unit: str
    a: float
    b: float
    ratio: float | None
    ci95: tuple[float, float] | None
    p: float | None
    mde: float | None
    verdict: Verdict
    k: int
    paired: bool
    reason: str
    runs: tuple[int, int] = (0, 0)
    method: str = ""
    threshold: float = THRESHOLD
    alpha: float = ALPHA
    sigma: float | None = None
    direction: Direction = Direction.LOWER
    p_adjusted: float | None = None
    more_runs: int | None = None

    def entry(self) -> dict[str, Any]:
        """The comparison as JSON values, one key per attribute."""
        values = asdict(self)
        pairs = {key: list(value) for key, value in values.items() if isinstance(value, tuple)}
        return {**values, **pairs, "verdict": str(self.verdict), "direction": str(self.direction)}


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of a gate: one regression fails it, one inconclusive metric prevents a pass.

    Example:
        >>> overall([Verdict.PASS, Verdict.CANNOT_TELL, Verdict.REGRESSION])
        <Verdict.REGRESSION: 'regression'>
        >>> overall([])
        <Verdict.NONE: 'no verdict'>
    """
    distinct = set(verdicts)
    return next((verdict for verdict in _GRAVEST_FIRST if verdict in distinct), Verdict.NONE)


_GRAVEST_FIRST = (
    Verdict.REGRESSION,
    Verdict.NOT_COMPARABLE,
    Verdict.CANNOT_TELL,
    Verdict.NONE,
    Verdict.IMPROVEMENT,
    Verdict.PASS,
)


def exit_code(verdict: Verdict) -> ExitCode:
    """Return the exit code of a gate.

    Example:
        >>> [int(exit_code(verdict)) for verdict in Verdict]
        [1, 0, 0, 3, 3, 4, 5]
    """
    if verdict is Verdict.REGRESSION:
        return ExitCode.REGRESSION
    if verdict is Verdict.NOT_COMPARABLE:
        return ExitCode.NOT_COMPARABLE
    if verdict is Verdict.NO_BASELINE:
        return ExitCode.NOTHING_MEASURED
    return ExitCode.OK if verdict in {Verdict.PASS, Verdict.IMPROVEMENT} else ExitCode.CANNOT_TELL


_LARGE = 2.0  # ratio from which a change reads better as a multiple
_HUGE = 1000.0  # ratio from which only the size of a change is shown


def format_ratio(ratio: float) -> str:
    """Return a ratio as a relative change, or as a multiple if it is large.

    Example:
        >>> format_ratio(1.07), format_ratio(0.99), format_ratio(15.64), format_ratio(2_000.0)
        ('+7.0%', '-1.0%', '15.64×', 'more than 1000×')
    """
    if ratio >= _HUGE:
        return f"more than {_HUGE:.0f}×"
    return f"{ratio:.2f}×" if ratio >= _LARGE else f"{100 * (ratio - 1):+z.1f}%"
