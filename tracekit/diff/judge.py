"""Metrics, verdicts and warnings of a comparison.

Step times are medians: of the steps timed without a profiler if all runs of both sides have them by the same
clock, else of the profiled steps, which the profiler slows. Without step markers the capture is the step.
Memory peaks are those of the collector, else those of the allocator's events.

One run per side gives no verdict, only the effect, unless the noise is known from recorded runs of unchanged
code. Allocator peaks hardly vary and are compared exactly; other metrics by a test. If the SM clocks of the
sides differ, step time is also judged in cycles. All metrics of a comparison are judged together (Holm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.diff import pieces, spans
from tracekit.diff.model import Design, Metric
from tracekit.runs import conditions
from tracekit.runs import step_times as timed
from tracekit.runs.conditions import Conditions
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK, METRICS, STEP_TIME, TOLERANCE_BYTES, of_run
from tracekit.runs.run import Run, busy
from tracekit.schema import HOST_DEVICE, C, DeviceKind
from tracekit.stats import samples
from tracekit.stats.comparison import ALPHA, THRESHOLD, Comparison, Verdict

if TYPE_CHECKING:
    from tracekit.diff.pieces import Pieces
    from tracekit.diff.spans import Span
    from tracekit.stats.noise import Noise

__all__ = ["ALPHA", "APART", "ONE_RUN", "THRESHOLD", "Sides", "design", "doubts", "judged", "overall", "read"]


UNMARKED = "steps are not marked on both sides, so whole captures are compared: call `profiler.step()`"


@dataclass(frozen=True)
class Explained:
    """Side of a comparison: its runs, the run whose trace explains it, and the compared part of that.

    Attributes:
        name: `base` or `head`.
        runs: All runs of the side.
        run: The one whose trace explains it.
        span: Its compared steps.
        work: What ran in them.
    """

    name: str
    runs: Sequence[Run]
    run: Run
    span: Span
    work: Pieces


def warnings(sides: tuple[Explained, Explained], *, by: str) -> list[str]:
    """Return all runs, those of the base first.

    Args:
        sides: The base and the head.
        by: What the lines of causes sum.
    """
    said = [text for side in sides for text in (*_of_runs(side), *_of_work(side, by=by))]
    if not sides[0].span.marked:
        said.append(UNMARKED)
    apart = [has_device(side.run) for side in sides]
    if apart[0] != apart[1]:
        one = sides[apart[1]].name
        said.append(f"only the {one} has work on a device: the ops of both hosts are compared instead")
    return said


def has_device(run: Run) -> bool:
    """Whether anything ran on a device."""
    return not busy(run, [C.RANK]).empty


def _of_runs(side: Explained) -> list[str]:
    known = [run.meta.git for run in side.runs if run.meta.git]
    dirty = sum(bool(git.dirty) for git in known)
    commits = len({git.sha for git in known})
    several = len(side.runs)
    said = []
    if dirty:
        which = "the" if several == 1 else f"{dirty} of the {several} runs of the"
        were = "were" if dirty > 1 else "was"
        said.append(f"{which} {side.name} {were} recorded with uncommitted changes, which no commit holds")
    if commits > 1:
        said.append(f"the {several} runs of the {side.name} are of {commits} commits")
    return said + spans.unlike(side.name, side.runs, side.run, on_device=side.work.on_device)


def _of_work(side: Explained, *, by: str) -> list[str]:
    said, name, table = [], side.name, side.work.table
    if side.work.unassigned_ns:
        said.append(
            f"the {name} has {side.work.unassigned_ns:,} ns of device work in no step: it is left out"
        )
    if extra := side.span.unused_ranks:
        ranks = "1 rank" if extra == 1 else f"{extra} ranks"
        said.append(f"the {name} has {ranks} without a match on the other side, left out")
    if by == "module" and not table.empty and not (table[pieces.MODULE_KEY] != 0).any():
        said.append(f"no modules were recorded in the {name}: record with stacks and modules")
    if not side.work.on_device:
        return said
    if (table[C.KIND] == DeviceKind.GRAPH).any():
        said.append(f"the {name} has CUDA graphs whose kernels were not recorded: each counts as one piece")
    return said + _of_devices(side)


def _of_devices(side: Explained) -> list[str]:
    frame = busy(side.run, [C.RANK, C.DEVICE])
    most = int(frame.groupby(C.RANK)[C.DEVICE].nunique().max())
    if most < 2:
        return []
    return [
        f"a rank of the {side.name} used {most} devices: the work ledger sums all, the wall ledger "
        "shows the busiest"
    ]


UNPROFILED = "median step without a profiler"
PROFILED = "median profiled step, which the profiler slows"
CAPTURE = "length of the capture, no steps being marked"
ALLOCATED = "most bytes the allocator held on a device"
RESIDENT = "most resident bytes of the process"


@dataclass(frozen=True)
class Measured:
    """Values of a metric for every run of both sides, in run order."""

    name: str
    unit: str
    basis: str
    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def medians(self) -> tuple[float, float]:
        """Return the median over the runs of each side; an observed value if their number is odd."""
        return median(self.a), median(self.b)


def measure(base: Sequence[Run], head: Sequence[Run], steps: Measured) -> tuple[Measured, ...]:
    """The step times, and every other metric that all runs of both sides have."""
    found = [steps]
    for name, source in ((DEVICE_PEAK, ALLOCATED), (HOST_PEAK, RESIDENT)):
        a, b = ([_peak(run, name) for run in side] for side in (base, head))
        known_a, known_b = (tuple(value for value in side if value) for side in (a, b))
        if len(known_a) == len(a) and len(known_b) == len(b):
            found.append(Measured(name, "bytes", source, known_a, known_b))
    return tuple(found)


def step_times(base: Sequence[Run], head: Sequence[Run]) -> Measured:
    """Step time of every run of both sides."""
    runs = (*base, *head)
    clocks = {
        run.meta.timings.clock if run.meta.timings and run.meta.timings.step_ns else None for run in runs
    }
    if len(clocks) == 1 and None not in clocks:
        a, b = (tuple(_unprofiled(run) for run in side) for side in (base, head))
        return Measured(STEP_TIME, "ns", f"{UNPROFILED} ({clocks.pop()})", a, b)
    marked = all(run.rows("steps") for run in runs)
    a, b = (tuple(_profiled(run, marked=marked) for run in side) for side in (base, head))
    return Measured(STEP_TIME, "ns", PROFILED if marked else CAPTURE, a, b)


def typical(runs: Sequence[Run], times: Sequence[int]) -> Run:
    """Return the run of median step time: the lower of two middle ones, the older of two equal ones."""
    return runs[times.index(median_low(times))]


def _unprofiled(run: Run) -> int:
    found = timed.unprofiled(run.meta.timings)
    return found.median_ns if found else 0


def _profiled(run: Run, *, marked: bool) -> int:
    found = timed.profiled(run) if marked else None
    return found.median_ns if found else spans.capture_ns(run)


def _peak(run: Run, name: str) -> int | None:
    sampled = of_run(run).get(name)
    if sampled is not None or name != DEVICE_PEAK:
        return None if sampled is None else int(sampled)
    held = run.table("allocations", columns=[C.TOTAL_ALLOCATED], where=pc.field(C.DEVICE) != HOST_DEVICE)[
        C.TOTAL_ALLOCATED
    ].dropna()
    return int(held.max()) if len(held) else None


ONE_RUN = "one run per side: no variance estimate; repeat the runs for a verdict"

APART = (
    "all runs of one side were made before the other: what drifted looks like an effect; alternate the sides"
)


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
        """Differences in conditions that may explain or hide a change."""
        return conditions.warnings(*self.conditions)

    @property
    def clocks(self) -> tuple[list[float | None], list[float | None]]:
        """Mean SM clock of each run, MHz; None where unknown."""
        a, b = ([one.clock_mhz for one in own] for own in self.conditions)
        return a, b

    def noise(self, one: Measured) -> Noise | None:
        """Return the noise of one run, if needed and known for the metric."""
        if min(len(self.base), len(self.head)) > 1:
            return None
        if one.name == STEP_TIME and not one.basis.startswith(UNPROFILED):
            return None
        from tracekit.diff import noise

        return noise.known(one.name, (self.base[-1], self.head[-1]), self.recorded)


def in_time(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the distinct runs of a side, oldest first, independent of the references."""
    return tuple(
        sorted({run.path: run for run in runs}.values(), key=lambda run: (run.meta.created_at, run.id))
    )


