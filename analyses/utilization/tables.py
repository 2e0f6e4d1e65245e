"""Tables of `utilization`: samples of devices and of the measured process, in the window and over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, TableSpec
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.nvml import M
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C

from ..shared.common import DEVICE, PLACE_COLUMNS, STEP, Floats, ints
from ..shared.groups import rows_by_number
from .device_limits import busy_clock, find_reasons, measure_link, measure_throttling
from .series import CONSTANT, CPU, PROCESSES, RSS, THREADS, Scene, Series, stats_of_each

MIN_COVERED_SHARE = 0.5
"""Minimum share of a window that samples must cover."""
MAX_POINTS = 1_000
"""Maximum number of samples per quantity, evenly selected."""
MAX_DETAILED_DEVICES = 2
"""Maximum number of devices for quantities other than utilization, to limit the number of lines."""
_SCOPE = Column("scope", "", "the profiled steps (or the capture if none are marked), or the whole run")
_SAMPLES = Column("samples", "count", "samples that cover part of that time")

_DEVICES = (
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
)
DEVICES = TableSpec("devices", "NVML and trace, per device, in the profiled steps", _DEVICES)
_PER_STEP = (
    *PLACE_COLUMNS,
    STEP,
    Column("window_ns", "ns", "from the step's start to its end on host or device"),
    Column("power", "W", "mean power, weighted by time"),
    Column("energy", "J", "integral of power over the step"),
    Column("nvml_share", "share", "NVML's GPU utilization"),
    Column("active_share", "share", "|K| of the trace over the step"),
    Column("sm_clock", "MHz", "mean SM clock, idle time included"),
    Column("samples", "count", "power samples that cover part of the step"),
)
PER_STEP = TableSpec("per_step", "Power and energy per profiled step", _PER_STEP)
_THROTTLING = (
    DEVICE,
    Column("reason", "", "NVML's reason"),
    Column("bit", "", "its bit"),
    Column("throttles", "", "whether it lowers the clock of a busy device"),
    Column("time_ns", "ns", "time covered by samples with it"),
    Column("time_share", "share", "over the time of all samples; reasons may overlap"),
    _SAMPLES,
)
THROTTLING = TableSpec("throttling", "Clock throttle reasons, in the profiled steps", _THROTTLING)
_PCIE = (
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
)
LINKS = TableSpec("pcie", "PCIe throughput and link, in the profiled steps", _PCIE)
_HOST = (
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
)
HOST = TableSpec("host", "The measured process and its children on the host", _HOST)
_METRICS = (
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
)
METRICS = TableSpec("metrics", "Every sampled metric", _METRICS)
_AT = Column(C.T_NS, "ns", "time since the run's t0; negative before the profile")
_TIMELINE = (
    DEVICE,
    Column("quantity", "", "NVML's utilization, memory used, SM clock or power"),
    _AT,
    Column("of_most", "share", "utilization, or value over total memory, maximum clock or power limit"),
)
TIMELINE = TableSpec("timeline", "Devices over time, as shares of their maximum", _TIMELINE)
_HOST_TIMELINE = (
    _AT,
    Column("rss", "bytes", "resident memory"),
    Column("cores", "×", "CPU time over wall time since the previous reading"),
    Column("threads", "count", "threads"),
)
HOST_TIMELINE = TableSpec("host_timeline", "The measured process over time", _HOST_TIMELINE)
SPECS = (DEVICES, TIMELINE, PER_STEP, THROTTLING, LINKS, HOST, HOST_TIMELINE, METRICS)
_NOT_LISTED = {*CONSTANT, M.THROTTLE, M.ENERGY, *(f"{kind}_peak_bytes" for kind in ("host", "device"))}
_INTEGERS = {C.RANK, C.DEVICE, C.STEP, "generation", "width", "max_generation", "max_width"}
_QUANTITIES = (
    ("memory", M.MEMORY_USED, M.MEMORY_TOTAL),
    ("SM clock", M.SM_CLOCK, M.SM_CLOCK_MAX),
    ("power", M.POWER, M.POWER_LIMIT),
)
Row = dict[str, Any]


def build_tables(scene: Scene) -> dict[str, pd.DataFrame]:
    """Return the tables that are not empty; that of all metrics in any case."""
    rows: dict[TableSpec, list[Row] | pd.DataFrame] = {
        DEVICES: [_summarize_device(scene, device) for device in scene.devices],
        TIMELINE: _sample_devices(scene),
        PER_STEP: [*_measure_steps(scene)],
        THROTTLING: [*_list_reasons(scene)],
        LINKS: [*_compare_links(scene)],
        HOST: [*_summarize_host(scene)],
        HOST_TIMELINE: _sample_host(scene),
        METRICS: [*_summarize_metrics(scene)],
    }
    return {
        spec.name: _table(values, spec) if isinstance(values, list) else values
        for spec, values in rows.items()
        if len(values) or spec is METRICS
    }


def _table(rows: list[Row], spec: TableSpec) -> pd.DataFrame:
    """Build a table with the declared columns: integers, text, or floats with NaN for unknown."""
    columns: dict[str, Any] = {}
    for column in spec.columns:
        values = [row.get(column.name) for row in rows]
        if column.name in _INTEGERS or column.unit in {"ns", "bytes", "count"}:
            integers = [None if value is None or value != value else round(value) for value in values]
            columns[column.name] = pd.array(integers, dtype="Int64" if None in integers else np.int64)
        elif column.unit or column.unit_in:
            columns[column.name] = np.array(values, np.float64)
        else:
            columns[column.name] = np.array(values, object)
    return pd.DataFrame(columns)


def _summarize_metrics(scene: Scene) -> Iterator[Row]:
    """Each sampled metric inside the window and over the whole run."""
    listed = [
        series for series in scene.series if series.metric not in _NOT_LISTED and "peak_" not in series.metric
    ]
    stats_by_scope = [(scope, stats_of_each(listed, window)) for scope, window in scene.scopes]
    for number, series in enumerate(listed):
        key = {C.SOURCE: series.source, C.DEVICE: series.device, C.METRIC: series.metric, C.UNIT: series.unit}
        for scope, stats in stats_by_scope:
            if of_series := stats[number]:
                yield {"scope": scope, **key, **vars(of_series)}


def _summarize_device(scene: Scene, device: int) -> Row:
    """NVML metrics of a device, with the trace's utilization."""
    used, total = _stat(scene, device, M.MEMORY_USED, "max"), scene.constant(device, M.MEMORY_TOTAL)
    clock, max_clock = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    throttling = measure_throttling(scene, device)
    joules = _energy(scene, device, scene.window)
    return {
        C.DEVICE: device,
        "nvml_share": _percent(_stat(scene, device, M.GPU_UTILIZATION)),
        "active_share": scene.active_share(device),
        "window_ns": scene.window_ns,
        "memory_used": used,
        "memory_total": total,
        "memory_share": used / total if used is not None and total else None,
        "sm_clock": clock,
        "sm_clock_max": max_clock,
        "clock_share": clock / max_clock if clock and max_clock else None,
        "throttled_share": throttling[1] if throttling else None,
        "power": _stat(scene, device, M.POWER),
        "power_limit": scene.constant(device, M.POWER_LIMIT),
        "energy_counted": _counter_energy(scene, device),
        "energy_per_step": joules / len(scene.steps) if joules is not None and len(scene.steps) else None,
        "temperature": _stat(scene, device, M.TEMPERATURE, "max"),
        "other_processes": _stat(scene, device, M.OTHERS, "max"),
    }


