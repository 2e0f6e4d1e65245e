"""Tables of `ranks`, combined from the measurements of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.savings import LEAST_SHARE, WARN_SHARE, Budget
from tracekit.runs.intervals import Ints
from tracekit.runs.text import format_ranks
from tracekit.schema import C

from ..shared.collectives import end_spreads, match_collectives
from ..shared.common import duration, ints, percent, share
from .hosts import SLACK_NS, slack
from .skew import EXCESS, skew, waits

if TYPE_CHECKING:
    from .skew import Part


_PLACE = [C.RANK, C.DEVICE]


def combine(parts: Sequence[Part]) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables of several ranks from those of each, and the families that could not be matched."""
    steps = _joined(parts, "steps")
    tables = {"per_rank": per_rank(_joined(parts, "devices"), steps)}
    if len(tables["per_rank"]) < 2:
        return tables, []
    if len(steps) and len(parts) > 1:
        tables["steps"] = by_step(steps)
    kernels = _joined(parts, "collectives")
    matched, unmatched = match_collectives(kernels)
    if matched:
        allowed = slack(matched, end_spreads(matched), kernels, marked=len(steps) > 0)
        tables["stragglers"] = stragglers(waits(matched, kernels, marked=len(steps) > 0), allowed)
        tables["skew"] = skew(matched)
    return tables, unmatched


def evidence(parts: Sequence[Part], places: Sequence[tuple[int, int]], *, marked: bool) -> pd.DataFrame:
    """Kernels in which one of these devices was last, sorted by the wait of the others, longest first."""
    kernels = _joined(parts, "collectives")
    rows = waits(match_collectives(kernels)[0], kernels, marked=marked)
    blamed = pd.MultiIndex.from_frame(rows[_PLACE]).isin(list(places))
    found: pd.DataFrame = rows.loc[blamed & rows["last"].to_numpy(bool)]
    return found.sort_values(["caused_ns", C.ROW_ID], ascending=[False, True])


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


def stragglers(rows: pd.DataFrame, allowed: pd.DataFrame) -> pd.DataFrame:
    """How often each device was last, the wait of the others, what it did longer before, and its slack."""
    counted = rows.assign(collectives=1, last=rows["last"].astype(np.int64))
    names = ["collectives", "last", "late_ns", "caused_ns", "gain_ns", "waited_ns", *EXCESS]
    table = counted.groupby(_PLACE, sort=True)[names].sum().reset_index()
    table = table.merge(allowed, on=_PLACE, how="left")
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
        SLACK_NS,
        *EXCESS,
    ]
    return table[order].sort_values(["caused_ns", *_PLACE], ascending=[False, True, True], ignore_index=True)


FEWEST_COLLECTIVES = 8
CAUSED_SHARE = 2 / 3
BLAMED = 4
"""At most one rank in this many can share the blame, and always one."""
START_SHARE = 1 / 3
"""Share of the first collectives whose waiting is a start-up effect, where no steps are marked."""
EXPLAINS = 0.5
NEARLY_ALL, FEW = 0.9, 1 / 3
"""Share of the wait in a share of the collectives that may indicate a single event, such as a start."""
_NAMED, _OTHERS = 3, ", and of others"
IMBALANCE = 0.05
EXPLAINED = 0.8
"""Confidence if what the rank did before the collectives explains the wait."""
UNEXPLAINED = 0.6
"""Confidence if the wait was measured without a known cause."""

RULES = (
    Rule(
        "straggler",
        "one rank, or several that are at most a quarter of all, causes two thirds of the wait time in at "
        f"least {FEWEST_COLLECTIVES} matched collectives; the others wait for it for at least "
        f"{WARN_SHARE:.0%} of a step; without a saving if most of it is in the first collective, or without "
        "marked steps nearly all in the first third; the saving is at most what the host of every other "
        "rank allows: the time from its launch of the last collective to the arrival of the last rank, and "
        "its waits for the device (synchronizations, and runtime calls of 50 µs or more) since its launch "
        "of the first; an unknown launch limits nothing; idle time in which the profiler held the late "
        "rank's host longer is not counted",
        "in a balanced job the last rank varies and waits are short; of two equal ranks each is last half "
        "of the time, but neither causes two thirds of the wait time; a rank whose host is nearly as late "
        "is the last once the straggler is not",
        bound=Bottleneck.STRAGGLERS,
    ),
    Rule(
        "rank_imbalance",
        f"the kernels of one rank, without communication, take over {IMBALANCE:.0%} longer than the mean of "
        f"the ranks, and that is at least {LEAST_SHARE:.0%} of a step; not reported if the rank is a "
        "straggler for that reason",
        f"ranks with equal work differ by less than {IMBALANCE:.0%} (clocks, memory); all ranks wait for "
        "the slowest",
        bound=Bottleneck.STRAGGLERS,
    ),
)
_CAUSES = dict(
    zip(EXCESS, ("it computes longer", "its device idles longer", "it copies longer"), strict=True)
)


