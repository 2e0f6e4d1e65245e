"""Recorded traces: what an independent reference says of every one of them is found to the nanosecond.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc
import pytest
from tracekit.analyses.launch_config import configs

from tests import tiers
from tests.shared_runs import analyze, check_host_parts
from tests.traces import table
from tracekit.ingest.importer import import_traces
from tracekit.schema import TABLES, C, DeviceKind

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
REFERENCE = TRACES / "TRUTH.json"
TRUTH: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
SHUFFLED = (
    "pytorch__kineto/resnet50_w0_2021_barearray.json.gz",
    "facebookresearch__HolisticTraceAnalysis/sampled_rank0of128.json.gz",
    "AMD-AGI__TraceLens/h100_bert_small.json.gz",
)
MOST_UNKNOWN = 0.15
"""The largest share of the idle time whose cause may be unknown."""
BEGAN_LATE = [f"KellerJordan__modded-nanogpt/h100_8rank_normuon/rank{rank}.json.gz" for rank in range(3, 8)]
"""Captures of ranks whose host had launched much of the first step before they began."""
CAUSES = {
    "AMD-AGI__TraceLens/h100_owlv2.json.gz": "dataload",
    "AMD-AGI__TraceLens/vllm_decode_full_hipgraph.json.gz": "kernel_to_kernel",
    "facebookresearch__HolisticTraceAnalysis/ns_resolution_v100.json.gz": "kernel_to_kernel",
    "pytorch__benchmark/h2d_pinned_a100.json.gz": "sync",
    "pytorch__kineto/resnet50_w0_torch19.json.gz": "dataload",
    "sidnb13__torch-profiling-tutorial/h100_transformer.json.gz": "launch_bound",
}
"""Causes of most of the idle time, determined by inspecting the traces."""
REPRESENTATIVE = (*list(CAUSES)[1::2], SHUFFLED[2], BEGAN_LATE[0])
"""Traces of the default tier: small ones, of AMD and NVIDIA, of inference and of training on many ranks."""
SAME = (
    "window_ns",
    "active_ns",
    "movement_ns",
    "idle_ns",
    "copies_union_ns",
    "kernels",
    "memcpys",
    "memsets",
)


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the reference was not checked")


@pytest.mark.parametrize("name", tiers.thinned(TRUTH, default=REPRESENTATIVE))
def test_whole_breakdown_equals_the_reference(name: str, shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / name)
    tables, truth = analyze(run, "gpu_breakdown").tables, TRUTH[name]
    if not truth["devices"]:
        assert list(tables) == ["host"]
        return
    whole = tables["whole"]
    got = {str(row["device"]): row for row in whole.to_dict("records")}
    assert set(got) == set(truth["devices"])
    for device, expected in truth["devices"].items():
        row = got[device]
        assert {key: row[key] for key in SAME} == {key: expected[key] for key in SAME}
        idle = run.table(
            "device_intervals",
            columns=[C.DUR_NS],
            where=(pc.field(C.KIND) == "idle") & (pc.field(C.DEVICE) == int(device)),
        )[C.DUR_NS]
        assert len(idle) == expected["idle_gaps"]
        assert max(idle, default=0) == expected["max_gap_ns"]
        assert (idle >= 1_000_000).sum() == expected["idle_gaps_ge_1ms"]
        assert idle.sum() == expected["idle_ns"]
    assert whole["kernel_sum_ns"].sum() == truth["kernel_sum_ns"]
    assert whole["kernels"].sum() == truth["kernels"]


@pytest.mark.parametrize("name", tiers.thinned(TRUTH, default=REPRESENTATIVE))
def test_copies_by_name_equal_the_reference(name: str, shared_runs: SharedRuns) -> None:
    tables, truth = analyze(shared_runs.of(TRACES / name), "pinned_memory").tables, TRUTH[name]["copies"]
    if not truth:
        assert tables == {}
        return
    got = tables["by_name"].set_index(C.NAME)
    assert set(got.index) == set(truth)
    for copy, expected in truth.items():
        row = got.loc[copy]
        assert (row["copies"], row["sum_ns"]) == (expected["count"], expected["sum_ns"])
        assert (0 if row.isna()["bytes"] else row["bytes"]) == expected.get("bytes", 0)
    for name_of, frame in tables.items():
        assert frame["copies"].sum() == sum(one["count"] for one in truth.values()), name_of
        assert frame["sum_ns"].sum() == sum(one["sum_ns"] for one in truth.values()), name_of


@pytest.mark.parametrize("name", tiers.thinned(TRUTH, default=REPRESENTATIVE))
def test_relu_grids_and_zero_grad_ranges_equal_the_reference(name: str, shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / name)
    grids: Counter[str] = Counter()
    table = analyze(run, "launch_config").tables.get("relu", pd.DataFrame(columns=["told_by"]))
    for row in table[table["told_by"] != configs.BY_OP].to_dict("records"):
        sides = [
            [None if pd.isna(row[axis]) else int(row[axis]) for axis in axes]
            for axes in (configs.GRID, configs.BLOCK)
        ]
        shown = ["null" if side == [None] * 3 else json.dumps(side) for side in sides]
        grids[" ".join(shown)] += int(row["launches"])
    assert dict(grids) == TRUTH[name]["relu_grids"]
    ranges = analyze(run, "zero_grad_gaps").tables.get("ranges", ())
    nested = "## zero_grad ##" in {row[C.NAME] for row in _rows(ranges)}
    assert len(ranges) == TRUTH[name]["zero_grad_ranges"] // (2 if nested else 1)


def _rows(ranges: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ranges.to_dict("records") if len(ranges) else []
    return rows


@pytest.mark.parametrize("name", tiers.thinned(TRUTH, default=REPRESENTATIVE))
def test_causes_sum_to_the_idle_time_of_each_device(name: str, shared_runs: SharedRuns) -> None:
    run, truth = shared_runs.of(TRACES / name), TRUTH[name]["devices"]
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
    for name_of in ("by_cause", "by_op") if whole.sum() else ():
        sums = result.tables[name_of].groupby([C.RANK, C.DEVICE])["idle_ns"].sum()
        assert sums.to_dict() == whole.to_dict()
    unknown = summary["unknown_ns"].sum()
    if name in BEGAN_LATE:
        assert _was_queued_before(run)
        by_op = result.tables["by_op"]
        unknown -= by_op.loc[by_op["op"] == "(launch not recorded)", "idle_ns"].sum()
    assert unknown <= MOST_UNKNOWN * whole.sum()


def _was_queued_before(run: Run) -> bool:
    """Whether all work without a recorded launch begins before any work with one."""
    rows = run.table("device_intervals", columns=[C.KIND, C.START_NS, C.LAUNCH_ROW])
    work = rows[~rows[C.KIND].isin([DeviceKind.IDLE, DeviceKind.SYNC])]
    launched = work[C.LAUNCH_ROW].notna()
    return bool(work.loc[~launched, C.START_NS].max() < work.loc[launched, C.START_NS].min())


@pytest.mark.parametrize("name", tiers.thinned(TRUTH, default=REPRESENTATIVE))
def test_parts_of_the_host_sum_to_each_step(name: str, shared_runs: SharedRuns) -> None:
    check_host_parts(shared_runs.of(TRACES / name))


@pytest.mark.parametrize("name", [name for name in TRUTH if name in CAUSES])
def test_the_cause_of_most_idle_time_is_the_one_seen_by_eye(name: str, shared_runs: SharedRuns) -> None:
    table = analyze(shared_runs.of(TRACES / name), "idle_gaps").tables["by_cause"]
    assert table.iloc[0]["cause"] == CAUSES[name]
    assert table.iloc[0]["share"] > 0.5


@pytest.mark.parametrize("name", tiers.thinned(TRUTH, default=REPRESENTATIVE))
def test_waits_and_launches_stay_within_what_was_recorded(name: str, shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / name)
    idle = sum(device["idle_ns"] for device in TRUTH[name]["devices"].values())
    waits = analyze(run, "sync_points").tables.get("waits")
    if waits is not None:
        assert 0 <= waits["idle_caused_ns"].sum() <= waits["idle_after_ns"].sum() <= idle
        assert (waits["device_busy_ns"] <= waits["host_ns"]).all()
    queue = analyze(run, "launch_latency").tables.get("queue")
    if queue is not None:
        assert (queue["empty_idle_ns"] <= queue[["empty_ns", "idle_ns"]].min(axis=1)).all()
        assert queue["idle_ns"].sum() <= idle


@pytest.mark.parametrize(
    "name", tiers.thinned((one for one in TRUTH if one in SHUFFLED), default=SHUFFLED[2:])
)
def test_the_order_and_form_of_a_recorded_trace_do_not_matter(
    name: str, shared_runs: SharedRuns, store: Store, tmp_path: Path
) -> None:
    """Whole microseconds make many ties; none of them may be broken by the order of the file."""
    text = gzip.decompress((TRACES / name).read_bytes())
    document = json.loads(text)  # the shortest text of a double is the text it was read from
    events = document if isinstance(document, list) else document["traceEvents"]
    random.Random(20261121).shuffle(events)
    path = tmp_path / "shuffled.json"
    path.write_text(json.dumps(document, separators=(",", ":")))
    recorded, (shuffled,) = shared_runs.of(TRACES / name), import_traces(store, [path])
    for kind in TABLES:
        pd.testing.assert_frame_equal(table(recorded, kind), table(shuffled, kind), obj=kind)