def _energy(scene: Scene, device: int, window: Union) -> float | None:
    """Joules of a device inside a window: the mean power, weighted by time, times the window.

    None if the samples cover too little of the window.
    """
    power, length = scene.nvml(device, M.POWER), intervals.length(window)
    stats = power.stats(window) if power else None
    if stats is None or stats.covered_ns < MIN_COVERED_SHARE * length:
        return None
    return stats.mean * length / 1e9


def _counter_energy(scene: Scene, device: int) -> float | None:
    """Joules by the device's own counter from the first sample to the last; None if it was reset."""
    counter = scene.nvml(device, M.ENERGY)
    if counter is None or (np.diff(counter.values) < 0).any():
        return None
    return float(counter.values[-1] - counter.values[0]) if len(counter.values) > 1 else None


def _stat(
    scene: Scene, device: int, metric: str, kind: str = "mean", window: Union | None = None
) -> float | None:
    """Statistic of a metric of a device inside a window; None if it was not sampled."""
    series = scene.nvml(device, metric)
    stats = series.stats(scene.window if window is None else window) if series else None
    value: float | None = getattr(stats, kind, None)
    return value


def _percent(value: float | None) -> float | None:
    """Share of a value in percent."""
    return None if value is None else value / 100


def _measure_steps(scene: Scene) -> Iterator[Row]:
    """Power and energy of each step on each device that its rank used."""
    pairs = scene.work[[C.RANK, C.DEVICE]].drop_duplicates()
    steps = scene.steps.merge(pairs, on=C.RANK).sort_values([C.DEVICE, C.RANK, C.STEP])
    for device, rows in rows_by_number(ints(steps, C.DEVICE)):
        of_device = steps.iloc[rows]
        starts, ends = ints(of_device, C.START_NS), ints(of_device, END_NS)
        power, shares = scene.nvml(device, M.POWER), scene.active_shares(device, starts, ends)
        keys = zip(of_device[C.RANK].tolist(), of_device[C.STEP].tolist(), shares, strict=True)
        for place, (rank, step, share) in enumerate(keys):
            window = starts[place : place + 1], ends[place : place + 1]
            yield {
                C.RANK: rank,
                C.DEVICE: device,
                C.STEP: step,
                "window_ns": int(ends[place] - starts[place]),
                "power": _stat(scene, device, M.POWER, window=window),
                "energy": _energy(scene, device, window),
                "nvml_share": _percent(_stat(scene, device, M.GPU_UTILIZATION, window=window)),
                "active_share": share,
                "sm_clock": _stat(scene, device, M.SM_CLOCK, window=window),
                "samples": int((power.within(window) > 0).sum()) if power else 0,
            }


