"""Metrics for comparing runs, and their values in a stored run."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from tracekit.runs import step_times
from tracekit.runs.run import Run
from tracekit.schema import C
from tracekit.stats.comparison import Direction, Metric

STEP_TIME = "step_time"
WALL = "wall"
HOST_PEAK = "host_peak"
DEVICE_PEAK = "device_peak"
VALUE = "value"

METRICS = {
    STEP_TIME: Metric(STEP_TIME, "ns"),
    WALL: Metric(WALL, "ns"),
    HOST_PEAK: Metric(HOST_PEAK, "bytes"),
    DEVICE_PEAK: Metric(DEVICE_PEAK, "bytes"),
}
"""Every metric by name; lower is better."""
OF_RUNS = (STEP_TIME, HOST_PEAK, DEVICE_PEAK)
"""Metrics of a stored run."""
EXACT = frozenset({DEVICE_PEAK})
"""Metrics that repeat to within a few allocator blocks, and need no statistics."""
TOLERANCE_BYTES = float(1 << 20)
_COUNTERS = {HOST_PEAK: "host_peak_bytes", DEVICE_PEAK: "device_peak_allocated_bytes"}


def of_run(run: Run) -> dict[str, float]:
    """Return the metrics of a stored run, without missing ones.

    Args:
        run: A run of any origin.

    Returns:
        `step_time`: mean of its unprofiled step times, ns. `host_peak`: peak resident memory of its
        process during them, bytes. `device_peak`: peak of the memory that torch's allocator handed out, of
        the device with most, bytes.
    """
    step_ns = step_time(run)
    return ({STEP_TIME: step_ns} if step_ns is not None else {}) | peaks(run)


STEP_MEDIAN = "step_time_median"


def step_distribution(run: Run) -> dict[str, float]:
    """Return median, 90th and 99th percentile of the unprofiled step times of a run, ns, if it has any."""
    timed = step_times.unprofiled_step_time(run.meta.timings)
    if timed is None:
        return {}
    values = {STEP_MEDIAN: timed.median_ns, "step_time_p90": timed.p90_ns, "step_time_p99": timed.p99_ns}
    return {name: float(value) for name, value in values.items()}


def step_time(run: Run) -> float | None:
    """Return the `step_time` of `of_run`, which the index of a store knows; None if it was not measured."""
    timed = step_times.unprofiled_step_time(run.header.timings)
    return float(timed.mean_ns) if timed else None


def has_counters(run: Run) -> bool:
    """Return whether a run has counters, which the index of a store knows."""
    stored = run.header.tables.get("counters")
    return bool(stored and stored.rows)


def peaks(run: Run) -> dict[str, float]:
    """Return the `host_peak` and `device_peak` of `of_run`, without missing ones."""
    if not has_counters(run):
        return {}
    maxima: dict[str, float] = {}
    wanted = pc.field(C.METRIC).isin(list(_COUNTERS.values()))
    counters = run.arrow("counters", columns=[C.METRIC, C.VALUE], where=wanted).to_pylist()
    for name, counter in _COUNTERS.items():
        values = [row[C.VALUE] for row in counters if row[C.METRIC] == counter]
        if values:
            maxima[name] = float(max(values))
    return maxima


TIMED = "timed part"
SETTINGS = ("steps", "warmup", "start_step", "no_profile", TIMED)
"""Settings of a recording that the fingerprint leaves out, although step times may depend on them."""


def timing_settings(run: Run) -> dict[str, Any]:
    """Return the `SETTINGS` with which the unprofiled steps of a run were timed; unknown ones are None."""
    settings = {**run.meta.collector.options, **(run.meta.workload or {}), **_describe_timed_part(run)}
    return {name: settings.get(name) for name in SETTINGS}


def _describe_timed_part(run: Run) -> dict[str, str]:
    """Return which steps of a user's program were timed, which depends on when it ended."""
    timings, workload = run.meta.timings, run.meta.workload or {}
    if not timings or "start_step" not in workload:
        return {}
    parts = {"before": len(timings.step_ns) > timings.later, "after": bool(timings.later)}
    return {TIMED: f"{' and '.join(name for name, timed in parts.items() if timed)} the profiled steps"}


def count_timed_steps(run: Run) -> int:
    """Return the number of unprofiled steps whose mean is the step time of a run."""
    return len(run.meta.timings.step_ns) if run.meta.timings else 0


def metric(name: str, *, unit: str = "count", direction: Direction = Direction.LOWER) -> Metric:
    """Return a metric by name.

    Args:
        name: One of `METRICS`, or `value` for a number that a program prints.
        unit: Unit of such a number.
        direction: Whether lower or higher is better for it.

    Example:
        >>> metric("host_peak").unit, metric("value", unit="bytes").unit
        ('bytes', 'bytes')
    """
    return METRICS.get(name) or Metric(name, unit, direction)
