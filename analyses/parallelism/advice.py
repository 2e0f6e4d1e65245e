"""Findings on pipeline bubbles and on experts with unequal work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule
from tracekit.analysis.savings import LEAST_SHARE, Budget
from tracekit.schema import C

from ..shared.collective_kinds import SEND_RECV
from ..shared.common import duration, ints, percent
from .calls import EXPOSED
from .experts import excess
from .groups import KEY

if TYPE_CHECKING:
    from .pipeline import Pipeline

BUBBLE_SHARE = 0.10
"""Share of the pipeline windows from which a bubble is worth a finding."""
UNEQUAL = 1.10
"""Computation of the slowest stage over the mean from which the stages count as unequal."""
EXPERT_RATIO = 1.20
"""Computation of a rank's experts over the mean from which they count as unequal."""
CONFIDENCE = 0.7


def findings(
    tables: Mapping[str, pd.DataFrame],
    timed: Sequence[tuple[Pipeline, pd.DataFrame]],
    pairs: pd.DataFrame,
    calls: pd.DataFrame,
    budget: Budget,
) -> tuple[Finding, ...]:
    """Findings on pipelines and experts.

    Args:
        tables: Tables of the analysis.
        timed: Pipelines, each with its times by stage and step.
        pairs: Pairs of dispatch and combine.
        calls: Communication kernels of all ranks.
        budget: Time of the run's steps.
    """
    return (*_bubbles(timed, calls, budget), *_imbalance(tables["experts"], pairs, budget))


def _bubbles(
    timed: Sequence[tuple[Pipeline, pd.DataFrame]], calls: pd.DataFrame, budget: Budget
) -> Iterator[Finding]:
    """One finding on all pipelines: their bubbles are alike, since their schedules are."""
    known = [(one, rows) for one, rows in timed if len(rows) and one.ideal is not None]
    if not known:
        return
    rows = pd.concat([rows for _, rows in known])
    window, bubble = int(rows["window_ns"].sum()), int(rows["bubble_ns"].sum())
    if not window or bubble / window < BUBBLE_SHARE:
        return
    one, worst = max(known, key=lambda pair: int(pair[1]["bubble_ns"].sum()))
    least, halved = (sum(_least(pipe, own, times) for pipe, own in known) for times in (1, 2))
    saving = min(bubble, least) - halved
    if not budget.matters(saving):
        return
    evidence = calls[(calls[C.KIND] == SEND_RECV) & calls[C.RANK].isin(rows[C.RANK])]
    yield Finding(
        code="pipeline_bubble",
        severity=budget.severity(saving),
        title=(
            f"Pipeline stages compute nothing {percent(bubble / window)} of their time; equal stages with "
            f"{one.microbatches} microbatches have {percent(one.ideal or 0.0)}"
        ),
        advice=_split(one) + _unequal(one, worst) + _rest(rows, bubble - least),
        saving_ns_per_step=budget.per_step(saving),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: the part of the bubble of equal stages that twice the microbatches save, if these "
            f"are as efficient; {budget.per}"
        ),
        confidence=CONFIDENCE,
        evidence={"device_intervals": _longest(evidence, EXPOSED)},
    )


def _least(one: Pipeline, rows: pd.DataFrame, times: int) -> int:
    """Bubble of equal stages with this computation, and the microbatches split into as many as `times`."""
    chunks = times * (one.microbatches or 1) * (one.chunks or 1)
    return int(rows["computation_ns"].sum()) * (len(one.ranks) - 1) // chunks


def _split(one: Pipeline) -> str:
    assert one.microbatches is not None  # noqa: S101 (asked before)
    return (
        f"{one.microbatches} microbatches keep {len(one.ranks)} stages waiting: use more per step "
        f"({2 * one.microbatches} nearly halve the bubble if they are as efficient), or interleave more "
        "chunks of layers per stage."
    )


def _unequal(one: Pipeline, rows: pd.DataFrame) -> str:
    """The slowest stage, if stages are unequal: `ranks` gives the saving."""
    computed = rows.groupby("stage")["computation_ns"].sum()
    stage = int(computed.index[int(computed.to_numpy().argmax())])
    ratio = float(computed.max() / max(1.0, float(computed.mean())))
    if ratio < UNEQUAL:
        return ""
    return (
        f" Besides, stage {stage} (rank {one.ranks[stage]}) computes {ratio:.2f} times the mean of the "
        "stages: move layers from it (see `ranks`)."
    )


