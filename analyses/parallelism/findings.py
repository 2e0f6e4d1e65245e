"""Find pipeline bubbles, and experts with unequal work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from tracekit.analysis import Bottleneck, Finding, Rule
from tracekit.analysis.savings import MIN_SHARE, Budget
from tracekit.schema import C

from ..shared.collective_kinds import SEND_RECV
from ..shared.common import duration, largest_rows, percent
from .calls import EXPOSED
from .experts import sum_excess
from .pipeline import Pipeline
from .process_groups import KEY

BUBBLE = Rule(
    "pipeline_bubble",
    bound=Bottleneck.COMMUNICATION,
    states="a complete pipeline with known microbatches computes nothing at least {min_bubble_share} of its "
    "stages' time, and more microbatches ({max_microbatch_factor} times as many) save at least "
    "{min_saving_share} of a step",
    why="a smaller bubble is that of a usual schedule; what unequal stages cost beyond it is not in the "
    "saving, since `rank_imbalance` of `ranks` gives it",
    thresholds={"min_bubble_share": 0.10, "max_microbatch_factor": 2, "min_saving_share": MIN_SHARE},
)
EXPERTS = Rule(
    "expert_imbalance",
    bound=Bottleneck.STRAGGLERS,
    states="the experts of a rank compute at least {min_ratio} times the mean of their group, all of whose "
    "ranks are here, and the others wait for at least {min_wait_share} of a step in combines",
    why="a router keeps differences below that; without the traces of all ranks the mean is unknown",
    thresholds={"min_ratio": 1.2, "min_wait_share": MIN_SHARE},
)
RULES = (BUBBLE, EXPERTS)
MIN_UNEQUAL_RATIO = 1.10
"""Computation of the slowest stage over the mean from which the stages count as unequal."""
CONFIDENCE = 0.7


def findings(
    experts: pd.DataFrame,
    timed: Sequence[tuple[Pipeline, pd.DataFrame]],
    pairs: pd.DataFrame,
    calls: pd.DataFrame,
    budget: Budget,
) -> tuple[Finding, ...]:
    """Return findings on pipelines and experts."""
    return (*_report_bubbles(timed, calls, budget), *_report_experts(experts, pairs, budget))


def _report_bubbles(
    timed: Sequence[tuple[Pipeline, pd.DataFrame]], calls: pd.DataFrame, budget: Budget
) -> Iterator[Finding]:
    """One finding on all pipelines: their bubbles are alike, since their schedules are."""
    pipelines = [(pipeline, rows) for pipeline, rows in timed if len(rows) and pipeline.ideal is not None]
    if not pipelines:
        return
    rows = pd.concat([rows for _, rows in pipelines])
    window, bubble = int(rows["window_ns"].sum()), int(rows["bubble_ns"].sum())
    if not window or bubble / window < BUBBLE["min_bubble_share"]:
        return
    worst, worst_rows = max(pipelines, key=lambda pair: int(pair[1]["bubble_ns"].sum()))
    equal, smaller = (
        sum(_equal_bubble(pipeline, own_rows, factor) for pipeline, own_rows in pipelines)
        for factor in (1, BUBBLE["max_microbatch_factor"])
    )
    saving = min(bubble, equal) - smaller
    if not budget.matters(saving, least=BUBBLE["min_saving_share"]):
        return
    messages = calls[(calls[C.KIND] == SEND_RECV) & calls[C.RANK].isin(rows[C.RANK])]
    yield budget.finding(
        BUBBLE,
        saving,
        f"Pipeline stages compute nothing {percent(bubble / window)} of their time; equal stages with "
        f"{worst.microbatches} microbatches have {percent(worst.ideal or 0.0)}",
        _advise(worst) + _describe_unequal(worst, worst_rows) + _describe_rest(rows, bubble - equal),
        "upper bound: the part of the bubble of equal stages that twice the microbatches save, if these "
        f"are as efficient; {budget.per}",
        confidence=CONFIDENCE,
        evidence={"device_intervals": largest_rows(messages, EXPOSED)},
    )


def _equal_bubble(pipeline: Pipeline, rows: pd.DataFrame, factor: float) -> int:
    """Bubble of equal stages: each waits for the chunk of one microbatch at each of the other stages."""
    chunks = int(factor * (pipeline.microbatches or 1) * (pipeline.chunks or 1))
    return int(rows["computation_ns"].sum()) * (len(pipeline.ranks) - 1) // chunks


def _advise(pipeline: Pipeline) -> str:
    microbatches = pipeline.microbatches or 1
    return (
        f"{microbatches} microbatches keep {len(pipeline.ranks)} stages waiting: use more per step "
        f"({2 * microbatches} nearly halve the bubble if they are as efficient), or interleave more "
        "chunks of layers per stage."
    )


def _describe_unequal(pipeline: Pipeline, rows: pd.DataFrame) -> str:
    """The slowest stage, if stages are unequal: `ranks` gives the saving."""
    computation = rows.groupby("stage")["computation_ns"].sum()
    stage = int(computation.index[int(computation.to_numpy().argmax())])
    ratio = float(computation.max() / max(1.0, float(computation.mean())))
    if ratio < MIN_UNEQUAL_RATIO:
        return ""
    return (
        f" Besides, stage {stage} (rank {pipeline.ranks[stage]}) computes {ratio:.2f} times the mean of the "
        "stages: move layers from it (see `ranks`)."
    )


def _describe_rest(rows: pd.DataFrame, excess_ns: int) -> str:
    """What else the stages do, where their bubble is far above that of equal stages."""
    communication, idle = (int(rows[name].sum()) for name in ("other_communication_ns", "idle_ns"))
    if 4 * excess_ns < int(rows["bubble_ns"].sum()) or communication + idle < excess_ns // 2:
        return ""
    return (
        f" Other communication ({duration(communication)} on all stages, see `overlap`) and idle time "
        f"({duration(idle)}, see `idle_gaps`) add to it."
    )


def _report_experts(table: pd.DataFrame, pairs: pd.DataFrame, budget: Budget) -> Iterator[Finding]:
    """One finding on the group with most excess time."""
    if table.empty:
        return
    complete = set(table.loc[table["complete"], KEY])
    groups = [
        (sum_excess(rows) * rows[C.RANK].nunique(), str(key), rows)
        for key, rows in pairs.groupby(KEY, sort=True)
        if key in complete and rows[C.RANK].nunique() > 1
    ]
    saving, key, rows = max(groups, key=lambda group: group[0], default=(0, "", pairs))
    ranks = table[table[KEY] == key]
    if ranks.empty:
        return
    busiest = ranks.iloc[0]
    rank, ratio, wait = busiest[C.RANK], busiest["expert_ratio"], _sum_waits(rows)
    saving = min(saving, wait)
    if pd.isna(ratio) or ratio < EXPERTS["min_ratio"]:
        return
    if not budget.matters(saving, least=EXPERTS["min_wait_share"]):
        return
    tokens_ratio = busiest["tokens_ratio"]
    tokens = "" if pd.isna(tokens_ratio) else f" and receive {tokens_ratio:.2f} times the tokens"
    yield budget.finding(
        EXPERTS,
        saving,
        f"Experts of rank {rank} compute {ratio:.2f} times the mean of the ranks{tokens}",
        "The other ranks wait for them in the combine: balance the router (auxiliary loss, bias or "
        f"capacity), or move or replicate experts of rank {rank}; waiting in combines is "
        f"{duration(wait)} on all ranks.",
        "upper bound: time by which the slowest rank's experts exceed the mean in each pair of dispatch "
        f"and combine, at most the waiting in combines; {budget.per}",
        confidence=CONFIDENCE,
        evidence={"device_intervals": largest_rows(rows[rows[C.RANK] == rank], "expert_ns")},
    )


def _sum_waits(pairs: pd.DataFrame) -> int:
    """Waiting in combines: their time above the shortest of all ranks."""
    grouped = pairs.groupby("number")["combine_ns"]
    complete = (grouped.transform("size") == pairs[C.RANK].nunique()).to_numpy(bool)
    return int((pairs["combine_ns"] - grouped.transform("min"))[complete].sum())
