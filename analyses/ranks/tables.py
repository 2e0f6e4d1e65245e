"""Tables of `ranks`: their columns, and how the measures of each rank become them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

from ..shared.collectives import end_spreads, match_collectives
from ..shared.common import PLACE, PLACE_COLUMNS, STEP, ints, percentile, select, share
from .host_slack import SLACK_NS, slack
from .skew import EXCESS, RankPart, skew, waits

_BEFORE = "before those collectives, minus the mean of the others"

_PER_RANK = (
    *PLACE_COLUMNS,
    Column("step_median_ns", "ns", "median length of its steps; missing if none are marked"),
    Column("computation_ns", "ns", "|K∖N|: a kernel other than communication runs"),
    Column("communication_exposed_ns", "ns", "|N∖(K∖N)|: exposed communication"),
    Column("idle_ns", "ns", "nothing runs"),
    Column("computation_ratio", "×", "computation over the median of all devices"),
    Column("communication_exposed_share", "share", "exposed communication over window"),
    Column("idle_share", "share", "idle over window"),
    Column("computation_share", "share", "computation over window"),
    Column("communication_overlapped_ns", "ns", "communication overlapped with other kernels"),
    Column("other_ns", "ns", "copies, memsets and opaque graphs without a concurrent kernel"),
    Column("window_ns", "ns", "union of the profiled steps, or first start to last end"),
)
PER_RANK = TableSpec("per_rank", "Time by rank and device", _PER_RANK)
_STRAGGLERS = (
    *PLACE_COLUMNS,
    Column("last_share", "share", "share of collectives in which it arrived last"),
    Column("caused_ns", "ns", "Σ of the mean wait of the others in which it arrived last"),
    Column("waited_ns", "ns", "Σ of its own waits, exposed part"),
    Column("first_ns", "ns", "the part of that in its first collective, if there are others"),
    Column("mean_late_ns", "ns", "mean arrival after the first rank"),
    Column("last_count", "count", "collectives in which it arrived last (only one with the shortest kernel)"),
    Column("collectives", "count", "aligned collectives"),
    Column(
        "gain_ns",
        "ns",
        "Σ of the saving if it had arrived with the next to last, without profiler overhead",
    ),
    Column(
        SLACK_NS,
        "ns",
        "how much earlier it could start its last collective, as far as its host allows: arrival "
        "of the last rank minus its launch, plus its host's waits for the device since the "
        "first; missing if unknown",
    ),
    Column("excess_computation_ns", "ns", f"computation {_BEFORE}"),
    Column("excess_idle_ns", "ns", f"idle time {_BEFORE}"),
    Column("excess_other_ns", "ns", f"copies and the like {_BEFORE}"),
)
STRAGGLERS = TableSpec("stragglers", "Last arrivals in collectives", _STRAGGLERS)
_STEPS = (
    STEP,
    Column("slowest_rank", "", "rank with the longest step; the lowest rank of several"),
    Column("slowest_ns", "ns", "longest step"),
    Column("median_ns", "ns", "lower median of the ranks"),
    Column("fastest_ns", "ns", "shortest step"),
    Column("fastest_rank", "", "rank with the shortest step"),
    Column("spread_ns", "ns", "longest minus shortest"),
    Column("excess_ns", "ns", "longest minus median"),
    Column("busiest_rank", "", "rank with the longest computation in the step"),
    Column("computation_spread_ns", "ns", "longest minus shortest computation"),
    Column("ranks", "count", "ranks that have the step"),
)
STEPS = TableSpec("steps", "Ranks in each step", _STEPS)
_SKEW = (
    Column("collective", "", "kind of collective"),
    Column("number", "", "index within its family and stream, from 0"),
    STEP,
    Column("last_rank", "", "rank that arrived last; missing if several have the shortest kernel"),
    Column("wait_ns", "ns", "Σ over ranks of duration minus the shortest"),
    Column("shortest_ns", "ns", "duration on the rank that arrived last"),
    Column("next_ns", "ns", "duration on the rank that arrived next to last"),
    Column("longest_ns", "ns", "duration on the rank that arrived first"),
    Column("ranks", "count", "participating devices"),
    Column("end_spread_ns", "ns", "spread of its ends, after subtracting clock offsets"),
    Column("aligned", "", "whether it ends together on all ranks; others are ignored"),
    Column("family", "", "family of its kernels"),
)
SKEW = TableSpec("skew", "Every matched collective", _SKEW)
TABLES = (PER_RANK, STRAGGLERS, STEPS, SKEW)


def build_tables(parts: Sequence[RankPart]) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the tables of several ranks, and the families of collectives that could not be matched."""
    steps = concat_parts(parts, "steps")
    tables = {"per_rank": compare_ranks(concat_parts(parts, "devices"), steps)}
    if len(tables["per_rank"]) < 2:
        return tables, []
    if len(steps) and len(parts) > 1:
        tables["steps"] = compare_steps(steps)
    kernels = concat_parts(parts, "collectives")
    matched, unmatched = match_collectives(kernels)
    if matched:
        host_slack = slack(matched, end_spreads(matched), kernels, marked=len(steps) > 0)
        tables["stragglers"] = sum_waits(waits(matched, kernels, marked=len(steps) > 0), host_slack)
        tables["skew"] = skew(matched)
    return tables, unmatched


