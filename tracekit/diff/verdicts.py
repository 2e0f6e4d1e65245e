"""Metrics of both sides of a comparison and the verdicts on them, for `diff` and `check`.

In `diff`, step times are means: of the steps timed without a profiler if all runs of both sides have them
by the same clock, else of the profiled steps, which the profiler slows. Without step markers the capture is
the step. Memory peaks are those of the collector, else those of the allocator's events.

One run per side gives no verdict, only the effect, unless the noise is known from recorded runs of unchanged
code. Allocator peaks hardly vary and are compared exactly; other metrics by a test. If the SM clocks of the
sides differ, step time is also judged in cycles. All metrics of a comparison are judged together (Holm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import median, median_low

import pyarrow.compute as pc

from tracekit.diff import compared_steps, noise
from tracekit.diff.model import Design, Metric
from tracekit.runs import conditions
from tracekit.runs import step_times as timed
from tracekit.runs.conditions import Conditions
from tracekit.runs.metrics import DEVICE_PEAK, EXACT, HOST_PEAK, METRICS, STEP_TIME, TOLERANCE_BYTES, of_run
from tracekit.runs.run import Run
from tracekit.schema import HOST_DEVICE, C
from tracekit.stats import samples
from tracekit.stats.compare import compare
from tracekit.stats.comparison import ALPHA, Comparison, Verdict
from tracekit.stats.noise import Noise, Sessions
from tracekit.stats.samples import at_their_clocks
from tracekit.stats.tests import compare_exact, with_holm

ORDER_WARNING = (
    "all runs of one side are older than those of the other, so machine drift looks like a change; "
    "`tracekit ab` alternates them"
)
ONE_RUN = "one run per side: no variance estimate; repeat the runs for a verdict"
UNPROFILED = "mean step without a profiler"
PROFILED = "mean profiled step, which the profiler slows"
CAPTURE = "length of the capture, no steps being marked"
ALLOCATED = "most bytes the allocator held on a device"
RESIDENT = "most resident bytes of the process"


@dataclass(frozen=True)
class RunSides:
    """The runs that are compared, in the order of their values.

    Attributes:
        recorded: Runs whose repeats tell the noise where a side has a single value.
        base_first: Whether the base ran first, per block of two runs, if run i of both sides was made in the
            same block; None if the sides are not paired.
        apart: Whether all runs of one side were made before all of the other: on different occasions.
    """

    base: Sequence[Run]
    head: Sequence[Run]
    recorded: Sequence[Run]
    base_first: Sequence[bool] | None = None
    apart: bool = False

    @cached_property
    def conditions(self) -> tuple[list[Conditions], list[Conditions]]:
        """Under which each run of the base and of the head was measured."""
        return [conditions.of_run(run) for run in self.base], [conditions.of_run(run) for run in self.head]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Differences in conditions that may explain or hide a change."""
        return conditions.warnings(*self.conditions)

    def noise(
        self, name: str, a: Sequence[float | None], b: Sequence[float | None], *, profiled: bool = False
    ) -> Noise | Sessions | None:
        """Return the noise that the verdict has to allow for; None if no side needs it, or if it is unknown.

        Of a side with a single value, that of one run. Of sides that were recorded on different occasions,
        that between sessions: times differ by it, memory does not.

        Args:
            name: Name of the metric.
            a: One value per run of the base.
            b: One value per run of the head.
            profiled: Whether a profiler slowed the runs, whose noise the recorded ones then do not tell.
        """
        fewest = min(sum(value is not None for value in values) for values in (a, b))
        apart = self.apart if fewest > 1 else not profiled and self._are_in_two_sessions
        if apart and METRICS[name].unit == "ns":
            compared = {run.path for run in (*self.base, *self.head)}
            unused = [run for run in self.recorded if run.path not in compared]
            return noise.sessions_of(name, self.base[-1], [] if profiled else unused)
        if fewest > 1 or profiled:
            return None
        return noise.noise_of_run(name, (self.base[-1], self.head[-1]), self.recorded)

    @cached_property
    def _are_in_two_sessions(self) -> bool:
        """Whether no run of the base is of the session of a run of the head."""
        likes = [run for run in self.recorded if noise.is_alike(run, self.head[-1])]
        runs = {run.path: run for run in (*likes, *self.base, *self.head)}
        sessions = noise.split_into_sessions(runs.values(), lambda _: 1.0)
        number_of = {run.path: number for number, session in enumerate(sessions) for run, _ in session}
        sides = ({number_of[run.path] for run in side} for side in (self.base, self.head))
        return not set.intersection(*sides)

    def compare(
        self,
        name: str,
        a: Sequence[float | None],
        b: Sequence[float | None],
        *,
        threshold: float,
        tolerance: float = TOLERANCE_BYTES,
        noise: Noise | Sessions | None = None,
    ) -> Comparison:
        """Compare one metric of both sides.

        Args:
            name: Name of the metric.
            a: One value per run of the base, ns or bytes; None where a run has none.
            b: The same of the head.
            threshold: Relative change from which it is a regression.
            tolerance: Ignored difference of an exact metric, bytes.
            noise: Noise of one run, where a side has a single value; earlier sessions, if the sides were
                recorded on different occasions.
        """
        metric = METRICS[name]
        if name in EXACT:
            return compare_exact(metric, a, b, threshold=threshold, tolerance=tolerance)
        comparison = compare(
            metric,
            a,
            b,
            paired=self.base_first is not None,
            base_first=self.base_first,
            noise=noise,
            threshold=threshold,
        )
        if name != STEP_TIME:
            return comparison
        clocks_a, clocks_b = ([run.clock_mhz for run in side] for side in self.conditions)
        return at_their_clocks(
            comparison, (a, b), (clocks_a, clocks_b), base_first=self.base_first, noise=noise
        )


