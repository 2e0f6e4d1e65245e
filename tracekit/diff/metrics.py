"""What is measured of each run as one number: step time and peaks of memory.

Step times are medians: of the steps timed without a profiler where every run of both sides has them by the
same clock, else of the profiled steps, which the profiler slows. Where steps are not marked the capture is
the step. Peaks are those the collector read, else those of the allocator's events.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, median_low
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.diff import spans
from tracekit.measuring.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME, of_run
from tracekit.schema import HOST_DEVICE, C

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

UNPROFILED = "median step without a profiler"
PROFILED = "median profiled step, which the profiler slows"
CAPTURE = "length of the capture, no steps being marked"
ALLOCATED = "most bytes the allocator held on a device"
RESIDENT = "most resident bytes of the process"


@dataclass(frozen=True)
class Measured:
    """One metric of every run of both sides, in the order of the runs."""

    name: str
    unit: str
    basis: str
    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def medians(self) -> tuple[float, float]:
        """Median over the runs of each side; a value that occurred where their number is odd."""
        return median(self.a), median(self.b)


def measure(base: Sequence[Run], head: Sequence[Run], steps: Measured) -> tuple[Measured, ...]:
    """The step times, and every other metric that all runs of both sides have."""
    found = [steps]
    for name, told in ((DEVICE_PEAK, ALLOCATED), (HOST_PEAK, RESIDENT)):
        a, b = ([_peak(run, name) for run in side] for side in (base, head))
        known_a, known_b = (tuple(value for value in side if value) for side in (a, b))
        if len(known_a) == len(a) and len(known_b) == len(b):
            found.append(Measured(name, "bytes", told, known_a, known_b))
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
    a, b = (tuple(spans.typical_ns(run, marked=marked) for run in side) for side in (base, head))
    return Measured(STEP_TIME, "ns", PROFILED if marked else CAPTURE, a, b)


def typical(runs: Sequence[Run], times: Sequence[int]) -> Run:
    """The run of median step time; the lower of two middle ones, the older of two alike."""
    return runs[times.index(median_low(times))]


def _unprofiled(run: Run) -> int:
    timings = run.meta.timings
    return round(median(timings.step_ns)) if timings else 0


def _peak(run: Run, name: str) -> int | None:
    sampled = of_run(run).get(name)
    if sampled is not None or name != DEVICE_PEAK:
        return None if sampled is None else int(sampled)
    held = run.table("allocations", columns=[C.TOTAL_ALLOCATED], where=pc.field(C.DEVICE) != HOST_DEVICE)[
        C.TOTAL_ALLOCATED
    ].dropna()
    return int(held.max()) if len(held) else None
