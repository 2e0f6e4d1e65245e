"""Rules of `utilization` and their thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule, Severity
from tracekit.analysis.savings import CONFIDENT, budget
from tracekit.runs import intervals
from tracekit.runs.nvml import M
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, DeviceKind

from ..copies.kernel_unions import KernelUnions
from ..memory.allocations import theil_sen
from ..shared.common import largest_rows
from .series import CPU, RSS
from .specs import POWER_CAP, SETTING, busy_clock, link, reasons, throttled

if TYPE_CHECKING:
    from .series import Scene
    from .specs import Link, Reason


THROTTLED, BELOW_MAX, NARROW_LINK = "clock_throttled", "clock_below_max", "pcie_link_below_max"
SHARED, HOST_GROWTH, CPU_BOUND = "shared_device", "host_memory_growth", "cpu_bound_process"

THROTTLED_SHARE = 0.05
CLOCK_SHARE = 0.75
SLOWED_SHARE = 0.9
LEAST_SAMPLES = 2
IDLE_SHARE = 0.3
ONE_CORE = (0.85, 1.3)
LEAST_COVERED = 0.5
GROWTH_SHARE, GROWTH_BYTES, GROWTH_SAMPLES = 0.05, 32 << 20, 16
LATER_SHARE = 0.35

RULES = (
    Rule(
        THROTTLED,
        "NVML reports a throttling reason (power limit, hardware, temperature, power supply, synchronized "
        f"clocks) in at least {LEAST_SAMPLES} samples that cover at least {THROTTLED_SHARE:.0%} of the "
        "sampled time of the steps",
        "a bit that is set rarely costs less than the variation between runs of one program",
    ),
    Rule(
        BELOW_MAX,
        f"the mean SM clock while the device is busy is below {CLOCK_SHARE:.0%} of its maximum, in at least "
        f"{LEAST_SAMPLES} samples, and it is throttled in less than {THROTTLED_SHARE:.0%} of the time",
        "boards sustain at least 80% of the maximum clock under load unless set lower or throttled",
    ),
    Rule(
        NARROW_LINK,
        f"in at least {LEAST_SAMPLES} samples while the device is busy, the PCIe link does not reach its "
        "maximum generation or number of lanes",
        "an idle link falls back to save power, but not under load; then the slot, a riser or the machine's "
        "settings limit it",
    ),
    Rule(
        SHARED,
        "at least one other process has a compute context on a busy device, in any sample in the steps",
        "it takes time, memory and power from this program, and is not in this trace",
    ),
    Rule(
        HOST_GROWTH,
        f"over at least {GROWTH_SAMPLES} samples before the profile, resident memory grows (the 95% interval "
        f"of the Theil-Sen slope is above 0) by at least {GROWTH_SHARE:.0%} and {GROWTH_BYTES >> 20} MiB, at "
        f"least {LATER_SHARE:.0%} of that in the second half",
        "growth at start-up ends, so the second half must grow too; during the profile the profiler's memory "
        "grows",
    ),
    Rule(
        CPU_BOUND,
        f"a device is idle for at least {IDLE_SHARE:.0%} of the window while the process and its children "
        f"use {ONE_CORE[0]} to {ONE_CORE[1]} cores on average, in samples that cover at least half of it",
        "one busy core with an idle device indicates a single limiting thread; several busy cores or "
        "none have other causes",
    ),
)


_LOWER = (
    "Check power, temperature and clocks with `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK`; "
    "{cure}; lock the clocks (`nvidia-smi --lock-gpu-clocks`) before comparing times."
)
_HEAT = "improve cooling or leave a free slot next to the board"
_POWER = (
    "raise the limit if the board allows it (`nvidia-smi -pl`); reaching the power limit under full load is "
    "normal"
)


def device_findings(scene: Scene) -> Iterator[Finding]:
    """Findings on the limits of each busy device, of samples in the steps; see `Scene.inside`."""
    for device in sorted(scene.worked):
        throttling = _throttled(scene, device)
        yield from (one for one in (throttling or _below(scene, device),) if one)
        yield from (one for one in (_narrow(scene, device), _shared(scene, device)) if one)


def _throttled(scene: Scene, device: int) -> Finding | None:
    known, seen = throttled(scene, device), [one for one in reasons(scene, device) if one.throttles]
    if known is None or known[1] < THROTTLED_SHARE or sum(one.samples for one in seen) < LEAST_SAMPLES:
        return None
    flagged, share = known
    by = ", ".join(one.words for one in sorted(seen, key=lambda one: -one.time_ns))
    return Finding(
        THROTTLED,
        _severity(scene, device, seen),
        f"The clocks of device {device} were throttled by {by} in {100 * share:.0f}% of the sampled time"
        f"{_clock(scene, device)}",
        _LOWER.format(cure=_POWER if all(one.bit == POWER_CAP for one in seen) else _HEAT),
        how="savings not estimated: the effect of a higher clock depends on what bounds the kernels",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, flagged, EVIDENCE_ROWS),
    )


def _severity(scene: Scene, device: int, seen: list[Reason]) -> Severity:
    """Severity of throttling; a board at its power limit with a high clock is normal."""
    share = _clock_share(scene, device)
    if share is None:
        return Severity.INFO if all(one.bit == POWER_CAP for one in seen) else Severity.WARN
    return Severity.INFO if share >= SLOWED_SHARE else Severity.WARN


def _clock_share(scene: Scene, device: int) -> float | None:
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return clock / most if clock and most else None


def _clock(scene: Scene, device: int) -> str:
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return f": {clock:,.0f} of {most:,.0f} MHz on average while busy" if clock and most else ""


def _below(scene: Scene, device: int) -> Finding | None:
    share, found = _clock_share(scene, device), scene.nvml(device, M.SM_CLOCK)
    if share is None or found is None or share >= CLOCK_SHARE:
        return None
    loaded = found.within(scene.busy(device)) > 0
    if loaded.sum() < LEAST_SAMPLES:
        return None
    is_set = any(one.bit == SETTING for one in reasons(scene, device))
    start, end = found.extents()
    return Finding(
        BELOW_MAX,
        Severity.WARN,
        f"The SM clock of device {device} stayed low{_clock(scene, device)}, without throttling",
        "The clocks were set: reset them with `nvidia-smi --reset-gpu-clocks` and "
        "`--reset-applications-clocks`."
        if is_set
        else "Check for set clocks (`nvidia-smi -q -d CLOCK`), warm up longer before measuring, and give the "
        "device longer continuous work: it raises its clock only after some time under load.",
        how="savings not estimated: the effect of a higher clock depends on what bounds the kernels",
        confidence=CONFIDENT if is_set else 0.6,
        evidence=scene.evidence(device, intervals.union(start[loaded], end[loaded]), EVIDENCE_ROWS),
    )


def _narrow(scene: Scene, device: int) -> Finding | None:
    own = link(scene, device)
    if own.loaded < LEAST_SAMPLES or not own.rate or not own.most or own.rate >= own.most:
        return None
    saving, evidence = _copied(scene, device, own)
    steps = budget(scene.run)
    return Finding(
        NARROW_LINK,
        steps.severity(saving),
        f"The PCIe link of device {device} ran at generation {own.generation} with {own.width} lanes "
        f"({own.rate:.1f} GB/s) under load; it supports generation {own.most_generation} with "
        f"{own.most_width} ({own.most:.1f} GB/s)",
        "Check `nvidia-smi -q -d PCIE` under load, risers and the machine's PCIe settings; reseat the "
        "board or move it to a slot with all lanes.",
        steps.per_step(saving) or None,
        Basis.ESTIMATED if steps.per_step(saving) else None,
        f"exposed time of copies between host and device, times the share that the full link would save, "
        f"{steps.per}"
        if steps.per_step(saving)
        else "no copies between host and device are exposed, so there is no saving",
        0.8,
        evidence,
    )


def _copied(scene: Scene, device: int, own: Link) -> tuple[int, dict[str, list[int]]]:
    """Time of exposed copies in steps that the full link would save, and the longest copies."""
    rows = scene.work[(scene.work[C.DEVICE] == device) & (scene.work[C.KIND] == str(DeviceKind.MEMCPY))]
    rows = rows[rows[C.COPY_KIND].isin([str(CopyKind.H2D), str(CopyKind.D2H)])]
    if len(scene.steps):
        rows = rows[rows[C.STEP].notna()]
    if rows.empty or not own.rate or not own.most:
        return 0, {}
    saved = int(KernelUnions(scene.run).exposed_ns(rows) * (1 - own.rate / own.most))
    return saved, {"device_intervals": largest_rows(rows, C.DUR_NS, EVIDENCE_ROWS)}


def _shared(scene: Scene, device: int) -> Finding | None:
    found = scene.nvml(device, M.OTHERS)
    stats = found.stats(scene.window) if found else None
    if found is None or stats is None or stats.high < 1:
        return None
    count, shared, weights = int(stats.high), found.values > 0, found.within(scene.window)
    share = float(weights[shared].sum() / weights.sum()) if weights.any() else 1.0
    start, end = found.extents()
    flagged = intervals.intersect(intervals.union(start[shared], end[shared]), scene.window)
    return Finding(
        SHARED,
        Severity.WARN,
        f"{count} other process{'es' * (count != 1)} used device {device} in {100 * share:.0f}% of the "
        "sampled time",
        "Find the process with `nvidia-smi`, and measure on an exclusive device: times, memory, power and "
        "NVML's utilization include all processes. (An MPS server counts as a process.)",
        how="savings not estimated: this trace does not include the other processes",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, flagged, EVIDENCE_ROWS),
    )


def host_findings(scene: Scene) -> Iterator[Finding]:
    """Findings on the samples of the process."""
    yield from (one for one in (_growth(scene), _cpu_bound(scene.inside)) if one)


def _growth(scene: Scene) -> Finding | None:
    found = scene.process(RSS)
    if found is None:
        return None
    before = found.times < 0  # the zero of a run is the start of its profile
    values = np.round(found.values[before]).astype(np.int64)
    if len(values) < GROWTH_SAMPLES:
        return None
    half, slope = len(values) // 2, theil_sen(values)
    total = slope.slope * (len(values) - 1)
    later = int(values[-1] - values[half])
    least = max(GROWTH_BYTES, GROWTH_SHARE * int(values[0]))
    if slope.low <= 0 or total < least or later < LATER_SHARE * total:
        return None
    seconds = int(found.times[before][-1] - found.times[before][0]) / 1e9
    each = " to ".join(human(end, "bytes") for end in (slope.low, slope.high))
    return Finding(
        HOST_GROWTH,
        Severity.WARN,
        f"Host memory of the process grew by {human(total, 'bytes')} within {seconds:.1f} s before the "
        f"profile, to {human(int(values[-1]), 'bytes')}",
        "Look for objects that persist across steps on the host: losses that are neither detached nor "
        "converted to numbers, lists of outputs, caches, DataLoader workers that copy the data they read; "
        "`tracemalloc` or `memray` show the lines.",
        how=f"Theil-Sen slope over {len(values)} samples of resident memory, per sample: {each}",
        confidence=0.6,
    )


def _cpu_bound(scene: Scene) -> Finding | None:
    found = scene.process(CPU)
    stats = found.stats(scene.window) if found else None
    if not scene.worked or not scene.window_ns or stats is None:
        return None
    cores = stats.mean / 100
    idle = {device: 1 - intervals.length(scene.busy(device)) / scene.window_ns for device in scene.worked}
    device = min(idle, key=lambda one: idle[one])
    is_idle = idle[device] >= IDLE_SHARE and ONE_CORE[0] <= cores <= ONE_CORE[1]
    if not is_idle or stats.covered_ns < LEAST_COVERED * scene.window_ns:
        return None
    return Finding(
        CPU_BOUND,
        Severity.WARN,
        f"The process keeps {cores:.2f} cores busy while device {device} is idle for "
        f"{100 * idle[device]:.0f}% of the {scene.scope}",
        "One thread limits the throughput: launch less often (torch.compile, CUDA graphs, fused "
        "optimizers, larger batches), or move its work to other threads or processes (DataLoader "
        "workers). `idle_gaps` names the ops that the device waited for.",
        how="savings not estimated here: `idle_gaps` measures the cost of each cause of idle time",
        confidence=0.7,
        evidence=_idle_rows(scene, device),
    )


def _idle_rows(scene: Scene, device: int) -> dict[str, list[int]]:
    columns = [C.ROW_ID, C.KIND, C.DEVICE, C.START_NS, C.DUR_NS]
    rows = scene.run.table("device_intervals", columns=columns)
    rows = rows[(rows[C.KIND] == str(DeviceKind.IDLE)) & (rows[C.DEVICE] == device)]
    longest = largest_rows(rows, C.DUR_NS, EVIDENCE_ROWS)
    return {"device_intervals": longest} if longest else {}
