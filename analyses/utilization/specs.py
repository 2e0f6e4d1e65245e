"""Table specifications of `utilization`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Column, TableSpec
from tracekit.runs import intervals
from tracekit.runs.conditions import REASONS as HELD
from tracekit.runs.intervals import Union, covered
from tracekit.runs.nvml import M
from tracekit.schema import C

from ..shared.common import DEVICE, RANK, STEP
from ..shared.pcie import link_gb_per_s

if TYPE_CHECKING:
    from .series import Scene, Series, Stats


_SCOPE = Column("scope", "", "the profiled steps (or the capture if none are marked), or the whole run")
_SAMPLES = Column("samples", "count", "samples that cover part of that time")

DEVICES = TableSpec(
    "devices",
    "NVML and trace, per device, in the profiled steps",
    (
        DEVICE,
        Column("nvml_share", "share", "NVML's GPU utilization: time in which any kernel of any process ran"),
        Column("active_share", "share", "|K| of the trace over the window: a kernel of this program runs"),
        Column("window_ns", "ns", "length of the window: the union of the steps of all ranks"),
        Column("memory_used", "bytes", "maximum device memory in use, by all processes and the driver"),
        Column("memory_total", "bytes", "total device memory"),
        Column("memory_share", "share", "used over total"),
        Column("sm_clock", "MHz", "mean SM clock while the device was busy"),
        Column("sm_clock_max", "MHz", "maximum SM clock of the device"),
        Column("clock_share", "share", "mean over maximum SM clock"),
        Column("throttled_share", "share", "time with a throttling reason over sampled time"),
        Column("power", "W", "mean power of the board"),
        Column("power_limit", "W", "enforced power limit"),
        Column("energy_per_step", "J", "integral of power over the window, per step"),
        Column("energy_counted", "J", "energy by the board's counter, from the first to the last sample"),
        Column("temperature", "°C", "maximum temperature"),
        Column("other_processes", "count", "maximum number of other processes with a context on the device"),
    ),
)
PER_STEP = TableSpec(
    "per_step",
    "Power and energy per profiled step",
    (
        RANK,
        DEVICE,
        STEP,
        Column("window_ns", "ns", "from the step's start to its end on host or device"),
        Column("power", "W", "mean power, weighted by time"),
        Column("energy", "J", "integral of power over the step"),
        Column("nvml_share", "share", "NVML's GPU utilization"),
        Column("active_share", "share", "|K| of the trace over the step"),
        Column("sm_clock", "MHz", "mean SM clock, idle time included"),
        Column("samples", "count", "power samples that cover part of the step"),
    ),
)
THROTTLING = TableSpec(
    "throttling",
    "Clock throttle reasons, in the profiled steps",
    (
        DEVICE,
        Column("reason", "", "NVML's reason"),
        Column("bit", "", "its bit"),
        Column("throttles", "", "whether it lowers the clock of a busy device"),
        Column("time_ns", "ns", "time covered by samples with it"),
        Column("time_share", "share", "over the time of all samples; reasons may overlap"),
        _SAMPLES,
    ),
)
LINKS = TableSpec(
    "pcie",
    "PCIe throughput and link, in the profiled steps",
    (
        DEVICE,
        Column("generation", "", "highest generation sampled while the device was busy"),
        Column("width", "", "most lanes sampled while the device was busy"),
        Column("max_generation", "", "maximum generation of device and slot"),
        Column("max_width", "", "maximum lanes of device and slot"),
        Column("link_rate", "GB/s", "generation × lanes, one direction, after line encoding"),
        Column("max_link_rate", "GB/s", "the same for maximum generation and lanes"),
        Column("received_mean", "GB/s", "mean to the device"),
        Column("received_max", "GB/s", "maximum to the device, over 20 ms"),
        Column("sent_mean", "GB/s", "mean from the device"),
        Column("sent_max", "GB/s", "maximum from the device, over 20 ms"),
        Column("used_share", "share", "maximum of both directions over the link rate"),
    ),
)
HOST = TableSpec(
    "host",
    "The measured process and its children on the host",
    (
        _SCOPE,
        Column("rss_mean", "bytes", "mean resident memory"),
        Column("rss_min", "bytes", "minimum resident memory"),
        Column("rss_max", "bytes", "maximum resident memory"),
        Column("cores_mean", "×", "CPU time over wall time: 1 is one busy core"),
        Column("cores_p95", "×", "95th percentile, weighted by time"),
        Column("cores_max", "×", "maximum"),
        Column("threads", "count", "maximum number of threads"),
        Column("processes", "count", "maximum number of processes"),
        _SAMPLES,
    ),
)
METRICS = TableSpec(
    "metrics",
    "Every sampled metric",
    (
        _SCOPE,
        Column(C.SOURCE, "", "source: nvml, process, nsys or torch"),
        Column(C.DEVICE, "", "device index; missing for the host"),
        Column(C.METRIC, "", "sampled metric"),
        Column(C.UNIT, "", "unit of the values"),
        Column("mean", "", "mean, weighted by time", unit_in=C.UNIT),
        Column("min", "", "minimum", unit_in=C.UNIT),
        Column("max", "", "maximum", unit_in=C.UNIT),
        Column("p95", "", "95th percentile, weighted by time", unit_in=C.UNIT),
        _SAMPLES,
        Column("covered_ns", "ns", "time covered by the samples"),
    ),
)
_AT = Column(C.T_NS, "ns", "time since the run's t0; negative before the profile")
TIMELINE = TableSpec(
    "timeline",
    "Devices over time, as shares of their maximum",
    (
        DEVICE,
        Column("quantity", "", "NVML's utilization, memory used, SM clock or power"),
        _AT,
        Column("of_most", "share", "utilization, or value over total memory, maximum clock or power limit"),
    ),
)
HOST_TIMELINE = TableSpec(
    "host_timeline",
    "The measured process over time",
    (
        _AT,
        Column("rss", "bytes", "resident memory"),
        Column("cores", "×", "CPU time over wall time since the previous reading"),
        Column("threads", "count", "threads"),
    ),
)
SPECS = (DEVICES, TIMELINE, PER_STEP, THROTTLING, LINKS, HOST, HOST_TIMELINE, METRICS)


IDLE, SETTING, DISPLAY = 0x01, 0x02, 0x100
POWER_CAP = 0x04
REASONS = {
    IDLE: "nothing runs (idle)",
    SETTING: "clocks set for applications",
    DISPLAY: "clocks of the display",
    **HELD,
}
"""Meaning of the bits; those of `HELD` throttle, the others are expected."""
THROTTLING_REASONS = sum(HELD)


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
    flagged = found.values.astype(np.int64) & THROTTLING_REASONS > 0
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


@dataclass(frozen=True)
class Link:
    """A device's link; unknown values are None.

    Attributes:
        generation: Highest one sampled while the device was busy, since an idle link falls back.
        width: Lanes, likewise.
        loaded: Number of samples while the device was busy.
        received: GB/s to the device inside the window.
        sent: GB/s from the device, likewise.
    """

    generation: int | None
    width: int | None
    most_generation: int | None
    most_width: int | None
    loaded: int
    received: Stats | None
    sent: Stats | None

    @property
    def rate(self) -> float | None:
        """GB/s in one direction of the link under load."""
        return link_gb_per_s(self.generation, self.width)

    @property
    def most(self) -> float | None:
        """Maximum GB/s in one direction on this machine."""
        return link_gb_per_s(self.most_generation, self.most_width)

    @property
    def known(self) -> bool:
        """Whether any value was sampled."""
        return any(
            one is not None for one in (self.generation, self.most_generation, self.received, self.sent)
        )


def link(scene: Scene, device: int) -> Link:
    """The link of one device."""
    generation, loaded = _under_load(scene, device, M.PCIE_GENERATION)
    width, _ = _under_load(scene, device, M.PCIE_WIDTH)
    received, sent = scene.nvml(device, M.PCIE_RX), scene.nvml(device, M.PCIE_TX)
    return Link(
        generation,
        width,
        _integer(scene.constant(device, M.PCIE_GENERATION_MAX)),
        _integer(scene.constant(device, M.PCIE_WIDTH_MAX)),
        loaded,
        received.stats(scene.window) if received else None,
        sent.stats(scene.window) if sent else None,
    )


def _under_load(scene: Scene, device: int, metric: str) -> tuple[int | None, int]:
    found = scene.nvml(device, metric)
    if found is None:
        return None, 0
    loaded = found.values[found.within(scene.busy(device)) > 0]
    return (_integer(float(loaded.max())), len(loaded)) if len(loaded) else (None, 0)


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)
