"""The findings of `ranks`: a straggler, and kernels that take longer on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.savings import WARN_SHARE
from tracekit.schema import C

from .._shared.common import ints
from .._shared.units import duration, percent
from .tables import evidence

if TYPE_CHECKING:
    from tracekit.savings import Budget

    from .part import Part

FEWEST_COLLECTIVES = 10
LAST_SHARE = 0.5
CAUSED_SHARE = 2 / 3
EXPLAINS = 0.5
NEARLY_ALL, FEW = 0.9, 1 / 3
"""Share of the wait in a share of the collectives that may indicate a single event, such as a start."""
IMBALANCE = 0.05
EXPLAINED = 0.8
"""Confidence if the rank's total time, not that before each collective, explains the wait."""
UNEXPLAINED = 0.6
"""Confidence if the wait was measured without a known cause."""

RULES = (
    Rule(
        "straggler",
        "one rank is last in at least 50% of at least 10 matched collectives and causes two thirds of all "
        "wait time; the others wait for it for at least 3% of a step",
        "in a balanced job the last rank varies and waits are short; of two equal ranks each is last half "
        "of the time, but neither causes two thirds of the wait time",
    ),
    Rule(
        "rank_imbalance",
        "the kernels of one rank, without communication, take over 5% longer than the mean of the ranks, "
        "and that is at least 1% of a step; not reported if the rank is a straggler for that reason",
        "ranks with equal work differ by 1 to 3% (clocks, memory); all ranks wait for the slowest",
    ),
)
_CAUSES = {
    "excess_computation_ns": "it computes longer",
    "excess_idle_ns": "its device idles longer",
    "excess_other_ns": "it copies longer",
}


def findings(parts: list[Part], tables: dict[str, pd.DataFrame], spent: Budget) -> tuple[Finding, ...]:
    """Findings on a straggler with its cause, and on the rank with the longest kernels."""
    late = _straggler(tables, spent, len(parts))
    found = [] if late is None else [_late(parts, late, spent)]
    uneven = _imbalanced(tables["per_rank"], spent, len(parts))
    if uneven is not None and not (late and late["cause"] == 0 and late[C.RANK] == uneven[C.RANK]):
        communicates = any(len(one.collectives) for one in parts)
        found.append(_uneven(parts, uneven, spent, communicates=communicates))
    return tuple(found)


def _straggler(tables: dict[str, pd.DataFrame], spent: Budget, ranks: int) -> dict[str, Any] | None:
    """The row of the straggler, with the index of the cause in `_CAUSES`, or -1."""
    if "stragglers" not in tables or tables["stragglers"].empty:
        return None
    table = tables["stragglers"]
    row: dict[str, Any] = {str(name): value for name, value in table.iloc[0].items()}
    often = row["collectives"] >= FEWEST_COLLECTIVES and row["last_share"] >= LAST_SHARE
    mostly = row["caused_ns"] >= CAUSED_SHARE * int(table["caused_ns"].sum())
    if not (often and mostly and spent.matters(int(row["caused_ns"]) * ranks, least=WARN_SHARE)):
        return None
    explained = [row[name] >= EXPLAINS * row["caused_ns"] for name in _CAUSES]
    return {**row, "cause": int(np.argmax(explained)) if any(explained) else -1}


def _late(parts: list[Part], row: dict[str, Any], spent: Budget) -> Finding:
    ranks = len(parts)
    rank, gain = int(row[C.RANK]), int(row["gain_ns"]) * ranks
    wait = spent.per_step(int(row["caused_ns"]) * ranks)
    every = evidence(parts, rank, marked=spent.marked)
    top = every.head(EVIDENCE_ROWS)
    return Finding(
        code="straggler",
        severity=spent.severity(gain),
        title=(
            f"Rank {rank} is last in {percent(row['last_share'])} of {int(row['collectives']):,} "
            f"collectives; the others wait {duration(wait)} {spent.per} for it"
        ),
        advice=_late_advice(parts, row, spent) + _few(every),
        saving_ns_per_step=spent.per_step(gain),
        basis=Basis.ESTIMATED,
        how=(
            "for each collective in which it was last, the time it arrived after the next-to-last rank, "
            f"at most the mean exposed wait of the others; {spent.per}"
        ),
        confidence=EXPLAINED if row["cause"] >= 0 else UNEXPLAINED,
        evidence={"device_intervals": [int(one) for one in top[C.ROW_ID]]},
    )