def design(base: Sequence[Run], head: Sequence[Run], *, threshold: float) -> Design:
    """Return the pairing of the runs: paired if every two consecutive runs are one of each side."""
    sides = {run.path: "A" for run in base} | {run.path: "B" for run in head}
    taken = sorted((run.meta.created_at, sides[run.path]) for run in (*base, *head))
    place = {when: float(at) for at, (when, _) in enumerate(taken)}
    known = len(place) == len(taken)
    order = "".join(side for _, side in taken) if known else ""
    times = [[place[run.meta.created_at] for run in own] for own in (base, head)]
    paired = known and len(base) > 1 and samples.pairs(*times) is not None
    repeated = max(len(base), len(head)) > 1
    return Design((len(base), len(head)), order, paired, ALPHA if repeated else None, threshold)


def doubts(how: Design) -> tuple[str, ...]:
    """Return a warning if all runs of one side precede all of the other.

    Example:
        >>> doubts(Design((2, 2), "ABBA", True, 0.05, 0.07))
        ()
    """
    first, second = "A" * how.k[0], "B" * how.k[1]
    apart = min(how.k) > 1 and how.order in {first + second, second + first}
    return (APART,) if apart else ()


def read(base: Sequence[Run], head: Sequence[Run], recorded: Sequence[Run]) -> Sides:
    """Return the sides with the measuring conditions of their runs."""
    under = [conditions.of_run(run) for run in base], [conditions.of_run(run) for run in head]
    return Sides(base, head, under, recorded)


