"""Gain of each op on another device, against the ratio of the devices' peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Column, Finding, Result, Rule, TableSpec
from tracekit.diff.rollup import path_of
from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.run import busy
from tracekit.savings import budget
from tracekit.schema import C

from .._roofline import devices
from .._shared import declared
from . import lines
from .peaks import LINK, Ops, Peaks

if TYPE_CHECKING:
    from tracekit.diff import Diff
    from tracekit.diff.ledgers import Cause, Group
    from tracekit.diff.model import Compared
    from tracekit.run import Run


VARYING = ("gpu", "driver", "cuda", "cudnn", "cpu", "os")
"""Fields that may differ between two machines; `gpu` includes the other device properties."""
_OVER_LINK = ("Memcpy H2D", "Memcpy D2H", "Memcpy P2P")
SHORT = 0.8
LARGE_SHARE = 0.05
LONG_NS = 10_000
UNNAMED = "the name of the devices is not recorded in both runs, or a run used several kinds of device"
SAME_DEVICE = "both runs used {}: this analysis compares two kinds of device"
UNLISTED = "the peaks of {} are unknown: gains are not compared with peaks"

GAIN = Rule(
    "device_gain_short",
    states=(
        f"an op with at least {LARGE_SHARE:.0%} of the head's device time, with kernels of at least "
        f"{LONG_NS // 1000} µs on average, gained less than {SHORT:.0%} of the ratio that the peaks allow"
    ),
    why=(
        "peaks do not apply to shorter kernels, which mostly have fixed costs; libraries reach 60 to 90% of "
        "a peak, so smaller differences are normal"
    ),
)


def compare(base: Run, head: Run) -> Result:
    """Compare the same work on two devices."""
    names = (_name(base), _name(head))
    if not all(names):
        return Result(notes=(UNNAMED,))
    if names[0] == names[1]:
        return Result(notes=(SAME_DEVICE.format(names[0]),))
    found = declared.between(base, head, VARYING)
    if why := declared.refusal(found):
        return Result(notes=(why,))
    if found.compared is None or not found.compared.on_device:
        return Result(notes=("one of the runs has no device activity",))
    peaks = Peaks(*(devices.known(name) for name in names))
    used = lines.worked(base, head, found, found.compared)
    table = [*declared.measured(found.metrics), *used, *lines.listed(peaks), *lines.recorded(base, head)]
    ops = _ops(found, found.compared, peaks, Ops(base))
    notes = tuple(
        UNLISTED.format(name)
        for name, device in zip(names, (peaks.base, peaks.head), strict=True)
        if device is None
    )
    notes = (*notes, *lines.notes(table, ops, _step(found)))
    tables = {"ratios": declared.ratios(table), "ops": ops[[column.name for column in _OPS]]}
    return Result(tables, _findings(ops, found, head, names), notes)


def _name(run: Run) -> str:
    """Name of the devices that a run used; empty if unknown or if there are several kinds."""
    used = busy(run, [C.DEVICE])[C.DEVICE].unique().tolist()
    named = set(devices.names(run, used).values())
    return named.pop() if len(named) == 1 else ""


def _step(found: Diff) -> tuple[float, float]:
    """Length of a compared step, ns; 0 if there is no ledger of it."""
    if found.wall is None or found.compared is None:
        return 0.0, 0.0
    total, steps = found.wall.total, found.compared.steps
    return total.a_ns / steps, total.b_ns / steps


def _ops(found: Diff, compared: Compared, peaks: Peaks, ops: Ops) -> pd.DataFrame:
    """One row per op path that both sides have, longest on the head first."""
    largest: dict[str, Group] = {}
    for group in sorted(found.groups, key=lambda one: -max(one.a.total_ns, one.b.total_ns)):
        largest.setdefault(path_of(group), group)
    both = [cause for cause in found.causes if cause.a.total_ns and cause.b.total_ns]
    rows = [_row(cause, largest[cause.label], compared.steps, peaks, ops) for cause in both]
    table = pd.DataFrame(rows, columns=[*(column.name for column in _OPS), "evidence", "mean_ns", "lost_ns"])
    return table.sort_values(["head_ns", "op"], ascending=[False, True], ignore_index=True)


def _row(cause: Cause, group: Group, steps: int, peaks: Peaks, ops: Ops) -> dict[str, object]:
    role = LINK if group.sort.startswith(_OVER_LINK) else group.role
    precision = ops.precision(cause.evidence.get("a", ()))
    allowed = peaks.allowed(role, precision)
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


def _findings(ops: pd.DataFrame, found: Diff, head: Run, names: tuple[str, str]) -> tuple[Finding, ...]:
    """Findings on ops that gain less than the peaks allow, largest loss first."""
    if found.work is None or found.compared is None:
        return ()
    least = LARGE_SHARE * found.work.b_ns / found.compared.steps
    short = ops[(ops["reached"] < SHORT) & (ops["head_ns"] >= least) & (ops["mean_ns"] >= LONG_NS)]
    short = short.sort_values(["lost_ns", "op"], ascending=[False, True])
    return tuple(_finding(row, found.compared.steps, head, names) for _, row in short.iterrows())


def _finding(row: pd.Series, steps: int, head: Run, names: tuple[str, str]) -> Finding:
    per_step, allowed = int(row["lost_ns"]) // steps, budget(head)
    return Finding(
        code=GAIN.code,
        severity=allowed.severity(per_step * allowed.steps),
        title=(
            f"{row['op']} runs at {row['gain']:.2f}× the speed it has on {names[0]}; the peaks of {names[1]} "
            f"allow {row['allowed']:.2f}×"
        ),
        advice=(
            f"look for a better kernel on {names[1]}: another library or backend of the op, tuned kernels "
            "(TunableOp, max-autotune), a layout or precision supported by its matrix units; see `roofline` "
            "of the head"
        ),
        saving_ns_per_step=per_step,
        basis=Basis.ESTIMATED,
        how=(
            f"device time of {human(int(row['head_ns']), 'ns')} minus the base's "
            f"{human(int(row['base_ns']), 'ns')} over {row['allowed']:.2f}, the ratio that the peaks allow; "
            f"less if the device waits for the host; base {brief(row['base_kernel'])}, "
            f"head {brief(row['head_kernel'])}"
        ),
        confidence=0.5,
        evidence={"device_intervals": [int(one) for one in row["evidence"][:EVIDENCE_ROWS]]},
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
    Column("base_ns", "ns", "device time on the base, per step, rounded down"),
    Column("head_ns", "ns", "device time on the head, per step, rounded down"),
    Column("gain", "×", "base over head: above 1 is faster on the head"),
    Column("allowed", "×", "minimum ratio of the peaks that may bound it; missing if one is unknown"),
    Column("reached", "×", "gain over allowed: below 1 the op uses the head's device less efficiently"),
    Column("role", "", "role of the op, by the rules of `tracekit diff`, or copy over the link"),
    Column("precision", "", "precision of its first floating-point input on the base; empty if not recorded"),
    Column("base_count", "count", "kernels and copies on the base in the compared steps"),
    Column("head_count", "count", "kernels and copies on the head in the compared steps"),
    Column("base_kernel", "", "canonical name of the longest kernel of its largest group on the base"),
    Column("head_kernel", "", "canonical name of the longest kernel of its largest group on the head"),
)
TABLES = (
    TableSpec("ratios", "Time and peaks of both devices", _RATIOS),
    TableSpec("ops", "Ops in both runs", _OPS),
)
