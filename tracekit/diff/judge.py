"""From measured values to verdicts, by the statistics of `tracekit.stats` where they can say anything.

One run a side says nothing of chance: its effect is reported and no verdict given, unless recorded runs of
unchanged code tell the noise. Allocator peaks hardly vary and are compared exactly; all else by the test that
the runs allow. Where the SM clocks of the sides differ, the step time is judged in cycles too. All metrics of
a comparison are judged together (Holm).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.diff.metrics import UNPROFILED
from tracekit.diff.model import Design, Metric
from tracekit.measuring import conditions
from tracekit.measuring.metrics import DEVICE_PEAK, METRICS, STEP_TIME, TOLERANCE_BYTES
from tracekit.stats import blocks
from tracekit.stats.comparison import ALPHA, THRESHOLD, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.metrics import Measured
    from tracekit.measuring.conditions import Conditions
    from tracekit.run import Run
    from tracekit.stats.comparison import Comparison
    from tracekit.stats.noise import Noise

ONE_RUN = "one run per side: no variance estimate; repeat the runs for a verdict"

APART = (
    "all runs of one side were made before the other: what drifted looks like an effect; alternate the sides"
)

__all__ = ["ALPHA", "APART", "ONE_RUN", "THRESHOLD", "Sides", "design", "doubts", "judged", "overall", "read"]


@dataclass(frozen=True)
class Sides:
    """The runs that are compared.

    Attributes:
        base: Runs of the base, oldest first.
        head: Runs of the head, oldest first.
        conditions: Under which each run of both was measured.
        recorded: Runs whose repeats tell the noise where a side has no repeats.
    """

    base: Sequence[Run]
    head: Sequence[Run]
    conditions: tuple[Sequence[Conditions], Sequence[Conditions]]
    recorded: Sequence[Run]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of the conditions may explain a difference, or hide one."""
        return conditions.warnings(*self.conditions)

    @property
    def clocks(self) -> tuple[list[float | None], list[float | None]]:
        """Mean SM clock of each run, MHz; None where unknown."""
        a, b = ([one.clock_mhz for one in own] for own in self.conditions)
        return a, b

    def noise(self, one: Measured) -> Noise | None:
        """Noise of one run, where it is needed and known of such values."""
        if min(len(self.base), len(self.head)) > 1:
            return None
        if one.name == STEP_TIME and not one.basis.startswith(UNPROFILED):
            return None
        from tracekit import noise

        return noise.known(one.name, (self.base[-1], self.head[-1]), self.recorded)


def in_time(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs of a side, oldest first and each once, so that nothing depends on how they were named."""
    return tuple(
        sorted({run.path: run for run in runs}.values(), key=lambda run: (run.meta.created_at, run.id))
    )


def design(base: Sequence[Run], head: Sequence[Run], *, threshold: float) -> Design:
    """How the runs were taken: in pairs, where every two runs in a row are one of each side."""
    sides = {run.path: "A" for run in base} | {run.path: "B" for run in head}
    taken = sorted((run.meta.created_at, sides[run.path]) for run in (*base, *head))
    place = {when: float(at) for at, (when, _) in enumerate(taken)}
    told = len(place) == len(taken)
    order = "".join(side for _, side in taken) if told else ""
    times = [[place[run.meta.created_at] for run in own] for own in (base, head)]
    paired = told and len(base) > 1 and blocks.pairs(*times) is not None
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


def read(base: Sequence[Run], head: Sequence[Run], recorded: Sequence[Run]) -> Sides:
    """The sides with what their runs say of their conditions."""
    under = [conditions.of_run(run) for run in base], [conditions.of_run(run) for run in head]
    return Sides(base, head, under, recorded)


def judged(measured: Sequence[Measured], how: Design, sides: Sides) -> tuple[Metric, ...]:
    """Each metric with its effect, and a verdict where a side was repeated or the noise is known.

    Args:
        measured: The values of all runs.
        how: How the runs were taken.
        sides: The runs themselves, in the order of their values.
    """
    from tracekit.stats.multiple import gate

    compared = {one.name: found for one in measured if (found := _compared(one, how, sides))}
    together = {found.name: found for found in gate(list(compared.values()))}
    return tuple(_told(one, together[one.name]) if one.name in together else _plain(one) for one in measured)


def settled(how: Design, metrics: Sequence[Metric]) -> Design:
    """The design with the level of the verdicts that were given."""
    return replace(how, alpha=ALPHA) if any(one.verdict is not Verdict.NONE for one in metrics) else how


def overall(metrics: Sequence[Metric]) -> Verdict:
    """A regression of any metric; else the verdict on the step time, of which memory's pass says nothing."""
    if any(one.verdict is Verdict.REGRESSION for one in metrics):
        return Verdict.REGRESSION
    return next((one.verdict for one in metrics if one.name == STEP_TIME), Verdict.NONE)


def _plain(one: Measured) -> Metric:
    a, b = one.medians
    return Metric(one.name, one.unit, one.basis, a, b, b / a if a else None, reason=ONE_RUN)


def _told(one: Measured, found: Comparison) -> Metric:
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
        verdict=found.verdict,
        reason=found.reason,
        p_adjusted=found.p_adjusted,
    )


def _compared(one: Measured, how: Design, sides: Sides) -> Comparison | None:
    """The comparison of one metric; None where one run a side says nothing."""
    from tracekit.stats.clocks import at_their_clocks
    from tracekit.stats.compare import compare
    from tracekit.stats.exact import compare_exact

    noise, kind = sides.noise(one), METRICS[one.name]
    if how.alpha is None and noise is None:
        return None
    if one.name == DEVICE_PEAK:
        return compare_exact(kind, one.a, one.b, threshold=how.theta, tolerance=TOLERANCE_BYTES)
    found = compare(kind, one.a, one.b, paired=how.paired, noise=noise, threshold=how.theta, alpha=ALPHA)
    return (
        at_their_clocks(found, (one.a, one.b), sides.clocks, noise=noise) if one.name == STEP_TIME else found
    )
