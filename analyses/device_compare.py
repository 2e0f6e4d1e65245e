"""Gains of a device against the ratio of peaks, for `device_compare`.

For one run, the devices it used are listed with their peaks, as known to `roofline`. `compare` takes the same
work on two kinds of device; device properties (name, SMs, compute capability, driver, CUDA, cuDNN) and the
host may differ, all other comparability fields must be equal.

* Ops are matched by `tracekit.diff`, so kernel names may differ (cuBLAS and hipBLASLt). Times are summed over
  the compared steps.
* An op that uses both devices equally well gains at least `allowed`. Peaks do not apply to short kernels,
  launch costs, or copies to and from the host.
* An op that gains much more than allowed uses the base's device poorly, so the gain is not due to the head's.

Source: TorchBench (Hao et al., 2023), section 3.3, Fig. 5 and Table 3.

Example:
    >>> import tracekit
    >>> a100, mi210 = tracekit.open("a100"), tracekit.open("mi210")  # doctest: +SKIP
    >>> tracekit.compare(a100, mi210, "device_compare").tables["ops"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Analysis, Column, Finding, Result, Rule, TableSpec
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import budget
from tracekit.runs.devices import Device
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C

from .roofline import devices
from .roofline.calls import precision_of
from .shared import run_pairs
from .shared.common import PLACE_COLUMNS, absent_device_note, select, sort_by
from .shared.run_pairs import Line
from .shared.tensor_shapes import parse_dtypes

if TYPE_CHECKING:
    from tracekit.diff import Diff
    from tracekit.diff.breakdowns import Cause, Group
    from tracekit.diff.model import Compared

MATRIX_ROLES = ("gemm", "conv", "attention")
"""Values of `tracekit.diff.naming.Role`."""
LINK = "copy over the link"
_PEAKS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
PRECISIONS = (*_PEAKS, "int8")


@dataclass(frozen=True)
class Peaks:
    """Peaks of two devices, None if not listed."""

    base: Device | None
    head: Device | None

    def memory(self) -> float | None:
        """Ratio of the memory bandwidths, head over base; None if one is unknown."""
        return self._ratio(lambda device: device.gb_per_s)

    def compute(self, precision: str) -> float | None:
        """Ratio of the peaks of matrix products, head over base; None if one is unknown."""
        return self._ratio(lambda device: device.peak(precision))

    def _ratio(self, peak: Callable[[Device], float | None]) -> float | None:
        base, head = (peak(device) if device else None for device in (self.base, self.head))
        return head / base if base and head else None

    def min_gain(self, role: str, precision: str) -> float | None:
        """Minimum gain of an op on the head if it uses both devices equally well; None if unknown.

        An op that multiplies matrices is bound by compute or memory: the minimum ratio counts. FP32 may run
        as TF32, so both count. Other ops are bound by memory, except copies to and from the host.
        """
        if role == LINK or (role in MATRIX_ROLES and not precision):
            return None
        memory = self.memory()
        if role not in MATRIX_ROLES or memory is None:
            return memory
        first = self.compute(precision)
        second = self.compute("tf32") if precision == "fp32" else None
        return None if first is None else min(ratio for ratio in (memory, first, second) if ratio is not None)


def _precisions(run: Run) -> dict[int, str]:
    """Precision of the first floating-point input of the op of each device interval; else empty."""
    where = pc.field(C.INPUT_DTYPES).is_valid()
    ops = run.table("host_intervals", columns=[C.ROW_ID, C.INPUT_DTYPES], where=where)
    texts = ops[C.INPUT_DTYPES].astype(str)
    precision_by_text = {}
    for text in texts.unique():
        precisions = map(precision_of, parse_dtypes(text))
        precision_by_text[text] = next((precision for precision in precisions if precision in PRECISIONS), "")
    of_op = dict(zip(ops[C.ROW_ID].tolist(), texts.map(precision_by_text), strict=True))
    device = busy(run, [C.ROW_ID, C.OP_ROW]).dropna()
    rows = zip(device[C.ROW_ID].tolist(), device[C.OP_ROW].tolist(), strict=True)
    return {row: of_op[op] for row, op in rows if op in of_op}


_RECORDED = (
    ("multiprocessors", "count", "sm_count"),
    ("warp size", "threads", "warp_size"),
    ("device memory", "bytes", "memory_bytes"),
)
IDLE_TIME = "device idle time, per step"
MIN_IDLE_SHARE, MIN_REACHED, MIN_OP_SHARE = 0.5, 1.25, 0.05
"""Idle share, gain over the allowed one, and share of the base's time, from which a note is given."""
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