def findings(parts: list[Part], tables: dict[str, pd.DataFrame], spent: Budget) -> tuple[Finding, ...]:
    """Findings on a straggler with its cause, and on the rank with the longest kernels."""
    late = _straggler(tables, spent, len(parts))
    found = [] if late is None else [_late(parts, late, spent)]
    uneven = _imbalanced(parts, spent) if len(parts) > 1 else None
    if uneven is not None and not (late and late["cause"] == 0 and late[C.RANK] == uneven[C.RANK]):
        communicates = any(len(one.collectives) for one in parts)
        found.append(_uneven(parts, uneven, spent, communicates=communicates))
    return tuple(found)


def _straggler(tables: dict[str, pd.DataFrame], spent: Budget, ranks: int) -> dict[str, Any] | None:
    """The row of the worst straggler, with all stragglers and the index of the cause in `_CAUSES`, or -1."""
    if "stragglers" not in tables or tables["stragglers"].empty:
        return None
    table = tables["stragglers"]  # sorted by the wait that each device causes
    caused = ints(table, "caused_ns")
    count = int(np.searchsorted(np.cumsum(caused), CAUSED_SHARE * caused.sum())) + 1
    row: dict[str, Any] = {str(name): value for name, value in table.iloc[0].items()}
    blamed = table[:count]
    total = int(caused[:count].sum()) * ranks
    few = count <= max(1, len(table) // BLAMED) and row["collectives"] >= FEWEST_COLLECTIVES
    if not (few and caused.any() and spent.matters(total, least=WARN_SHARE)):
        return None
    gain = int(ints(blamed, "gain_ns").sum())
    others = table[count:][[*_PLACE, SLACK_NS]].dropna().sort_values([SLACK_NS, *_PLACE])
    following = others[ints(others, SLACK_NS) < gain]
    explained = [row[name] >= EXPLAINS * row["caused_ns"] for name in _CAUSES]
    return {
        **row,
        "cause": int(np.argmax(explained)) if any(explained) else -1,
        "blamed": [(int(rank), int(device)) for rank, device in blamed[_PLACE].to_numpy().tolist()],
        "total_ns": total,
        "total_gain_ns": min([gain, *ints(following, SLACK_NS)]) * ranks,
        "following": [(int(rank), int(device)) for rank, device in following[_PLACE].to_numpy().tolist()],
        "share": float(caused[:count].sum() / caused.sum()),
    }


def _late(parts: list[Part], row: dict[str, Any], spent: Budget) -> Finding:
    gain, blamed = int(row["total_gain_ns"]), row["blamed"]
    every = evidence(parts, blamed, marked=spent.marked)
    ranks = sorted({rank for rank, _ in blamed})
    one = f"{_called(parts, row).capitalize()} causes"
    who = f"{format_ranks(ranks).capitalize()} cause" if len(ranks) > 1 else one
    found = Finding(
        code="straggler",
        severity=spent.severity(gain),
        title=(
            f"{who} {percent(row['share'])} of the waiting in {int(row['collectives']):,} collectives: the "
            f"others wait {duration(spent.per_step(row['total_ns']))} {spent.per}"
        ),
        advice=_late_advice(parts, row, spent, every),
        saving_ns_per_step=spent.per_step(gain),
        basis=Basis.ESTIMATED,
        how=(
            "for each collective in which it was last, the time it arrived after the next-to-last rank, "
            "at most the mean exposed wait of the others, without the profiler's overhead, and at most the "
            f"time by which the host of every other rank could launch earlier; {spent.per}"
        ),
        confidence=EXPLAINED if row["cause"] >= 0 else UNEXPLAINED,
        evidence={"device_intervals": [int(one) for one in every[C.ROW_ID].head(EVIDENCE_ROWS)]},
    )
    if spent.marked and _at_first(every):
        reason = "saving not estimated: most of the waiting is in the first collective"
    elif not spent.marked and _at_the_start(every, int(row["collectives"])):
        reason = "saving not estimated: nearly all of the waiting is at the start of the capture"
    else:
        return found
    return replace(found, severity=Severity.INFO, saving_ns_per_step=None, basis=None, how=reason)


def _at_the_start(last: pd.DataFrame, collectives: int) -> bool:
    """Whether nearly all of the waiting is in the first third of the collectives."""
    early = last.sort_values(C.START_NS).head(max(1, int(START_SHARE * collectives)))
    return bool(early["caused_ns"].sum() >= NEARLY_ALL * last["caused_ns"].sum())


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


def _at_first(last: pd.DataFrame) -> str:
    """Sentence if most of the wait is in the first of these collectives."""
    caused = int(last["caused_ns"].sum())
    part = int(last.sort_values(C.START_NS)["caused_ns"].iloc[0])
    if 2 * part <= caused:
        return ""
    return (
        f"{percent(part / caused)} of the wait is in the first collective in which it was last. Ranks whose "
        "captures begin at different times reach the first one apart: check more steps before changing "
        "anything"
    )


def _late_advice(parts: list[Part], row: dict[str, Any], spent: Budget, every: pd.DataFrame) -> str:
    first = _at_first(every)
    if row["cause"] < 0 and first:
        return f"{first}."
    when = _few(every) or (f" {first}." if first else "")
    return f"{_reason(parts, row, spent)}{when}{_next(parts, row, spent)}"


def _next(parts: list[Part], row: dict[str, Any], spent: Budget) -> str:
    """Sentences on the devices that would be the last without the straggler."""
    if not row["following"]:
        return ""
    many = len(parts) > 1
    names = [f"rank {rank}" if many else f"device {device}" for rank, device in row["following"][:_NAMED]]
    time = duration(spent.per_step(int(row["total_gain_ns"])))
    return (
        f" {names[0].capitalize()} would then be the last: its host launches so late that mending the "
        f"straggler{'s' * (len(row['blamed']) > 1)} alone saves at most {time} {spent.per}. Mend the hosts "
        f"of {' and '.join(names)} as well{_OTHERS if len(row['following']) > _NAMED else ''}."
    )


def _reason(parts: list[Part], row: dict[str, Any], spent: Budget) -> str:
    who = _called(parts, row)
    if row["cause"] < 0:
        return (
            f"Before these collectives neither the kernels nor the copies nor the idle time of {who} exceed "
            "those of the others by half of the wait: look in the timeline at what it did before the "
            "collectives with the longest waits."
        )
    excess = int(row[list(_CAUSES)[row["cause"]]])
    more = f"{duration(spent.per_step(excess * len(parts)))} {spent.per}"
    reason = f"{list(_CAUSES.values())[row['cause']]} before these collectives than the others, by {more}"
    if row["cause"] == 0:
        most = _family_note(parts, int(row[C.RANK])) if len(parts) > 1 else ""
        return (
            f"{who.capitalize()} is late because {reason}{most}. Balance the work between the "
            f"{who.split()[0]}s (batch, sequence lengths, layers, shards); with equal work compare the "
            "devices' clocks."
        )
    if row["cause"] == 1:
        return (
            f"{who.capitalize()} is late because {reason}: its host launches late. `idle_gaps` shows what "
            f"its host did; possible causes: data loading, logging or checkpoints on one {who.split()[0]} "
            "only, and CPU binding."
        )
    return f"{who.capitalize()} is late because {reason}: see `overlap` and `h2d_copies` for its copies."


def _called(parts: list[Part], row: dict[str, Any]) -> str:
    """Name of a device: its rank, or its index where one process has all devices."""
    return f"rank {int(row[C.RANK])}" if len(parts) > 1 else f"device {int(row[C.DEVICE])}"


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


def _imbalanced(parts: list[Part], spent: Budget) -> dict[str, Any] | None:
    """Rank with the longest computation that was launched in its steps, if it exceeds the mean."""
    ranks = len(parts)
    values = np.array([int(ints(one.kernels, "sum_ns").sum()) for one in parts], np.int64)
    mean = int(values.sum()) // len(values)
    excess = int(values.max()) - mean
    if excess <= IMBALANCE * mean or not spent.matters(excess * ranks):
        return None
    return {
        C.RANK: _ranks(parts)[int(values.argmax())],
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
