"""The tables of `utilization`: titles, columns, units."""

from __future__ import annotations

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

from .._shared.common import DEVICE, RANK, STEP

_SCOPE = Column("scope", "", "the profiled steps (or the capture where none are marked), or the whole run")
_SAMPLES = Column("samples", "count", "samples that stand for some of that time")

DEVICES = TableSpec(
    "devices",
    "NVML beside the trace, per device, in the profiled steps",
    (
        DEVICE,
        Column("nvml_share", "share", "NVML's GPU utilization: time in which any kernel of anyone ran"),
        Column("active_share", "share", "|K| of the trace over the window: a kernel of this program runs"),
        Column("window_ns", "ns", "length of the window: the union of the steps of all ranks"),
        Column("memory_used", "bytes", "most device memory in use, by all processes and the driver"),
        Column("memory_total", "bytes", "the device's memory"),
        Column("memory_share", "share", "used over total"),
        Column("sm_clock", "MHz", "mean SM clock while anything of the trace ran on the device"),
        Column("sm_clock_max", "MHz", "highest SM clock the device can be asked for"),
        Column("clock_share", "share", "mean over highest SM clock"),
        Column("throttled_share", "share", "time with a reason that throttles over sampled time"),
        Column("power", "W", "mean power of the board"),
        Column("power_limit", "W", "enforced limit of it"),
        Column("energy_per_step", "J", "integral of power over the window, over its steps"),
        Column("energy_counted", "J", "by the board's own counter, from the first sample to the last"),
        Column("temperature", "°C", "highest temperature"),
        Column("other_processes", "count", "most other processes with a context on the device"),
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
        Column("samples", "count", "samples of power that stand for some of the step"),
    ),
)
THROTTLING = TableSpec(
    "throttling",
    "What held the clocks where they were, in the profiled steps",
    (
        DEVICE,
        Column("reason", "", "NVML's reason"),
        Column("bit", "", "its bit"),
        Column("throttles", "", "whether it holds a working device below what was asked for"),
        Column("time_ns", "ns", "time the samples with it stand for"),
        Column("time_share", "share", "over the time of all samples; reasons may hold together"),
        _SAMPLES,
    ),
)
LINKS = TableSpec(
    "pcie",
    "PCIe throughput against the link, in the profiled steps",
    (
        DEVICE,
        Column("generation", "", "highest generation seen while the device worked"),
        Column("width", "", "most lanes seen while the device worked"),
        Column("max_generation", "", "highest generation of device and slot"),
        Column("max_width", "", "most lanes of device and slot"),
        Column("link_rate", "GB/s", "generation × lanes, one direction, after line encoding"),
        Column("max_link_rate", "GB/s", "the same of the highest generation and most lanes"),
        Column("received_mean", "GB/s", "mean to the device"),
        Column("received_max", "GB/s", "most to the device, over 20 ms"),
        Column("sent_mean", "GB/s", "mean from the device"),
        Column("sent_max", "GB/s", "most from the device, over 20 ms"),
        Column("used_share", "share", "most of either direction over the link"),
    ),
)
HOST = TableSpec(
    "host",
    "The measured process and its children on the host",
    (
        _SCOPE,
        Column("rss_mean", "bytes", "mean resident memory"),
        Column("rss_min", "bytes", "least resident memory"),
        Column("rss_max", "bytes", "most resident memory"),
        Column("cores_mean", "×", "CPU time over wall time: 1 is one busy core"),
        Column("cores_p95", "×", "not exceeded in 95% of the time"),
        Column("cores_max", "×", "most"),
        Column("threads", "count", "most threads"),
        Column("processes", "count", "most processes"),
        _SAMPLES,
    ),
)
METRICS = TableSpec(
    "metrics",
    "Every sampled metric",
    (
        _SCOPE,
        Column(C.SOURCE, "", "who sampled: nvml, process, nsys or torch"),
        Column(C.DEVICE, "", "device index; missing for the host"),
        Column(C.METRIC, "", "what was sampled"),
        Column(C.UNIT, "", "unit of the values"),
        Column("mean", "", "mean, weighted by time", unit_in=C.UNIT),
        Column("min", "", "least", unit_in=C.UNIT),
        Column("max", "", "most", unit_in=C.UNIT),
        Column("p95", "", "not exceeded in 95% of the time", unit_in=C.UNIT),
        _SAMPLES,
        Column("covered_ns", "ns", "time the samples stand for"),
    ),
)
_AT = Column(C.T_NS, "ns", "time since the run's t0; before it is before the profile")
TIMELINE = TableSpec(
    "timeline",
    "Devices over time, each as a share of the most it can be",
    (
        DEVICE,
        Column("quantity", "", "NVML's utilization, memory used, SM clock or power"),
        _AT,
        Column("of_most", "share", "utilization; over the memory, the highest clock or the power limit"),
    ),
)
HOST_TIMELINE = TableSpec(
    "host_timeline",
    "The measured process over time",
    (
        _AT,
        Column("rss", "bytes", "resident memory"),
        Column("cores", "×", "CPU time over wall time since the reading before"),
        Column("threads", "count", "threads"),
    ),
)
SPECS = (DEVICES, TIMELINE, PER_STEP, THROTTLING, LINKS, HOST, HOST_TIMELINE, METRICS)
