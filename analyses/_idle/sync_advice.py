"""Findings on host waits after which a device idles, one for each call, op and source line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.kernel_names import LINE, brief
from tracekit.savings import CONFIDENT, budget
from tracekit.schema import C

from .._shared.units import duration
from .rows import CALL, OP, OUTSIDE, SOURCE

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run
    from tracekit.savings import Budget

STARVES = Rule(
    "sync_starves_device",
    states="the waits of one call, op and source line inside the profiled steps cause device idle time of at "
    "least 1% of the steps (per idle interval the minimum of its length and the wait's)",
    why="a wait costs the device idle time after it, at most the wait's length, and nothing while it works",
)
RULES = (STARVES,)
SAVED_NS = "saved_ns"
"""Per wait: the idle time it causes, inside the profiled steps if they are marked."""
MOST = 10
"""Maximum number of findings."""

_HOW = (
    "Σ over the idle intervals that begin in these waits of the minimum of the interval's length (inside the "
    "profiled steps if marked; ignored if the host then waits for something else) and the wait's, {per}, "
    "mean over the devices of a rank; a later wait may replace it"
)


def findings(run: Run, waits: pd.DataFrame, gaps: pd.DataFrame) -> tuple[Finding, ...]:
    """One finding for each call, op and source line that causes idle time, most expensive first."""
    allowed = budget(run)
    if allowed.marked:
        waits = waits[waits[C.STEP].notna()]
    devices = gaps.groupby(C.RANK)[C.DEVICE].nunique()
    several = int(devices.max()) if len(devices) else 1
    found = []
    for (call, op, line), rows in waits.groupby([CALL, OP, SOURCE], sort=True):
        saving = int(rows[SAVED_NS].sum()) // max(1, several)
        if allowed.matters(saving):
            found.append((saving, _finding(str(call), str(op), str(line), rows, saving, allowed)))
    found.sort(key=lambda pair: -pair[0])
    return tuple(finding for _, finding in found[:MOST])


def _finding(call: str, op: str, line: str, rows: pd.DataFrame, saving: int, allowed: Budget) -> Finding:
    place = "outside ops" if op == OUTSIDE else f"in {brief(op)}"
    where = f"{brief(call)} {place}" + (f" at {brief(line, LINE)}" if line else "")
    waits = "1 wait" if len(rows) == 1 else f"{len(rows):,} waits"
    weighty = rows.sort_values([SAVED_NS, "host_row"], ascending=[False, True])[:EVIDENCE_ROWS]
    return Finding(
        code=STARVES.code,
        severity=allowed.severity(saving),
        title=(
            f"{where}: GPU idle after {waits}, {duration(allowed.per_step(saving))} {allowed.per} avoidable"
        ),
        advice=_advice(call, op),
        saving_ns_per_step=allowed.per_step(saving),
        basis=Basis.MEASURED,
        how=_HOW.format(per=allowed.per),
        confidence=CONFIDENT,
        evidence={
            "device_intervals": [int(row) for row in weighty["idle_row"].dropna()],
            "host_intervals": [int(row) for row in weighty["host_row"]],
        },
    )


def _advice(call: str, op: str) -> str:
    """Advice by the op around the wait."""
    if op in ("aten::_local_scalar_dense", "aten::item"):
        return (
            "A value is read back with .item() (or float(), int(), if, print of a tensor): keep it on the "
            "device, or read it only every N steps"
        )
    if op in ("aten::nonzero", "aten::masked_select", "aten::index", "aten::unique_consecutive"):
        return (
            "The size of the result depends on values on the device, so the host must wait: use ops with a "
            "fixed output size (torch.where, multiplication by a mask)"
        )
    if "memcpy" in call.lower() or "copy" in op:
        return (
            "The copy blocks the host: copy from or to pinned memory with non_blocking=True, and wait only "
            "where the values are used"
        )
    return "Launch the following work before waiting, wait for one event or stream, or remove the wait"
