"""Clocks of a device: the bits of NVML's clock reasons over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.measuring.conditions import REASONS as HELD
from tracekit.nvml import M

if TYPE_CHECKING:
    from tracekit.intervals import Union

    from .scene import Scene
    from .series import Series

IDLE, SETTING, DISPLAY = 0x01, 0x02, 0x100
POWER_CAP = 0x04
REASONS = {
    IDLE: "nothing runs (idle)",
    SETTING: "clocks set for applications",
    DISPLAY: "clocks of the display",
    **HELD,
}
"""Meaning of the bits; those of `HELD` throttle, the others are expected."""
THROTTLING = sum(HELD)


@dataclass(frozen=True)
class Reason:
    """One bit that was set: time and share of the sampled time of the window."""

    bit: int
    words: str
    throttles: bool
    time_ns: int
    share: float
    samples: int


def reasons(scene: Scene, device: int) -> list[Reason]:
    """Reasons sampled inside the window, sorted by bit."""
    found = scene.nvml(device, M.THROTTLE)
    if found is None:
        return []
    weights, bits = found.within(scene.window), found.values.astype(np.int64)
    total = int(weights.sum())
    result = []
    for bit, words in REASONS.items():
        flagged = (bits & bit > 0) & (weights > 0)
        if flagged.any():
            time_ns = int(weights[flagged].sum())
            result.append(Reason(bit, words, bit in HELD, time_ns, time_ns / total, int(flagged.sum())))
    return sorted(result, key=lambda one: one.bit)


def throttled(scene: Scene, device: int) -> tuple[Union, float] | None:
    """Throttled time of a device inside the window, and its share of the sampled time; None if unknown."""
    found = scene.nvml(device, M.THROTTLE)
    if found is None:
        return None
    start, end = found.extents()
    total = int(covered(scene.window, start, end).sum())
    if not total:
        return None
    flagged = found.values.astype(np.int64) & THROTTLING > 0
    throttled_time = intervals.intersect(intervals.union(start[flagged], end[flagged]), scene.window)
    return throttled_time, intervals.length(throttled_time) / total


def busy_clock(scene: Scene, device: int) -> float | None:
    """Mean SM clock while the device was busy inside the window, MHz; None if unknown."""
    return _busy_mean(scene, device, scene.nvml(device, M.SM_CLOCK))


def _busy_mean(scene: Scene, device: int, found: Series | None) -> float | None:
    if found is None:
        return None
    weights = found.within(scene.busy(device))
    return float(np.average(found.values, weights=weights)) if weights.any() else None
