"""Findings on the order of copies: both directions in turn, and managed memory that moves there and back.

* Copies in turn: a device with two copy engines runs copies in both directions at the same time. Where a
  pinned copy begins after one of the other direction and of another stream ended, though it was issued before
  that, the two could overlap, for at most the time of the shorter one. One copy engine, as in many consumer
  GPUs, cannot.
* Managed memory there and back: pages that a prefetch or a fault moved to the device and that the host
  touches before any kernel ran move twice in vain.

Sources: CUDA C++ Programming Guide, Overlapping Data Transfers (`asyncEngineCount`); CUDA C++ Best Practices
Guide, Unified Memory prefetching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Basis, Finding, Rule
from tracekit.analysis.savings import CONFIDENT
from tracekit.runs import intervals
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, Memory

from ..shared.common import ints, spans, worst_devices
from ..shared.hosts import host_rows
from .reading import DIRECTION, KEYS, LARGE_BYTES, MEMORY, WORST, evidence

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis.savings import Budget
    from tracekit.runs.intervals import Union
    from tracekit.runs.run import Run

    from .groups import Hiding

IN_TURN, BACK = "copies_in_turn", "managed_memory_back"
FEWEST_TURNS = 2
MOST_OVERLAPPED = 0.1
_ISSUED = "issued_ns"
_UP, _DOWN = str(CopyKind.H2D), str(CopyKind.D2H)
RULES = (
    Rule(
        IN_TURN,
        "pinned copies of at least 1 MiB in both directions on several streams; at least twice one that was "
        "issued before begins after one of the other direction and of another stream ended, at most 10% of "
        "their time overlaps, and the overlap would save at least 1% of the step; not on devices that are "
        "known to have one copy engine",
        "a copy engine runs one direction; with two of them both directions of the link can be used at once",
    ),
    Rule(
        BACK,
        "managed memory is copied to the device, and back before a kernel runs; these copies take at least "
        "1% of the step, exposed",
        "without a kernel in between nothing on the device used the pages",
    ),
)


def order_findings(run: Run, copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> tuple[Finding, ...]:
    """Findings on the order of these copies, those in profiled steps if steps are marked."""
    found = (_in_turn(run, copies, hiding, steps), _there_and_back(copies, hiding, steps))
    return tuple(one for one in found if one is not None)


def _in_turn(run: Run, copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> Finding | None:
    large = (copies[C.BYTES] >= LARGE_BYTES).fillna(value=False)
    pinned = copies[(copies[MEMORY] == str(Memory.PINNED)) & copies[DIRECTION].isin([_UP, _DOWN]) & large]
    engines = {gpu.get("index"): gpu.get("copy_engines") for gpu in run.meta.environment.get("gpus") or []}
    issued = host_rows(run, pinned[C.LAUNCH_ROW], [C.START_NS])[C.START_NS].to_numpy()
    rows = pinned.assign(**{_ISSUED: issued})[~pinned[C.DEVICE].map(engines).eq(1)]
    gains = {place: _overlap(own) for place, own in rows.groupby(list(KEYS), sort=True)}
    places = rows[list(KEYS)].drop_duplicates().sort_values(list(KEYS))
    gain = worst_devices(places, list(gains.values())) if gains else 0
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
    managed = copies[(copies[MEMORY] == str(Memory.UNIFIED)) & copies[DIRECTION].isin([_UP, _DOWN])]
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
