"""What two devices are and how they were used, as lines of a table, and what to know about the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.kernel_names import brief

from .._shared import declared
from .._shared.declared import Line
from .peaks import PRECISIONS, Peaks

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.diff import Diff
    from tracekit.diff.model import Compared
    from tracekit.run import Run

_OPERATIONS = {"int8": "TOP/s"}
_RECORDED = (
    ("multiprocessors", "count", "sm_count"),
    ("size of a warp", "threads", "warp_size"),
    ("memory of the device", "bytes", "memory_bytes"),
)
MOSTLY_IDLE, MUCH_MORE, LARGE = 0.5, 1.25, 0.05
IDLE = (
    "the devices are idle for {:.0f}% (base) and {:.0f}% (head) of the compared steps: there the host "
    "decides, and a faster device changes little"
)
WARPS = (
    "a warp has {:.0f} threads on the base and {:.0f} on the head: blocks of another multiple leave "
    "lanes idle, see `launch_config` of the head"
)
BASE_SHORT = (
    "{} gains {:.2f}×, more than the {:.2f}× that peaks allow: the base's device is used less well there "
    "(base {}, head {})"
)


def worked(base: Run, head: Run, found: Diff, compared: Compared) -> list[Line]:
    """Device time of all work and of what only one side has, and idle time, per step."""
    if found.work is None:
        return []
    steps = compared.steps
    alone = (
        sum(cause.a.total_ns for cause in found.causes if not cause.b.count) / steps,
        sum(cause.b.total_ns for cause in found.causes if not cause.a.count) / steps,
    )
    idle = [
        sum(ns for name, ns in side.items() if "idle" in name) / steps for side in declared.parts(base, head)
    ]
    return [
        Line("device time of all work, per step", "ns", found.work.a_ns / steps, found.work.b_ns / steps),
        Line("device time of ops that only one run has, per step", "ns", *alone),
        Line("idle time of the device, per step", "ns", *idle),
    ]


def listed(peaks: Peaks) -> list[Line]:
    """The peaks of both devices, as far as both are known."""
    if not peaks.base or not peaks.head:
        return []
    lines = [Line("memory bandwidth, peak", "GB/s", peaks.base.gb_per_s, peaks.head.gb_per_s)]
    for precision in PRECISIONS:
        if peaks.compute(precision):
            pair = (peaks.base.peak(precision), peaks.head.peak(precision))
            unit = _OPERATIONS.get(precision, "TFLOP/s")
            lines.append(Line(f"{precision} matrix products, peak", unit, *pair))
    return lines


def recorded(base: Run, head: Run) -> list[Line]:
    """What both runs recorded of their devices."""
    sides = [_common(run) for run in (base, head)]
    return [
        Line(told, unit, *(float(side[name]) for side in sides))
        for told, unit, name in _RECORDED
        if all(side.get(name) for side in sides)
    ]


def _common(run: Run) -> dict[str, float]:
    """What all recorded devices of a run have alike."""
    gpus = run.meta.environment.get("gpus") or [{}]
    names = [name for _, _, name in _RECORDED]
    return {name: gpus[0][name] for name in names if len({gpu.get(name) for gpu in gpus} - {None}) == 1}


def notes(lines: list[Line], ops: pd.DataFrame, step: tuple[float, float]) -> tuple[str, ...]:
    """Where the host decides, how warps differ, and where the base's device is used less well."""
    idle = next((one for one in lines if one.quantity.startswith("idle time")), None)
    told = []
    if idle and idle.base is not None and idle.head is not None and all(step):
        shares = (idle.base / step[0], idle.head / step[1])
        told += [IDLE.format(*(100 * share for share in shares))] if max(shares) >= MOSTLY_IDLE else []
    warps = next((one for one in lines if one.unit == "threads"), None)
    if warps and warps.base and warps.head and warps.base != warps.head:
        told.append(WARPS.format(warps.base, warps.head))
    large = ops[(ops["reached"] >= MUCH_MORE) & (ops["base_ns"] >= LARGE * ops["base_ns"].sum())]
    for _, row in large.iterrows():
        kernels = (brief(row["base_kernel"]), brief(row["head_kernel"]))
        told.append(BASE_SHORT.format(brief(row["op"]), row["gain"], row["allowed"], *kernels))
    return tuple(told)
