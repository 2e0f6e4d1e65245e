"""Rows of the table of ratios of two devices, and notes on their interpretation."""

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
    ("warp size", "threads", "warp_size"),
    ("device memory", "bytes", "memory_bytes"),
)
IDLE_TIME = "device idle time, per step"
MOSTLY_IDLE, MUCH_MORE, LARGE = 0.5, 1.25, 0.05
IDLE = (
    "the devices are idle for {:.0f}% (base) and {:.0f}% (head) of the compared steps: the host limits the "
    "step, and a faster device changes little"
)
WARPS = (
    "a warp has {:.0f} threads on the base and {:.0f} on the head: block sizes that are no multiple of it "
    "leave lanes idle, see `launch_config` of the head"
)
BASE_SHORT = (
    "{} gains {:.2f}×, more than the {:.2f}× that peaks allow: it uses the base's device inefficiently (base "
    "{}, head {})"
)


def worked(base: Run, head: Run, found: Diff, compared: Compared) -> list[Line]:
    """Device time of all work and of ops in only one run, and idle time, per step."""
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
        Line("device time of ops in only one run, per step", "ns", *alone),
        Line(IDLE_TIME, "ns", *idle),
    ]


def listed(peaks: Peaks) -> list[Line]:
    """The peaks known for both devices."""
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
    """Device properties recorded in both runs."""
    sides = [_common(run) for run in (base, head)]
    return [
        Line(quantity, unit, *(float(side[name]) for side in sides))
        for quantity, unit, name in _RECORDED
        if all(side.get(name) for side in sides)
    ]


def _common(run: Run) -> dict[str, float]:
    """Properties that all recorded devices of a run share."""
    gpus = run.meta.environment.get("gpus") or [{}]
    names = [name for _, _, name in _RECORDED]
    return {name: gpus[0][name] for name in names if len({gpu.get(name) for gpu in gpus} - {None}) == 1}


def notes(lines: list[Line], ops: pd.DataFrame, step: tuple[float, float]) -> tuple[str, ...]:
    """Notes on idle devices, different warp sizes, and ops that use the base's device inefficiently."""
    idle = next((one for one in lines if one.quantity == IDLE_TIME), None)
    found = []
    if idle and idle.base is not None and idle.head is not None and all(step):
        shares = (idle.base / step[0], idle.head / step[1])
        found += [IDLE.format(*(100 * share for share in shares))] if max(shares) >= MOSTLY_IDLE else []
    warps = next((one for one in lines if one.unit == "threads"), None)
    if warps and warps.base and warps.head and warps.base != warps.head:
        found.append(WARPS.format(warps.base, warps.head))
    large = ops[(ops["reached"] >= MUCH_MORE) & (ops["base_ns"] >= LARGE * ops["base_ns"].sum())]
    for _, row in large.iterrows():
        kernels = (brief(row["base_kernel"]), brief(row["head_kernel"]))
        found.append(BASE_SHORT.format(brief(row["op"]), row["gain"], row["allowed"], *kernels))
    return tuple(found)
