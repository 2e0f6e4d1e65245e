"""Samples of NVML, of the process, and of other samplers during the run.

Each sample represents a period of time (see `series`). Means and percentiles are weighted by that time inside
the window: the union of the profiled steps of all ranks, or the capture if none are marked.

* NVML's GPU utilization has a sample period of 1/6 s to 1 s, by product. A device can be 100% utilized by one
  small kernel at a time, and steps shorter than the period share one value.
* power: on Ampere (except GA100) and newer, the mean of the past second.

Sources: NVML API reference; Levental & Orlova, fig. 6 to 11; PCI Express Base Specification.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "utilization")  # doctest: +SKIP
    >>> result.tables["metrics"][["metric", "mean", "max", "unit"]]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Result, TableSpec
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.nvml import SOURCE, M
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C

from ..shared.common import NO_STEPS, Floats
from . import advice
from .series import CONSTANT, CPU, PROCESS, PROCESSES, RSS, THREADS, WHOLE, Scene, scene_of
from .specs import (
    DEVICES,
    HOST,
    HOST_TIMELINE,
    LINKS,
    METRICS,
    PER_STEP,
    SPECS,
    THROTTLING,
    TIMELINE,
    busy_clock,
    link,
    reasons,
    throttled,
)

if TYPE_CHECKING:
    from .series import Series


NO_SAMPLES = (
    "no samples of NVML or of the process: `tracekit collect` samples the process and, if there is a driver, "
    "NVML; imported traces have no samples"
)
NO_NVML = "no NVML samples: utilization, clocks, power and PCIe of the devices are unknown"
FEW = "the steps ended before the second sample: their values are single samples; collect with more --steps"


def compute(run: Run) -> Result:
    """Summarize the samples of a run together with its device activity."""
    scene, apart = scene_of(run)
    tables = {
        "devices": devices(scene),
        "timeline": devices_over_time(scene),
        "per_step": per_step(scene),
        "throttling": throttling(scene),
        "pcie": links(scene),
        "host": host(scene),
        "host_timeline": host_over_time(scene),
        "metrics": metrics(scene),
    }
    nonempty = {name: frame for name, frame in tables.items() if len(frame) or name == "metrics"}
    notes = (*apart, *_notes(scene))
    return Result(nonempty, (*advice.device_findings(scene.inside), *advice.host_findings(scene)), notes)


def _notes(scene: Scene) -> tuple[str, ...]:
    sampled = [one for one in scene.series if one.source in {SOURCE, PROCESS}]
    holds = {
        NO_SAMPLES: not sampled,
        NO_NVML: bool(sampled and scene.worked) and not any(one.source == SOURCE for one in sampled),
        NO_STEPS: scene.window_ns > 0 and not len(scene.steps),
        FEW: bool(sampled) and all(int((one.within(scene.window) > 0).sum()) < 2 for one in sampled),
    }
    return tuple(note for note, true in holds.items() if true)


LEAST_COVERED = 0.5
"""Minimum share of a window that samples must cover."""
_NOT_LISTED = {*CONSTANT, M.THROTTLE, M.ENERGY, *(f"{kind}_peak_bytes" for kind in ("host", "device"))}
_TOTAL = "peak_"
Row = dict[str, Any]


def metrics(scene: Scene) -> pd.DataFrame:
    """Each sampled metric inside the window and over the whole run."""
    listed = [one for one in scene.series if one.metric not in _NOT_LISTED and _TOTAL not in one.metric]
    return frame([row for one in listed for row in _scopes(scene, one)], METRICS)


def _scopes(scene: Scene, one: Series) -> Iterator[Row]:
    for scope, windows in ((scene.scope, scene.window), (WHOLE, None)):
        stats = one.stats(windows)
        if stats:
            yield {
                "scope": scope,
                C.SOURCE: one.source,
                C.DEVICE: one.device,
                C.METRIC: one.metric,
                C.UNIT: one.unit,
                "mean": stats.mean,
                "min": stats.low,
                "max": stats.high,
                "p95": stats.p95,
                "samples": stats.samples,
                "covered_ns": stats.covered_ns,
            }


def devices(scene: Scene) -> pd.DataFrame:
    """NVML metrics of each device, with the trace's utilization."""
    return frame([_device(scene, device) for device in scene.devices], DEVICES)


def _device(scene: Scene, device: int) -> Row:
    used, total = _high(scene, device, M.MEMORY_USED), scene.constant(device, M.MEMORY_TOTAL)
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    throttling = throttled(scene, device)
    utilization = _mean(scene, device, M.GPU_UTILIZATION)
    joules = energy(scene, device, scene.window)
    return {
        C.DEVICE: device,
        "nvml_share": None if utilization is None else utilization / 100,
        "active_share": scene.active_share(device),
        "window_ns": scene.window_ns,
        "memory_used": used,
        "memory_total": total,
        "memory_share": used / total if used is not None and total else None,
        "sm_clock": clock,
        "sm_clock_max": most,
        "clock_share": clock / most if clock and most else None,
        "throttled_share": throttling[1] if throttling else None,
        "power": _mean(scene, device, M.POWER),
        "power_limit": scene.constant(device, M.POWER_LIMIT),
        "energy_counted": _counted(scene, device),
        "energy_per_step": joules / len(scene.steps) if joules is not None and len(scene.steps) else None,
        "temperature": _high(scene, device, M.TEMPERATURE),
        "other_processes": _high(scene, device, M.OTHERS),
    }


