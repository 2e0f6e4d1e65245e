"""One number of a stored run for each metric of the gate; None where the run did not measure it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.checking.configuration import alike
from tracekit.checking.heads import code
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.run import Run

STEP_TIME, DEVICE_PEAK, HOST_PEAK = "step_time", "device_peak", "host_peak"
UNITS = {STEP_TIME: "ns", DEVICE_PEAK: "bytes", HOST_PEAK: "bytes"}
_COUNTERS = {DEVICE_PEAK: "device_peak_allocated_bytes", HOST_PEAK: "host_peak_bytes"}


def value(run: Run, metric: str) -> float | None:
    """The median of the step times that were taken without a profiler, or a peak of memory."""
    if metric == STEP_TIME:
        timings = run.meta.timings
        return float(median(timings.step_ns)) if timings and timings.step_ns else None
    where = pc.field(C.METRIC) == _COUNTERS[metric]
    values = run.table("counters", columns=[C.VALUE], where=where)[C.VALUE]
    return float(values.max()) if len(values) and values.max() > 0 else None


def clock(run: Run) -> str | None:
    """What the steps were timed by; None where they were not."""
    return run.meta.timings.clock if run.meta.timings and run.meta.timings.step_ns else None


def repeats(metric: str, like: Run, runs: Iterable[Run]) -> list[list[float | None]]:
    """Values of earlier runs of the same configuration, each list of one state of the code."""
    found: dict[object, list[float | None]] = {}
    for run in runs:
        if run.meta.git and clock(run) == clock(like) and alike(run, like, ()):
            found.setdefault(code(run.meta.git), []).append(value(run, metric))
    return list(found.values())
