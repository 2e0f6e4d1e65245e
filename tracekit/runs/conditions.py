"""Conditions of measured runs, from NVML samples: clocks, temperature, other processes.

Samples are rows of `counters` with source `nvml`. Those inside of the steps count where there are such, else
all; of several devices, those that worked. What was not sampled is unknown and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.runs.nvml import SOURCE, M
from tracekit.schema import C
from tracekit.stats.samples import TOLERANCE, differ

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.runs.run import Run

HOTTER_C = 10.0
"""Smallest difference of temperatures that is reported."""
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
    """

    clock_mhz: float | None = None
    hottest_c: float | None = None
    throttled: tuple[str, ...] = ()
    others: int | None = None


def of_run(run: Run) -> Conditions:
    """Return the conditions of a run that were sampled."""
    where = (pc.field(C.SOURCE) == SOURCE) & pc.field(C.METRIC).isin(
        [M.SM_CLOCK, M.TEMPERATURE, M.THROTTLE, M.OTHERS]
    )
    rows = run.arrow("counters", columns=[C.T_NS, C.DEVICE, C.METRIC, C.VALUE], where=where)
    if not len(rows):
        return Conditions()
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
    )


def mean_clock(of: Sequence[Conditions]) -> float | None:
    """Return the mean SM clock over the runs of a side; None if unknown."""
    known = [one.clock_mhz for one in of if one.clock_mhz is not None]
    return sum(known) / len(known) if known else None


def warnings(base: Sequence[Conditions], head: Sequence[Conditions]) -> tuple[str, ...]:
    """Return warnings about conditions that may cause or hide a difference of two sides."""
    sides = (("base", base), ("head", head))
    said = [text for name, own in sides for text in _of_side(name, own)]
    return tuple(_of_both(base, head) + said)


def _of_both(base: Sequence[Conditions], head: Sequence[Conditions]) -> list[str]:
    said = []
    a, b = mean_clock(base), mean_clock(head)
    if a and b and differ(a, b):
        said.append(
            f"the mean SM clock was {a:.0f} MHz in the base and {b:.0f} MHz in the head, more than "
            f"{100 * TOLERANCE:g}% apart; lock it with `nvidia-smi --lock-gpu-clocks`"
        )
    hot_a, hot_b = (
        max((one.hottest_c for one in own if one.hottest_c is not None), default=None) for own in (base, head)
    )
    if hot_a is not None and hot_b is not None and abs(hot_a - hot_b) >= HOTTER_C:
        said.append(f"the device reached {hot_a:.0f} °C in the base and {hot_b:.0f} °C in the head")
    return said


def _of_side(name: str, own: Sequence[Conditions]) -> list[str]:
    said = []
    throttled = [one for one in own if one.throttled]
    if throttled:
        by = ", ".join(dict.fromkeys(reason for one in throttled for reason in one.throttled))
        said.append(f"the clock was throttled by {by} in {len(throttled)} of {len(own)} runs of the {name}")
    shared = sum(bool(one.others) for one in own)
    if shared:
        said.append(f"other processes used the device in {shared} of {len(own)} runs of the {name}")
    return said


def _of_working_devices(run: Run, samples: pa.Table) -> pa.Table:
    if len(pc.unique(samples[C.DEVICE].drop_null())) < 2:
        return samples
    worked = pc.unique(run.arrow("device_intervals", columns=[C.DEVICE])[C.DEVICE])
    own = samples.filter(pc.field(C.DEVICE).isin(worked) | pc.field(C.DEVICE).is_null())
    return own if len(own) else samples


def _steps(run: Run) -> tuple[int, int] | None:
    """Return the time from the start of the first step to the end of the last."""
    steps = run.arrow("steps", columns=[C.START_NS, C.DUR_NS])
    if not len(steps):
        return None
    ends = pc.add(steps[C.START_NS], steps[C.DUR_NS])
    return pc.min(steps[C.START_NS]).as_py(), pc.max(ends).as_py()


def _values(samples: pa.Table, metric: str, window: tuple[int, int] | None) -> npt.NDArray[np.float64]:
    """Return the values of a metric during the steps, or all if there are none."""
    own = samples.filter(pc.field(C.METRIC) == metric)
    times, values = own[C.T_NS].to_numpy(), own[C.VALUE].to_numpy()
    inside = (times >= window[0]) & (times <= window[1]) if window else times < times
    return np.asarray(values[inside] if inside.any() else values, float)
