"""From measured values to verdicts, by the statistics of `tracekit.stats` where they can say anything.

One run a side says nothing of chance: its effect is reported and no verdict given.
"""

from __future__ import annotations

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

from tracekit.diff.metrics import STEP_TIME
from tracekit.diff.model import Design, Metric, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.metrics import Measured
    from tracekit.run import Run

THRESHOLD = 0.07
ALPHA = 0.05
ONE_RUN = "one run a side shows no spread: repeat the runs for a verdict"
_STATISTICS = "tracekit.stats"


def design(base: Sequence[Run], head: Sequence[Run], *, threshold: float) -> Design:
    """How the runs were taken: pairs, where every two runs in a row are one of each side."""
    sides = {run.path: "A" for run in base} | {run.path: "B" for run in head}
    taken = sorted((run.meta.created_at, run.id, sides[run.path]) for run in (*base, *head))
    order = "".join(side for _, _, side in taken)
    blocks = {frozenset(order[place : place + 2]) for place in range(0, len(order), 2)}
    repeated = len(base) > 1 and len(head) > 1
    paired = repeated and len(base) == len(head) and blocks == {frozenset("AB")}
    return Design((len(base), len(head)), order, paired, ALPHA if repeated else None, threshold)


def judged(measured: Sequence[Measured], how: Design) -> tuple[Metric, ...]:
    """Each metric with its effect, and a verdict where both sides were repeated."""
    able = how.alpha is not None and util.find_spec(_STATISTICS) is not None
    return tuple(_by_statistics(one, how) if able else _plain(one) for one in measured)


def overall(metrics: Sequence[Metric]) -> Verdict:
    """The verdict on the step time, which decides."""
    return next((one.verdict for one in metrics if one.name == STEP_TIME), Verdict.NO_VERDICT)


def _plain(one: Measured) -> Metric:
    a, b = one.medians
    return Metric(one.name, one.unit, one.basis, a, b, b / a if a else None, reason=ONE_RUN)


def _by_statistics(one: Measured, how: Design) -> Metric:
    compare = import_module(f"{_STATISTICS}.compare").compare
    metric = import_module(f"{_STATISTICS}.comparison").Metric(one.name, one.unit)
    found: Any = compare(metric, one.a, one.b, paired=how.paired, threshold=how.theta, alpha=ALPHA)
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