def energy(scene: Scene, device: int, window: Union) -> float | None:
    """Joules of a device inside a window: the mean power, weighted by time, times the window.

    None if the samples cover less than half of the window.
    """
    power, length = scene.nvml(device, M.POWER), intervals.length(window)
    stats = power.stats(window) if power else None
    if stats is None or stats.covered_ns < LEAST_COVERED * length:
        return None
    return stats.mean * length / 1e9


def _counted(scene: Scene, device: int) -> float | None:
    """Joules by the device's own counter from the first sample to the last; None if it was reset."""
    counter = scene.nvml(device, M.ENERGY)
    if counter is None or (np.diff(counter.values) < 0).any():
        return None
    return float(counter.values[-1] - counter.values[0]) if len(counter.values) > 1 else None


def _mean(scene: Scene, device: int, metric: str, window: Union | None = None) -> float | None:
    found = scene.nvml(device, metric)
    stats = found.stats(scene.window if window is None else window) if found else None
    return stats.mean if stats else None


def _high(scene: Scene, device: int, metric: str) -> float | None:
    found = scene.nvml(device, metric)
    stats = found.stats(scene.window) if found else None
    return stats.high if stats else None


def per_step(scene: Scene) -> pd.DataFrame:
    """Power and energy of each step on each device that its rank used."""
    pairs = scene.work[[C.RANK, C.DEVICE]].drop_duplicates()
    rows = []
    for one in scene.steps.merge(pairs, on=C.RANK).sort_values([C.DEVICE, C.RANK, C.STEP]).to_dict("records"):
        device = int(one[C.DEVICE])
        window = (np.array([one[C.START_NS]], np.int64), np.array([one[END_NS]], np.int64))
        utilization = _mean(scene, device, M.GPU_UTILIZATION, window)
        power = scene.nvml(device, M.POWER)
        rows.append(
            {
                C.RANK: one[C.RANK],
                C.DEVICE: device,
                C.STEP: one[C.STEP],
                "window_ns": intervals.length(window),
                "power": _mean(scene, device, M.POWER, window),
                "energy": energy(scene, device, window),
                "nvml_share": None if utilization is None else utilization / 100,
                "active_share": scene.active_share(device, window),
                "sm_clock": _mean(scene, device, M.SM_CLOCK, window),
                "samples": int((power.within(window) > 0).sum()) if power else 0,
            }
        )
    return frame(rows, PER_STEP)


def throttling(scene: Scene) -> pd.DataFrame:
    """Reasons of the clocks of each device."""
    rows = [
        {
            C.DEVICE: device,
            "reason": one.words,
            "bit": f"0x{one.bit:x}",
            "throttles": "yes" if one.throttles else "no",
            "time_ns": one.time_ns,
            "time_share": one.share,
            "samples": one.samples,
        }
        for device in scene.devices
        for one in reasons(scene, device)
    ]
    return frame(rows, THROTTLING)


def links(scene: Scene) -> pd.DataFrame:
    """PCIe throughput of each device compared with its link."""
    found = [(device, link(scene, device)) for device in scene.devices]
    rows = []
    for device, one in found:
        if one.known:
            received, sent, rate = one.received, one.sent, one.rate
            peak = max((stats.high for stats in (received, sent) if stats), default=None)
            rows.append(
                {
                    C.DEVICE: device,
                    "generation": one.generation,
                    "width": one.width,
                    "max_generation": one.most_generation,
                    "max_width": one.most_width,
                    "link_rate": rate,
                    "max_link_rate": one.most,
                    "received_mean": received.mean if received else None,
                    "received_max": received.high if received else None,
                    "sent_mean": sent.mean if sent else None,
                    "sent_max": sent.high if sent else None,
                    "used_share": peak / rate if peak is not None and rate else None,
                }
            )
    return frame(rows, LINKS)


def host(scene: Scene) -> pd.DataFrame:
    """Memory and CPU of the measured process."""
    named = {name: scene.process(name) for name in (RSS, CPU, THREADS, PROCESSES)}
    rows = []
    for scope, windows in ((scene.scope, scene.window), (WHOLE, None)):
        stats = {name: one.stats(windows) for name, one in named.items() if one}
        rss, cpu = stats.get(RSS), stats.get(CPU)
        threads, processes = stats.get(THREADS), stats.get(PROCESSES)
        if any(stats.values()):
            rows.append(
                {
                    "scope": scope,
                    "rss_mean": rss.mean if rss else None,
                    "rss_min": rss.low if rss else None,
                    "rss_max": rss.high if rss else None,
                    "cores_mean": cpu.mean / 100 if cpu else None,
                    "cores_p95": cpu.p95 / 100 if cpu else None,
                    "cores_max": cpu.high / 100 if cpu else None,
                    "threads": threads.high if threads else None,
                    "processes": processes.high if processes else None,
                    "samples": rss.samples if rss else 0,
                }
            )
    return frame(rows, HOST)