def _measure_work(base: Run, head: Run, diff: Diff, compared: Compared) -> list[Line]:
    """Device time of all work and of ops in only one run, and idle time, per step."""
    if diff.work is None:
        return []
    steps = compared.steps
    only_one = (
        sum(cause.a.total_ns for cause in diff.causes if not cause.b.count) / steps,
        sum(cause.b.total_ns for cause in diff.causes if not cause.a.count) / steps,
    )
    idle = [
        sum(ns for name, ns in side.items() if "idle" in name) / steps
        for side in run_pairs.time_by_activity(base, head)
    ]
    return [
        Line("device time of all work, per step", "ns", diff.work.a_ns / steps, diff.work.b_ns / steps),
        Line("device time of ops in only one run, per step", "ns", *only_one),
        Line(IDLE_TIME, "ns", *idle),
    ]


def _list_peaks(peaks: Peaks) -> list[Line]:
    """The peaks known for both devices."""
    if not peaks.base or not peaks.head:
        return []
    lines = []
    if peaks.memory():
        lines.append(Line("memory bandwidth, peak", "GB/s", peaks.base.gb_per_s, peaks.head.gb_per_s))
    for precision in PRECISIONS:
        if peaks.compute(precision):
            pair = (peaks.base.peak(precision), peaks.head.peak(precision))
            unit = {"int8": "TOP/s"}.get(precision, "TFLOP/s")
            lines.append(Line(f"{precision} matrix products, peak", unit, *pair))
    return lines


def _list_recorded(base: Run, head: Run) -> list[Line]:
    """Device properties recorded in both runs."""
    sides = [_common_properties(run) for run in (base, head)]
    return [
        Line(quantity, unit, *(float(side[name]) for side in sides))
        for quantity, unit, name in _RECORDED
        if all(side.get(name) for side in sides)
    ]


def _common_properties(run: Run) -> dict[str, float]:
    """Properties that all recorded devices of a run share."""
    gpus = run.meta.environment.get("gpus") or [{}]
    names = [name for _, _, name in _RECORDED]
    return {name: gpus[0][name] for name in names if len({gpu.get(name) for gpu in gpus} - {None}) == 1}


def _notes(lines: list[Line], ops: pd.DataFrame, step: tuple[float, float]) -> list[str]:
    """Notes on idle devices, different warp sizes, and ops that use the base's device inefficiently."""
    idle = next((line for line in lines if line.quantity == IDLE_TIME), None)
    notes = []
    if idle and idle.base is not None and idle.head is not None and all(step):
        shares = (idle.base / step[0], idle.head / step[1])
        notes += [IDLE.format(*(100 * share for share in shares))] if max(shares) >= MIN_IDLE_SHARE else []
    warps = next((line for line in lines if line.unit == "threads"), None)
    if warps and warps.base and warps.head and warps.base != warps.head:
        notes.append(WARPS.format(warps.base, warps.head))
    large = ops[(ops["reached"] >= MIN_REACHED) & (ops["base_ns"] >= MIN_OP_SHARE * ops["base_ns"].sum())]
    for _, row in large.iterrows():
        kernels = (brief(row["base_kernel"]), brief(row["head_kernel"]))
        notes.append(BASE_SHORT.format(brief(row["op"]), row["gain"], row["allowed"], *kernels))
    return notes


VARYING = ("gpu", "driver", "cuda", "hip", "cudnn", "cpu", "os")
"""Fields that may differ between two machines; `gpu` includes the other device properties."""
UNNAMED = "the name of the devices is not recorded in both runs, or a run used several kinds of device"
SAME_DEVICE = "both runs used {}: this analysis compares two kinds of device"
UNLISTED = "the peaks of {} are unknown: gains are not compared with peaks"

GAIN = Rule(
    "device_gain_short",
    states="an op with at least {min_op_share} of the head's device time, with kernels of at least "
    "{min_kernel_ns} on average, gained less than {max_reached_share} of the ratio that the peaks allow",
    why="peaks do not apply to shorter kernels, which mostly have fixed costs; libraries reach 60 to 90% of "
    "a peak, so smaller differences are normal",
    thresholds={"min_op_share": 0.05, "min_kernel_ns": 10_000, "max_reached_share": 0.8},
)


def compare(base: Run, head: Run) -> Result:
    """Compare the same work on two devices."""
    names = (_name(base), _name(head))
    if not all(names):
        return Result(notes=(UNNAMED,))
    if names[0] == names[1]:
        return Result(notes=(SAME_DEVICE.format(names[0]),))
    diff = run_pairs.diff_runs(base, head, VARYING)
    if why := run_pairs.refusal_note(diff):
        return Result(notes=(why,))
    if diff.compared is None or not diff.compared.on_device:
        return Result(notes=("one of the runs has no device activity",))
    peaks = Peaks(_peaks(base), _peaks(head))
    work = _measure_work(base, head, diff, diff.compared)
    table = [*run_pairs.metric_lines(diff.metrics), *work, *_list_peaks(peaks), *_list_recorded(base, head)]
    ops = _ops(diff, diff.compared, peaks, _precisions(base))
    devices_by_name = zip(names, (peaks.base, peaks.head), strict=True)
    notes = [note for run in (base, head) for note in devices.peaks_notes(run)]
    notes += [UNLISTED.format(name) for name, device in devices_by_name if device is None]
    notes += _notes(table, ops, _step(diff))
    tables = {"ratios": run_pairs.ratios(table), "ops": select(ops, _OPS)}
    short = _findings(ops, diff, head, names)
    return Result(tables, devices.with_given(head, short), tuple(notes))


