"""Recorded traces: what is known of process groups, by which evidence, and what is unknown.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.collectives import NO_COLLECTIVES

from tests.golden.test_recorded_memory_ranks import DLRM, PREFETCH, TENSOR_PARALLEL
from tests.golden.test_truth import TRACES
from tests.shared_runs import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")

NORMUON = "KellerJordan__modded-nanogpt/h100_8rank_normuon"
B200 = "AMD-AGI__TraceLens/b200_eager_r0of8.json.gz"
MI300X = "AMD-AGI__TraceLens/mi300x_ddp_resnet18.json.gz"
UNBUCKETED = "facebookresearch__HolisticTraceAnalysis/df_index_resolver_v100_r1of2.json.gz"


@pytest.fixture
def result(shared_runs: SharedRuns) -> Any:
    return lambda *names: analyze(shared_runs.of(*(TRACES / name for name in names)), "parallelism")


def group(found: Result) -> dict[str, Any]:
    (row,) = found.tables["groups"].to_dict("records")
    return {str(name): value for name, value in row.items()}


def ranks(folder: str) -> list[str]:
    return [f"{folder}/rank{rank}.json.gz" for rank in range(8)]


def test_a_sharded_optimizer_is_told_by_its_phases(result: Any) -> None:
    found: Result = result(*ranks(NORMUON))
    row = group(found)
    assert (row["parallelism"], row["scheme"]) == ("data", "sharded optimizer")
    assert row["evidence"] == (
        "28 reduce-scatters after forward: gradients; all 28 all-gathers in the optimizer step: parameters"
    )
    assert (row[C.GROUP_SIZE], row["stride"], row["count"]) == (8, 1, 637)
    assert found.tables["prefetch"]["count"].tolist() == [28] * 8
    assert found.findings == ()


@pytest.mark.slow
def test_exposed_time_and_waits_are_those_of_overlap_and_collectives(shared_runs: SharedRuns) -> None:
    run = shared_runs.of(*(TRACES / name for name in ranks(NORMUON)))
    row = group(analyze(run, "parallelism"))
    overlap = analyze(run, "overlap").tables["whole"]
    assert row["exposed_ns"] == overlap.loc[overlap["what"] == "communication", "exposed_ns"].sum()
    by_group = analyze(run, "collectives").tables["by_group"]
    assert row["wait_ns"] == by_group["wait_ns"].sum()
    assert row[C.DUR_NS] == by_group[C.DUR_NS].sum()


def test_every_all_gather_was_issued_when_the_trace_says(result: Any) -> None:
    """The launch call of each correlated all-gather, and its distance to the start of the kernel."""
    name = ranks(NORMUON)[0]
    events = json.loads(gzip.decompress((TRACES / name).read_bytes()), parse_float=Decimal)["traceEvents"]
    at = {
        event["args"]["correlation"]: Decimal(event["ts"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    expected = sorted(
        int((Decimal(event["ts"]) - at[event["args"]["correlation"]]) * 1000)
        for event in events
        if event.get("cat") == "kernel"
        and "AllGather" in event["name"]
        and event["args"]["correlation"] in at
    )
    rows = result(name).tables["all_gathers"]
    known = rows[rows["issued_ns"].notna()]
    assert sorted(known[C.START_NS] - known["issued_ns"]) == expected
    assert len(expected) == 28


def test_without_phases_the_same_program_is_not_told(result: Any) -> None:
    row = group(result(PREFETCH))
    assert row["parallelism"] == "cannot tell"
    assert row["evidence"].endswith("of unknown phase")


def test_sequence_parallel_is_told_where_the_job_has_one_group(result: Any) -> None:
    row = group(result(*TENSOR_PARALLEL))
    assert (row["parallelism"], row["scheme"]) == ("tensor", "sequence parallel")
    assert row["evidence"] == "9 reduce-scatters in forward: activations"
    assert (row[C.GROUP_RANKS], row["count"]) == ("[0, 1]", 38)


@pytest.mark.slow
def test_without_groups_only_buckets_are_measured(result: Any) -> None:
    found: Result = result(*ranks(DLRM))
    row = group(found)
    assert (row["parallelism"], row["evidence"]) == ("cannot tell", "process group not recorded")
    assert row["collectives"] == "5 all_to_all, 3 all_reduce"
    assert "experts" not in found.tables
    assert found.tables["buckets"]["count"].tolist() == [3] * 8
    assert found.findings == ()


def test_unbucketed_all_reduces_are_counted_and_exposed(result: Any) -> None:
    table = result(UNBUCKETED).tables["buckets"]
    assert table["count"].tolist() == [404] * 5
    assert table["hidden_share"].tolist() == [0.0] * 5


def test_groups_of_the_job_are_listed_though_they_are_not_used(result: Any) -> None:
    table = result(B200).tables["groups"]
    assert table["parallelism"].unique().tolist() == ["cannot tell"]
    assert table["count"].tolist() == [73, 1, 0, 0, 0, 0, 0, 0]
    assert table["group"].tolist() == ["", "3", "0", "1", "2", "4", "69", "70"]


def test_a_run_without_communication_says_so(result: Any) -> None:
    assert result(MI300X).notes == (NO_COLLECTIVES,)
