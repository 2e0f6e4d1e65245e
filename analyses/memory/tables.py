"""Tables of `memory`, from the allocator events of one rank and device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C

from ..shared.common import ints
from .allocations import OP, RECORDED, RELATIVE, extremes, theil_sen, thinned

if TYPE_CHECKING:
    from .allocations import Events, Flags

TIMELINE_POINTS = 2_000
WARMUP_STEPS = 1
FEWEST_STEPS = 4

_Row = dict[str, object]


def summary(events: Events, steps: pd.DataFrame) -> _Row:
    """Peaks and final values of one device."""
    peak = events.peak_at
    moment = int(events.t_ns[max(peak, 0)])
    reserved, unfreed = events.reserved, events.unfreed
    unused = None if reserved is None else reserved - events.level
    return {
        **events.key,
        "peak_allocated": max(events.start, int(events.level.max())),
        "peak_reserved": None if reserved is None else int(reserved.max()),
        "fragmentation": None if unused is None else int(unused[max(peak, 0)]),
        "peak_at_ns": moment,
        "peak_step": _step_at(steps, moment),
        "peak_op": str(events.frame[OP].iloc[peak]) if peak >= 0 else "",
        "start_allocated": events.start,
        "end_allocated": int(events.level[-1]),
        "most_fragmentation": None if unused is None else int(unused.max()),
        "allocations": int((events.bytes > 0).sum()),
        "frees": int((events.bytes < 0).sum()),
        "unfreed": None if unfreed is None else int(unfreed.sum()),
        "unfreed_bytes": None if unfreed is None else int(events.bytes[unfreed].sum()),
        "totals": RECORDED if events.recorded else RELATIVE,
    }


def _step_at(steps: pd.DataFrame, moment: int) -> int | None:
    start, end = ints(steps, C.START_NS), ints(steps, C.START_NS) + ints(steps, C.DUR_NS)
    inside = np.flatnonzero((start <= moment) & (moment < end))
    return int(steps[C.STEP].iloc[inside[0]]) if len(inside) else None


def timeline(events: Events) -> pd.DataFrame:
    """Allocated and reserved bytes over time, thinned without losing extremes."""
    places = thinned(events, TIMELINE_POINTS)
    reserved = events.reserved
    return pd.DataFrame(
        {
            **events.key,
            C.T_NS: events.t_ns[places],
            "allocated": events.level[places],
            "reserved": pd.array(
                [None] * len(places) if reserved is None else reserved[places], dtype="Int64"
            ),
        }
    )


def by_op(events: Events) -> pd.DataFrame:
    """Allocated bytes by op, most first, with unfreed bytes and bytes in use at the peak."""
    size = np.maximum(events.bytes, 0)
    amounts: dict[str, object] = {"allocated": size, "allocations": events.bytes > 0}
    for name, flags in (("unfreed", events.unfreed), ("live_at_peak", events.live_at_peak)):
        amounts[name] = _sizes(events, flags)
    amounts["largest"] = size
    allocated = pd.DataFrame({OP: events.frame[OP].astype(object), **amounts})[events.bytes > 0]
    grouped = allocated.groupby(OP, sort=True)
    table = grouped[["allocated", "allocations"]].sum()
    for name in ("unfreed", "live_at_peak"):
        table[name] = grouped[name].sum(min_count=1)
    table["largest"] = grouped["largest"].max()
    table = table.reset_index().sort_values(["allocated", OP], ascending=[False, True], ignore_index=True)
    order = [*events.key, OP, "allocated", "live_at_peak", "unfreed", "largest", "allocations"]
    return table.assign(**events.key)[order].astype({"allocations": np.int64})


def _sizes(events: Events, flags: Flags | None) -> object:
    """The sizes of the flagged events, missing if the flags are unknown."""
    if flags is None:
        return pd.array([None] * len(events.bytes), dtype="Int64")
    return pd.array(np.where(flags, events.bytes, 0), dtype="Int64")


def by_step(events: Events, steps: pd.DataFrame) -> pd.DataFrame:
    """Floor, peak and net growth of the allocated bytes in each step, at host times."""
    start = ints(steps, C.START_NS)
    before, after, lowest, highest = extremes(events, start, start + ints(steps, C.DUR_NS))
    allocations = np.concatenate(([0], np.cumsum(events.bytes > 0)))
    first, last = (
        np.searchsorted(events.t_ns, edge, side="left") for edge in (start, start + ints(steps, C.DUR_NS))
    )
    return pd.DataFrame(
        {
            **events.key,
            C.STEP: ints(steps, C.STEP),
            "floor": lowest,
            "peak": highest,
            "net": after - before,
            "allocations": allocations[np.maximum(first, last)] - allocations[first],
        }
    )


def leak(events: Events, table: pd.DataFrame) -> _Row | None:
    """Growth of the floor per step after the first; None with too few steps."""
    floors = ints(table, "floor")[WARMUP_STEPS:]
    if len(floors) < FEWEST_STEPS:
        return None
    slope = theil_sen(floors)
    return {
        **events.key,
        "growth": slope.slope,
        "growth_low": slope.low,
        "growth_high": slope.high,
        "steps": len(floors),
        "first_floor": int(floors[0]),
        "last_floor": int(floors[-1]),
    }