def frame(rows: list[Row], spec: TableSpec) -> pd.DataFrame:
    """Build a table with the declared columns: integers, text, or floats with NaN for unknown."""
    table = pd.DataFrame(rows, columns=[column.name for column in spec.columns], dtype=object)
    for column in spec.columns:
        values = table[column.name]
        if column.name in _INTEGERS or column.unit in {"ns", "bytes", "count"}:
            integers = pd.to_numeric(values).round().astype("Int64")
            table[column.name] = integers.astype(np.int64) if integers.notna().all() else integers
        elif column.unit or column.unit_in:
            table[column.name] = values.astype(np.float64)
    return table


_INTEGERS = {C.RANK, C.DEVICE, C.STEP, "generation", "width", "max_generation", "max_width"}


MOST_POINTS = 1_000
"""Maximum number of samples per quantity, evenly selected."""
FEW_DEVICES = 2
"""Maximum number of devices for quantities other than utilization, to limit the number of lines."""
UTILIZATION = "utilization"
_QUANTITIES = (
    ("memory", M.MEMORY_USED, M.MEMORY_TOTAL),
    ("SM clock", M.SM_CLOCK, M.SM_CLOCK_MAX),
    ("power", M.POWER, M.POWER_LIMIT),
)


def devices_over_time(scene: Scene) -> pd.DataFrame:
    """Utilization, memory, clock and power of each device as shares of their maximum."""
    parts = []
    for device in scene.devices:
        found = scene.nvml(device, M.GPU_UTILIZATION)
        if found:
            parts.append(_part(device, UTILIZATION, found, 100.0))
        if len(scene.devices) <= FEW_DEVICES:
            parts += _others(scene, device)
    columns = [column.name for column in TIMELINE.columns]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _others(scene: Scene, device: int) -> list[pd.DataFrame]:
    parts = []
    for name, metric, most in _QUANTITIES:
        found, limit = scene.nvml(device, metric), scene.constant(device, most)
        if found and limit:
            parts.append(_part(device, name, found, limit))
    return parts


def _part(device: int, name: str, found: Series, most: float) -> pd.DataFrame:
    times, values = _thinned(found)
    return pd.DataFrame({C.DEVICE: device, "quantity": name, C.T_NS: times, "of_most": values / most})


def _thinned(found: Series) -> tuple[Ints, Floats]:
    every = -(-len(found.times) // MOST_POINTS)
    return found.times[::every], found.values[::every]


def host_over_time(scene: Scene) -> pd.DataFrame:
    """Memory, CPU and threads of the process; missing if not sampled."""
    columns = [column.name for column in HOST_TIMELINE.columns]
    found = scene.process(RSS)
    if found is None:
        return pd.DataFrame(columns=columns)
    times, resident = _thinned(found)
    threads = _sampled_at(scene.process(THREADS), times)
    table = pd.DataFrame(
        {
            C.T_NS: times,
            "rss": resident.round().astype(np.int64),
            "cores": _sampled_at(scene.process(CPU), times) / 100,
            "threads": pd.Series(threads).round().astype("Int64"),
        }
    )
    return table[columns]


def _sampled_at(found: Series | None, times: Ints) -> Floats:
    """Values sampled at exactly these times, else NaN; all metrics of one reading have the same time."""
    if found is None:
        return np.full(len(times), np.nan)
    by_time = pd.Series(found.values, index=found.times)
    return np.asarray(by_time[~by_time.index.duplicated()].reindex(times), np.float64)


ANALYSIS = Analysis(
    name="utilization",
    title="Utilization, clocks, power and host",
    question="How were the devices and the host utilized, and what limited them?",
    definition=(
        "Samples weighted by the time each represents, inside the profiled steps and over the whole run. "
        "NVML's utilization = share of its sample period in which any kernel of any process ran; active = "
        "|K| over the window, of this program's trace. Energy = mean power of the board × window. Throttled "
        "= time of samples with a throttle reason over sampled time. Link = PCIe generation × lanes under "
        "load. Cores = CPU time of the process and its children over wall time. Findings use only samples "
        "taken inside the steps, not those around them that stand for a part of a step."
    ),
    tables=SPECS,
    sources=(
        "NVML API reference",
        "Levental & Orlova, Fig. 6 to 11",
        "PCI Express Base Specification (rates per lane)",
    ),
    order=65,
    compute=compute,
    needs_profile=False,
    rules=advice.RULES,
)