@dataclass(frozen=True)
class Measured:
    """Values of a metric for every run of both sides, in run order."""

    name: str
    unit: str
    basis: str
    a: tuple[int, ...]
    b: tuple[int, ...]


def measure(base: Sequence[Run], head: Sequence[Run], steps: Measured) -> tuple[Measured, ...]:
    """Return the step times, and every other metric that all runs of both sides have.

    Args:
        base: Runs of the base.
        head: Runs of the head.
        steps: Their step times.
    """
    measured = [steps]
    for name, basis in ((DEVICE_PEAK, ALLOCATED), (HOST_PEAK, RESIDENT)):
        a, b = (tuple(filter(None, (read_peak(run, name) for run in side))) for side in (base, head))
        if (len(a), len(b)) == (len(base), len(head)):
            measured.append(Measured(name, "bytes", basis, a, b))
    return tuple(measured)


def step_times(base: Sequence[Run], head: Sequence[Run]) -> Measured:
    """Return the step time of every run of both sides."""
    runs = (*base, *head)
    clocks = {noise.clock(run) for run in runs}
    if len(clocks) == 1 and None not in clocks:
        basis = f"{UNPROFILED} ({clocks.pop()})"
        unprofiled = {run.path: timed.unprofiled_step_time(run.meta.timings) for run in runs}
        lengths = {path: times.mean_ns if times else 0 for path, times in unprofiled.items()}
    else:
        has_step_marks = all(run.rows("steps") for run in runs)
        basis = PROFILED if has_step_marks else CAPTURE
        profiled = {run.path: timed.profiled_step_time(run) if has_step_marks else None for run in runs}
        lengths = {
            run.path: times.mean_ns if (times := profiled[run.path]) else compared_steps.capture_ns(run)
            for run in runs
        }
    a, b = (tuple(lengths[run.path] for run in side) for side in (base, head))
    return Measured(STEP_TIME, "ns", basis, a, b)


def median_run(runs: Sequence[Run], times: Sequence[int]) -> Run:
    """Return the run of median step time: the lower of two middle ones, the older of two equal ones."""
    return runs[times.index(median_low(times))]


