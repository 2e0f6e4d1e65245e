"""Cost of copies by memory of their host side, against the rate of the link.

`copies.reading` defines direction, memory and ceiling. A rate is missing if a size is unknown, the ceiling
for copies inside the device.

The driver stages a copy from pageable memory through a pinned buffer: it is slower and blocks the host. From
pinned memory it would take bytes over the reachable rate (best pinned rate seen, else 80% of the link); the
saving is the time above that, at most the exposed time. Without such a rate no saving is estimated.

A device with two copy engines runs copies in both directions at the same time. Where a pinned copy begins
after one of the other direction and of another stream ended, though it was issued before that, the two could
overlap, for at most the time of the shorter one. One copy engine, as in many consumer GPUs, cannot. Pages of
managed memory that a prefetch or a fault moved to the device and that the host touches before any kernel ran
move twice in vain.

Sources: Levental & Orlova, note 24; nsys rule for pageable copies; CUDA C++ Programming Guide, Overlapping
Data Transfers (`asyncEngineCount`); CUDA C++ Best Practices Guide, Unified Memory prefetching.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "pinned_memory")  # doctest: +SKIP
    >>> result.tables["by_memory"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Basis, Bottleneck, Column, Finding, Remark, Result, Rule, TableSpec
from tracekit.analysis.savings import CONFIDENT, LEAST_SHARE, Budget, budget
from tracekit.runs import intervals
from tracekit.runs.intervals import Union
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, Memory

from .copies import groups as copy_tables
from .copies import rules
from .copies.groups import Hiding
from .copies.reading import (
    BLOCKED_NS,
    CALL_NS,
    CEILING,
    DIRECTION,
    KEYS,
    LARGE_BYTES,
    MEMORY,
    REACHABLE,
    WAIT_NS,
    WORST,
    ceilings,
    code_by,
    counted,
    evidence,
    host_waits,
    read,
)
from .shared.common import DEVICE, RANK, absent_device_note, ints, max_per_rank, spans
from .shared.host_rows import host_rows

NO_COPIES = Remark("no copies in this capture: no memcpy was recorded")
NO_BYTES = "some copies were recorded without bytes (as by AMD's profiler), so their rates are unknown"
HOST_MEMORY_UNKNOWN = "the profiler does not record whether host memory is pageable or pinned (AMD: `Host`)"
NO_CEILING = (
    "the ceiling is unknown: the PCIe link was not recorded (`tracekit collect` reads it from NVML) and "
    "there is no pinned copy of 1 MiB or more"
)
_LINKED = _UP, _DOWN = (str(CopyKind.H2D), str(CopyKind.D2H))


def compute(run: Run) -> Result:
    """Sum up the copies of a run by direction and memory."""
    copies = read(run)
    if copies.empty:
        empty = busy(run, [C.DUR_NS]).empty
        return Result(notes=(absent_device_note(run) if empty else NO_COPIES,))
    waits = host_waits(run, copies)
    copies = copies.assign(**{BLOCKED_NS: waits[CALL_NS] + waits[WAIT_NS]})
    rates = ceilings(run, copies[copies[DIRECTION].isin(_LINKED)])
    copies = copies.merge(rates, on=[C.RANK, C.DEVICE, DIRECTION], how="left")
    hiding = Hiding(run)
    tables = {"by_memory": _by(copies, [DIRECTION, MEMORY], hiding)}
    tables["by_device"] = _by(copies, [C.RANK, C.DEVICE, DIRECTION, MEMORY], hiding)
    tables["by_name"] = copy_tables.totals(copies, [C.NAME], hiding)[[one.name for one in _BY_NAME]]
    steps = budget(run)
    recurring = counted(copies, marked=steps.marked)
    found = rules.pinned_findings(run, recurring, hiding, steps)
    ordered = (_in_turn(run, recurring, hiding, steps), _there_and_back(recurring, hiding, steps))
    return Result(tables, (*found, *(one for one in ordered if one)), _notes(copies))


def _by(copies: pd.DataFrame, keys: Sequence[str], hiding: Hiding) -> pd.DataFrame:
    table = copy_tables.totals(copies, keys, hiding)
    codes, count = code_by(copies, keys)
    grouped = copies.assign(rate=copy_tables.rate(copies[C.BYTES], copies[C.DUR_NS])).groupby(codes)
    table["median_gb_per_s"] = grouped["rate"].median().to_numpy(np.float64)
    table["min_bytes"] = grouped[C.BYTES].min().astype("Int64").to_numpy()
    table["max_bytes"] = grouped[C.BYTES].max().astype("Int64").to_numpy()
    table[CEILING] = grouped[CEILING].max().to_numpy(np.float64)
    table[BLOCKED_NS] = copy_tables.sums(copies, codes, count, BLOCKED_NS)
    return table[[*keys, *(column.name for column in _MEASURES)]]


def _notes(copies: pd.DataFrame) -> tuple[str, ...]:
    linked = copies[copies[DIRECTION].isin(_LINKED)]
    holds = {
        NO_BYTES: copies[C.BYTES].isna().any(),
        HOST_MEMORY_UNKNOWN: (linked[MEMORY] == str(Memory.UNKNOWN)).any(),
        NO_CEILING: len(linked) > 0 and linked[REACHABLE].isna().all(),
    }
    return tuple(note for note, true in holds.items() if true)


IN_TURN, BACK = "copies_in_turn", "managed_memory_back"
FEWEST_TURNS = 2
MOST_OVERLAPPED = 0.1
_ISSUED = "issued_ns"
ORDER_RULES = (
    Rule(
        IN_TURN,
        f"pinned copies of at least {LARGE_BYTES >> 20} MiB in both directions on several streams; at least "
        "twice one that was issued before begins after one of the other direction and of another stream "
        f"ended, at most {MOST_OVERLAPPED:.0%} of their time overlaps, and the overlap would save at least "
        f"{LEAST_SHARE:.0%} of the step; not on devices that are known to have one copy engine",
        "a copy engine runs one direction; with two of them both directions of the link can be used at once",
        bound=Bottleneck.COPIES,
    ),
    Rule(
        BACK,
        "managed memory is copied to the device, and back before a kernel runs; these copies take at least "
        f"{LEAST_SHARE:.0%} of the step, exposed",
        "without a kernel in between nothing on the device used the pages",
        bound=Bottleneck.COPIES,
    ),
)


def _in_turn(run: Run, copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    large = (copies[C.BYTES] >= LARGE_BYTES).fillna(value=False)
    pinned = copies[(copies[MEMORY] == str(Memory.PINNED)) & copies[DIRECTION].isin(_LINKED) & large]
    engines = {gpu.get("index"): gpu.get("copy_engines") for gpu in run.meta.environment.get("gpus") or []}
    issued = host_rows(run, pinned[C.LAUNCH_ROW], [C.START_NS])[C.START_NS].to_numpy()
    rows = pinned.assign(**{_ISSUED: issued})[~pinned[C.DEVICE].map(engines).eq(1)]
    gains = {place: _overlap(own) for place, own in rows.groupby(list(KEYS), sort=True)}
    places = rows[list(KEYS)].drop_duplicates().sort_values(list(KEYS))
    gain = max_per_rank(places, list(gains.values())) if gains else 0
    exposed = min((hiding.exposed(rows[rows[DIRECTION] == way]) for way in (_UP, _DOWN)), default=0)
    saving = min(gain, exposed)
    if not steps.matters(saving):
        return None
    up, down = (int(ints(rows[rows[DIRECTION] == way], C.DUR_NS).sum()) for way in (_UP, _DOWN))
    known = all(engines.get(int(device)) for device in rows[C.DEVICE].unique())
    return Finding(
        IN_TURN,
        steps.severity(saving),
        f"Copies in both directions run one after the other: {human(steps.per_step(up), 'ns')} to the device "
        f"and {human(steps.per_step(down), 'ns')} from it {steps.per}, though separate streams issue them",
        "Issue the copies so that both copy engines have work: on each stream, enqueue the next copy to the "
        "device before the copy from the device that another stream waits with, or use a stream for each "
        "direction, with events where one needs the result of the other.",
        steps.per_step(saving),
        Basis.ESTIMATED,
        "for each copy that follows one of the other direction and of another stream, the shorter of both; "
        f"at most the exposed time of either direction, {steps.per}, {WORST}",
        CONFIDENT if known else 0.6,
        evidence(rows),
    )


def _overlap(rows: pd.DataFrame) -> int:
    """Time for which copies of one device could overlap those of the other direction, 0 if they do."""
    ordered = rows.sort_values([C.START_NS, C.ROW_ID])
    start, end = spans(ordered)
    up = (ordered[DIRECTION] == _UP).to_numpy(bool)
    sides = [intervals.union(start[side], end[side]) for side in (up, ~up)]
    shorter = min(intervals.length(side) for side in sides)
    if intervals.length(intervals.intersect(*sides)) > MOST_OVERLAPPED * shorter:
        return 0
    stream = ordered[C.STREAM].fillna(-1).to_numpy(np.int64)
    queued = (ordered[_ISSUED].iloc[1:] < end[:-1]).fillna(value=False).to_numpy(bool)
    turns = queued & (up[1:] != up[:-1]) & (stream[1:] != stream[:-1]) & (start[1:] >= end[:-1])
    if turns.sum() < FEWEST_TURNS:
        return 0
    dur = end - start
    return min(int(np.minimum(dur[1:], dur[:-1])[turns].sum()), shorter)


def _there_and_back(copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    managed = copies[(copies[MEMORY] == str(Memory.UNIFIED)) & copies[DIRECTION].isin(_LINKED)]
    moved = [
        _returned(own, hiding.unions.get(place, intervals.EMPTY))
        for place, own in managed.groupby(list(KEYS), sort=True)
    ]
    rows = managed[managed[C.ROW_ID].isin(np.concatenate(moved))] if moved else managed
    saving = hiding.exposed(rows) if len(rows) else 0
    if not steps.matters(saving):
        return None
    size = int(rows.loc[rows[DIRECTION] == _DOWN, C.BYTES].sum())
    return Finding(
        BACK,
        steps.severity(saving),
        f"Managed memory moves to the device and back before a kernel uses it: {human(size, 'bytes')} "
        f"{steps.per}, {human(steps.per_step(saving), 'ns')} of copies",
        "Call `cudaMemPrefetchAsync` to the device after the host has written the memory, not before, and "
        "prefetch results back to the host before it reads them.",
        steps.per_step(saving),
        Basis.ESTIMATED,
        "exposed time of the copies to the device and of those back, without a kernel in between; the pages "
        f"that the kernels need are copied once more afterwards, {steps.per}, {WORST}",
        CONFIDENT,
        evidence(rows),
    )


def _returned(rows: pd.DataFrame, kernels: Union) -> pd.Series:
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
        "generation × lanes and the best pinned copy of ≥ 1 MiB in that direction; exposed = the part of the "
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
    compute=compute,
    rules=(*rules.PINNED_RULES, *ORDER_RULES),
)