def _name(run: Run) -> str:
    """Name of the devices that a run used; empty if unknown or if there are several kinds."""
    named = set(devices.device_names(run, _devices_of(run)).values())
    return named.pop() if len(named) == 1 else ""


def _peaks(run: Run) -> Device | None:
    """Peaks of the devices that a run used, which are of one kind; None if not listed."""
    return next(iter(devices.device_peaks(run, _devices_of(run)).values()), None)


def _devices_of(run: Run) -> list[int]:
    return [int(device) for device in busy(run, [C.DEVICE])[C.DEVICE].unique()]


def _step(diff: Diff) -> tuple[float, float]:
    """Length of a compared step, ns; 0 if there is no ledger of it."""
    if diff.wall is None or diff.compared is None:
        return 0.0, 0.0
    total, steps = diff.wall.total, diff.compared.steps
    return total.a_ns / steps, total.b_ns / steps


def _ops(diff: Diff, compared: Compared, peaks: Peaks, precisions: dict[int, str]) -> pd.DataFrame:
    """One row per op path that both sides have, longest on the head first."""
    from tracekit.diff.matching import path_of

    largest: dict[str, Group] = {}
    for group in sorted(diff.groups, key=lambda group: -max(group.a.total_ns, group.b.total_ns)):
        largest.setdefault(path_of(group), group)
    both = [cause for cause in diff.causes if cause.a.total_ns and cause.b.total_ns]
    rows = [_row(cause, largest[cause.label], compared.steps, peaks, precisions) for cause in both]
    table = pd.DataFrame(rows, columns=[*(column.name for column in _OPS), "evidence", "mean_ns", "lost_ns"])
    return sort_by(table, "-head_ns", "op")


def _row(
    cause: Cause, group: Group, steps: int, peaks: Peaks, precisions: dict[int, str]
) -> dict[str, object]:
    role = LINK if group.sort.startswith(("Memcpy H2D", "Memcpy D2H", "Memcpy P2P")) else group.role
    precision = next((precisions[row] for row in cause.evidence.get("a", ()) if row in precisions), "")
    allowed = peaks.min_gain(role, precision)
    gain = cause.a.total_ns / cause.b.total_ns
    lost = cause.b.total_ns - cause.a.total_ns / allowed if allowed else 0.0
    return {
        "op": cause.label,
        "base_ns": cause.a.total_ns // steps,
        "head_ns": cause.b.total_ns // steps,
        "gain": gain,
        "allowed": float("nan") if allowed is None else allowed,
        "reached": float("nan") if allowed is None else gain / allowed,
        "role": role,
        "precision": precision,
        "base_count": cause.a.count,
        "head_count": cause.b.count,
        "base_kernel": group.name_a,
        "head_kernel": group.name_b,
        "evidence": cause.evidence.get("b", []),
        "mean_ns": cause.b.total_ns // cause.b.count,
        "lost_ns": max(0, int(lost)),
    }


def _findings(ops: pd.DataFrame, diff: Diff, head: Run, names: tuple[str, str]) -> tuple[Finding, ...]:
    """Findings on ops that gain less than the peaks allow, largest loss first."""
    if diff.work is None or diff.compared is None:
        return ()
    least = GAIN["min_op_share"] * diff.work.b_ns / diff.compared.steps
    matters = (ops["head_ns"] >= least) & (ops["mean_ns"] >= GAIN["min_kernel_ns"])
    short = ops[(ops["reached"] < GAIN["max_reached_share"]) & matters]
    short = short.sort_values(["lost_ns", "op"], ascending=[False, True])
    return tuple(_finding(row, diff.compared.steps, head, names) for _, row in short.iterrows())


