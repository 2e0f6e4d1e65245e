"""Cost of copies by memory of their host side, against the rate of the link.

`copies.read_copies` defines direction, memory and ceiling. A rate is missing if a size is unknown, the
ceiling for copies inside the device.

The driver stages a copy from pageable memory through a pinned buffer: it is slower and blocks the host. From
pinned memory it would take bytes over the reachable rate (best pinned rate seen, else 80% of the link); the
saving is the time above that, at most the exposed time. Without such a rate no saving is estimated.

A device with two copy engines runs copies in both directions at the same time. Where a pinned copy begins
after one of the other direction and of another stream ended, though it was issued before that, the two could
overlap, for at most the time of the shorter one. One copy engine, as in many consumer GPUs, cannot. Pages of
managed memory that a prefetch or a fault moved to the device and that the host touches before any kernel ran
move twice in vain.

Sources: CUDA C++ Programming Guide, Overlapping Data Transfers (`asyncEngineCount`); CUDA C++ Best Practices
Guide, Unified Memory prefetching.

Example:
    >>> tracekit.analyze(run, "pinned_memory").tables["by_memory"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Bottleneck, Column, Finding, Remark, Result, Rule, TableSpec
from tracekit.analysis.savings import CONFIDENT, MIN_SHARE, WARN_SHARE, Budget, budget
from tracekit.runs import intervals
from tracekit.runs.intervals import Union
from tracekit.runs.run import Run
from tracekit.runs.step_windows import after_warm_up
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, Memory

from .copies import tables as copy_tables
from .copies.findings import per_device
from .copies.read_copies import (
    BLOCKED_NS,
    CALL_NS,
    CEILING,
    DIRECTION,
    LARGE_BYTES,
    LINK,
    LINKED,
    MEMORY,
    REACHABLE,
    REACHED_SHARE,
    SEEN,
    WAIT_NS,
    WORST,
    describe_places,
    evidence_of_copies,
    exact_sum,
    faster_ns,
    host_waits,
    read_copies,
    with_link_rates,
    with_origins,
)
from .copies.tables import KernelUnions
from .shared.common import (
    DEVICE,
    PLACE,
    RANK,
    in_steps,
    ints,
    max_per_rank,
    nothing_note,
    select,
    size,
    spans,
)
from .shared.groups import rows_by_device, sums_if_known
from .shared.host_rows import host_rows
from .shared.programs import program_of

NO_COPIES = Remark("no copies in this capture: no memcpy was recorded")
NO_BYTES = "some copies were recorded without bytes (as by AMD's profiler), so their rates are unknown"
HOST_MEMORY_UNKNOWN = "the profiler does not record whether host memory is pageable or pinned (AMD: `Host`)"
NO_CEILING = (
    "the ceiling is unknown: the PCIe link was not recorded (`tracekit collect` reads it from NVML) and "
    f"there is no pinned copy of {size(LARGE_BYTES)} or more"
)
_UP, _DOWN = LINKED


def compute(run: Run) -> Result:
    """Sum up the copies of a run by direction and memory."""
    copies = read_copies(run)
    if copies.empty:
        return Result(notes=(nothing_note(run, NO_COPIES),))
    waits = host_waits(run, copies)
    copies = copies.assign(**{BLOCKED_NS: waits[CALL_NS] + waits[WAIT_NS]})
    copies = with_link_rates(run, copies)
    kernels = KernelUnions(run)
    tables = {
        "by_memory": _by(copies, [DIRECTION, MEMORY], kernels),
        "by_device": _by(copies, [C.RANK, C.DEVICE, DIRECTION, MEMORY], kernels),
        "by_name": select(copy_tables.totals_table(copies, [C.NAME], kernels)[0], _BY_NAME),
    }
    steps = budget(run)
    recurring = after_warm_up(run, in_steps(copies, marked=steps.marked))
    findings = [
        *_pageable_copies(run, recurring, kernels, steps),
        *_slow_links(recurring, kernels, steps),
        _in_turn(run, recurring, kernels, steps),
        _there_and_back(recurring, kernels, steps),
        _faulting(recurring, kernels, steps),
        _outlasting(run, recurring, kernels, steps),
    ]
    return Result(tables, tuple(finding for finding in findings if finding), _notes(copies))


def _by(copies: pd.DataFrame, keys: Sequence[str], kernels: KernelUnions) -> pd.DataFrame:
    table, codes = copy_tables.totals_table(copies, keys, kernels)
    rate = pd.Series(copy_tables.gb_per_s(copies[C.BYTES], copies[C.DUR_NS]))
    size = copies[C.BYTES].groupby(codes)
    measures: dict[str, Any] = {
        "median_gb_per_s": rate.groupby(codes).median(),
        "min_bytes": size.min(),
        "max_bytes": size.max(),
        CEILING: copies[CEILING].groupby(codes).max(),
        BLOCKED_NS: sums_if_known(copies, codes, len(table), BLOCKED_NS),
    }
    return table.assign(**measures)[[*keys, *(column.name for column in _MEASURES)]]


def _notes(copies: pd.DataFrame) -> tuple[str, ...]:
    linked = copies[copies[DIRECTION].isin(LINKED)]
    holds = {
        NO_BYTES: copies[C.BYTES].isna().any(),
        HOST_MEMORY_UNKNOWN: (linked[MEMORY] == str(Memory.UNKNOWN)).any(),
        NO_CEILING: len(linked) > 0 and linked[REACHABLE].isna().all(),
    }
    return tuple(note for note, true in holds.items() if true)


_ISSUED = "issued_ns"
_DIRECTION_NAMES = {str(CopyKind.H2D): "Host-to-device", str(CopyKind.D2H): "Device-to-host"}
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
_ADVICE_WITHOUT_PYTORCH = (
    "Allocate the host buffer with `cudaMallocHost`, or pin it with `cudaHostRegister`, and copy with "
    "`cudaMemcpyAsync` on a stream, so that the copy is faster and can overlap with kernels"
)
PAGEABLE = Rule(
    "pageable_copies",
    states="copies of at least {min_bytes} each from or to pageable memory, in profiled steps; their "
    "exposed time is at least {min_saving_share} of the step",
    why="below {min_bytes} the driver stages a copy without waiting, so pinning changes little; two runs of "
    "one program differ by up to {min_saving_share}",
    bound=Bottleneck.COPIES,
    thresholds={"min_bytes": 64 << 10, "min_saving_share": MIN_SHARE},
)
SLOW_LINK = Rule(
    "slow_link",
    states="pinned copies of at least {min_bytes} each run below {max_link_share} of the PCIe link's rate, "
    "and at {reached_share} of it at least {min_saving_share} of the step would be saved; needs a recorded "
    "link",
    why="large pinned copies reach {reached_share} or more of a link, so less than {max_link_share} "
    "indicates a lower width or generation, a remote NUMA node or a shared link",
    bound=Bottleneck.COPIES,
    thresholds={
        "min_bytes": LARGE_BYTES,
        "max_link_share": 0.5,
        "reached_share": REACHED_SHARE,
        "min_saving_share": MIN_SHARE,
    },
)
IN_TURN = Rule(
    "copies_in_turn",
    states="pinned copies of at least {min_bytes} in both directions on several streams; at least "
    "{min_turns} times one that was issued before begins after one of the other direction and of another "
    "stream ended, at most {max_overlap_share} of their time overlaps, and the overlap would save at least "
    "{min_saving_share} of the step; not on devices that are known to have a single copy engine",
    why="a copy engine runs one direction; with several of them both directions of the link can be used at "
    "once",
    bound=Bottleneck.COPIES,
    thresholds={
        "min_bytes": LARGE_BYTES,
        "min_turns": 2,
        "max_overlap_share": 0.1,
        "min_saving_share": MIN_SHARE,
    },
)
BACK = Rule(
    "managed_memory_back",
    states="managed memory is copied to the device, and back before a kernel runs; these copies take at "
    "least {min_saving_share} of the step, exposed",
    why="without a kernel in between nothing on the device used the pages",
    bound=Bottleneck.COPIES,
    thresholds={"min_saving_share": MIN_SHARE},
)

FAULTS = Rule(
    "managed_memory_faults",
    states="managed memory moves to the device while kernels run, for at least {min_share} of the step",
    why="a kernel waits for each page that it touches first; a prefetch moves them before it",
    bound=Bottleneck.COPIES,
    thresholds={"min_share": WARN_SHARE},
)
OUTLAST = Rule(
    "copies_outlast_kernels",
    states="at least {min_copies} pinned copies to the device run without a kernel for at least "
    "{min_exposed_share} of the step, and for {min_ratio} times as long as all kernels",
    why="overlap hides little of them; inputs are a few copies, and many that outlast the kernels are "
    "weights or caches that a program offloads to the host, layer by layer",
    bound=Bottleneck.COPIES,
    thresholds={"min_copies": 20, "min_exposed_share": 0.3, "min_ratio": 2},
)


def _pageable_copies(
    run: Run, copies: pd.DataFrame, kernels: KernelUnions, steps: Budget
) -> Iterator[Finding | None]:
    """Yield the finding of each direction."""
    large = (copies[C.BYTES] >= PAGEABLE["min_bytes"]).fillna(value=False)
    pageable = copies[(copies[MEMORY] == str(Memory.PAGEABLE)) & large]
    for direction in _DIRECTION_NAMES:
        yield _pageable(run, pageable[pageable[DIRECTION] == direction], kernels, steps)


def _slow_links(copies: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Iterator[Finding | None]:
    """Yield the finding of each device and direction with a recorded link."""
    large = (copies[C.BYTES] >= SLOW_LINK["min_bytes"]).fillna(value=False)
    pinned = copies[(copies[MEMORY] == str(Memory.PINNED)) & copies[LINK].notna() & large]
    if len(pinned):
        for _, rows in pinned.groupby([*PLACE, DIRECTION], sort=True):
            yield _slow(rows, kernels, steps)


def _pageable(run: Run, rows: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Finding | None:
    exposed = kernels.exposed_ns(rows) if len(rows) else 0
    if not steps.matters(exposed, least=PAGEABLE["min_saving_share"]):
        return None
    per, rows = per_device(rows, steps), kernels.most_exposed(rows)
    faster = faster_ns(rows[C.BYTES], rows[C.DUR_NS], rows[REACHABLE])
    saving = None if faster.isna().any() else min(max_per_rank(rows, faster), exposed)
    direction = str(rows[DIRECTION].iloc[0])
    advice = _ADVICE_WITHOUT_PYTORCH
    if program_of(run).is_pytorch:
        advice = f"{_ADVICE[direction]}: {describe_places(with_origins(run, rows), C.DUR_NS)}"
    size, took = int(rows[C.BYTES].sum()), int(rows[C.DUR_NS].sum())
    exposed_time = human(steps.per_step(exposed), "ns")
    blocked = exact_sum(rows[BLOCKED_NS])
    waited = "" if blocked is None else f", host blocked {human(steps.per_step(blocked), 'ns')}"
    finding = steps.finding(
        PAGEABLE,
        saving,
        f"Pageable {direction} copies: {human(size // steps.steps, 'bytes')} {per} at "
        f"{size / took:.1f} GB/s, {exposed_time} exposed{waited}",
        f"{advice}.",
        _how_pinned(rows, exposed_time, is_known=saving is not None) + f", {steps.per}, {WORST}",
        confidence=CONFIDENT if steps.marked else 0.6,
        evidence=evidence_of_copies(rows),
    )
    return finding if saving is not None else replace(finding, severity=steps.severity(exposed))


def _how_pinned(rows: pd.DataFrame, exposed_time: str, *, is_known: bool) -> str:
    overlap = f"overlapping the copies with kernels would save up to the exposed {exposed_time}"
    if not is_known:
        return f"the saving by pinning is not estimated, because no rate of pinned copies is known; {overlap}"
    seen = rows[SEEN].notna().all()
    source = (
        "the best pinned rate seen in the run" if seen else f"{REACHED_SHARE:.0%} of the PCIe link's rate"
    )
    rate = float(rows[REACHABLE].min())
    return f"time above bytes over {rate:.1f} GB/s, {source}, at most the exposed time; {overlap}"


def _slow(rows: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Finding | None:
    size, ran = int(rows[C.BYTES].sum()), intervals.length(intervals.union(*spans(rows)))
    link = float(rows[LINK].iloc[0])
    if not ran or size / ran >= SLOW_LINK["max_link_share"] * link:
        return None
    saving = min(ran - int(size / (SLOW_LINK["reached_share"] * link)), kernels.exposed_ns(rows))
    if not steps.matters(saving, least=SLOW_LINK["min_saving_share"]):
        return None
    direction = str(rows[DIRECTION].iloc[0])
    rank, device = int(rows[C.RANK].iloc[0]), int(rows[C.DEVICE].iloc[0])
    return steps.finding(
        SLOW_LINK,
        saving,
        f"{_DIRECTION_NAMES[direction]} copies of pinned memory run at {size / ran:.1f} GB/s on device "
        f"{device} of rank {rank}, where the PCIe link allows {link:.1f} GB/s",
        "Compare the link's current width and generation under load with its maximum (`nvidia-smi -q -d "
        "PCIE`), bind the process to the device's NUMA node, and look for other traffic on the same link; "
        "the trace does not show which is the cause.",
        f"time at least one of the copies ran minus bytes over {SLOW_LINK['reached_share']:.0%} of the "
        f"link's rate, at most the exposed time, {steps.per}",
        confidence=0.6,
        evidence=evidence_of_copies(rows),
    )


def _in_turn(run: Run, copies: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Finding | None:
    large = (copies[C.BYTES] >= IN_TURN["min_bytes"]).fillna(value=False)
    pinned = copies[(copies[MEMORY] == str(Memory.PINNED)) & copies[DIRECTION].isin(LINKED) & large]
    if pinned[DIRECTION].nunique() < len(LINKED):
        return None
    engines = {gpu.get("index"): gpu.get("copy_engines") for gpu in run.meta.environment.get("gpus") or []}
    issued = host_rows(run, pinned[C.LAUNCH_ROW], [C.START_NS])[C.START_NS].to_numpy()
    rows = pinned.assign(**{_ISSUED: issued})[~pinned[C.DEVICE].map(engines).eq(1)]
    of_devices = rows_by_device(rows)
    gains = [_overlap(rows.iloc[of_device]) for of_device in of_devices.values()]
    gain = max_per_rank(pd.DataFrame([*of_devices], columns=PLACE), gains)
    exposed = min(kernels.exposed_ns(rows[rows[DIRECTION] == direction]) for direction in LINKED)
    saving = min(gain, exposed)
    if not steps.matters(saving, least=IN_TURN["min_saving_share"]):
        return None
    up, down = (int(ints(rows[rows[DIRECTION] == direction], C.DUR_NS).sum()) for direction in (_UP, _DOWN))
    engines_known = all(engines.get(int(device)) for device in rows[C.DEVICE].unique())
    return steps.finding(
        IN_TURN,
        saving,
        f"Copies in both directions run one after the other: {human(steps.per_step(up), 'ns')} to the device "
        f"and {human(steps.per_step(down), 'ns')} from it {steps.per}, though separate streams issue them",
        "Issue the copies so that both copy engines have work: on each stream, enqueue the next copy to the "
        "device before the copy from the device that another stream waits with, or use a stream for each "
        "direction, with events where one needs the result of the other.",
        "for each copy that follows one of the other direction and of another stream, the shorter of both; "
        f"at most the exposed time of either direction, {steps.per}, {WORST}",
        confidence=CONFIDENT if engines_known else 0.6,
        evidence=evidence_of_copies(rows),
    )


def _overlap(rows: pd.DataFrame) -> int:
    """Time for which copies of one device could overlap those of the other direction, 0 if they do."""
    ordered = rows.sort_values([C.START_NS, C.ROW_ID])
    start, end = spans(ordered)
    up = (ordered[DIRECTION] == _UP).to_numpy(bool)
    sides = [intervals.union(start[side], end[side]) for side in (up, ~up)]
    shorter = min(intervals.length(side) for side in sides)
    if intervals.length(intervals.intersect(*sides)) > IN_TURN["max_overlap_share"] * shorter:
        return 0
    stream = ordered[C.STREAM].fillna(-1).to_numpy(np.int64)
    queued = (ordered[_ISSUED].iloc[1:] < end[:-1]).fillna(value=False).to_numpy(bool)
    turns = queued & (up[1:] != up[:-1]) & (stream[1:] != stream[:-1]) & (start[1:] >= end[:-1])
    if turns.sum() < IN_TURN["min_turns"]:
        return 0
    dur = end - start
    return min(int(np.minimum(dur[1:], dur[:-1])[turns].sum()), shorter)


def _outlasting(run: Run, copies: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Finding | None:
    """The finding on pinned copies that take longer than the kernels; overlap of the rest is another one."""
    rows = copies[(copies[MEMORY] == str(Memory.PINNED)) & (copies[DIRECTION] == _UP)]
    exposed = kernels.exposed_ns(rows) if len(rows) >= OUTLAST["min_copies"] else 0
    lengths = [intervals.length(union) for union in kernels.unions.values()]
    working = max_per_rank(pd.DataFrame([*kernels.unions], columns=PLACE), lengths) if lengths else 0
    if not working or exposed < OUTLAST["min_ratio"] * working:
        return None
    if not steps.matters(exposed, least=OUTLAST["min_exposed_share"]):
        return None
    per, rows = per_device(rows, steps), kernels.most_exposed(rows)
    size, took = int(rows[C.BYTES].sum()), int(rows[C.DUR_NS].sum())
    place = f": {describe_places(with_origins(run, rows), C.DUR_NS)}" if program_of(run).is_pytorch else ""
    return steps.finding(
        OUTLAST,
        exposed - working,
        f"H2D copies outlast the kernels: {human(size // steps.steps, 'bytes')} {per} at "
        f"{size / took:.1f} GB/s, {human(steps.per_step(exposed), 'ns')} exposed",
        f"Kernels run for {human(steps.per_step(working), 'ns')} {steps.per}, so overlap hides little. "
        "Keep weights and caches that are copied again in each step on the device (offload fewer layers), or "
        f"store them in fewer bits; a larger batch does more work per copy{place}",
        "upper bound: the exposed time of these copies, minus the time of kernels that could hide them, "
        f"{steps.per}, {WORST}",
        confidence=0.6,
        evidence=evidence_of_copies(rows),
    )


def _there_and_back(copies: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Finding | None:
    managed = copies[(copies[MEMORY] == str(Memory.UNIFIED)) & copies[DIRECTION].isin(LINKED)]
    moved = [
        _returned_rows(managed.iloc[of_device], kernels.unions.get(place, intervals.EMPTY))
        for place, of_device in rows_by_device(managed).items()
    ]
    rows = managed[managed[C.ROW_ID].isin(np.concatenate(moved))] if moved else managed
    saving = kernels.exposed_ns(rows) if len(rows) else 0
    if not steps.matters(saving, least=BACK["min_saving_share"]):
        return None
    per, rows = per_device(rows, steps), kernels.most_exposed(rows)
    size = int(rows.loc[rows[DIRECTION] == _DOWN, C.BYTES].sum())
    return steps.finding(
        BACK,
        saving,
        f"Managed memory moves to the device and back unused: {human(size // steps.steps, 'bytes')} {per}, "
        f"{human(steps.per_step(saving), 'ns')} of copies",
        "Call `cudaMemPrefetchAsync` to the device after the host has written the memory, not before, and "
        "prefetch results back to the host before it reads them.",
        "exposed time of the copies to the device and of those back, without a kernel in between; the pages "
        f"that the kernels need are copied once more afterwards, {steps.per}, {WORST}",
        evidence=evidence_of_copies(rows),
    )


def _faulting(copies: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Finding | None:
    """The finding on pages of managed memory that move to the device while kernels run."""
    rows = copies[(copies[MEMORY] == str(Memory.UNIFIED)) & (copies[DIRECTION] == _UP)]
    per, (rows, beside) = per_device(rows, steps), kernels.most_beside(rows)
    if not steps.matters(beside, least=FAULTS["min_share"]):
        return None
    faster = faster_ns(rows[C.BYTES], rows[C.DUR_NS], rows[REACHABLE])
    saving = None if faster.isna().any() else min(max_per_rank(rows, faster), beside)
    moved, took = int(rows[C.BYTES].fillna(0).sum()), int(rows[C.DUR_NS].sum())
    return steps.finding(
        FAULTS,
        saving,
        f"Managed memory moves while kernels run: {human(moved // steps.steps, 'bytes')} {per} in "
        f"{steps.count(len(rows), 'copy')}, {human(steps.per_step(beside), 'ns')} beside kernels",
        f"The kernels wait for its pages, which arrive at {moved / max(took, 1):.1f} GB/s: call "
        "`cudaMemPrefetchAsync` to the device before the first kernel that uses the memory, or copy it "
        "explicitly.",
        "time of these copies above bytes over the reachable rate of the link, at most the time beside "
        f"kernels, {steps.per}, {WORST}"
        if saving is not None
        else "saving not estimated: no rate of pinned copies and no link is known",
        evidence=evidence_of_copies(rows),
    )


def _returned_rows(rows: pd.DataFrame, kernels: Union) -> pd.Series:
    """Row ids of copies to the device whose bytes go back before the next kernel, and of those back."""
    ordered = rows.sort_values([C.START_NS, C.ROW_ID])
    start = ints(ordered, C.START_NS)
    between = np.searchsorted(kernels[0], start, side="right")
    needed = start < np.append(kernels[1], 0)[between - 1]  # a kernel that runs has asked for the pages
    up = (ordered[DIRECTION] == _UP) & ~needed
    size = ordered[C.BYTES].fillna(0).astype(np.int64)
    arrived = size.where(up, 0).groupby(between).cumsum()
    down = (ordered[DIRECTION] == _DOWN) & (arrived > 0)
    back = size.where(down, 0).groupby(between).transform("sum")
    return ordered.loc[down | (up & (arrived <= back)), C.ROW_ID]


_DIRECTION = Column(DIRECTION, "", "H2D, D2H, D2D, P2P, H2H or unknown")
_MEMORY = Column(MEMORY, "", "memory of the host side: pageable, pinned, unified, device or unknown")
_MEASURES = (
    copy_tables.COPIES,
    copy_tables.BYTES,
    copy_tables.SUM,
    copy_tables.UNION,
    copy_tables.GB_PER_S,
    Column("median_gb_per_s", "GB/s", "median over the copies of bytes over duration"),
    Column(CEILING, "GB/s", "maximum of the link's rate and the best pinned copy, of the fastest device"),
    copy_tables.EXPOSED,
    copy_tables.BLOCKED,
    Column("min_bytes", "bytes", "smallest copy"),
    Column("max_bytes", "bytes", "largest copy"),
)
_BY_NAME = (
    Column(C.NAME, "", "name as recorded"),
    copy_tables.COPIES,
    copy_tables.BYTES,
    copy_tables.SUM,
    copy_tables.UNION,
    copy_tables.GB_PER_S,
)

ANALYSIS = Analysis(
    name="pinned_memory",
    title="Copies by host memory",
    question="What do copies from pageable memory cost, and how close to the link's rate are copies?",
    definition=(
        "memory = that of the host side; GB/s = bytes over Σ of durations; ceiling = the larger of PCIe "
        "generation × lanes and the best pinned copy of ≥ "
        f"{size(LARGE_BYTES)} in that direction; exposed = the part of the "
        "union that no kernel or opaque graph overlaps; blocked = launching call plus the wait directly "
        "after it inside the same op."
    ),
    tables=(
        TableSpec("by_memory", "By direction and memory", (_DIRECTION, _MEMORY, *_MEASURES)),
        TableSpec("by_device", "Per device", (RANK, DEVICE, _DIRECTION, _MEMORY, *_MEASURES)),
        TableSpec("by_name", "By name as recorded", _BY_NAME),
    ),
    sources=("Levental & Orlova, note 24", "nsys rule cuda_memcpy_async (pageable)"),
    order=52,
    reads=("device_intervals",),
    compute=compute,
    rules=(PAGEABLE, SLOW_LINK, IN_TURN, BACK, FAULTS, OUTLAST),
)