def judged(measured: Sequence[Measured], how: Design, sides: Sides) -> tuple[Metric, ...]:
    """Return each metric with its effect, and a verdict if a side is repeated or the noise is known.

    Args:
        measured: The values of all runs.
        how: How the runs were taken.
        sides: The runs themselves, in the order of their values.
    """
    from tracekit.stats.tests import gate

    compared = {one.name: found for one in measured if (found := _compared(one, how, sides))}
    together = {found.name: found for found in gate(list(compared.values()))}
    return tuple(_told(one, together[one.name]) if one.name in together else _plain(one) for one in measured)


def settled(how: Design, metrics: Sequence[Metric]) -> Design:
    """Return the design with the significance level of the verdicts."""
    return replace(how, alpha=ALPHA) if any(one.verdict is not Verdict.NONE for one in metrics) else how


def overall(metrics: Sequence[Metric]) -> Verdict:
    """Return a regression if any metric regressed, else the verdict on the step time."""
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
    """Return the comparison of one metric; None if single runs per side cannot decide."""
    from tracekit.stats.compare import compare
    from tracekit.stats.samples import at_their_clocks
    from tracekit.stats.tests import compare_exact

    noise, kind = sides.noise(one), METRICS[one.name]
    if how.alpha is None and noise is None:
        return None
    if one.name == DEVICE_PEAK:
        return compare_exact(kind, one.a, one.b, threshold=how.theta, tolerance=TOLERANCE_BYTES)
    found = compare(kind, one.a, one.b, paired=how.paired, noise=noise, threshold=how.theta, alpha=ALPHA)
    return (
        at_their_clocks(found, (one.a, one.b), sides.clocks, noise=noise) if one.name == STEP_TIME else found
    )
