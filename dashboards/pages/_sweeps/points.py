"""Settings and measured quantities of runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tracekit.measuring.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME, of_run
from tracekit.sweeping.measure import shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracekit.analysis import Result
    from tracekit.run import Run

    Analyzed = Callable[[Run, str], Result]

COMMIT, BATCH = "commit", "batch_size"
FIELDS = (
    BATCH,
    "resolution",
    "level",
    "backend",
    "mode",
    "dtype",
    "threads",
    "zero_grad",
    "pin_memory",
    "offload",
    "dataset_shape",
    "size",
    "device",
    "gpu",
    "cpu",
    "torch",
)
"""Settings of a run, in order of preference for the axis."""
PER_SAMPLE, THROUGHPUT, ACTIVE = "sample_time", "throughput", "active"


@dataclass(frozen=True)
class Quantity:
    """A quantity: title, unit and definition."""

    title: str
    unit: str
    definition: str


QUANTITIES = {
    STEP_TIME: Quantity("step time", "ns", "median of the run's unprofiled steps"),
    PER_SAMPLE: Quantity("time per sample", "ns", "step time divided by the batch size"),
    THROUGHPUT: Quantity("throughput", "samples/s", "batch size divided by the step time"),
    DEVICE_PEAK: Quantity("device peak", "bytes", "peak bytes allocated on a device"),
    HOST_PEAK: Quantity("host peak", "bytes", "peak resident memory of the process"),
    ACTIVE: Quantity(
        "GPU active share",
        "share",
        "kernel time as a share of the profiled steps, on the device with the most kernel time",
    ),
}


@dataclass(frozen=True)
class Point:
    """A run with its settings; unknown settings are None."""

    run: Run
    workload: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of the repeats at one setting."""

    x: Any
    median: float
    minimum: float
    maximum: float
    runs: tuple[Run, ...]
    typical: Run


def points(runs: Iterable[Run]) -> list[Point]:
    """Return the runs with a known workload, oldest first."""
    found = []
    for run in runs:
        known = run.meta.fingerprint
        if known.get("workload"):
            settings = {name: known.get(name) for name in FIELDS} | {COMMIT: _commit(run)}
            found.append(Point(run, str(known["workload"]), settings))
    return found


def _commit(run: Run) -> str | None:
    git = run.meta.git
    return f"{git.sha[:12]}{'+' * git.dirty}" if git else None


def varying(of: Sequence[Point]) -> dict[str, list[Any]]:
    """Return the settings that differ, with their sorted values."""
    found = {}
    for name in (*FIELDS, COMMIT):
        values = {repr(point.settings[name]): point.settings[name] for point in of}
        if len(values) > 1:
            found[name] = sorted(values.values(), key=_ascending)
    return found


def _ascending(value: Any) -> tuple[bool, bool, Any]:
    """Sort key: unknown first, then numbers, then text."""
    number = isinstance(value, int | float)
    return value is not None, not number, value if number else str(value)


def value(point: Point, quantity: str, analyzed: Analyzed) -> float | None:
    """Return a quantity of a run; None if it was not measured."""
    if quantity == ACTIVE:
        return _active(point.run, analyzed)
    if quantity in {DEVICE_PEAK, HOST_PEAK}:
        return _peaks(point.run).get(quantity)
    timings = point.run.meta.timings
    if not timings or not timings.step_ns:
        return None
    step = float(statistics.median(timings.step_ns))
    batch = point.settings[BATCH]
    if quantity == STEP_TIME:
        return step
    if not batch or not step:
        return None
    return step / batch if quantity == PER_SAMPLE else batch * 1e9 / step


@lru_cache(maxsize=4096)
def _peaks(run: Run) -> dict[str, float]:
    """Return the metrics of a run; cached, since runs never change."""
    return of_run(run)


def _active(run: Run, analyzed: Analyzed) -> float | None:
    if not run.rows("device_intervals"):
        return None
    known = shares(analyzed(run, "gpu_breakdown").tables)
    return known["active_ns"] / known["window_ns"] if known.get("window_ns") else None


def spreads(of: Iterable[Point], x: str, quantity: str, analyzed: Analyzed) -> list[Spread]:
    """Summarize the repeats of a series at each x."""
    groups: dict[str, list[tuple[float, Run]]] = {}
    settings: dict[str, Any] = {}
    for point in of:
        measured = value(point, quantity, analyzed)
        if measured is not None:
            key = repr(point.settings[x])
            settings[key] = point.settings[x]
            groups.setdefault(key, []).append((measured, point.run))
    found = [_spread(settings[key], sorted(own, key=lambda one: one[0])) for key, own in groups.items()]
    return sorted(found, key=lambda one: _ascending(one.x))


def _spread(x: Any, own: list[tuple[float, Run]]) -> Spread:
    values = [measured for measured, _ in own]
    typical = own[(len(own) - 1) // 2][1]
    runs = tuple(run for _, run in own)
    return Spread(x, float(statistics.median(values)), values[0], values[-1], runs, typical)
