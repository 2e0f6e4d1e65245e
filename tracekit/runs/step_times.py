"""The step time of a run: one number with the profiler and one without, everywhere.

* unprofiled: mean of the steps timed without the profiler, which is what a job costs.
* profiled: of each rank the mean of its profiled steps without warm-up outliers, and of the ranks the lower
  median. A step takes the time that it adds after all earlier ones (`step_windows`); where no step adds
  any, its time on the host.

Warm-up outliers are leading steps that exceed the median by more than 10% and by more than 3 scaled median
absolute deviations, of at least 4 steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING, Self, TypeVar

from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.runs.intervals import Ints
    from tracekit.runs.meta import Timings
    from tracekit.runs.run import Run

MIN_STEPS = 4
OUTLIER_SHARE = 0.1
OUTLIER_DEVIATIONS = 3
_MAD_TO_SIGMA = 1.4826


Times = TypeVar("Times", "Sequence[int]", "Ints")
MIN_UNEVEN = 1.2
"""Mean over the median from which steps are uneven."""
MIN_PERIODS, MAX_PERIOD = 3, 64
MAX_PHASE_SPREAD = 0.25
"""Spread of the steps of one phase up to which their times recur."""
STEPS_PER_STRAY = 4
"""Slow steps that recur for each other one that is as slow, as where another program takes the core."""


@dataclass(frozen=True)
class StepTime:
    """Distribution of step times, ns; of several ranks that of the rank with the median."""

    steps: int
    mean_ns: int
    median_ns: int
    p90_ns: int
    p99_ns: int
    spread: float  # 95th minus 5th percentile over the median
    # number of steps after which the times recur, if the mean is far from the median; 0 if none
    period: int = 0

    @classmethod
    def of(cls, times: Sequence[int], *, later: int = 0) -> Self:
        """Summarize step times.

        Args:
            times: Times of the steps, in order.
            later: How many of the last ones followed later: a period is that of the longer part.

        Example:
            >>> StepTime.of([4, 1, 1, 1] * 3)
            StepTime(steps=12, mean_ns=2, median_ns=1, p90_ns=4, p99_ns=4, spread=3.0, period=4)
        """
        ordered, mean, middle = sorted(times), sum(times) / len(times), median_low(times)
        is_uneven = mean > MIN_UNEVEN * middle
        return cls(
            steps=len(times),
            mean_ns=round(mean),
            median_ns=middle,
            p90_ns=_percentile(ordered, 90),
            p99_ns=_percentile(ordered, 99),
            spread=_spread(ordered),
            period=find_period(longer_part(times, later), _is_steady) if is_uneven else 0,
        )

    @property
    def is_uneven(self) -> bool:
        """Whether the mean is far above the median."""
        return self.mean_ns > MIN_UNEVEN * self.median_ns


def _percentile(ordered: Sequence[int], rank: int) -> int:
    """Return a value that occurred, as analyses do."""
    return ordered[max(0, math.ceil(len(ordered) * rank / 100) - 1)]


def _spread(ordered: Sequence[int]) -> float:
    middle = median_low(ordered)
    return (_percentile(ordered, 95) - _percentile(ordered, 5)) / middle if middle else 0.0


def _is_steady(times: Sequence[int]) -> bool:
    return _spread(sorted(times)) <= MAX_PHASE_SPREAD


def longer_part(times: Times, later: int) -> Times:
    """Return the longer of two parts of a series, between which steps are missing: a period breaks there.

    Args:
        times: Times of the steps, in order.
        later: Length of the second part.

    Example:
        >>> longer_part([1, 2, 3, 4, 5], later=2)
        [1, 2, 3]
    """
    middle = max(0, len(times) - later)
    first, second = times[:middle], times[middle:]
    return first if len(first) >= len(second) else second


def find_period(times: Times, is_steady: Callable[[Times], bool]) -> int:
    """Return the number of steps after which their times recur, seen at least `MIN_PERIODS` times; 0 if none.

    Either those of each phase are alike and phases differ, or one phase is slower than all others, whose
    times may vary.

    Args:
        times: Times of the steps, in order.
        is_steady: Whether the times of the steps of one phase are alike.
    """
    periods = range(2, min(len(times) // MIN_PERIODS, MAX_PERIOD) + 1)
    for period in periods:
        phases = [times[phase::period] for phase in range(period)]
        middles = [sorted(phase)[(len(phase) - 1) // 2] for phase in phases]
        if max(middles) > (1 + MAX_PHASE_SPREAD) * min(middles) and all(map(is_steady, phases)):
            return period
    return next((period for period in periods if _has_slow_phase(times, period)), 0)


def _has_slow_phase(times: Sequence[int] | Ints, period: int) -> bool:
    """Whether all steps of one phase are slower than the others, but for one in `STEPS_PER_STRAY`.

    The slow ones need not be alike: what saves a file takes two to five times as long from one time to the
    next. That some steps of any order do so by chance is rarer than 1%.
    """
    phase = max(range(period), key=lambda phase: min(times[phase::period]))
    slow = times[phase::period]
    others = sorted(time for place, time in enumerate(times) if place % period != phase)
    usual, fastest = int(others[(len(others) - 1) // 2]), int(min(slow))
    as_slow = sum(time >= fastest for time in others)
    is_apart = fastest >= (1 + MAX_PHASE_SPREAD) * usual and as_slow <= (len(slow) - 1) // STEPS_PER_STRAY
    excess = sum(max(time - usual, 0) for time in slow)
    return is_apart and bool(excess > sum(max(time - usual, 0) for time in others))


def unprofiled_step_time(timings: Timings | None) -> StepTime | None:
    """Return the step time without the profiler; None if it was not measured.

    Example:
        >>> from tracekit.runs.meta import Timings
        >>> unprofiled_step_time(Timings(step_ns=[4, 1, 3, 2], warmup_ns=[], clock="perf_counter"))
        StepTime(steps=4, mean_ns=2, median_ns=2, p90_ns=4, p99_ns=4, spread=1.5, period=0)
    """
    if timings is None or not timings.step_ns:
        return None
    return StepTime.of(timings.step_ns, later=timings.later)


def profiled_step_time(run: Run) -> StepTime | None:
    """Return the step time with the profiler; None if no steps are marked."""
    import numpy as np  # `tracekit runs` needs only the unprofiled steps

    from tracekit.runs.step_windows import END_NS, HOST_NS, HOST_START_NS, step_windows

    windows = step_windows(run).sort_values([C.RANK, C.START_NS, C.STEP])
    serving = of_different_batches(run)
    of_ranks = []
    for rank, steps in windows.groupby(C.RANK):
        added = (steps[END_NS] - steps[C.START_NS]).to_numpy(np.int64)
        unknown = (added <= 0) & (steps[END_NS] > steps[HOST_START_NS]).to_numpy(bool)
        skipped = 0 if unknown.any() or rank in serving else warmup(added)
        times = added[skipped:] if not unknown.any() else added[~unknown]
        steady = (times if len(times) else steps[HOST_NS].to_numpy(np.int64)).tolist()
        of_ranks.append(StepTime.of(steady))
    by_mean = sorted(of_ranks, key=lambda rank: (rank.mean_ns, rank.steps))
    return by_mean[(len(by_mean) - 1) // 2] if by_mean else None


def of_different_batches(run: Run) -> set[int]:
    """Return the ranks whose steps process different numbers of tokens, as an inference server's do.

    Such steps take different times by design, so that none of them is a warm-up outlier.
    """
    return run.compute_once(_of_different_batches)


def _of_different_batches(run: Run) -> set[int]:
    batch = [C.PHASE, C.REQUESTS, C.CONTEXT_TOKENS, C.GENERATION_TOKENS]
    kinds = run.table("steps", columns=[C.RANK, *batch]).drop_duplicates()
    return set(kinds.loc[kinds.duplicated(C.RANK), C.RANK].tolist())


def warmup(times: Ints) -> int:
    """Return the number of leading steps that are warm-up outliers.

    Example:
        >>> import numpy as np
        >>> warmup(np.array([190, 101, 100, 99, 100, 180]))
        1
    """
    import numpy as np

    if len(times) < MIN_STEPS:
        return 0
    middle = float(np.median(times))
    # The median deviation is not inflated by the outliers themselves, unlike the standard deviation.
    deviation = _MAD_TO_SIGMA * float(np.median(np.abs(times - middle)))
    slow = times - middle > max(OUTLIER_SHARE * middle, OUTLIER_DEVIATIONS * deviation)
    return int(np.logical_and.accumulate(slow).sum())
