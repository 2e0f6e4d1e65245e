"""Limits of a device during the run: throttle reasons, clocks and the PCIe link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.runs import intervals
from tracekit.runs.conditions import REASONS as THROTTLE_REASONS
from tracekit.runs.intervals import Union, overlap_lengths
from tracekit.runs.nvml import M

from ..shared.pcie import link_gb_per_s
from .series import Scene, Stats

IDLE, SETTING, DISPLAY = 0x01, 0x02, 0x100
POWER_CAP = 0x04
REASONS = {
    IDLE: "nothing runs (idle)",
    SETTING: "clocks set for applications",
    DISPLAY: "clocks of the display",
    **THROTTLE_REASONS,
}
"""Meaning of the bits; those of `THROTTLE_REASONS` throttle, the others are expected."""


@dataclass(frozen=True)
class Reason:
    """One bit that was set: time and share of the sampled time of the window."""

    bit: int
    words: str
    throttles: bool
    time_ns: int
    share: float
    samples: int


def find_reasons(scene: Scene, device: int) -> list[Reason]:
    """Return the reasons sampled inside the window, sorted by bit."""
    series = scene.nvml(device, M.THROTTLE)
    if series is None:
        return []
    weights, bits = series.within(scene.window), series.values.astype(np.int64)
    total = int(weights.sum())
    reasons = []
    for bit, words in sorted(REASONS.items()):
        is_set = (bits & bit > 0) & (weights > 0)
        if is_set.any():
            time_ns = int(weights[is_set].sum())
            throttles = bit in THROTTLE_REASONS
            reasons.append(Reason(bit, words, throttles, time_ns, time_ns / total, int(is_set.sum())))
    return reasons


def measure_throttling(scene: Scene, device: int) -> tuple[Union, float] | None:
    """Return the throttled time of a device inside the window, and its share of the sampled time.

    None if unknown.
    """
    series = scene.nvml(device, M.THROTTLE)
    if series is None:
        return None
    start, end = series.extents()
    total = int(overlap_lengths(scene.window, start, end).sum())
    if not total:
        return None
    is_set = series.values.astype(np.int64) & sum(THROTTLE_REASONS) > 0
    throttled = intervals.intersect(intervals.union(start[is_set], end[is_set]), scene.window)
    return throttled, intervals.length(throttled) / total


def busy_clock(scene: Scene, device: int) -> float | None:
    """Return the mean SM clock while the device was busy inside the window, MHz; None if unknown."""
    series = scene.nvml(device, M.SM_CLOCK)
    if series is None:
        return None
    weights = series.within(scene.busy(device))
    return float(np.average(series.values, weights=weights)) if weights.any() else None


@dataclass(frozen=True)
class Link:
    """A device's link; unknown values are None."""

    generation: int | None  # highest one sampled while the device was busy, since an idle link falls back
    width: int | None  # lanes, likewise
    max_generation: int | None  # maximum of device and slot
    max_width: int | None  # lanes, likewise
    busy_samples: int  # number of samples while the device was busy
    received: Stats | None  # GB/s to the device inside the window
    sent: Stats | None  # GB/s from the device, likewise

    @property
    def rate(self) -> float | None:
        """GB/s in one direction of the link under load."""
        return link_gb_per_s(self.generation, self.width)

    @property
    def max_rate(self) -> float | None:
        """Maximum GB/s in one direction on this machine."""
        return link_gb_per_s(self.max_generation, self.max_width)

    @property
    def known(self) -> bool:
        """Whether any value was sampled."""
        values = (self.generation, self.max_generation, self.received, self.sent)
        return any(value is not None for value in values)


def measure_link(scene: Scene, device: int) -> Link:
    """Return the link of one device."""
    generation, samples = _max_under_load(scene, device, M.PCIE_GENERATION)
    width, _ = _max_under_load(scene, device, M.PCIE_WIDTH)
    received, sent = scene.nvml(device, M.PCIE_RX), scene.nvml(device, M.PCIE_TX)
    return Link(
        generation,
        width,
        _integer(scene.constant(device, M.PCIE_GENERATION_MAX)),
        _integer(scene.constant(device, M.PCIE_WIDTH_MAX)),
        samples,
        received.stats(scene.window) if received else None,
        sent.stats(scene.window) if sent else None,
    )


def _max_under_load(scene: Scene, device: int, metric: str) -> tuple[int | None, int]:
    series = scene.nvml(device, metric)
    if series is None:
        return None, 0
    # an idle link falls back to a lower generation to save power
    values = series.values[series.within(scene.busy(device)) > 0]
    return (_integer(float(values.max())), len(values)) if len(values) else (None, 0)


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)
