"""Process groups by name and by calls, the pipeline bubble of any schedule, experts, and prefetching."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit.analyses.parallelism.calls import parse_members
from tracekit.analyses.parallelism.experts import find_pairs
from tracekit.analyses.parallelism.pipeline import Pipeline, measure_windows
from tracekit.analyses.parallelism.process_groups import UNKNOWN, kinds_by_name, role_of

from samples.simulator.planted import pipelines as planted
from samples.simulator.planted.pipelines import BACKWARD, FORWARD, GPIPE, ONE_F_ONE_B
from tracekit.schema import C

DURATIONS = st.integers(1, 10**7)


def steps_of(timed: list[list[planted.Timed]], clocks: list[int]) -> pd.DataFrame:
    """What each stage computes, as a run of one step has it."""
    return pd.DataFrame(
        {
            C.RANK: stage,
            C.STEP: 0,
            "start_ns": own[0].start + clock,
            "end_ns": own[-1].end + clock,
            "backward_ns": -1,
            "computation_ns": sum(one.end - one.start for one in own),
            "send_recv_ns": 0,
            "other_communication_ns": 0,
            "idle_ns": 0,
        }
        for stage, (own, clock) in enumerate(zip(timed, clocks, strict=True))
    )


@given(
    stages=st.integers(2, 6),
    microbatches=st.integers(1, 12),
    kind=st.sampled_from([GPIPE, ONE_F_ONE_B]),
    durations=st.tuples(DURATIONS, DURATIONS),
)
def test_equal_stages_have_the_ideal_bubble(
    stages: int, microbatches: int, kind: str, durations: tuple[int, int]
) -> None:
    """(p − 1)/(m + p − 1), in integers: bubble · (m + p − 1) = window · p · (p − 1)."""
    check_bubble(stages, microbatches, 1, kind, durations)


@given(
    stages=st.integers(2, 5),
    rounds=st.integers(1, 3),
    chunks=st.integers(2, 4),
    durations=st.tuples(DURATIONS, DURATIONS),
)
def test_interleaved_stages_have_the_ideal_bubble(
    stages: int, rounds: int, chunks: int, durations: tuple[int, int]
) -> None:
    """(p − 1)/(m·v + p − 1) where the microbatches are a multiple of the stages."""
    check_bubble(stages, rounds * stages, chunks, ONE_F_ONE_B, durations)


def check_bubble(stages: int, microbatches: int, chunks: int, kind: str, durations: tuple[int, int]) -> None:
    orders = [
        planted.schedule(stage, stages, microbatches, chunks=chunks, kind=kind) for stage in range(stages)
    ]
    times = dict(zip((FORWARD, BACKWARD), durations, strict=True))
    timed = planted.timeline(orders, chunks=chunks, durations=times)
    clocks = [7 * stage for stage in range(stages)]
    one = Pipeline(tuple(range(stages)), microbatches, chunks, "", "")
    rows = measure_windows(one, steps_of(timed, clocks), dict(enumerate(clocks)))
    window, bubble = int(rows["window_ns"].iloc[0]), int(rows["bubble_ns"].sum())
    slots, wait = microbatches * chunks + stages - 1, stages - 1
    assert window == slots * sum(durations)
    assert bubble == stages * wait * sum(durations)
    assert one.ideal == wait / slots


@given(
    stages=st.integers(2, 5),
    microbatches=st.integers(1, 8),
    slow=st.dictionaries(st.integers(0, 4), DURATIONS, max_size=3),
)
def test_slower_stages_make_the_window_longer(stages: int, microbatches: int, slow: dict[int, int]) -> None:
    orders = [planted.schedule(stage, stages, microbatches) for stage in range(stages)]
    timed = planted.timeline(orders, chunks=1, durations={FORWARD: 10**6, BACKWARD: 10**6}, slow=slow)
    one = Pipeline(tuple(range(stages)), microbatches, 1, "", "")
    rows = measure_windows(one, steps_of(timed, [0] * stages), {})
    window, most = int(rows["window_ns"].iloc[0]), int(rows["computation_ns"].max())
    assert window >= max(most, (microbatches + stages - 1) * 2 * 10**6)
    assert int(rows["bubble_ns"].sum()) == stages * window - int(rows["computation_ns"].sum())
    assert (rows["bubble_ns"] == rows["window_ns"] - rows["computation_ns"]).all()


@pytest.mark.parametrize(
    ("text", "parallelism"),
    [
        ("mesh_tp", "tensor"),
        ("mesh_dp_replicate", "data"),
        ("mesh_dp_shard_cp", "data and context"),
        ("mesh_pp", "pipeline"),
        ("mesh_ep", "expert"),
        ("fsdp_reduce_scatter", "data"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data and context"),
        ("CONTEXT_PARALLEL_GROUP", "context"),
        ("MODEL_PARALLEL_GROUP", "tensor and pipeline"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tensor"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "tensor and expert"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", "tensor and data"),
        ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "data"),
        ("EMBEDDING_GROUP", "pipeline"),
        ("default_pg", ""),
        ("undefined", ""),
        ("17", ""),
        ("mesh_default", ""),
        ("mesh_dim_0", ""),
        ("stepper", ""),
    ],
)
def test_groups_are_told_by_whole_words_of_their_name(text: str, parallelism: str) -> None:
    assert kinds_by_name(text) == parallelism


def calls(*kinds: tuple[str, str | None], **more: Any) -> pd.DataFrame:
    row = {C.RANK: 0, "group": "5 [0, 1]", "library": "group", "family": "nccl", "range": ""}
    row |= {C.GROUP_DESCRIPTION: "undefined", C.GROUP_NAME: "5", C.SPLIT_IN: None, C.SPLIT_OUT: None}
    return pd.DataFrame([{**row, C.KIND: kind, C.PHASE: phase, **more} for kind, phase in kinds])


NONE_SENT = pd.DataFrame(columns=[C.RANK, C.COLLECTIVE, C.SRC_RANK, C.DST_RANK])
FORWARD_PHASE, BACKWARD_PHASE, OPTIMIZER = "forward", "backward", "optimizer"


@pytest.mark.parametrize(
    ("kinds", "parallelism", "scheme"),
    [
        ([("all_reduce", BACKWARD_PHASE)] * 3, "data", "gradient all-reduce"),
        ([("all_reduce", FORWARD_PHASE)] * 4 + [("all_reduce", BACKWARD_PHASE)] * 4, "tensor", ""),
        (
            [("all_gather", FORWARD_PHASE)] * 4 + [("reduce_scatter", BACKWARD_PHASE)] * 4,
            "data",
            "sharded parameters",
        ),
        (
            [("reduce_scatter", BACKWARD_PHASE)] * 4 + [("all_gather", OPTIMIZER)] * 4,
            "data",
            "sharded optimizer",
        ),
        (
            [("all_gather", FORWARD_PHASE), ("reduce_scatter", FORWARD_PHASE)] * 2,
            "tensor",
            "sequence parallel",
        ),
        ([("all_reduce", None)] * 9, UNKNOWN, ""),
        ([("all_gather", None), ("reduce_scatter", None)] * 4, UNKNOWN, ""),
        ([("broadcast", FORWARD_PHASE)] * 4, UNKNOWN, ""),
        ([("all_gather", FORWARD_PHASE)], UNKNOWN, ""),
        ([("all_to_all", FORWARD_PHASE)] * 4, UNKNOWN, ""),
        ([("send_recv", FORWARD_PHASE)] * 4, UNKNOWN, ""),
    ],
)
def test_groups_without_a_telling_name_are_told_by_their_calls(
    kinds: list[tuple[str, str | None]], parallelism: str, scheme: str
) -> None:
    role = role_of(calls(*kinds), NONE_SENT)
    assert (role.parallelism, role.scheme) == (parallelism, scheme)
    assert role.evidence
    assert bool(role.identified_by) == (parallelism != UNKNOWN)


def test_without_a_group_nothing_is_told() -> None:
    role = role_of(calls(*[("all_reduce", BACKWARD_PHASE)] * 3, group=""), NONE_SENT)
    assert (role.parallelism, role.evidence) == (UNKNOWN, "process group not recorded")


def test_kernels_of_an_expert_library_are_told_by_themselves() -> None:
    found = calls(("all_to_all", None), group="", library="expert", family="deep_ep::intranode::dispatch")
    assert role_of(found, NONE_SENT).parallelism == "expert"


def test_dispatch_and_combine_of_a_library_are_paired_by_name() -> None:
    names = ["notify_dispatch", "dispatch", "cached_notify_combine", "combine"] * 2
    rows = calls(*[("all_to_all", None)] * len(names), group="", library="expert", **{C.GROUP_NAME: None})
    rows = rows.assign(
        family=[f"deep_ep::intranode::{name}" for name in names],
        key="(expert library)",
        between_ns=[0, 700, 0, 50] * 2,
        **{C.DEVICE: 0, C.STEP: 1, C.START_NS: range(8), C.DUR_NS: 10, C.ROW_ID: range(8)},
    )
    found = find_pairs(rows, {"(expert library)": role_of(rows, NONE_SENT)})
    assert found["expert_ns"].tolist() == [700, 700]
    assert found[C.ROW_ID].tolist() == [3, 7]
    assert found["tokens"].isna().all()


def messages(*rows: tuple[int, str, int]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                C.RANK: rank,
                C.COLLECTIVE: name,
                C.DST_RANK: peer if name == "send" else None,
                C.SRC_RANK: peer if name == "recv" else None,
            }
            for rank, name, peer in rows
        ]
    )


@pytest.mark.parametrize(
    ("rows", "parallelism"),
    [
        ([(0, "send", 1), (0, "recv", 1), (1, "recv", 0), (1, "send", 0)], "pipeline"),
        ([(rank, "send", (rank + 1) % 3) for rank in range(3)]
         + [(rank, "recv", (rank - 1) % 3) for rank in range(3)], "context"),
        ([(0, "send", 1), (0, "recv", 1), (1, "send", 0), (1, "recv", 0)], "context"),
        ([(1, "recv", 0), (1, "send", 2)], UNKNOWN),
    ],
)  # fmt: skip
def test_a_ring_is_not_a_pipeline(rows: list[tuple[int, str, int]], parallelism: str) -> None:
    assert role_of(calls(*[("send_recv", None)] * 4), messages(*rows)).parallelism == parallelism


@given(st.lists(st.integers(0, 10**9)))
def test_ranks_and_sizes_are_read_as_recorded(values: list[int]) -> None:
    assert parse_members(str(values)) == values


@pytest.mark.parametrize("text", [None, "", "[]", "[0, 1, ...]", "[a]", "nonsense", 3.5])
def test_unknown_ranks_are_empty(text: Any) -> None:
    assert parse_members(text) == []
