"""Findings on the host memory of copies and on the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import intervals
from tracekit.analysis import Basis, Finding, Rule
from tracekit.render.cells import human
from tracekit.savings import CONFIDENT, budget
from tracekit.schema import C, CopyKind, Memory

from .._shared.common import spans, worst_devices
from .link import LARGE_BYTES, LINK, REACHABLE, REACHED_SHARE, SEEN, faster_ns
from .reading import (
    BLOCKED_NS,
    DIRECTION,
    KEYS,
    MEMORY,
    WORST,
    counted,
    evidence,
    exact_sum,
    per,
    places,
    with_origins,
)

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run
    from tracekit.savings import Budget

    from .hiding import Hiding

PAGEABLE_BYTES = 64 << 10
SLOW_SHARE = 0.5
PAGEABLE, SLOW_LINK = "pageable_copies", "slow_link"
_DIRECTION_NAMES = {str(CopyKind.H2D): "Host-to-device", str(CopyKind.D2H): "Device-to-host"}
_SOURCE = {str(CopyKind.H2D): "from", str(CopyKind.D2H): "to"}
_ADVICE = {
    str(CopyKind.H2D): (
        "Copy from pinned memory with `non_blocking=True` (`DataLoader(pin_memory=True)`, or a buffer made "
        "with `pin_memory=True`), one batch early, so that the copy is faster and can overlap with kernels"
    ),
    str(CopyKind.D2H): (
        "Copy into a buffer made with `pin_memory=True` with `non_blocking=True` and wait for an event "
        "before reading it, so that the copy is faster and can overlap with kernels"
    ),
}

RULES = (
    Rule(
        PAGEABLE,
        "copies of at least 64 KiB each from or to pageable memory, in profiled steps; their exposed time is "
        "at least 1% of the step",
        "up to 64 KiB the driver stages a copy without waiting, so pinning changes little; two runs of one "
        "program differ by up to 1%",
    ),
    Rule(
        SLOW_LINK,
        "pinned copies of at least 1 MiB each run below 50% of the PCIe link's rate, and at 80% of it at "
        "least 1% of the step would be saved; needs a recorded link",
        "large pinned copies reach 80 to 90% of a link, so half of it indicates a lower width or generation, "
        "a remote NUMA node or a shared link",
    ),
)


def findings(run: Run, copies: pd.DataFrame, hiding: Hiding) -> tuple[Finding, ...]:
    """Findings on pageable copies and slow links, in profiled steps if steps are marked."""
    steps = budget(run)
    recurring = counted(copies, marked=steps.marked)
    found: list[Finding | None] = []
    for way in _DIRECTION_NAMES:
        rows = recurring[(recurring[DIRECTION] == way) & (recurring[MEMORY] == str(Memory.PAGEABLE))]
        found.append(
            _pageable(run, rows[(rows[C.BYTES] >= PAGEABLE_BYTES).fillna(value=False)], hiding, steps)
        )
    pinned = recurring[(recurring[MEMORY] == str(Memory.PINNED)) & recurring[LINK].notna()]
    large = pinned[(pinned[C.BYTES] >= LARGE_BYTES).fillna(value=False)]
    found += [_slow(rows, hiding, steps) for _, rows in large.groupby([*KEYS, DIRECTION], sort=True)]
    return tuple(one for one in found if one is not None)


def _pageable(run: Run, rows: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    exposed = hiding.exposed(rows)
    if not steps.matters(exposed):
        return None
    faster = faster_ns(rows[C.BYTES], rows[C.DUR_NS], rows[REACHABLE])
    saving = None if faster.isna().any() else min(worst_devices(rows, faster), exposed)
    located = with_origins(run, rows)
    way = str(rows[DIRECTION].iloc[0])
    size, took = int(rows[C.BYTES].sum()), int(rows[C.DUR_NS].sum())
    exposed_time = human(steps.per_step(exposed), "ns")
    blocked = exact_sum(rows[BLOCKED_NS])
    waited = "" if blocked is None else f"; the host is blocked {human(steps.per_step(blocked), 'ns')}"
    return Finding(
        PAGEABLE,
        steps.severity(exposed if saving is None else saving),
        f"{_DIRECTION_NAMES[way]} copies {_SOURCE[way]} pageable memory: "
        f"{human(size // steps.steps, 'bytes')} {per(steps)} at {size / took:.1f} GB/s, {exposed_time} "
        f"exposed{waited}",
        f"{_ADVICE[way]}: {places(located, C.DUR_NS)}.",
        None if saving is None else steps.per_step(saving),
        None if saving is None else Basis.ESTIMATED,
        _how_pinned(rows, exposed_time, known=saving is not None) + f", {steps.per}, {WORST}",
        CONFIDENT if steps.marked else 0.6,
        evidence(rows),
    )


def _how_pinned(rows: pd.DataFrame, exposed_time: str, *, known: bool) -> str:
    overlap = f"overlapping the copies with kernels would save up to the exposed {exposed_time}"
    if not known:
        return f"the saving by pinning is not estimated, because no rate of pinned copies is known; {overlap}"
    seen = rows[SEEN].notna().all()
    source = (
        "the best pinned rate seen in the run"
        if seen
        else f"{REACHED_SHARE * 100:.0f}% of the PCIe link's rate"
    )
    rate = float(rows[REACHABLE].min())
    return f"time above bytes over {rate:.1f} GB/s, {source}, at most the exposed time; {overlap}"


def _slow(rows: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    size, ran = int(rows[C.BYTES].sum()), _union(rows)
    link = float(rows[LINK].iloc[0])
    if not ran or size / ran >= SLOW_SHARE * link:
        return None
    saving = min(ran - int(size / (REACHED_SHARE * link)), hiding.exposed(rows))
    if not steps.matters(saving):
        return None
    way = str(rows[DIRECTION].iloc[0])
    rank, device = int(rows[C.RANK].iloc[0]), int(rows[C.DEVICE].iloc[0])
    return Finding(
        SLOW_LINK,
        steps.severity(saving),
        f"{_DIRECTION_NAMES[way]} copies of pinned memory run at {size / ran:.1f} GB/s on device {device} of "
        f"rank {rank}, where the PCIe link allows {link:.1f} GB/s",
        "Compare the link's current width and generation under load with its maximum (`nvidia-smi -q -d "
        "PCIE`), bind the process to the device's NUMA node, and look for other traffic on the same link; "
        "the trace does not show which is the cause.",
        steps.per_step(saving),
        Basis.ESTIMATED,
        f"time at least one of the copies ran minus bytes over {REACHED_SHARE * 100:.0f}% of the link's "
        f"rate, at most the exposed time, {steps.per}",
        0.6,
        evidence(rows),
    )


def _union(rows: pd.DataFrame) -> int:
    return intervals.length(intervals.union(*spans(rows)))