def read_peak(run: Run, name: str) -> int | None:
    """Return a memory peak of a run, bytes: the collector's, else that of the allocator's events."""
    sampled = of_run(run).get(name)
    if sampled is not None or name != DEVICE_PEAK:
        return None if sampled is None else int(sampled)
    held = run.table("allocations", columns=[C.TOTAL_ALLOCATED], where=pc.field(C.DEVICE) != HOST_DEVICE)[
        C.TOTAL_ALLOCATED
    ].dropna()
    return int(held.max()) if len(held) else None


def by_creation_time(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the distinct runs of a side, oldest first, independent of the references."""
    return tuple(
        sorted({run.path: run for run in runs}.values(), key=lambda run: (run.meta.created_at, run.id))
    )


def design(base: Sequence[Run], head: Sequence[Run], *, threshold: float) -> Design:
    """Return the pairing of the runs: paired if every two consecutive runs are one of each side.

    Args:
        base: Runs of the base, oldest first.
        head: Runs of the head, oldest first.
        threshold: Relative change that matters.
    """
    sides = {run.path: "A" for run in base} | {run.path: "B" for run in head}
    in_order = sorted((run.meta.created_at, sides[run.path]) for run in (*base, *head))
    position = {created_at: float(number) for number, (created_at, _) in enumerate(in_order)}
    has_distinct_times = len(position) == len(in_order)
    order = "".join(side for _, side in in_order) if has_distinct_times else ""
    times = [[position[run.meta.created_at] for run in side] for side in (base, head)]
    blocks = samples.pairs(*times) if has_distinct_times else None
    paired = blocks is not None and len(blocks.a) == len(base) == len(head)
    repeated = max(len(base), len(head)) > 1
    return Design((len(base), len(head)), order, paired, ALPHA if repeated else None, threshold)


def order_warnings(design: Design) -> tuple[str, ...]:
    """Return a warning if all runs of one side precede all of the other.

    Example:
        >>> order_warnings(Design((2, 2), "ABBA", True, 0.05, 0.07))
        ()
    """
    first, second = "A" * design.k[0], "B" * design.k[1]
    in_sequence = min(design.k) > 1 and design.order in {first + second, second + first}
    return (ORDER_WARNING,) if in_sequence else ()


def with_verdicts(measured: Sequence[Measured], design: Design, sides: RunSides) -> tuple[Metric, ...]:
    """Return each metric with its effect, and a verdict if a side is repeated or the noise is known.

    Args:
        measured: The values of all runs.
        design: How the runs were taken.
        sides: The runs themselves, in the order of their values.
    """
    comparisons = []
    for values in measured:
        profiled = values.name == STEP_TIME and not values.basis.startswith(UNPROFILED)
        noise = sides.noise(values.name, values.a, values.b, profiled=profiled)
        if design.alpha is not None or noise is not None:
            comparisons.append(
                sides.compare(values.name, values.a, values.b, threshold=design.theta, noise=noise)
            )
    together = {comparison.name: comparison for comparison in with_holm(comparisons)}
    return tuple(_with_verdict(values, together.get(values.name)) for values in measured)


def overall(metrics: Sequence[Metric]) -> Verdict:
    """Return a regression if any metric regressed, else the verdict on the step time."""
    if any(metric.verdict is Verdict.REGRESSION for metric in metrics):
        return Verdict.REGRESSION
    return next((metric.verdict for metric in metrics if metric.name == STEP_TIME), Verdict.NONE)


def _with_verdict(values: Measured, comparison: Comparison | None) -> Metric:
    if comparison is None:
        a, b = median(values.a), median(values.b)
        return Metric(values.name, values.unit, values.basis, a, b, b / a if a else None, reason=ONE_RUN)
    shared = [field.name for field in fields(Metric) if field.name != "basis"]
    return Metric(basis=values.basis, **{name: getattr(comparison, name) for name in shared})
