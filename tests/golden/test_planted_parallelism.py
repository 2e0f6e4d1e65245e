"""Simulated jobs: pipelines, experts, sharded and replicated parameters are recognized, with exact costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from samples.simulator.planted import parallelism as jobs
from samples.simulator.planted import pipelines
from samples.simulator.planted.parallelism import LAYERS, STEPS, TOKEN_NS
from samples.simulator.planted.pipelines import BACKWARD_NS, FORWARD_NS, GPIPE, ONE_F_ONE_B
from tests import tiers
from tests.shared_runs import analyze
from tracekit.analysis.findings import advise
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result

UNEVEN = [[100, 100, 500, 100], [100, 150, 600, 100], [120, 100, 700, 100], [100, 90, 500, 100]]
EVEN = [[100, 101, 100], [100, 100, 100], [100, 99, 100]]


@pytest.fixture
def result(shared_runs: SharedRuns) -> Any:
    """Analyzes the traces of programs as one run."""
    return lambda programs: analyze(shared_runs.simulated(*programs), "parallelism")


SCHEDULES = [
    (4, 8, 1, ONE_F_ONE_B, "1F1B"),
    (4, 8, 1, GPIPE, "GPipe"),
    (3, 6, 2, ONE_F_ONE_B, "interleaved 1F1B"),
    (2, 4, 1, ONE_F_ONE_B, "1F1B"),
]


@pytest.mark.parametrize(
    ("stages", "microbatches", "chunks", "kind", "schedule"), tiers.thinned(SCHEDULES, default=SCHEDULES[1:3])
)
def test_the_bubble_is_the_ideal_one_to_the_nanosecond(
    stages: int, microbatches: int, chunks: int, kind: str, schedule: str, result: Any
) -> None:
    found: Result = result(pipelines.pipeline(stages, microbatches, chunks=chunks, kind=kind))
    (one,) = found.tables["pipelines"].to_dict("records")
    each, wait = FORWARD_NS + BACKWARD_NS, stages - 1
    window = (microbatches * chunks + wait) * each
    assert (one["stages"], one["microbatches"], one["chunks"], one["schedule"]) == (
        stages,
        microbatches,
        chunks,
        schedule,
    )
    assert (one["window_ns"], one["bubble_ns"]) == (2 * window, 2 * stages * wait * each)
    assert one["bubble_share"] == one["ideal_share"] == wait / (microbatches * chunks + wait)
    assert found.tables["pipeline_steps"]["window_ns"].tolist() == [window, window]
    rows = found.tables["stages"]
    parts = ["outside_ns", "send_recv_ns", "other_communication_ns", "idle_ns"]
    assert (rows[parts].sum(axis=1) == rows["bubble_ns"]).all()
    assert found.tables["groups"]["parallelism"].tolist() == ["pipeline"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed", [{"description": "undefined", "clocks": {1: 5_000_000, 3: 70_000_000}}, {"coalesced": True}]
)
def test_a_group_without_a_name_clocks_apart_and_coalesced_messages_change_nothing(
    changed: dict[str, Any], result: Any
) -> None:
    plain, other = result(pipelines.pipeline(4, 8)), result(pipelines.pipeline(4, 8, **changed))
    pd.testing.assert_frame_equal(other.tables["stages"], plain.tables["stages"])


def test_two_stages_with_several_chunks_are_not_guessed(result: Any) -> None:
    (one,) = result(pipelines.pipeline(2, 4, chunks=2)).tables["pipelines"].to_dict("records")
    assert all(pd.isna(one[name]) for name in ("microbatches", "chunks", "ideal_share"))
    assert one["bubble_share"] == 1 / 9


def test_part_of_a_pipeline_has_no_bubble(result: Any) -> None:
    found: Result = result(pipelines.pipeline(4, 8)[:3])
    assert "pipelines" not in found.tables
    assert "import the traces of all ranks" in found.notes[0]


@pytest.mark.slow
def test_the_slow_stage_is_named_and_its_cost_told_once(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(*pipelines.pipeline(4, 8, slow={2: 500_000}))
    (one,) = analyze(run, "parallelism").tables["pipelines"].to_dict("records")
    assert (one["slowest_stage"], one["bubble_share"]) == (2, 0.35)
    found = {ranked.finding.code: ranked.finding for ranked in advise(run).findings}
    assert "rank 2" in found["pipeline_bubble"].advice
    saved = found["pipeline_bubble"].saving_ns_per_step
    computed = 4 * 8 * (FORWARD_NS + BACKWARD_NS) + 16 * 500_000
    least, halved = computed * 3 // 8, computed * 3 // 16
    assert saved == (2 * least - 2 * halved) // 8
    assert "exposed_communication" not in found


@pytest.mark.parametrize(("microbatches", "codes"), [(8, ["pipeline_bubble"]), (40, [])])
def test_only_a_large_bubble_is_worth_advice(microbatches: int, codes: list[str], result: Any) -> None:
    found: Result = result(pipelines.pipeline(4, microbatches, steps=1, durations=(100_000, 200_000)))
    assert [one.code for one in found.findings] == codes


@pytest.mark.parametrize(
    "description", tiers.thinned(["undefined", "EXPERT_MODEL_PARALLEL_GROUP"], default=["undefined"])
)
def test_the_rank_of_the_busiest_experts_is_found(description: str, result: Any) -> None:
    found: Result = result(jobs.experts(UNEVEN, description=description))
    received = [sum(row[rank] for row in UNEVEN) for rank in range(4)]
    table = found.tables["experts"].set_index(C.RANK)
    assert table.index[0] == 2
    for rank, tokens in enumerate(received):
        assert table.loc[rank, "tokens"] == tokens * STEPS * LAYERS
        assert table.loc[rank, "expert_ns"] == tokens * STEPS * LAYERS * TOKEN_NS
        assert table.loc[rank, "tokens_ratio"] == pytest.approx(4 * tokens / sum(received))
    (finding,) = found.findings
    assert finding.code == "expert_imbalance"
    assert finding.title.startswith("Experts of rank 2 compute 2.58 times the mean")
    excess = max(received) - sum(received) // 4
    assert finding.saving_ns_per_step == pytest.approx(LAYERS * excess * TOKEN_NS, rel=0.01)


def test_equal_experts_and_missing_ranks_have_no_finding(result: Any) -> None:
    assert result(jobs.experts(EVEN)).findings == ()
    assert result(jobs.experts(UNEVEN)[1:]).findings == ()


def totals(table: pd.DataFrame, columns: list[str]) -> Mapping[str, int]:
    return {name: int(table[name].sum()) for name in columns}


def test_all_gathers_issued_in_time_are_hidden(result: Any) -> None:
    ranks, gather_ns = 2, 400_000
    early = result(jobs.sharded(early=True)).tables
    (group,) = early["groups"].to_dict("records")
    assert (group["parallelism"], group["scheme"]) == ("data", "sharded parameters")
    assert early["prefetch"]["hidden"].tolist() == [STEPS * (LAYERS - 1)] * ranks
    first = early["all_gathers"].groupby(C.RANK).first()
    assert first["verdict"].tolist() == ["cannot tell"] * ranks  # no computation is before it
    late = result(jobs.sharded(early=False, annotated=False)).tables
    assert late["groups"]["scheme"].tolist() == ["sharded parameters"]
    assert totals(late["prefetch"], ["exposed_ns", "late_ns"]) == {
        "exposed_ns": ranks * STEPS * LAYERS * gather_ns,
        "late_ns": ranks * (STEPS * LAYERS - 1) * gather_ns,
    }
    assert (late["all_gathers"].loc[late["all_gathers"]["verdict"] == "issued late", "lead_ns"] <= 0).all()


@pytest.mark.parametrize(("overlapped", "hidden"), [(True, 0.75), (False, 0.0)])
def test_buckets_are_hidden_behind_backward_but_for_the_last(
    overlapped: bool, hidden: float, result: Any
) -> None:
    tables = result(jobs.replicated(overlapped=overlapped)).tables
    (group,) = tables["groups"].to_dict("records")
    assert (group["parallelism"], group["scheme"]) == ("data", "gradient all-reduce")
    assert tables["buckets"]["hidden_share"].tolist() == [hidden] * 2 * STEPS
    assert tables["buckets"]["tail_ns"].tolist() == [400_000] * 2 * STEPS


def test_all_reduces_of_layers_are_tensor_parallel(result: Any) -> None:
    tables = result(jobs.tensor_parallel()).tables
    (group,) = tables["groups"].to_dict("records")
    assert (group["parallelism"], group["identified_by"], group["stride"]) == ("tensor", "collectives", 1)
    assert "buckets" not in tables


@pytest.mark.parametrize(
    ("options", "savings"),
    [({}, [100_000]), ({"sent": False}, []), ({"name": "forward"}, [])],
    ids=["each step", "first step", "another program"],
)
def test_broadcasts_of_buffers_cost_their_transfer(
    options: dict[str, Any], savings: list[int], shared_runs: SharedRuns
) -> None:
    findings = analyze(shared_runs.simulated(jobs.buffers(**options)), "overlap").findings
    assert [one.saving_ns_per_step for one in findings if one.code == "ddp_buffers"] == savings


def test_advice_on_buckets_says_how_many_there_are(shared_runs: SharedRuns) -> None:
    programs = jobs.replicated(overlapped=False)
    for program in programs:
        with program.annotation("DistributedDataParallel.forward"):
            pass
    (finding,) = analyze(shared_runs.simulated(*programs), "overlap").findings
    assert f"{LAYERS} all-reduces per step of 2.00 MiB on average; Distributed" in finding.advice


@pytest.mark.parametrize(
    ("options", "savings"),
    [({}, [LAYERS * 50_000]), ({"copy_ns": 0}, []), ({"compute_ns": 500 * LAYERS * 50_000}, [])],
    ids=["copies", "views", "little"],
)
def test_gradients_that_are_copied_from_buckets_are_told(
    options: dict[str, Any], savings: list[int], shared_runs: SharedRuns
) -> None:
    findings = analyze(shared_runs.simulated(jobs.gradient_copies(**options)), "ops").findings
    assert [one.saving_ns_per_step for one in findings if one.code == "ddp_gradient_copies"] == savings
