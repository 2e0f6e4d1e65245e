"""Tables of `ranks`, combined from the measurements of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C

from .._shared.common import ints, share
from .skew import Matched, match, skew, waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints

    from .part import Part

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
    """Kernels in which a rank was last, sorted by the wait of the others, longest first."""
    matched: list[Matched] = match(_joined(parts, "collectives"))[0]
    rows = waits(matched, marked=marked)
    rows = rows[(rows[C.RANK] == rank) & rows["last"]]
    return rows.sort_values(["caused_ns", C.ROW_ID], ascending=[False, True])


def _joined(parts: Sequence[Part], name: str) -> pd.DataFrame:
    every: list[pd.DataFrame] = [getattr(one, name) for one in parts]
    tables = [table for table in every if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else every[0]


def per_rank(devices: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Devices of all ranks, with the median of their steps."""
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
    number, ranks = ints(steps, C.STEP), ints(steps, C.RANK)
    lengths, computation = ints(steps, "length_ns"), ints(steps, "computation_ns")
    rising = np.lexsort((ranks, lengths, number))
    first = np.flatnonzero(np.diff(number[rising], prepend=number[rising[0]] - 1))
    counts = np.diff(first, append=len(number))
    slowest, busiest = (np.lexsort((ranks, -most, number))[first] for most in (lengths, computation))
    fastest, middle = rising[first], rising[first + (counts - 1) // 2]
    least = computation[np.lexsort((computation, number))[first]]
    return pd.DataFrame(
        {
            C.STEP: number[fastest],
            "slowest_rank": ranks[slowest],
            "slowest_ns": lengths[slowest],
            "median_ns": lengths[middle],
            "fastest_ns": lengths[fastest],
            "fastest_rank": ranks[fastest],
            "spread_ns": lengths[slowest] - lengths[fastest],
            "excess_ns": lengths[slowest] - lengths[middle],
            "busiest_rank": ranks[busiest],
            "computation_spread_ns": computation[busiest] - least,
            "ranks": counts,
        }
    )


def stragglers(devices: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """How often each device was last, the wait of the others, and its excess times."""
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
