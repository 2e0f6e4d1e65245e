"""Advice on devices: clocks, link, company."""

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
    "Look at power, heat and clocks with `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK`; {cure}; "
    "lock the clocks (`nvidia-smi --lock-gpu-clocks`) before times are compared."
)
_HEAT = "better cooling or a free slot beside the board lets it run faster"
_POWER = (
    "a higher limit (`nvidia-smi -pl`, where the board allows it) lets it run faster, and is otherwise no "
    "fault: work that fills the board meets its power limit"
)


def findings(scene: Scene) -> Iterator[Finding]:
    """What each device that worked is held back by."""
    for device in sorted(scene.worked):
        held = _throttled(scene, device)
        yield from (one for one in (held or _below(scene, device),) if one)
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
        f"The clocks of device {device} were held down by {by} in {100 * share:.0f}% of the sampled time"
        f"{_clock(scene, device)}",
        _LOWER.format(cure=_POWER if all(one.bit == POWER_CAP for one in seen) else _HEAT),
        how="no saving is given: how much a step gains by a higher clock depends on what bounds its kernels",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, flagged, EVIDENCE_ROWS),
    )


_LEAST = rules.LEAST_SAMPLES


def _severity(scene: Scene, device: int, seen: list[Reason]) -> Severity:
    """A board at its power limit that keeps its clock is doing what it should."""
    share = _clock_share(scene, device)
    kept = share is not None and share >= rules.SLOWED_SHARE
    return (
        Severity.INFO
        if kept or (share is None and all(one.bit == POWER_CAP for one in seen))
        else Severity.WARN
    )


def _clock_share(scene: Scene, device: int) -> float | None:
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return clock / most if clock and most else None


def _clock(scene: Scene, device: int) -> str:
    clock, most = busy_clock(scene, device), scene.constant(device, M.SM_CLOCK_MAX)
    return f": {clock:,.0f} of {most:,.0f} MHz on average while it worked" if clock and most else ""


def _below(scene: Scene, device: int) -> Finding | None:
    share, found = _clock_share(scene, device), scene.nvml(device, M.SM_CLOCK)
    if share is None or found is None or share >= rules.CLOCK_SHARE:
        return None
    loaded = found.within(scene.busy(device)) > 0
    if loaded.sum() < rules.LEAST_SAMPLES:
        return None
    is_set = any(one.bit == SETTING for one in reasons(scene, device))
    start, end = found.holds()
    return Finding(
        rules.BELOW_MAX,
        Severity.WARN,
        f"The SM clock of device {device} stayed low{_clock(scene, device)}, and nothing throttled it",
        "The clocks were set: `nvidia-smi --reset-gpu-clocks` and `--reset-applications-clocks` undo it."
        if is_set
        else "Look for clocks that were set (`nvidia-smi -q -d CLOCK`), warm up longer before measuring, "
        "and give the device longer stretches of work: it raises its clock only after some of it.",
        how="no saving is given: how much a step gains by a higher clock depends on what bounds its kernels",
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
        f"({own.rate:.1f} GB/s) under load; it can do generation {own.most_generation} with {own.most_width} "
        f"({own.most:.1f} GB/s)",
        "Look at `nvidia-smi -q -d PCIE` under load, reseat the board or move it to a slot with all lanes, "
        "and check risers and the machine's PCIe settings.",
        steps.per_step(saving) or None,
        Basis.ESTIMATED if steps.per_step(saving) else None,
        f"copies between host and device that no kernel hides, times what the full link would save of them, "
        f"{steps.per}"
        if steps.per_step(saving)
        else "no copies between host and device are exposed, so nothing would be saved here",
        0.8,
        evidence,
    )


def _copied(scene: Scene, device: int, own: Link) -> tuple[int, dict[str, list[int]]]:
    """What of the exposed copies in steps the full link would save, and the longest copies."""
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
        "See who it is with `nvidia-smi`, and measure on a device of your own: times, memory, power and "
        "NVML's utilization here are of all of them together. (A server of MPS counts as a process.)",
        how="no saving is given: what the others did is not in this trace",
        confidence=CONFIDENT,
        evidence=scene.evidence(device, _flagged(scene, device), EVIDENCE_ROWS),
    )


def _flagged(scene: Scene, device: int) -> Union:
    found = scene.nvml(device, M.OTHERS)
    if found is None:
        return intervals.EMPTY
    start, end = found.holds()
    shared = found.values > 0
    return intervals.intersect(intervals.union(start[shared], end[shared]), scene.window)


def _share_with(flags: np.ndarray[tuple[int], np.dtype[np.bool_]], weights: intervals.Ints) -> float:
    return float(weights[flags].sum() / weights.sum()) if weights.any() else 1.0
