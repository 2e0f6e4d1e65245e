"""Findings on pipeline bubbles and on experts with unequal work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.schema import C

from ..shared.common import duration, ints, percent
from ..shared.lanes import SEND_RECV
from .calls import EXPOSED
from .experts import excess
from .groups import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.analysis.savings import Budget

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
    one, own = max(known, key=lambda pair: int(pair[1]["bubble_ns"].sum()))
    unequal = sum(_excess(rows) for _, rows in known)
    computed = own.groupby("stage")["computation_ns"].sum()
    ratio = float(computed.max() / max(1.0, float(computed.mean())))
    more = sum(int(rows["bubble_ns"].sum()) - _smaller(one, rows) for one, rows in known)
    saving, advice = (
        (unequal, _move_layers(one, computed, ratio)) if ratio >= UNEQUAL and unequal > 0 else (more, _split(one))
    )
    saving = min(saving, bubble)
    if not budget.matters(saving):
        return
    evidence = calls[(calls[C.KIND] == SEND_RECV) & calls[C.RANK].isin(rows[C.RANK])]
    yield Finding(
        code="pipeline_bubble",
        severity=budget.severity(saving),
        title=(
            f"Pipeline stages compute nothing {percent(bubble / window)} of their time; "
            f"{percent(one.ideal or 0.0)} is the least with {one.microbatches} microbatches and equal stages"
        ),
        advice=advice,
        saving_ns_per_step=budget.per_step(saving),
        basis=Basis.ESTIMATED,
        how=f"upper bound, at most the bubble, with work that only moves; {budget.per}",
        confidence=CONFIDENCE,
        evidence={"device_intervals": _longest(evidence, EXPOSED)},
    )


def _excess(rows: pd.DataFrame) -> int:
    """Time by which the slowest stage exceeds the mean, for all stages: each waits for it."""
    computed = rows.groupby("stage")["computation_ns"].sum()
    return int(computed.max()) * len(computed) - int(computed.sum())


def _smaller(one: Pipeline, rows: pd.DataFrame) -> int:
    """Bubble of the same work with twice as many microbatches."""
    assert one.microbatches is not None  # noqa: S101 (asked before)
    assert one.chunks is not None  # noqa: S101
    wait = len(one.ranks) - 1
    before, after = (wait / (times * one.microbatches * one.chunks + wait) for times in (1, 2))
    bubble, computed = int(rows["bubble_ns"].sum()), int(rows["computation_ns"].sum())
    least = int(computed * before / (1 - before))
    return max(0, bubble - min(bubble, least) + int(computed * after / (1 - after)))


def _move_layers(one: Pipeline, computed: pd.Series, ratio: float) -> str:
    stage = int(computed.index[int(computed.to_numpy().argmax())])
    return (
        f"Stage {stage} (rank {one.ranks[stage]}) computes {ratio:.2f} times the mean of the stages: move layers "
        "from it to the others (embedding and output layers count too)."
    )


def _split(one: Pipeline) -> str:
    assert one.microbatches is not None  # noqa: S101 (asked before)
    return (
        f"The stages are equal, so the bubble follows from {one.microbatches} microbatches in {len(one.ranks)} "
        f"stages: use more microbatches per step ({2 * one.microbatches} halve it if they stay efficient), or "
        "interleave more chunks of layers per stage."
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
    tokens = "" if pd.isna(most["tokens_ratio"]) else f" and receive {most['tokens_ratio']:.2f} times the tokens"
    yield Finding(
        code="expert_imbalance",
        severity=budget.severity(saving),
        title=(
            f"Experts of rank {most[C.RANK]} compute {most['expert_ratio']:.2f} times the mean of the ranks{tokens}"
        ),
        advice=(
            "The other ranks wait for them in the combine: balance the router (auxiliary loss, bias or capacity), "
            f"or move or replicate experts of rank {most[C.RANK]}; waiting in combines is {duration(waited)} on "
            "all ranks."
        ),
        saving_ns_per_step=budget.per_step(saving),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: time by which the slowest rank's experts exceed the mean in each pair of dispatch and "
            f"combine, at most the waiting in combines; {budget.per}"
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
        f"a complete pipeline with known microbatches computes nothing at least {BUBBLE_SHARE:.0%} of its stages' "
        "time, and equal stages or twice the microbatches save at least 1% of a step",
        "a smaller bubble is that of a usual schedule; a stage counts as slow from "
        f"{UNEQUAL:.2f} times the mean, else the number of microbatches is the cause",
    ),
    Rule(
        "expert_imbalance",
        f"the experts of a rank compute at least {EXPERT_RATIO:.1f} times the mean of their group, all of whose ranks "
        "are here, and the others wait for at least 1% of a step in combines",
        "a router keeps differences below that; without the traces of all ranks the mean is unknown",
    ),
)
