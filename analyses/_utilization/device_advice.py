"""Findings on devices: clocks, link, other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import intervals
from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Severity
from tracekit.nvml import M
from tracekit.savings import CONFIDENT, budget
from tracekit.schema import C, CopyKind, DeviceKind

from .._copies.hiding import Hiding
from . import rules
from .clocks import POWER_CAP, SETTING, busy_clock, reasons, throttled
from .link import link

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from tracekit.intervals import Union

    from .clocks import Reason
    from .link import Link
    from .scene import Scene

_LOWER = (
    "Check power, temperature and clocks with `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK`; "
    "{cure}; lock the clocks (`nvidia-smi --lock-gpu-clocks`) before comparing times."
)
_HEAT = "improve cooling or leave a free slot next to the board"
_POWER = (
    "raise the limit if the board allows it (`nvidia-smi -pl`); reaching the power limit under full load is "
    "normal"
)


def findings(scene: Scene) -> Iterator[Finding]:
    """Findings on the limits of each busy device."""
    for device in sorted(scene.worked):
        throttling = _throttled(scene, device)
        yield from (one for one in (throttling or _below(scene, device),) if one)
        yield from (one for one in (_narrow(scene, device), _shared(scene, device)) if one)


def _throttled(scene: Scene, device: int) -> Finding | None:
    known, seen = throttled(scene, device), [one for one in reasons(scene, device) if one.throttles]
    if known is None or known[1] < rules.THROTTLED_SHARE or sum(one.samples for one in seen) < _LEAST:
        return None
    flagged, share = known
    by = ", ".join(one.words for one in sorted(seen, key=lambda one: -one.time_ns))
    return Finding(
        rules.THROTTLED,
        _severity(scene, device, seen),
        f"The clocks of device {device} were throttled by {by} in {100 * share:.0f}% of the sampled time"
        f"{_clock(scene, device)}",
        _LOWER.format(cure=_POWER if all(one.bit == POWER_CAP for one in seen) else _HEAT),
        how="savings not estimated: the effect of a higher clock depends on what bounds the kernels",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, flagged, EVIDENCE_ROWS),
    )


_LEAST = rules.LEAST_SAMPLES


def _severity(scene: Scene, device: int, seen: list[Reason]) -> Severity:
    """Severity of throttling; a board at its power limit with a high clock is normal."""
    share = _clock_share(scene, device)
    near_max = share is not None and share >= rules.SLOWED_SHARE
    return (
        Severity.INFO
        if near_max or (share is None and all(one.bit == POWER_CAP for one in seen))
        else Severity.WARN
    )


def _clock_share(scene: Scene, device: int) -> float | None:
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return clock / most if clock and most else None


def _clock(scene: Scene, device: int) -> str:
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return f": {clock:,.0f} of {most:,.0f} MHz on average while busy" if clock and most else ""


def _below(scene: Scene, device: int) -> Finding | None:
    share, found = _clock_share(scene, device), scene.nvml(device, M.SM_CLOCK)
    if share is None or found is None or share >= rules.CLOCK_SHARE:
        return None
    loaded = found.within(scene.busy(device)) > 0
    if loaded.sum() < rules.LEAST_SAMPLES:
        return None
    is_set = any(one.bit == SETTING for one in reasons(scene, device))
    start, end = found.extents()
    return Finding(
        rules.BELOW_MAX,
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
    if own.loaded < rules.LEAST_SAMPLES or not own.rate or not own.most or own.rate >= own.most:
        return None
    saving, evidence = _copied(scene, device, own)
    steps = budget(scene.run)
    return Finding(
        rules.NARROW_LINK,
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
    exposed = Hiding(scene.run).exposed(rows)
    longest = rows.sort_values(C.DUR_NS, ascending=False, kind="stable")[C.ROW_ID].head(EVIDENCE_ROWS)
    return int(exposed * (1 - own.rate / own.most)), {"device_intervals": [int(row) for row in longest]}


def _shared(scene: Scene, device: int) -> Finding | None:
    found = scene.nvml(device, M.OTHERS)
    stats = found.stats(scene.window) if found else None
    if found is None or stats is None or stats.high < 1:
        return None
    count, share = int(stats.high), _share_with(found.values > 0, found.within(scene.window))
    return Finding(
        rules.SHARED,
        Severity.WARN,
        f"{count} other process{'es' * (count != 1)} used device {device} in {100 * share:.0f}% of the "
        "sampled time",
        "Find the process with `nvidia-smi`, and measure on an exclusive device: times, memory, power and "
        "NVML's utilization include all processes. (An MPS server counts as a process.)",
        how="savings not estimated: this trace does not include the other processes",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, _flagged(scene, device), EVIDENCE_ROWS),
    )


def _flagged(scene: Scene, device: int) -> Union:
    found = scene.nvml(device, M.OTHERS)
    if found is None:
        return intervals.EMPTY
    start, end = found.extents()
    shared = found.values > 0
    return intervals.intersect(intervals.union(start[shared], end[shared]), scene.window)


def _share_with(flags: np.ndarray[tuple[int], np.dtype[np.bool_]], weights: intervals.Ints) -> float:
    return float(weights[flags].sum() / weights.sum()) if weights.any() else 1.0
