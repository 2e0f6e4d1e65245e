"""Combining what was taken from each rank: the tables of `ranks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C

from ._common import ints, share
from ._skew import Matched, match, skew, waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints

    from ._rank_part import Part

_PLACE = [C.RANK, C.DEVICE]


def combine(parts: Sequence[Part]) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables of several ranks from those of each, and the families that could not be matched."""
    steps = _joined(parts, "steps")
    tables = {"per_rank": per_rank(_joined(parts, "devices"), steps)}
    if len(parts) < 2:
        return tables, []
    if len(steps):
        tables["steps"] = by_step(steps)
    matched, unmatched = match(_joined(parts, "collectives"))
    if matched:
        tables["stragglers"] = stragglers(tables["per_rank"], waits(matched, marked=len(steps) > 0))
        tables["skew"] = skew(matched)
    return tables, unmatched


def evidence(parts: Sequence[Part], rank: int, *, marked: bool) -> pd.DataFrame:
    """The kernels of a rank that was last, those that kept the others waiting longest first."""
    matched: list[Matched] = match(_joined(parts, "collectives"))[0]
    rows = waits(matched, marked=marked)
    rows = rows[(rows[C.RANK] == rank) & rows["last"]]
    return rows.sort_values(["caused_ns", C.ROW_ID], ascending=[False, True])


def _joined(parts: Sequence[Part], name: str) -> pd.DataFrame:
    every: list[pd.DataFrame] = [getattr(one, name) for one in parts]
    tables = [table for table in every if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else every[0]


def per_rank(devices: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Every rank's devices, with the median of its steps."""
    medians = {rank: _middle(ints(own, "length_ns")) for rank, own in steps.groupby(C.RANK, sort=True)}
    computation, window = ints(devices, "computation_ns"), ints(devices, "window_ns")
    table = devices.assign(
        computation_share=share(computation, window),
        communication_exposed_share=share(ints(devices, "communication_exposed_ns"), window),
        idle_share=share(ints(devices, "idle_ns"), window),
        computation_ratio=share(computation, _middle(computation)),
        step_median_ns=devices[C.RANK].map(medians).astype("Int64"),
    )
    order = [
        *_PLACE,
        "step_median_ns",
        "computation_ns",
        "communication_exposed_ns",
        "idle_ns",
        "computation_ratio",
        "communication_exposed_share",
        "idle_share",
        "computation_share",
        "communication_overlapped_ns",
        "other_ns",
        "window_ns",
    ]
    return table[order].sort_values(_PLACE, ignore_index=True)


def _middle(values: Ints) -> int:
    """The lower median: one of the values."""
    return int(np.sort(values)[(len(values) - 1) // 2])


def by_step(steps: pd.DataFrame) -> pd.DataFrame:
    """The fastest and the slowest rank of each step."""
    rows = [_step(own) for _, own in steps.groupby(C.STEP, sort=True)]
    return pd.DataFrame(rows)


def _step(own: pd.DataFrame) -> dict[str, int]:
    ordered = own.sort_values(["length_ns", C.RANK], ignore_index=True)
    lengths, ranks, computation = (ints(ordered, name) for name in ("length_ns", C.RANK, "computation_ns"))
    return {
        C.STEP: int(own[C.STEP].iloc[0]),
        "slowest_rank": int(ranks[lengths == lengths[-1]][0]),
        "slowest_ns": int(lengths[-1]),
        "median_ns": _middle(lengths),
        "fastest_ns": int(lengths[0]),
        "fastest_rank": int(ranks[0]),
        "spread_ns": int(lengths[-1] - lengths[0]),
        "excess_ns": int(lengths[-1]) - _middle(lengths),
        "busiest_rank": int(ranks[computation == computation.max()].min()),
        "computation_spread_ns": int(computation.max() - computation.min()),
        "ranks": len(lengths),
    }


def stragglers(devices: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """How often each place was last, what that cost the others, and what it did more than they."""
    counted = rows.assign(collectives=1, last=rows["last"].astype(np.int64))
    names = ["collectives", "last", "late_ns", "caused_ns", "gain_ns", "waited_ns"]
    sums = counted.groupby(_PLACE, sort=True)[names].sum().reset_index()
    excess = devices[_PLACE].copy()
    for name in ("computation_ns", "idle_ns", "other_ns"):
        excess[f"excess_{name}"] = _excess(ints(devices, name))
    table = sums.merge(excess, on=_PLACE, how="left")
    collectives = np.maximum(ints(table, "collectives"), 1)
    table = table.assign(
        last_count=table["last"],
        last_share=share(ints(table, "last"), ints(table, "collectives")),
        mean_late_ns=ints(table, "late_ns") // collectives,
    )
    order = [
        *_PLACE,
        "last_share",
        "caused_ns",
        "waited_ns",
        "mean_late_ns",
        "last_count",
        "collectives",
        "gain_ns",
        "excess_computation_ns",
        "excess_idle_ns",
        "excess_other_ns",
    ]
    return table[order].sort_values(["caused_ns", *_PLACE], ascending=[False, True, True], ignore_index=True)


def _excess(values: Ints) -> Ints:
    """How much each value exceeds the median of the others."""
    others = [_middle(np.delete(values, place)) for place in range(len(values))]
    return values - np.array(others, np.int64)
