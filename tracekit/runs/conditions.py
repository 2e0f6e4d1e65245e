"""Conditions of measured runs: clocks, temperature and other processes by NVML, and contention for the CPU.

Samples are rows of `counters` with source `nvml`. Those inside of the steps count where there are such, else
all; of several devices, those that worked. What was not sampled is unknown and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.runs.cpu_load import Contention, find_contention
from tracekit.runs.nvml import SOURCE, M
from tracekit.runs.run import Run
from tracekit.schema import C
from tracekit.stats.samples import TOLERANCE, clocks_differ

_MIN_DIFFERENCE_C = 10.0  # smallest difference of temperatures that is reported
REASONS = {
    0x04: "its power limit",
    0x08: "the hardware",
    0x10: "synchronization with other devices",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
"""Bits of NVML's throttle reasons, without those of an idle device."""


@dataclass(frozen=True)
class Conditions:
    """Conditions of a run.

    Attributes:
        clock_mhz: Mean SM clock; None if not sampled.
        hottest_c: Highest temperature; None if not sampled.
        throttled: Reasons for throttling in any sample.
        others: Maximum number of other processes on the device in any sample; None if not sampled.
        contention: What kept the timed steps from the CPU; None if nothing did, or unknown.
    """

    clock_mhz: float | None = None
    hottest_c: float | None = None
    throttled: tuple[str, ...] = ()
    others: int | None = None
    contention: Contention | None = None


def of_run(run: Run) -> Conditions:
    """Return the conditions of a run that were sampled."""
    where = (pc.field(C.SOURCE) == SOURCE) & pc.field(C.METRIC).isin(
        [M.SM_CLOCK, M.TEMPERATURE, M.THROTTLE, M.OTHERS]
    )
    rows = run.arrow("counters", columns=[C.T_NS, C.DEVICE, C.METRIC, C.VALUE], where=where)
    contention = find_contention(run.meta.cpu_loads)
    if not len(rows):
        return Conditions(contention=contention)
    samples = _of_working_devices(run, rows.filter(pc.field(C.VALUE) >= 0))
    window = _steps(run)
    clocks, heat, bits, others = (
        _values(samples, metric, window) for metric in (M.SM_CLOCK, M.TEMPERATURE, M.THROTTLE, M.OTHERS)
    )
    clocks = clocks[clocks > 0]
    held = {int(value) for value in bits}
    return Conditions(
        float(clocks.mean()) if len(clocks) else None,
        float(heat.max()) if len(heat) else None,
        tuple(words for bit, words in REASONS.items() if any(value & bit for value in held)),
        int(others.max()) if len(others) else None,
        contention,
    )


def mean_clock(runs: Sequence[Conditions]) -> float | None:
    """Return the mean SM clock over the runs of a side; None if unknown."""
    clocks = [run.clock_mhz for run in runs if run.clock_mhz is not None]
    return sum(clocks) / len(clocks) if clocks else None


def warnings(base: Sequence[Conditions], head: Sequence[Conditions]) -> tuple[str, ...]:
    """Return warnings about conditions that may cause or hide a difference of two sides."""
    return (*_compare(base, head), *_check_side("base", base), *_check_side("head", head))


def _compare(base: Sequence[Conditions], head: Sequence[Conditions]) -> Iterator[str]:
    a, b = mean_clock(base), mean_clock(head)
    if a and b and clocks_differ(a, b):
        yield (
            f"the mean SM clock was {a:.0f} MHz in the base and {b:.0f} MHz in the head, more than "
            f"{100 * TOLERANCE:g}% apart; lock it with `nvidia-smi --lock-gpu-clocks`"
        )
    hot_a, hot_b = (
        max((run.hottest_c for run in side if run.hottest_c is not None), default=None)
        for side in (base, head)
    )
    if hot_a is not None and hot_b is not None and abs(hot_a - hot_b) >= _MIN_DIFFERENCE_C:
        yield f"the device reached {hot_a:.0f} °C in the base and {hot_b:.0f} °C in the head"


def _check_side(name: str, runs: Sequence[Conditions]) -> Iterator[str]:
    throttled = [run for run in runs if run.throttled]
    if throttled:
        by = ", ".join(dict.fromkeys(reason for run in throttled for reason in run.throttled))
        yield f"the clock was throttled by {by} in {len(throttled)} of {len(runs)} runs of the {name}"
    shared = sum(bool(run.others) for run in runs)
    if shared:
        yield f"other processes used the device in {shared} of {len(runs)} runs of the {name}"
    yield from contention_warnings(name, [run.contention for run in runs])


def contention_warnings(name: str, runs: Sequence[Contention | None]) -> Iterator[str]:
    """Return a warning about runs of a side that were kept from the CPU."""
    contended = [run for run in runs if run and run.is_external]
    if contended:
        worst = max(contended, key=lambda run: run.share)
        yield f"{worst.message}, in {len(contended)} of {len(runs)} runs of the {name}"


def _of_working_devices(run: Run, samples: pa.Table) -> pa.Table:
    if len(pc.unique(samples[C.DEVICE].drop_null())) < 2:
        return samples
    worked = pc.unique(run.arrow("device_intervals", columns=[C.DEVICE])[C.DEVICE])
    working = samples.filter(pc.field(C.DEVICE).isin(worked) | pc.field(C.DEVICE).is_null())
    return working if len(working) else samples


def _steps(run: Run) -> tuple[int, int] | None:
    """Return the time from the start of the first step to the end of the last."""
    steps = run.arrow("steps", columns=[C.START_NS, C.DUR_NS])
    if not len(steps):
        return None
    ends = pc.add(steps[C.START_NS], steps[C.DUR_NS])
    return pc.min(steps[C.START_NS]).as_py(), pc.max(ends).as_py()


def _values(samples: pa.Table, metric: str, window: tuple[int, int] | None) -> npt.NDArray[np.float64]:
    """Return the values of a metric during the steps, or all if there are none."""
    of_metric = samples.filter(pc.field(C.METRIC) == metric)
    times, values = of_metric[C.T_NS].to_numpy(), of_metric[C.VALUE].to_numpy()
    inside = (times >= window[0]) & (times <= window[1]) if window else times < times
    return np.asarray(values[inside] if inside.any() else values, float)
