"""Find ranks that the others wait for, and ranks whose kernels take longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule
from tracekit.analysis.savings import MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs.text import format_ranks
from tracekit.schema import C

from ..shared.collectives import match_collectives
from ..shared.common import PLACE, duration, ints, percent
from .host_slack import MIN_WAIT_CALL_NS, SLACK_NS
from .skew import EXCESS, WAITING_ROW, RankPart, waits
from .tables import concat_parts

STRAGGLER = Rule(
    "straggler",
    bound=Bottleneck.STRAGGLERS,
    states="one rank, or several that are at most {max_blamed_share} of all, cause at least "
    "{min_caused_share} of the wait time in at least {min_collectives} matched collectives; the others wait "
    "for at least {min_wait_share} of a step; without a saving if over {max_first_share} of the waiting is "
    "in the first collective, or without marked steps at least {min_early_wait_share} in the first "
    "{max_early_share} of them; the saving is at most what the host of every other rank allows: the time "
    "from its launch of the last collective to the arrival of the last rank, and its waits for the "
    "device (synchronizations, and "
    f"runtime calls of at least {duration(MIN_WAIT_CALL_NS)}) since its launch of the first; an unknown "
    "launch limits nothing; idle time in which the profiler held the late rank's host longer is not "
    "counted",
    why="in a balanced job the last rank varies and waits are short: of two equal ranks neither causes "
    "{min_caused_share} of the wait time; a rank whose host is nearly as late is the last once the "
    "straggler is not",
    thresholds={
        "max_blamed_share": 1 / 4,
        "min_caused_share": 2 / 3,
        "min_collectives": 8,
        "min_wait_share": WARN_SHARE,
        "max_first_share": 1 / 2,
        "min_early_wait_share": 0.9,
        "max_early_share": 1 / 3,
    },
)
IMBALANCE = Rule(
    "rank_imbalance",
    bound=Bottleneck.STRAGGLERS,
    states="the kernels of one rank, without communication, take over {min_excess_share} longer than the "
    "mean of the ranks, and that is at least {min_saving_share} of a step; not reported if the rank is a "
    "straggler for that reason",
    why="ranks with equal work differ by less than {min_excess_share} (clocks, memory); all ranks wait for "
    "the slowest",
    thresholds={"min_excess_share": 0.05, "min_saving_share": MIN_SHARE},
)
RULES = (STRAGGLER, IMBALANCE)
MIN_CAUSE_SHARE = 0.5
"""Share of a straggler's waiting that its longest excess must explain to be named as the cause."""
NEARLY_ALL, MAX_FEW_SHARE = 0.9, 1 / 3
"""Share of the wait in a share of the collectives that may indicate a single event, such as a start."""
MAX_NAMED = 3
EXPLAINED = 0.8
"""Confidence if what the rank did before the collectives explains the wait."""
UNEXPLAINED = 0.6
"""Confidence if the wait was measured without a known cause."""
COMPUTES, IDLES, _COPIES = EXCESS
_REASONS = dict(
    zip(EXCESS, ("it computes longer", "its device idles longer", "it copies longer"), strict=True)
)


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The devices that cause most of the waiting."""

    row: pd.Series  # row of the worst of them in the table of stragglers
    blamed: list[tuple[int, int]]  # rank and device of each
    # rank and device of those that would be the last without them, soonest first
    following: list[tuple[int, int]]
    cause: str  # column of `EXCESS` that explains the waiting; empty if none does
    share: float  # share of the waiting that they cause
    wait_ns: int  # that waiting
    gain_ns: int  # saving if they arrived with the next to last, as far as the hosts of the others allow


def findings(parts: list[RankPart], tables: dict[str, pd.DataFrame], budget: Budget) -> tuple[Finding, ...]:
    """Return findings on a straggler with its cause, and on the rank with the longest kernels."""
    straggler = _find_straggler(tables.get("stragglers"), budget, len(parts))
    results = [] if straggler is None else [_report_straggler(parts, straggler, budget)]
    imbalance = _report_imbalance(parts, straggler, budget) if len(parts) > 1 else None
    return (*results, *([imbalance] if imbalance else []))


def _find_straggler(table: pd.DataFrame | None, budget: Budget, ranks: int) -> Straggler | None:
    """The devices that cause most of the waiting; None if the waiting is spread or short."""
    if table is None or table.empty:
        return None
    caused = ints(table, "caused_ns")
    count = int(np.searchsorted(np.cumsum(caused), STRAGGLER["min_caused_share"] * caused.sum())) + 1
    row, blamed = table.iloc[0], table[:count]
    wait = int(caused[:count].sum()) * ranks
    is_few = count <= max(1, int(len(table) * STRAGGLER["max_blamed_share"]))
    if not (is_few and row["collectives"] >= STRAGGLER["min_collectives"] and caused.any()):
        return None
    if not budget.matters(wait, least=STRAGGLER["min_wait_share"]):
        return None
    gain = int(ints(blamed, "gain_ns").sum())
    others = table[count:][[*PLACE, SLACK_NS]].dropna().sort_values([SLACK_NS, *PLACE])
    following = others[ints(others, SLACK_NS) < gain]
    causes = [name for name in EXCESS if row[name] >= MIN_CAUSE_SHARE * row["caused_ns"]]
    return Straggler(
        row=row,
        blamed=_places(blamed),
        following=_places(following),
        cause=causes[0] if causes else "",
        share=float(caused[:count].sum() / caused.sum()),
        wait_ns=wait,
        gain_ns=min([gain, *ints(following, SLACK_NS)]) * ranks,
    )


def _places(rows: pd.DataFrame) -> list[tuple[int, int]]:
    return [(int(rank), int(device)) for rank, device in rows[PLACE].to_numpy().tolist()]


def _report_straggler(parts: list[RankPart], straggler: Straggler, budget: Budget) -> Finding:
    late = _late_kernels(parts, straggler.blamed, marked=budget.marked)
    ranks = sorted({rank for rank, _ in straggler.blamed})
    name = _name(parts, straggler.row).capitalize()
    subject = f"{format_ranks(ranks).capitalize()} cause" if len(ranks) > 1 else f"{name} causes"
    collectives = int(straggler.row["collectives"])
    finding = budget.finding(
        STRAGGLER,
        straggler.gain_ns,
        f"{subject} {percent(straggler.share)} of the waiting in {collectives:,} collectives: the others "
        f"wait {duration(budget.per_step(straggler.wait_ns))} {budget.per}",
        _advise(parts, straggler, budget, late),
        "for each collective in which it was last, the time it arrived after the next-to-last rank, "
        "at most the mean exposed wait of the others, without the profiler's overhead, and at most the "
        f"time by which the host of every other rank could launch earlier; {budget.per}",
        confidence=EXPLAINED if straggler.cause else UNEXPLAINED,
        evidence={"device_intervals": _list_evidence(late)},
    )
    if budget.marked and _describe_first(late):
        reason = "saving not estimated: most of the waiting is in the first collective"
    elif not budget.marked and _is_early(late, collectives):
        reason = "saving not estimated: nearly all of the waiting is at the start of the capture"
    else:
        return finding
    return finding.without_saving(reason)


def _late_kernels(
    parts: Sequence[RankPart], places: Sequence[tuple[int, int]], *, marked: bool
) -> pd.DataFrame:
    """The kernels in which one of these places was last, in steps if marked, by the wait of the others."""
    kernels = concat_parts(parts, "collectives")
    rows = waits(match_collectives(kernels)[0], kernels, marked=marked)
    is_blamed = pd.MultiIndex.from_frame(rows[PLACE]).isin(list(places))
    late: pd.DataFrame = rows.loc[is_blamed & rows["last"].to_numpy(bool)]
    return late.sort_values(["caused_ns", C.ROW_ID], ascending=[False, True])


def _list_evidence(late: pd.DataFrame) -> list[int]:
    """Rows of the kernel that waited longest, which shows the wait, and of the late kernels."""
    return [*ints(late, WAITING_ROW)[:1].tolist(), *ints(late, C.ROW_ID)[: EVIDENCE_ROWS - 1].tolist()]


def _is_early(late: pd.DataFrame, collectives: int) -> bool:
    """Whether nearly all of the waiting is in the first of all collectives, as after a start."""
    first = late.sort_values(C.START_NS).head(max(1, int(STRAGGLER["max_early_share"] * collectives)))
    return bool(first["caused_ns"].sum() >= STRAGGLER["min_early_wait_share"] * late["caused_ns"].sum())


def _describe_few(late: pd.DataFrame) -> str:
    """Sentence for a few collectives that cause nearly all of the wait."""
    caused = np.cumsum(ints(late, "caused_ns"))
    count = int(np.searchsorted(caused, NEARLY_ALL * caused[-1])) + 1
    if count > MAX_FEW_SHARE * len(caused):
        return ""
    which = "One" if count == 1 else f"{count:,}"
    return (
        f" {which} of the {len(caused):,} collectives in which it was last cause{'s' * (count == 1)} "
        f"{percent(int(caused[count - 1]) / int(caused[-1]))} of the wait: check whether that recurs."
    )


def _describe_first(late: pd.DataFrame) -> str:
    """Sentence if most of the wait is in the first of these collectives."""
    total = int(late["caused_ns"].sum())
    first = int(late.sort_values(C.START_NS)["caused_ns"].iloc[0])
    if first <= STRAGGLER["max_first_share"] * total:
        return ""
    return (
        f"{percent(first / total)} of the wait is in the first collective in which it was last. Ranks whose "
        "captures begin at different times reach the first one apart: check more steps before changing "
        "anything"
    )


def _advise(parts: list[RankPart], straggler: Straggler, budget: Budget, late: pd.DataFrame) -> str:
    first = _describe_first(late)
    if first and not straggler.cause:
        return f"{first}."
    when = _describe_few(late) or (f" {first}." if first else "")
    return f"{_explain(parts, straggler, budget)}{when}{_describe_following(parts, straggler, budget)}"


def _describe_following(parts: list[RankPart], straggler: Straggler, budget: Budget) -> str:
    """Sentences on the devices that would be the last without the straggler."""
    if not straggler.following:
        return ""
    what = "rank" if len(parts) > 1 else "device"
    places = [rank if len(parts) > 1 else device for rank, device in straggler.following[:MAX_NAMED]]
    several = "s" * (len(places) > 1)
    others = ", and of others" if len(straggler.following) > MAX_NAMED else ""
    return (
        f" {what.capitalize()} {places[0]} would then be the last: its host launches so late that fixing the "
        f"straggler{'s' * (len(straggler.blamed) > 1)} alone saves at most "
        f"{duration(budget.per_step(straggler.gain_ns))} {budget.per}. Fix the host{several} "
        f"of {what}{several} {' and '.join(map(str, places))} too{others}."
    )


def _explain(parts: list[RankPart], straggler: Straggler, budget: Budget) -> str:
    """Sentences on the cause, and what to do about it."""
    name = _name(parts, straggler.row)
    if not straggler.cause:
        return (
            f"Before these collectives neither the kernels nor the copies nor the idle time of {name} exceed "
            "those of the others by half of the wait: look in the timeline at what it did before the "
            "collectives with the longest waits."
        )
    excess = duration(budget.per_step(int(straggler.row[straggler.cause]) * len(parts)))
    reason = (
        f"{name.capitalize()} is late because {_REASONS[straggler.cause]} before these collectives than the "
        f"others, by {excess} {budget.per}"
    )
    kind = name.split()[0]
    if straggler.cause == COMPUTES:
        family = _describe_family(parts, int(straggler.row[C.RANK])) if len(parts) > 1 else ""
        return (
            f"{reason}{family}. Balance the work between the {kind}s (batch, sequence lengths, layers, "
            "shards); with equal work compare the devices' clocks."
        )
    if straggler.cause == IDLES:
        return (
            f"{reason}: its host launches late. `idle_gaps` shows what its host did; possible causes: data "
            f"loading, logging or checkpoints on one {kind} only, and CPU binding."
        )
    return f"{reason}: see `overlap` and `h2d_copies` for its copies."


def _name(parts: list[RankPart], row: pd.Series) -> str:
    """Name of a device: its rank, or its index where one process has all devices."""
    return f"rank {int(row[C.RANK])}" if len(parts) > 1 else f"device {int(row[C.DEVICE])}"


def _describe_family(parts: list[RankPart], rank: int) -> str:
    """Kernel family with the largest excess of time over the median of the other ranks."""
    kernels = concat_parts(parts, "kernels")
    if kernels.empty:
        return ""
    sums = kernels.pivot_table(
        index="family", columns=C.RANK, values="sum_ns", aggfunc="sum", fill_value=0
    ).reindex(columns=_ranks(parts), fill_value=0)
    others = sums.drop(columns=rank).quantile(0.5, axis=1, interpolation="lower")
    excess = (sums[rank] - others).sort_values(ascending=False, kind="stable")
    family = str(excess.index[0])
    if excess.iloc[0] <= 0:
        return ""
    mine, theirs = int(sums[rank].loc[family]), int(others.loc[family])
    return f" (most in {family}: {duration(mine)} against {duration(theirs)})"


def _ranks(parts: list[RankPart]) -> list[int]:
    return [int(ints(part.devices, C.RANK)[0]) for part in parts]


def _report_imbalance(parts: list[RankPart], straggler: Straggler | None, budget: Budget) -> Finding | None:
    """Return the finding on the rank with the longest kernels; None if it is a straggler for that reason."""
    values = np.array([int(ints(part.kernels, "sum_ns").sum()) for part in parts], np.int64)
    mean = int(values.sum()) // len(values)
    above, rank = int(values.max()) - mean, _ranks(parts)[int(values.argmax())]
    excess = above * len(parts)
    matters = budget.matters(excess, least=IMBALANCE["min_saving_share"])
    if above <= IMBALANCE["min_excess_share"] * mean or not matters:
        return None
    if straggler and straggler.cause == COMPUTES and int(straggler.row[C.RANK]) == rank:
        return None
    kernels = concat_parts(parts, "collectives")
    # the others wait for the slowest rank in its shortest communication kernels
    shortest = kernels[kernels[C.RANK] == rank].sort_values([C.DUR_NS, C.ROW_ID]).head(EVIDENCE_ROWS)
    finding = budget.finding(
        IMBALANCE,
        excess,
        f"Kernels take {percent(above / max(mean, 1))} longer on rank {rank} "
        f"than on the mean of {len(parts)} ranks: {duration(budget.per_step(excess))} {budget.per}",
        f"Rank {rank} has more work{_describe_family(parts, rank)}: balance batch, sequence lengths, "
        "layers or shards between the ranks; with equal work compare the devices' clocks.",
        "longest computation minus the mean of the ranks, if the others wait for it",
        confidence=UNEXPLAINED,
        evidence={"device_intervals": ints(shortest, C.ROW_ID).tolist()},
    )
    return finding if len(kernels) else replace(finding, saving_ns_per_step=None, basis=None, how="")