def _rest(rows: pd.DataFrame, beyond: int) -> str:
    """What else the stages do, where their bubble is far above the least."""
    talk, idle = (int(rows[name].sum()) for name in ("other_communication_ns", "idle_ns"))
    if 4 * beyond < int(rows["bubble_ns"].sum()) or talk + idle < beyond // 2:
        return ""
    return (
        f" Other communication ({duration(talk)} on all stages, see `overlap`) and idle time "
        f"({duration(idle)}, see `idle_gaps`) add to it."
    )


def _imbalance(table: pd.DataFrame, pairs: pd.DataFrame, budget: Budget) -> Iterator[Finding]:
    """One finding on the group with most excess time."""
    if table.empty:
        return
    complete = set(table.loc[table["complete"], KEY])
    found = [
        (excess(own) * own[C.RANK].nunique(), str(key), own)
        for key, own in pairs.groupby(KEY, sort=True)
        if key in complete and own[C.RANK].nunique() > 1
    ]
    saving, key, own = max(found, key=lambda one: one[0], default=(0, "", pairs))
    first = table[table[KEY] == key]
    if first.empty:
        return
    most = first.iloc[0]
    waited = _waited(own)
    saving = min(saving, waited)
    if pd.isna(most["expert_ratio"]) or most["expert_ratio"] < EXPERT_RATIO or not budget.matters(saving):
        return
    tokens = (
        "" if pd.isna(most["tokens_ratio"]) else f" and receive {most['tokens_ratio']:.2f} times the tokens"
    )
    yield Finding(
        code="expert_imbalance",
        severity=budget.severity(saving),
        title=(
            f"Experts of rank {most[C.RANK]} compute {most['expert_ratio']:.2f} times the mean of the "
            f"ranks{tokens}"
        ),
        advice=(
            "The other ranks wait for them in the combine: balance the router (auxiliary loss, bias or "
            f"capacity), or move or replicate experts of rank {most[C.RANK]}; waiting in combines is "
            f"{duration(waited)} on all ranks."
        ),
        saving_ns_per_step=budget.per_step(saving),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: time by which the slowest rank's experts exceed the mean in each pair of dispatch "
            f"and combine, at most the waiting in combines; {budget.per}"
        ),
        confidence=CONFIDENCE,
        evidence={"device_intervals": _longest(own[own[C.RANK] == most[C.RANK]], "expert_ns")},
    )


def _waited(pairs: pd.DataFrame) -> int:
    """Waiting in combines: their time above the shortest of all ranks."""
    grouped = pairs.groupby("number")["combine_ns"]
    complete = (grouped.transform("size") == pairs[C.RANK].nunique()).to_numpy(bool)
    return int((pairs["combine_ns"] - grouped.transform("min"))[complete].sum())


def _longest(rows: pd.DataFrame, by: str) -> list[int]:
    chosen = rows.sort_values([by, C.ROW_ID], ascending=[False, True]).head(EVIDENCE_ROWS)
    return [int(row) for row in ints(chosen, C.ROW_ID)]


RULES = (
    Rule(
        "pipeline_bubble",
        f"a complete pipeline with known microbatches computes nothing at least {BUBBLE_SHARE:.0%} of its "
        f"stages' time, and twice the microbatches save at least {LEAST_SHARE:.0%} of a step",
        "a smaller bubble is that of a usual schedule; what unequal stages cost beyond it is not in the "
        "saving, since `rank_imbalance` of `ranks` gives it",
        bound=Bottleneck.COMMUNICATION,
    ),
    Rule(
        "expert_imbalance",
        f"the experts of a rank compute at least {EXPERT_RATIO:.1f} times the mean of their group, all of "
        f"whose ranks are here, and the others wait for at least {LEAST_SHARE:.0%} of a step in combines",
        "a router keeps differences below that; without the traces of all ranks the mean is unknown",
        bound=Bottleneck.COMMUNICATION,
    ),
)
