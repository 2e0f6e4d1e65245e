"""From measured values to verdicts, by the statistics of `tracekit.stats` where they can say anything.

One run a side says nothing of chance: its effect is reported and no verdict given. Allocator peaks hardly
vary and are compared exactly; all else by the test that the runs allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.diff.metrics import DEVICE_PEAK, STEP_TIME
from tracekit.diff.model import Design, Metric, Verdict
from tracekit.stats.comparison import ALPHA, THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.metrics import Measured
    from tracekit.run import Run
    from tracekit.stats.comparison import Comparison

ONE_RUN = "one run a side shows no spread: repeat the runs for a verdict"

APART = (
    "all runs of one side were made before the other: what drifted looks like an effect; alternate the sides"
)

__all__ = ["ALPHA", "APART", "ONE_RUN", "THRESHOLD", "design", "doubts", "judged", "overall"]


def design(base: Sequence[Run], head: Sequence[Run], *, threshold: float) -> Design:
    """How the runs were taken: in pairs, where every two runs in a row are one of each side."""
    sides = {run.path: "A" for run in base} | {run.path: "B" for run in head}
    taken = sorted((run.meta.created_at, sides[run.path]) for run in (*base, *head))
    told = len({when for when, _ in taken}) == len(taken)
    order = "".join(side for _, side in taken) if told else ""
    blocks = {frozenset(order[place : place + 2]) for place in range(0, len(order), 2)}
    paired = len(base) == len(head) > 1 and blocks == {frozenset("AB")}
    repeated = max(len(base), len(head)) > 1
    return Design((len(base), len(head)), order, paired, ALPHA if repeated else None, threshold)


def doubts(how: Design) -> tuple[str, ...]:
    """What speaks against the verdicts: all runs of one side before all of the other.

    Example:
        >>> doubts(Design((2, 2), "ABBA", True, 0.05, 0.07))
        ()
    """
    first, second = "A" * how.k[0], "B" * how.k[1]
    apart = min(how.k) > 1 and how.order in {first + second, second + first}
    return (APART,) if apart else ()


def judged(measured: Sequence[Measured], how: Design) -> tuple[Metric, ...]:
    """Each metric with its effect, and a verdict where a side was repeated."""
    return tuple(_plain(one) if how.alpha is None else _tested(one, how) for one in measured)


def overall(metrics: Sequence[Metric]) -> Verdict:
    """The verdict on the step time, which decides."""
    return next((one.verdict for one in metrics if one.name == STEP_TIME), Verdict.NO_VERDICT)


def _plain(one: Measured) -> Metric:
    a, b = one.medians
    return Metric(one.name, one.unit, one.basis, a, b, b / a if a else None, reason=ONE_RUN)


def _tested(one: Measured, how: Design) -> Metric:
    found = _comparison(one, how)
    return Metric(
        one.name,
        one.unit,
        one.basis,
        found.a,
        found.b,
        found.ratio,
        ci95=found.ci95,
        p=found.p,
        mde=found.mde,
        verdict=Verdict(str(found.verdict)),
        reason=found.reason,
    )


def _comparison(one: Measured, how: Design) -> Comparison:
    from tracekit.stats.compare import compare
    from tracekit.stats.comparison import Metric as Kind
    from tracekit.stats.exact import compare_exact

    kind = Kind(one.name, one.unit)
    if one.name == DEVICE_PEAK:
        return compare_exact(kind, one.a, one.b, threshold=how.theta)
    return compare(kind, one.a, one.b, paired=how.paired, threshold=how.theta, alpha=ALPHA)