def concat_parts(parts: Sequence[RankPart], name: str) -> pd.DataFrame:
    """Concatenate a table of all ranks; empty ones do not affect the types."""
    tables: list[pd.DataFrame] = [getattr(part, name) for part in parts]
    full = [table for table in tables if len(table)]
    return pd.concat(full, ignore_index=True) if full else tables[0]


def compare_ranks(devices: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the devices of all ranks, with the median of their steps."""
    medians = {rank: percentile(ints(rows, "length_ns"), 50) for rank, rows in steps.groupby(C.RANK)}
    computation, window = ints(devices, "computation_ns"), ints(devices, "window_ns")
    table = devices.assign(
        computation_share=share(computation, window),
        communication_exposed_share=share(ints(devices, "communication_exposed_ns"), window),
        idle_share=share(ints(devices, "idle_ns"), window),
        computation_ratio=share(computation, percentile(computation, 50)),
        step_median_ns=devices[C.RANK].map(medians).astype("Int64"),
    )
    return select(table, PER_RANK.columns, *PLACE)


def compare_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest and the slowest rank of each step.

    Sorts instead of grouping: jobs have thousands of steps on hundreds of ranks.
    """
    number, ranks = ints(steps, C.STEP), ints(steps, C.RANK)
    lengths, computation = ints(steps, "length_ns"), ints(steps, "computation_ns")
    rising = np.lexsort((ranks, lengths, number))
    first = np.flatnonzero(np.diff(number[rising], prepend=number[rising[0]] - 1))
    counts = np.diff(first, append=len(number))
    # the first row of each step in these orders has its largest value, on the lowest rank of equal ones
    slowest, busiest = (np.lexsort((ranks, -values, number))[first] for values in (lengths, computation))
    fastest, median = rising[first], rising[first + (counts - 1) // 2]
    least = computation[np.lexsort((computation, number))[first]]
    return pd.DataFrame(
        {
            C.STEP: number[fastest],
            "slowest_rank": ranks[slowest],
            "slowest_ns": lengths[slowest],
            "median_ns": lengths[median],
            "fastest_ns": lengths[fastest],
            "fastest_rank": ranks[fastest],
            "spread_ns": lengths[slowest] - lengths[fastest],
            "excess_ns": lengths[slowest] - lengths[median],
            "busiest_rank": ranks[busiest],
            "computation_spread_ns": computation[busiest] - least,
            "ranks": counts,
        }
    )


def sum_waits(rows: pd.DataFrame, host_slack: pd.DataFrame) -> pd.DataFrame:
    """Return how often each device was last, the wait of the others, what it did longer, and its slack."""
    counted = rows.assign(collectives=1, last=rows["last"].astype(np.int64))
    names = ["collectives", "last", "late_ns", "caused_ns", "gain_ns", "waited_ns", *EXCESS]
    table = counted.groupby(PLACE, sort=True)[names].sum().reset_index()
    table = table.merge(host_slack, on=PLACE, how="left")
    collectives = ints(table, "collectives")
    first = rows.sort_values(C.START_NS).groupby(PLACE, sort=True)["waited_ns"].first()
    table = table.assign(
        first_ns=np.where(collectives > 1, first, 0),
        last_count=table["last"],
        last_share=share(ints(table, "last"), collectives),
        mean_late_ns=ints(table, "late_ns") // np.maximum(collectives, 1),
    )
    return select(table, STRAGGLERS.columns, "-caused_ns", *PLACE)