def _finding(row: pd.Series, steps: int, head: Run, names: tuple[str, str]) -> Finding:
    per_step, steps_of_head = int(row["lost_ns"]) // steps, budget(head)
    return steps_of_head.finding(
        GAIN,
        per_step * steps_of_head.steps,
        title=f"{row['op']} runs at {row['gain']:.2f}× the speed it has on {names[0]}; the peaks of "
        f"{names[1]} allow {row['allowed']:.2f}×",
        advice=f"look for a better kernel on {names[1]}: another library or backend of the op, tuned kernels "
        "(TunableOp, max-autotune), a layout or precision supported by its matrix units; see `roofline` "
        "of the head",
        how=f"device time of {human(int(row['head_ns']), 'ns')} minus the base's "
        f"{human(int(row['base_ns']), 'ns')} over {row['allowed']:.2f}, the ratio that the peaks allow; "
        f"less if the device waits for the host; base {brief(row['base_kernel'])}, "
        f"head {brief(row['head_kernel'])}",
        confidence=0.5,
        evidence={"device_intervals": [int(interval) for interval in row["evidence"][:EVIDENCE_ROWS]]},
    )


_RATIOS = (
    Column("quantity", "prose", "measured quantity or peak"),
    Column("unit", "", "ns, bytes, count, threads, GB/s, TFLOP/s or TOP/s"),
    Column("base", "", "value of the base's device", unit_in="unit"),
    Column("head", "", "value of the head's device", unit_in="unit"),
    Column("ratio", "×", "head over base: below 1 is faster for times, above 1 is more for peaks"),
)
_OPS = (
    Column("op", "", "path of ops, as `tracekit diff` matches them"),
    *run_pairs.sides("ns", "ns", "device time on the {}, per step, rounded down"),
    Column("gain", "×", "base over head: above 1 is faster on the head"),
    Column("allowed", "×", "minimum ratio of the peaks that may bound it; missing if one is unknown"),
    Column("reached", "×", "gain over allowed: below 1 the op uses the head's device less efficiently"),
    Column("role", "", "role of the op, by the rules of `tracekit diff`, or copy over the link"),
    Column("precision", "", "precision of its first floating-point input on the base; empty if not recorded"),
    *run_pairs.sides("count", "count", "kernels and copies on the {} in the compared steps"),
    *run_pairs.sides("kernel", "", "canonical name of the longest kernel of its largest group on the {}"),
)
TABLES = (
    TableSpec("ratios", "Time and peaks of both devices", _RATIOS),
    TableSpec("ops", "Ops in both runs", _OPS),
)


def compute(run: Run) -> Result:
    """List the devices of a run with their peaks."""
    device = busy(run, [C.RANK, C.DEVICE, C.DUR_NS])
    if device.empty:
        return Result(notes=(absent_device_note(run),))
    grouped = device.groupby([C.RANK, C.DEVICE], sort=True)
    table = grouped[C.DUR_NS].agg(intervals="size", sum_ns="sum").reset_index()
    devices_used = [int(device) for device in table[C.DEVICE]]
    names, peaks_of = devices.device_names(run, devices_used), devices.device_peaks(run, devices_used)
    device_names = [names.get(device, "") for device in devices_used]
    peaks_known = [peaks_of.get(device) for device in devices_used]
    table["device_name"] = device_names
    for precision in _PEAKS:
        peaks = [device.peak(precision) if device else None for device in peaks_known]
        table[precision] = pd.Series(peaks, index=table.index, dtype="float64")
    table["gb_per_s"] = pd.Series(
        [device.gb_per_s if device else None for device in peaks_known], dtype="float64"
    )
    unlisted = sorted(
        {name for name, device in zip(device_names, peaks_known, strict=True) if device is None}
    )
    notes = [*devices.peaks_notes(run), *(UNLISTED.format(name or "an unnamed device") for name in unlisted)]
    return Result({"devices": select(table, _DEVICES)}, notes=tuple(notes))


_DEVICES = (
    *PLACE_COLUMNS,
    Column("device_name", "", "recorded name of the device; empty if not recorded"),
    Column("intervals", "count", "kernels, copies, memsets and opaque graphs on it"),
    Column("sum_ns", "ns", "Σ of their durations"),
    *(
        Column(name, "TFLOP/s", f"dense {name} peak of matrix products; missing if unknown")
        for name in _PEAKS
    ),
    Column("gb_per_s", "GB/s", "peak memory bandwidth; missing if unknown"),
)

ANALYSIS = Analysis(
    name="device_compare",
    title="Comparison of devices",
    question="How much faster is another device for the same work, and which ops gain less than peaks allow?",
    definition=(
        "gain = device time of an op on the base over that on the head; allowed = ratio of the memory "
        "bandwidths (head over base); for matrix products, convolutions and attention the minimum of that "
        "and the ratio of the compute peaks at the precision of the op's first floating-point input (FP32 "
        "also as TF32); reached = gain over allowed. For one run: its devices with their dense peaks, listed "
        "or given as for `roofline`."
    ),
    tables=(TableSpec("devices", "Devices and their peaks", _DEVICES),),
    sources=("TorchBench 3.3, Fig. 5 and Table 3",),
    order=91,
    reads=("device_intervals",),
    compute=compute,
    rules=(GAIN,),
    compare=compare,
    comparison=TABLES,
    uses_peaks=True,
)