def _list_reasons(scene: Scene) -> Iterator[Row]:
    """Reasons of the clocks of each device."""
    for device in scene.devices:
        for reason in find_reasons(scene, device):
            yield {
                C.DEVICE: device,
                "reason": reason.words,
                "bit": f"0x{reason.bit:x}",
                "throttles": "yes" if reason.throttles else "no",
                "time_ns": reason.time_ns,
                "time_share": reason.share,
                "samples": reason.samples,
            }


def _compare_links(scene: Scene) -> Iterator[Row]:
    """PCIe throughput of each device compared with its link."""
    for device in scene.devices:
        link = measure_link(scene, device)
        if not link.known:
            continue
        rates = {"received": link.received, "sent": link.sent}
        peak = max((stats.max for stats in rates.values() if stats), default=None)
        yield {
            C.DEVICE: device,
            "generation": link.generation,
            "width": link.width,
            "max_generation": link.max_generation,
            "max_width": link.max_width,
            "link_rate": link.rate,
            "max_link_rate": link.max_rate,
            **{
                f"{way}_{kind}": getattr(stats, kind, None)
                for way, stats in rates.items()
                for kind in ("mean", "max")
            },
            "used_share": peak / link.rate if peak is not None and link.rate else None,
        }


def _summarize_host(scene: Scene) -> Iterator[Row]:
    """Memory and CPU of the measured process."""
    series = {name: scene.process(name) for name in (RSS, CPU, THREADS, PROCESSES)}
    for scope, window in scene.scopes:
        stats = {name: samples.stats(window) for name, samples in series.items() if samples}
        rss, cpu = stats.get(RSS), stats.get(CPU)
        if any(stats.values()):
            yield {
                "scope": scope,
                **{f"rss_{kind}": getattr(rss, kind, None) for kind in ("mean", "min", "max")},
                **{f"cores_{kind}": _percent(getattr(cpu, kind, None)) for kind in ("mean", "p95", "max")},
                "threads": getattr(stats.get(THREADS), "max", None),
                "processes": getattr(stats.get(PROCESSES), "max", None),
                "samples": rss.samples if rss else 0,
            }


def _sample_devices(scene: Scene) -> pd.DataFrame:
    """Utilization, memory, clock and power of each device as shares of their maximum."""
    parts = []
    for device in scene.devices:
        limits: list[tuple[str, str, float | None]] = [("utilization", M.GPU_UTILIZATION, 100.0)]
        if len(scene.devices) <= MAX_DETAILED_DEVICES:
            limits += [(name, metric, scene.constant(device, of)) for name, metric, of in _QUANTITIES]
        for name, metric, limit in limits:
            series = scene.nvml(device, metric)
            if series and limit:
                times, values = _thin(series)
                columns = {C.DEVICE: device, "quantity": name, C.T_NS: times, "of_most": values / limit}
                parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _thin(series: Series) -> tuple[Ints, Floats]:
    stride = -(-len(series.times) // MAX_POINTS)
    return series.times[::stride], series.values[::stride]


def _sample_host(scene: Scene) -> pd.DataFrame:
    """Memory, CPU and threads of the process; missing if not sampled."""
    series = scene.process(RSS)
    if series is None:
        return pd.DataFrame()
    times, resident = _thin(series)
    return pd.DataFrame(
        {
            C.T_NS: times,
            "rss": resident.round().astype(np.int64),
            "cores": _values_at(scene.process(CPU), times) / 100,
            "threads": pd.Series(_values_at(scene.process(THREADS), times)).round().astype("Int64"),
        }
    )


def _values_at(series: Series | None, times: Ints) -> Floats:
    """Values sampled at exactly these times, else NaN; all metrics of one reading have the same time."""
    if series is None:
        return np.full(len(times), np.nan)
    by_time = pd.Series(series.values, index=series.times)
    return np.asarray(by_time[~by_time.index.duplicated()].reindex(times), np.float64)
