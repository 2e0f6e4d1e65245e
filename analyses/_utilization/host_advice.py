"""Findings on the measured process: growing memory, and a single limiting thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.analysis import EVIDENCE_ROWS, Finding, Severity
from tracekit.render.cells import human
from tracekit.schema import C, DeviceKind

from .._memory.leak import theil_sen
from .._shared.common import ints
from . import rules
from .series import CPU, RSS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .scene import Scene


def findings(scene: Scene) -> Iterator[Finding]:
    """Findings on the samples of the process."""
    yield from (one for one in (_growth(scene), _cpu_bound(scene)) if one)


def _growth(scene: Scene) -> Finding | None:
    found = scene.process(RSS)
    if found is None:
        return None
    before = found.times < 0  # the zero of a run is the start of its profile
    values = np.round(found.values[before]).astype(np.int64)
    if len(values) < rules.GROWTH_SAMPLES:
        return None
    half, slope = len(values) // 2, theil_sen(values)
    total = slope.slope * (len(values) - 1)
    later = int(values[-1] - values[half])
    least = max(rules.GROWTH_BYTES, rules.GROWTH_SHARE * int(values[0]))
    if slope.low <= 0 or total < least or later < rules.LATER_SHARE * total:
        return None
    seconds = int(found.times[before][-1] - found.times[before][0]) / 1e9
    each = " to ".join(human(end, "bytes") for end in (slope.low, slope.high))
    return Finding(
        rules.HOST_GROWTH,
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
    is_idle = idle[device] >= rules.IDLE_SHARE and rules.ONE_CORE[0] <= cores <= rules.ONE_CORE[1]
    if not is_idle or stats.covered_ns < rules.LEAST_COVERED * scene.window_ns:
        return None
    return Finding(
        rules.CPU_BOUND,
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
    longest = np.argsort(-ints(rows, C.DUR_NS), kind="stable")[:EVIDENCE_ROWS]
    ids = ints(rows, C.ROW_ID)[longest]
    return {"device_intervals": [int(row) for row in ids]} if len(ids) else {}