def _few(last: pd.DataFrame) -> str:
    """Sentence for a few collectives that cause nearly all of the wait."""
    caused = np.cumsum(ints(last, "caused_ns"))
    count = int(np.searchsorted(caused, NEARLY_ALL * caused[-1])) + 1
    if count > FEW * len(caused):
        return ""
    which = "One" if count == 1 else f"{count:,}"
    return (
        f" {which} of the {len(caused):,} collectives in which it was last cause{'s' * (count == 1)} "
        f"{percent(int(caused[count - 1]) / int(caused[-1]))} of the wait: check whether that recurs."
    )


def _late_advice(parts: list[Part], row: dict[str, Any], spent: Budget) -> str:
    rank = int(row[C.RANK])
    if row["cause"] < 0:
        return (
            f"Neither longer kernels nor copies nor idle time of rank {rank} explain half of the wait. "
            "Compare its kernels with those of another rank, and its clocks and temperature."
        )
    excess = int(row[list(_CAUSES)[row["cause"]]])
    more = f"{duration(spent.per_step(excess * len(parts)))} {spent.per}"
    reason = f"{list(_CAUSES.values())[row['cause']]}, by {more} against the median of the others"
    if row["cause"] == 0:
        return (
            f"Rank {rank} is late because {reason}{_family_note(parts, rank)}. Balance the work between the "
            "ranks (batch, sequence lengths, layers, shards); with equal work compare the devices' clocks."
        )
    if row["cause"] == 1:
        return (
            f"Rank {rank} is late because {reason}: its host launches late. `idle_gaps` shows what its host "
            "did; possible causes: data loading, logging or checkpoints on one rank only, and CPU binding."
        )
    return f"Rank {rank} is late because {reason}: see `overlap` and `h2d_copies` for its copies."


def _family_note(parts: list[Part], rank: int) -> str:
    """Kernel family with the largest excess of time over the median of the other ranks."""
    kernels = pd.concat([one.kernels for one in parts if len(one.kernels)] or [parts[0].kernels])
    if kernels.empty:
        return ""
    sums = kernels.pivot_table(
        index="family", columns=C.RANK, values="sum_ns", aggfunc="sum", fill_value=0
    ).reindex(columns=_ranks(parts), fill_value=0)
    others = sums.drop(columns=rank).quantile(0.5, axis=1, interpolation="lower")
    excess = (sums[rank] - others).sort_values(ascending=False, kind="stable")
    name, more = str(excess.index[0]), int(excess.iloc[0])
    if more <= 0:
        return ""
    mine, theirs = int(sums[rank].loc[name]), int(others.loc[name])
    return f" (most in {name}: {duration(mine)} against {duration(theirs)})"


def _ranks(parts: list[Part]) -> list[int]:
    return [int(ints(one.devices, C.RANK)[0]) for one in parts]


def _imbalanced(table: pd.DataFrame, spent: Budget, ranks: int) -> dict[str, Any] | None:
    """Rank with the longest computation, if it exceeds the mean by the threshold."""
    busiest = table.groupby(C.RANK)["computation_ns"].max()
    values = busiest.to_numpy(np.int64)
    mean = int(values.sum()) // len(values)
    excess = int(values.max()) - mean
    if excess <= IMBALANCE * mean or not spent.matters(excess * ranks):
        return None
    return {
        C.RANK: int(busiest.index.to_numpy(np.int64)[values.argmax()]),
        "mean": mean,
        "excess": excess,
        "ranks": ranks,
    }


def _uneven(parts: list[Part], row: dict[str, Any], spent: Budget, *, communicates: bool) -> Finding:
    rank, excess = row[C.RANK], row["excess"] * row["ranks"]
    return Finding(
        code="rank_imbalance",
        severity=spent.severity(excess),
        title=(
            f"Kernels take {percent(row['excess'] / max(row['mean'], 1))} longer on rank {rank} than on the "
            f"mean of {row['ranks']} ranks: {duration(spent.per_step(excess))} {spent.per}"
        ),
        advice=(
            f"Rank {rank} has more work{_family_note(parts, rank)}: balance batch, sequence lengths, layers "
            "or shards between the ranks; with equal work compare the devices' clocks."
        ),
        saving_ns_per_step=spent.per_step(excess) if communicates else None,
        basis=Basis.ESTIMATED if communicates else None,
        how="longest computation minus the mean of the ranks, if the others wait for it"
        if communicates
        else "",
        confidence=UNEXPLAINED,
        evidence={"device_intervals": _longest(parts, rank)},
    )


def _longest(parts: list[Part], rank: int) -> list[int]:
    """Communication kernels of the rank during which the others wait for it."""
    rows = pd.concat([one.collectives for one in parts if len(one.collectives)] or [parts[0].collectives])
    mine = rows[rows[C.RANK] == rank].sort_values([C.DUR_NS, C.ROW_ID])
    return [int(row) for row in ints(mine.head(EVIDENCE_ROWS), C.ROW_ID)]
