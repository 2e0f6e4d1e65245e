"""Pipelines: stages, microbatches, and the share of time in which stages compute nothing.

Computation launched in the optimizer step, in `zero_grad` or in data loading does not count. The ideal share
of p equal stages, m microbatches and v chunks of layers on each stage is (p − 1)/(m·v + p − 1), as in GPipe
and 1F1B (v = 1) and interleaved 1F1B.

Sources: Huang et al., GPipe, 2019; Narayanan et al., Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM, 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, Phase

from ..shared.collective_kinds import SEND_RECV
from ..shared.common import ints, share, spans
from ..shared.host_rows import host_rows
from ..shared.intervals_by_class import is_communication
from .calls import RECEIVE, SEND, parse_members
from .process_groups import KEY, PIPELINE, Role

NO_STEP = -1
CLOCK_NS = 200_000
"""Difference of the ends of matched sends and receives from which clocks are corrected."""
INCOMPLETE = (
    "the pipeline of ranks {ranks} has {count} stages, of which {here} are in this run: its bubble is "
    "unknown; import the traces of all ranks together"
)
_STAGE = ("computation_ns", "bubble_ns", "outside_ns", "send_recv_ns", "other_communication_ns", "idle_ns")


@dataclass(frozen=True)
class Pipeline:
    """One pipeline."""

    ranks: tuple[int, ...]  # rank of each stage, in order
    microbatches: int | None  # number of microbatches per step, None if unknown
    chunks: int | None  # chunks of layers on each stage, None if unknown
    schedule: str  # `interleaved 1F1B`, `1F1B` or `GPipe`; empty if unknown
    evidence: str  # how these are known

    @property
    def ideal(self) -> float | None:
        """Share of the bubble with equal stages; None if unknown."""
        if self.microbatches is None or self.chunks is None:
            return None
        wait = len(self.ranks) - 1
        return wait / (self.microbatches * self.chunks + wait)


def measure_stages(run: Run, rows: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """What each rank with sends and receives computes in each step.

    Returns:
        Rank, step (-1 if none are marked), start and end of its computation, when the host began the first
        backward op that launched some of it (-1 for none), the time it computes, and its time with only sends
        and receives, only other communication and nothing in between.
    """
    messages = calls[calls[C.KIND] == SEND_RECV]
    kernel = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    kernels = rows[kernel & rows[C.RANK].isin(messages[C.RANK].unique()).to_numpy(bool)]
    if messages.empty:
        return pd.DataFrame()
    host = host_rows(run, kernels[C.OP_ROW], [C.PHASE, C.START_NS])
    phase = host[C.PHASE].astype(object).fillna("")
    frame = kernels.assign(
        talks=is_communication(kernels),
        sends=kernels[C.ROW_ID].isin(messages[C.ROW_ID]),
        inside=~phase.isin({str(Phase.OPTIMIZER), str(Phase.ZERO_GRAD), str(Phase.DATALOAD)}),
        backward_ns=host[C.START_NS].where(phase == str(Phase.BACKWARD)),
    )
    marked = frame[C.STEP].notna().any()
    frame = frame[frame[C.STEP].notna()] if marked else frame.assign(**{C.STEP: NO_STEP})
    grouped = frame.groupby([C.RANK, C.STEP], sort=True)
    return pd.DataFrame([row for key, rows_of_step in grouped if (row := _stage_step(key, rows_of_step))])


def _stage_step(key: tuple[Any, ...], rows: pd.DataFrame) -> dict[str, int] | None:
    computing = rows[rows["inside"] & ~rows["talks"]]
    if computing.empty:
        return None
    start, end = int(ints(computing, C.START_NS).min()), int(spans(computing)[1].max())
    busy = intervals.union(*spans(computing))
    other = intervals.union(*spans(rows[~rows["talks"]]))
    sends = intervals.subtract(intervals.union(*spans(rows[rows["sends"]])), other)
    communication = intervals.subtract(intervals.union(*spans(rows[rows["talks"]])), other)
    inside = {
        name: intervals.length(intervals.clip(union, start, end))
        for name, union in (("send_recv_ns", sends), ("talk_ns", communication))
    }
    computation = intervals.length(busy)
    backward = rows["backward_ns"].min()
    return {
        C.RANK: int(key[0]),
        C.STEP: int(key[1]),
        C.START_NS: start,
        "end_ns": end,
        "backward_ns": -1 if pd.isna(backward) else int(backward),
        "computation_ns": computation,
        "send_recv_ns": inside["send_recv_ns"],
        "other_communication_ns": inside["talk_ns"] - inside["send_recv_ns"],
        "idle_ns": end - start - computation - inside["talk_ns"],
    }


def find_pipelines(
    sent: pd.DataFrame, roles: dict[str, Role], steps: pd.DataFrame
) -> tuple[list[Pipeline], list[str]]:
    """The complete pipelines of a run, and notes on incomplete ones."""
    complete, notes = [], []
    here = set(steps[C.RANK]) if len(steps) else set()
    messages = sent[sent[KEY].isin([key for key, role in roles.items() if PIPELINE in role.kinds])]
    for ranks, rows in _connect(messages):
        if missing := set(ranks) - here:
            count = len(ranks) - len(missing)
            notes.append(INCOMPLETE.format(ranks=", ".join(map(str, ranks)), count=len(ranks), here=count))
        else:
            complete.append(_describe(ranks, rows, steps))
    return complete, notes


def _connect(sent: pd.DataFrame) -> list[tuple[tuple[int, ...], pd.DataFrame]]:
    """Ranks that send to each other, directly or through others, with their messages."""
    root: dict[int, int] = {}

    def find(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            rank = root[rank]
        return rank

    peers = sent[C.DST_RANK].fillna(sent[C.SRC_RANK])
    pairs = pd.DataFrame({"rank": sent[C.RANK], "peer": peers}).dropna().drop_duplicates()
    for rank, peer in pairs.astype(int).itertuples(index=False, name=None):
        low, high = sorted((find(rank), find(peer)))
        root[high] = low
    connected: dict[int, list[int]] = {}
    for rank in sorted(root):
        connected.setdefault(find(rank), []).append(rank)
    return [(tuple(ranks), sent[sent[C.RANK].isin(ranks)]) for ranks in connected.values() if len(ranks) > 1]


def _describe(ranks: tuple[int, ...], sent: pd.DataFrame, steps: pd.DataFrame) -> Pipeline:
    """Count the microbatches and chunks of a pipeline by its messages."""
    ranks = _order(ranks, sent)
    own_steps = steps.loc[steps[C.RANK] == ranks[0], C.STEP]
    counted = max(1, own_steps.nunique())
    if (own_steps != NO_STEP).all():  # a capture may begin or end inside of a step
        sent = sent[sent[C.STEP].isin(own_steps)]
    sends = sent[sent[C.COLLECTIVE] == SEND]

    def number(source: int, target: int) -> int | None:
        total = int(((sends[C.RANK] == source) & (sends[C.DST_RANK] == target)).sum())
        return None if total % counted else total // counted

    forward, wrapped = number(ranks[0], ranks[1]), number(ranks[-1], ranks[0])
    text = f"{forward} sends per step from rank {ranks[0]} to {ranks[1]}"
    if len(ranks) == 2:
        if not forward or not _only_gradients_return(ranks, sends, steps):
            return Pipeline(ranks, None, None, "", f"{text}; with two stages chunks cannot be counted")
        wrapped = 0
    else:
        text += f", {wrapped} from rank {ranks[-1]} to {ranks[0]}"
    microbatches = (forward or 0) - (wrapped or 0)
    if forward is None or wrapped is None or microbatches < 1 or forward % microbatches:
        return Pipeline(ranks, None, None, "", f"{text}; these are no schedule of equal steps")
    chunks = forward // microbatches
    return Pipeline(ranks, microbatches, chunks, _schedule(ranks[0], sent, microbatches, chunks), text)


def _order(ranks: tuple[int, ...], sent: pd.DataFrame) -> tuple[int, ...]:
    """Order ranks as their process group does, if it is recorded."""
    listed = [parse_members(text) for text in sent[C.GROUP_RANKS].dropna().unique()]
    matching = [members_ for members_ in listed if sorted(members_) == list(ranks)]
    return tuple(matching[0]) if matching else ranks


def _only_gradients_return(ranks: tuple[int, ...], out: pd.DataFrame, steps: pd.DataFrame) -> bool:
    """Whether the last stage sends nothing in a step before its first backward op."""
    first = out[out[C.RANK] == ranks[-1]].groupby(C.STEP)[C.START_NS].min()
    last = steps[(steps[C.RANK] == ranks[-1]) & (steps["backward_ns"] >= 0)]
    begun = last.set_index(C.STEP)["backward_ns"].reindex(first.index)
    return bool(len(first) and begun.notna().all() and (first >= begun).all())


def _schedule(stage: int, sent: pd.DataFrame, microbatches: int, chunks: int) -> str:
    if chunks > 1:
        return "interleaved 1F1B"
    messages = sent[(sent[C.RANK] == stage) & (sent[C.STEP] == sent[C.STEP].min())]
    messages = messages if len(messages) else sent[sent[C.RANK] == stage]
    received = (messages[C.COLLECTIVE] == RECEIVE).to_numpy(bool)
    before = int(received.argmax()) if received.any() else len(messages)
    if before < microbatches:
        return "1F1B"
    return "GPipe" if microbatches > len(sent[C.RANK].unique()) else ""


def measure_windows(pipeline: Pipeline, steps: pd.DataFrame, clock_offsets: dict[int, int]) -> pd.DataFrame:
    """A row per stage and step, for steps that all stages have: its times, and the window and bubble.

    `clock_offsets` is the clock of each rank minus that of the first stage.
    """
    rows = steps[steps[C.RANK].isin(pipeline.ranks)]
    rows = rows[rows.groupby(C.STEP)[C.RANK].transform("nunique") == len(pipeline.ranks)]
    shift = rows[C.RANK].map(clock_offsets).fillna(0).astype(np.int64)
    start, end = rows[C.START_NS] - shift, rows["end_ns"] - shift
    first = start.groupby(rows[C.STEP]).transform("min")
    last = end.groupby(rows[C.STEP]).transform("max")
    stage = rows[C.RANK].map({rank: place for place, rank in enumerate(pipeline.ranks)})
    return rows.assign(
        stage=stage,
        window_ns=last - first,
        bubble_ns=last - first - rows["computation_ns"],
        outside_ns=(last - first) - (rows["end_ns"] - rows[C.START_NS]),
    ).sort_values([C.STEP, "stage"], ignore_index=True)


def clock_offsets(pipeline: Pipeline, calls: pd.DataFrame) -> dict[int, int]:
    """Clock of each rank minus that of the first stage, by the ends of matched sends and receives.

    Differences below `CLOCK_NS` count as 0.
    """
    offsets, total = {pipeline.ranks[0]: 0}, 0
    for rank, following in zip(pipeline.ranks, pipeline.ranks[1:], strict=False):
        sent = _ends(calls, rank, C.DST_RANK, following)
        received = _ends(calls, following, C.SRC_RANK, rank)
        count = min(len(sent), len(received))
        differences = np.sort(received[len(received) - count :] - sent[len(sent) - count :])
        difference = int(differences[(count - 1) // 2]) if count else 0
        # smaller differences are those of the transfers, not of the clocks
        total += difference if abs(difference) >= CLOCK_NS else 0
        offsets[following] = total
    return offsets


def _ends(calls: pd.DataFrame, rank: int, column: str, peer: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    with_peer = calls[(calls[C.RANK] == rank) & (calls[C.KIND] == SEND_RECV) & calls[column].notna()]
    of_peer = with_peer[with_peer[column].astype(np.int64) == peer]
    return np.sort(spans(of_peer)[1])


def build_tables(timed: Sequence[tuple[Pipeline, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """The tables of pipelines, of their stages and of their steps."""
    summaries = [
        _summarize(number, pipeline, rows) for number, (pipeline, rows) in enumerate(timed) if len(rows)
    ]
    if not summaries:
        return {}
    frame = pd.DataFrame(summaries)
    kinds = {"microbatches": "Int64", "chunks": "Int64", "ideal_share": "Float64"}
    stages = pd.concat([_sum_stages(number, rows) for number, (_, rows) in enumerate(timed) if len(rows)])
    steps = pd.concat([_sum_steps(number, rows) for number, (_, rows) in enumerate(timed) if len(rows)])
    return {
        "pipelines": frame.astype(kinds),
        "stages": stages.reset_index(drop=True),
        "pipeline_steps": steps.reset_index(drop=True),
    }


def _summarize(number: int, pipeline: Pipeline, rows: pd.DataFrame) -> dict[str, Any]:
    window, bubble = int(rows["window_ns"].sum()), int(rows["bubble_ns"].sum())
    computation = rows.groupby("stage")["computation_ns"].sum()
    return {
        "pipeline": number,
        "ranks": str(list(pipeline.ranks)),
        "stages": len(pipeline.ranks),
        "microbatches": pipeline.microbatches,
        "chunks": pipeline.chunks,
        "schedule": pipeline.schedule,
        "bubble_share": float(share(np.array([bubble]), window)[0]),
        "ideal_share": pipeline.ideal,
        "slowest_stage": int(computation.index[int(computation.to_numpy().argmax())]),
        "slowest_ratio": float(computation.max() * len(computation) / max(1, computation.sum())),
        "steps": int(rows[C.STEP].nunique()),
        "window_ns": window // len(pipeline.ranks),
        "bubble_ns": bubble,
        "evidence": pipeline.evidence,
    }


def _sum_stages(number: int, rows: pd.DataFrame) -> pd.DataFrame:
    grouped = rows.groupby(["stage", C.RANK], sort=True)
    table = grouped[["window_ns", *_STAGE]].sum().reset_index()
    table.insert(0, "pipeline", number)
    table["bubble_share"] = share(ints(table, "bubble_ns"), ints(table, "window_ns"))
    mean = float(table["computation_ns"].mean())
    table["computation_ratio"] = table["computation_ns"] / mean if mean else np.nan
    return table


def _sum_steps(number: int, rows: pd.DataFrame) -> pd.DataFrame:
    grouped = rows.groupby(C.STEP, sort=True)
    table = grouped[["bubble_ns"]].sum().reset_index()
    table.insert(0, "pipeline", number)
    table["window_ns"] = grouped["window_ns"].first().to_numpy(np.int64)
    table["bubble_share"] = share(
        ints(table, "bubble_ns"), ints(table, "window_ns") * rows["stage"].nunique()
    )
    step = table[C.STEP].astype("Int64")
    return table.assign(**{C.STEP: step.mask(step == NO_STEP)})
