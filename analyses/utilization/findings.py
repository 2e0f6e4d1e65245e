"""Find what limited the devices and the process: clocks, link, other processes, memory and one busy core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis import Finding, Rule, Severity
from tracekit.analysis.savings import CONFIDENT, budget
from tracekit.runs import intervals
from tracekit.runs.nvml import M
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, DeviceKind

from ..copies.tables import KernelUnions
from ..memory.events import theil_sen
from ..shared.common import largest_rows
from ..shared.programs import compiled_share, program_of
from .device_limits import (
    POWER_CAP,
    SETTING,
    Reason,
    busy_clock,
    find_reasons,
    measure_link,
    measure_throttling,
)
from .series import CPU, RSS, Scene

MIN_SAMPLES = 2
THROTTLED = Rule(
    "clock_throttled",
    states="NVML reports a throttling reason (power limit, hardware, temperature, power supply, synchronized "
    "clocks) in at least {min_samples} samples that cover at least {min_throttled_share} of the sampled "
    "time of the steps",
    why="a bit that is set rarely costs less than the variation between runs of one program",
    thresholds={"min_samples": MIN_SAMPLES, "min_throttled_share": 0.05},
)
BELOW_MAX = Rule(
    "clock_below_max",
    states="the mean SM clock while the device is busy is below {max_clock_share} of its maximum, in at "
    "least {min_samples} samples, and `clock_throttled` does not apply",
    why="boards sustain at least 80% of the maximum clock under load unless set lower or throttled",
    thresholds={"min_samples": MIN_SAMPLES, "max_clock_share": 0.75},
)
NARROW_LINK = Rule(
    "pcie_link_below_max",
    states="in at least {min_samples} samples while the device is busy, the PCIe link does not reach its "
    "maximum generation or number of lanes",
    why="an idle link falls back to save power, but not under load; then the slot, a riser or the machine's "
    "settings limit it",
    thresholds={"min_samples": MIN_SAMPLES},
)
SHARED = Rule(
    "shared_device",
    states="another process has a compute context on a busy device, in any sample in the steps",
    why="it takes time, memory and power from this program, and is not in this trace",
)
HOST_GROWTH = Rule(
    "host_memory_growth",
    states="over at least {min_samples} samples in the second half of the unprofiled steps before the "
    "profile, resident memory grows (the confidence interval of the Theil-Sen slope is above zero) by at "
    "least {min_growth_share} and {min_growth_bytes}",
    why="imports and the first steps allocate what stays; during the profile the profiler's memory grows",
    thresholds={"min_samples": 16, "min_growth_share": 0.05, "min_growth_bytes": 32 << 20},
)
CPU_BOUND = Rule(
    "cpu_bound_process",
    states="a device is idle for at least {min_idle_share} of the window while the process and its children "
    "use {min_cores} to {max_cores} cores on average, in samples that cover at least {min_covered_share} of "
    "it",
    why="one busy core with an idle device indicates a single limiting thread; several busy cores or none "
    "have other causes",
    thresholds={"min_idle_share": 0.3, "min_cores": 0.85, "max_cores": 1.3, "min_covered_share": 0.5},
)
RULES = (THROTTLED, BELOW_MAX, NARROW_LINK, SHARED, HOST_GROWTH, CPU_BOUND)
MIN_NORMAL_CLOCK_SHARE = 0.9
"""Share of the maximum clock from which throttling is normal operation."""

_LOWER = (
    "Check power, temperature and clocks with `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK`; "
    "{cure}; lock the clocks (`nvidia-smi --lock-gpu-clocks`) before comparing times."
)
_POWER = (
    "raise the limit if the board allows it (`nvidia-smi -pl`); reaching the power limit under full load is "
    "normal"
)
_UNKNOWN_SAVING = "savings not estimated: the effect of a higher clock depends on what bounds the kernels"


def device_findings(scene: Scene) -> Iterator[Finding]:
    """Yield findings on the limits of each busy device, of samples in the steps; see `Scene.inside`."""
    for device in sorted(scene.worked):
        clocks = _report_throttling(scene, device) or _report_low_clock(scene, device)
        findings = (clocks, _report_link(scene, device), _report_sharing(scene, device))
        yield from (finding for finding in findings if finding)


def _report_throttling(scene: Scene, device: int) -> Finding | None:
    throttling = measure_throttling(scene, device)
    reasons = [reason for reason in find_reasons(scene, device) if reason.throttles]
    samples = sum(reason.samples for reason in reasons)
    if throttling is None or samples < THROTTLED["min_samples"]:
        return None
    throttled, share = throttling
    if share < THROTTLED["min_throttled_share"]:
        return None
    words = ", ".join(reason.words for reason in sorted(reasons, key=lambda reason: -reason.time_ns))
    is_power = all(reason.bit == POWER_CAP for reason in reasons)
    return Finding(
        THROTTLED.code,
        _severity(scene, device, reasons),
        f"The clocks of device {device} were throttled by {words} in {100 * share:.0f}% of the sampled time"
        f"{_describe_clock(scene, device)}",
        _LOWER.format(cure=_POWER if is_power else "improve cooling or leave a free slot next to the board"),
        how=_UNKNOWN_SAVING,
        confidence=CONFIDENT,
        evidence=scene.evidence(device, throttled),
    )


def _severity(scene: Scene, device: int, reasons: list[Reason]) -> Severity:
    """Severity of throttling; a board at its power limit with a high clock is normal."""
    share = _clock_share(scene, device)
    if share is None:
        normal = all(reason.bit == POWER_CAP for reason in reasons)
    else:
        normal = share >= MIN_NORMAL_CLOCK_SHARE
    return Severity.INFO if normal else Severity.WARN


def _clock_share(scene: Scene, device: int) -> float | None:
    clock, max_clock = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return clock / max_clock if clock and max_clock else None


def _describe_clock(scene: Scene, device: int) -> str:
    clock, max_clock = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return f": {clock:,.0f} of {max_clock:,.0f} MHz on average while busy" if clock and max_clock else ""


def _report_low_clock(scene: Scene, device: int) -> Finding | None:
    share, series = _clock_share(scene, device), scene.nvml(device, M.SM_CLOCK)
    if share is None or series is None or share >= BELOW_MAX["max_clock_share"]:
        return None
    busy = series.within(scene.busy(device)) > 0
    if busy.sum() < BELOW_MAX["min_samples"]:
        return None
    is_set = any(reason.bit == SETTING for reason in find_reasons(scene, device))
    start, end = series.extents()
    return Finding(
        BELOW_MAX.code,
        Severity.WARN,
        f"The SM clock of device {device} stayed low{_describe_clock(scene, device)}, without throttling",
        "The clocks were set: reset them with `nvidia-smi --reset-gpu-clocks` and "
        "`--reset-applications-clocks`."
        if is_set
        else "Check for set clocks (`nvidia-smi -q -d CLOCK`), warm up longer before measuring, and give the "
        "device longer continuous work: it raises its clock only after some time under load.",
        how=_UNKNOWN_SAVING,
        confidence=CONFIDENT if is_set else 0.6,
        evidence=scene.evidence(device, intervals.union(start[busy], end[busy])),
    )


def _report_link(scene: Scene, device: int) -> Finding | None:
    link = measure_link(scene, device)
    rate, max_rate = link.rate, link.max_rate
    if link.busy_samples < NARROW_LINK["min_samples"] or not rate or not max_rate or rate >= max_rate:
        return None
    saving, evidence = _copy_saving(scene, device, rate / max_rate)
    steps = budget(scene.run)
    saves = steps.per_step(saving) > 0
    return steps.finding(
        NARROW_LINK,
        saving if saves else None,
        f"The PCIe link of device {device} ran at {_describe_link(link.generation, link.width)} lanes "
        f"({rate:.1f} GB/s) under load; it supports {_describe_link(link.max_generation, link.max_width)} "
        f"({max_rate:.1f} GB/s)",
        "Check `nvidia-smi -q -d PCIE` under load, risers and the machine's PCIe settings; reseat the "
        "board or move it to a slot with all lanes.",
        f"exposed time of copies between host and device, times the share that the full link would save, "
        f"{steps.per}"
        if saves
        else "no copies between host and device are exposed, so there is no saving",
        confidence=0.8,
        evidence=evidence,
    )


def _describe_link(generation: int | None, width: int | None) -> str:
    return f"generation {generation} with {width}"


def _copy_saving(scene: Scene, device: int, used_share: float) -> tuple[int, dict[str, list[int]]]:
    """Time of exposed copies in steps that the full link would save, and the longest copies."""
    rows = scene.work[(scene.work[C.DEVICE] == device) & (scene.work[C.KIND] == str(DeviceKind.MEMCPY))]
    rows = rows[rows[C.COPY_KIND].isin([str(CopyKind.H2D), str(CopyKind.D2H)])]
    if len(scene.steps):
        rows = rows[rows[C.STEP].notna()]
    if rows.empty:
        return 0, {}
    saving = int(KernelUnions(scene.run).exposed_ns(rows) * (1 - used_share))
    return saving, {"device_intervals": largest_rows(rows, C.DUR_NS)}


def _report_sharing(scene: Scene, device: int) -> Finding | None:
    series = scene.nvml(device, M.OTHERS)
    stats = series.stats(scene.window) if series else None
    if series is None or stats is None or stats.max < 1:
        return None
    count, shared, weights = int(stats.max), series.values > 0, series.within(scene.window)
    share = float(weights[shared].sum() / weights.sum()) if weights.any() else 1.0
    start, end = series.extents()
    windows = intervals.intersect(intervals.union(start[shared], end[shared]), scene.window)
    return Finding(
        SHARED.code,
        Severity.WARN,
        f"{count} other process{'es' * (count != 1)} used device {device} in {100 * share:.0f}% of the "
        "sampled time",
        "Find the process with `nvidia-smi`, and measure on an exclusive device: times, memory, power and "
        "NVML's utilization include all processes. (An MPS server counts as a process.)",
        how="savings not estimated: this trace does not include the other processes",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, windows),
    )


def host_findings(scene: Scene) -> Iterator[Finding]:
    """Yield findings on the samples of the process."""
    yield from (finding for finding in (_report_growth(scene), _report_cpu_bound(scene.inside)) if finding)


def _report_growth(scene: Scene) -> Finding | None:
    series = scene.process(RSS)
    if series is None:
        return None
    steady = (series.times >= -_steps_before_ns(scene) // 2) & (series.times < 0)
    values = np.round(series.values[steady]).astype(np.int64)
    if len(values) < HOST_GROWTH["min_samples"]:
        return None
    slope = theil_sen(values)
    growth = slope.slope * (len(values) - 1)
    least = max(HOST_GROWTH["min_growth_bytes"], HOST_GROWTH["min_growth_share"] * int(values[0]))
    if slope.low <= 0 or growth < least:
        return None
    seconds = int(np.ptp(series.times[steady])) / 1e9
    slopes = " to ".join(human(end, "bytes") for end in (slope.low, slope.high))
    return Finding(
        HOST_GROWTH.code,
        Severity.WARN,
        f"Host memory of the process grew by {human(growth, 'bytes')} within {seconds:.1f} s of steps before "
        f"the profile, to {human(int(values[-1]), 'bytes')}",
        "Look for objects that persist across steps on the host: losses that are neither detached nor "
        "converted to numbers, lists of outputs, caches, DataLoader workers that copy the data they read; "
        "`tracemalloc` or `memray` show the lines.",
        how=f"Theil-Sen slope over {len(values)} samples of resident memory, per sample: {slopes}",
        confidence=0.6,
    )


def _steps_before_ns(scene: Scene) -> int:
    """Time of the unprofiled steps before the profile, whose start is the zero of the run's times."""
    timings = scene.run.meta.timings
    return sum(timings.step_ns[: len(timings.step_ns) - timings.later]) if timings else 0


