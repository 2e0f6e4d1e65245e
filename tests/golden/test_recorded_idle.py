"""Recorded traces: the causes of idle time account for all of it, and few are unknown.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.test_truth import TRACES, TRUTH
from tracekit.analysis import analyze
from tracekit.ingest import import_traces
from tracekit.schema import C
from tracekit.store import Store

if TYPE_CHECKING:
    from tracekit.run import Run

MOST_UNKNOWN = 0.15
CAUSES = {
    "AMD-AGI__TraceLens/h100_owlv2.json.gz": "dataload",
    "AMD-AGI__TraceLens/vllm_decode_full_hipgraph.json.gz": "kernel_to_kernel",
    "facebookresearch__HolisticTraceAnalysis/ns_resolution_v100.json.gz": "kernel_to_kernel",
    "pytorch__benchmark/h2d_pinned_a100.json.gz": "sync",
    "pytorch__kineto/resnet50_w0_torch19.json.gz": "dataload",
    "sidnb13__torch-profiling-tutorial/h100_transformer.json.gz": "launch_bound",
}
"""What takes most of the idle time, looked up by eye in the traces."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Every trace, imported once when the first test asks for it."""
    store = Store(tmp_path_factory.mktemp("recorded") / "store")
    return {name: import_traces(store, [TRACES / name])[0] for name in TRUTH}


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: causes of idle time were not checked on them")


@pytest.mark.parametrize("name", TRUTH)
def test_causes_sum_to_the_idle_time_of_each_device(name: str, runs: dict[str, Run]) -> None:
    run, truth = runs[name], TRUTH[name]["devices"]
    result = analyze(run, "idle_gaps")
    if not truth:
        assert not result.tables
        assert result.notes
        return
    whole = analyze(run, "gpu_breakdown").tables["whole"].set_index([C.RANK, C.DEVICE])["idle_ns"]
    summary = result.tables["summary"].set_index([C.RANK, C.DEVICE])
    assert summary["idle_ns"].to_dict() == whole.to_dict()
    assert {str(device): idle for (_, device), idle in whole.items()} == {
        device: expected["idle_ns"] for device, expected in truth.items()
    }
    parts = summary[["host_late_ns", "had_work_ns", "unknown_ns"]].sum(axis=1)
    assert parts.to_dict() == whole.to_dict()
    for table in ("by_cause", "by_op") if whole.sum() else ():
        sums = result.tables[table].groupby([C.RANK, C.DEVICE])["idle_ns"].sum()
        assert sums.to_dict() == whole.to_dict()
    assert summary["unknown_ns"].sum() <= MOST_UNKNOWN * whole.sum()


@pytest.mark.parametrize("name", [name for name in TRUTH if name in CAUSES])
def test_the_cause_of_most_idle_time_is_the_one_seen_by_eye(name: str, runs: dict[str, Run]) -> None:
    table = analyze(runs[name], "idle_gaps").tables["by_cause"]
    assert table.iloc[0]["cause"] == CAUSES[name]
    assert table.iloc[0]["share"] > 0.5


@pytest.mark.parametrize("name", TRUTH)
def test_waits_and_launches_stay_within_what_was_recorded(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    idle = sum(device["idle_ns"] for device in TRUTH[name]["devices"].values())
    waits = analyze(run, "sync_points").tables.get("waits")
    if waits is not None:
        assert 0 <= waits["idle_caused_ns"].sum() <= waits["idle_after_ns"].sum() <= idle
        assert (waits["device_busy_ns"] <= waits["host_ns"]).all()
    queue = analyze(run, "launch_latency").tables.get("queue")
    if queue is not None:
        assert (queue["empty_idle_ns"] <= queue[["empty_ns", "idle_ns"]].min(axis=1)).all()
        assert queue["idle_ns"].sum() <= idle
