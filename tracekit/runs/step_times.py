"""The step time of a run: one number with the profiler and one without, everywhere.

* unprofiled: lower median of the steps timed without the profiler.
* profiled: of each rank the lower median of its profiled steps without warm-up outliers, and of the ranks the
  lower median. A step takes the time that it adds after all earlier ones (`step_windows`); where no step adds
  any, its time on the host.

Warm-up outliers are leading steps that exceed the median by more than 10% and by more than 3 scaled median
absolute deviations, of at least 4 steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.runs.intervals import Ints
    from tracekit.runs.meta import Timings
    from tracekit.runs.run import Run

MIN_STEPS = 4
OUTLIER_SHARE = 0.1
OUTLIER_DEVIATIONS = 3
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class StepTime:
    """Number of steps, and their median in ns; of several ranks those of the rank with the median."""

    steps: int
    median_ns: int


def unprofiled_step_time(timings: Timings | None) -> StepTime | None:
    """Return the step time without the profiler; None if it was not measured.

    Example:
        >>> from tracekit.runs.meta import Timings
        >>> unprofiled_step_time(Timings(step_ns=[4, 1, 3, 2], warmup_ns=[], clock="perf_counter"))
        StepTime(steps=4, median_ns=2)
    """
    if timings is None or not timings.step_ns:
        return None
    return StepTime(len(timings.step_ns), median_low(timings.step_ns))


def profiled_step_time(run: Run) -> StepTime | None:
    """Return the step time with the profiler; None if no steps are marked."""
    import numpy as np  # `tracekit runs` needs only the unprofiled steps

    from tracekit.runs.step_windows import END_NS, HOST_NS, HOST_START_NS, step_windows

    windows = step_windows(run).sort_values([C.RANK, C.START_NS, C.STEP])
    serving = of_different_batches(run)
    medians = []
    for rank, steps in windows.groupby(C.RANK):
        added = (steps[END_NS] - steps[C.START_NS]).to_numpy(np.int64)
        unknown = (added <= 0) & (steps[END_NS] > steps[HOST_START_NS]).to_numpy(bool)
        skipped = 0 if unknown.any() or rank in serving else warmup(added)
        times = added[skipped:] if not unknown.any() else added[~unknown]
        steady = (times if len(times) else steps[HOST_NS].to_numpy(np.int64)).tolist()
        medians.append((median_low(steady), len(steady)))
    if not medians:
        return None
    median_ns, count = median_low(medians)
    return StepTime(count, median_ns)


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