def _report_cpu_bound(scene: Scene) -> Finding | None:
    series = scene.process(CPU)
    stats = series.stats(scene.window) if series else None
    if not scene.worked or not scene.window_ns or stats is None:
        return None
    cores = stats.mean / 100
    busy = {device: intervals.length(scene.busy(device)) for device in scene.worked}
    device = max(busy, key=lambda place: busy[place])
    idle = 1 - busy[device] / scene.window_ns
    if idle < CPU_BOUND["min_idle_share"]:
        return None
    if not CPU_BOUND["min_cores"] <= cores <= CPU_BOUND["max_cores"]:
        return None
    if stats.covered_ns < CPU_BOUND["min_covered_share"] * scene.window_ns:
        return None
    columns = [C.ROW_ID, C.KIND, C.DEVICE, C.START_NS, C.DUR_NS]
    rows = scene.run.table("device_intervals", columns=columns)
    rows = rows[(rows[C.KIND] == str(DeviceKind.IDLE)) & (rows[C.DEVICE] == device)]
    longest = largest_rows(rows, C.DUR_NS)
    ways, compiled = ("fused optimizers", "larger batches"), compiled_share(scene.run)
    launch_less = program_of(scene.run).launch_less(*ways, compiled=compiled)
    return Finding(
        CPU_BOUND.code,
        Severity.WARN,
        f"The process keeps {cores:.2f} cores busy while device {device} is idle for {100 * idle:.0f}% of "
        f"the {scene.scope}",
        "One thread limits the throughput: launch less often "
        f"{launch_less}, or move its work to "
        "other threads or processes (DataLoader workers). `idle_gaps` names the ops that the device waited "
        "for.",
        how="savings not estimated here: `idle_gaps` measures the cost of each cause of idle time",
        confidence=0.7,
        evidence={"device_intervals": longest} if longest else {},
    )
