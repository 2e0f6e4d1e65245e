from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.gpu_breakdown import OPAQUE_GRAPHS
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS, NOT_RECORDED

from tests.builders import Row, device, host, kernel, make_run, memcpy, memset, step
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.schema import BUSY_KINDS, C, DeviceKind, HostKind

PARTS = ["window_ns", "active_ns", "movement_ns", "idle_ns"]


def only(frame: pd.DataFrame) -> dict[str, Any]:
    (row,) = frame.to_dict("records")
    return row


def test_whole_capture_with_every_kind_of_overlap(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            kernel(100, 200),
            kernel(150, 250, name="ncclDevKernel_AllReduce"),
            memcpy(240, 300),
            memcpy(260, 280),
            memset(290, 310),
            device(DeviceKind.IDLE, 310, 390),
            device(DeviceKind.SYNC, 310, 390),
            kernel(390, 400),
        ],
    )
    result = analyze(run, "gpu_breakdown")
    assert only(result.tables["whole"]) == {
        "rank": 0,
        "device": 0,
        "window_ns": 300,
        "active_ns": 160,
        "movement_ns": 60,
        "idle_ns": 80,
        "copies_union_ns": 70,
        "kernels": 3,
        "memcpys": 2,
        "memsets": 1,
        "kernel_sum_ns": 210,
        "memcpy_sum_ns": 80,
        "memset_sum_ns": 20,
        "memcpy_union_ns": 60,
        "overlapped_ns": 10,
        "communication_ns": 100,
        "communication_exposed_ns": 50,
        "communication_overlapped_ns": 50,
        "graph_ns": 0,
        "overrun_ns": 0,
        "search_ns": 0,
        "active_share": 160 / 300,
        "movement_share": 60 / 300,
        "idle_share": 80 / 300,
    }
    assert list(result.tables) == ["whole"]
    assert result.notes == (NO_STEPS,)


def test_step_window_reaches_the_last_interval_launched_in_the_step(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100), step(1, 100, 200)],
        device_intervals=[
            kernel(50, 120, **{C.STEP: 0}),
            kernel(120, 150, **{C.STEP: 1}),
            kernel(190, 260, **{C.STEP: 1}),
        ],
    )
    tables = analyze(run, "gpu_breakdown").tables
    columns = [C.STEP, *PARTS, "kernels", "kernel_sum_ns"]
    assert tables["per_step"][columns].to_dict("records") == [
        {"step": 0, "window_ns": 120, "active_ns": 70, "movement_ns": 0, "idle_ns": 50}
        | {"kernels": 1, "kernel_sum_ns": 70},
        {"step": 1, "window_ns": 140, "active_ns": 100, "movement_ns": 0, "idle_ns": 40}
        | {"kernels": 2, "kernel_sum_ns": 100},
    ]
    together = only(tables["profiled_steps"][[*PARTS, "kernels"]])
    assert together == {"window_ns": 260, "active_ns": 170, "movement_ns": 0, "idle_ns": 90, "kernels": 3}


def test_devices_and_ranks_are_kept_apart(tmp_path: Path) -> None:
    places = [(0, 0), (0, 1), (1, 0)]
    run = make_run(
        tmp_path,
        device_intervals=[
            kernel(0, 10 + rank * 5 + number, **{C.RANK: rank, C.DEVICE: number}) for rank, number in places
        ],
    )
    whole = analyze(run, "gpu_breakdown").tables["whole"]
    assert whole[[C.RANK, C.DEVICE, "active_ns"]].to_numpy().tolist() == [[0, 0, 10], [0, 1, 11], [1, 0, 15]]


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int)",
        "void sglang::cross_device_reduce_2stage<half, 2>(sglang::RankData*, int)",
        "void two_shot_all_reduce_kernel<float>(float*)",
    ],
)
def test_collectives_of_every_library_are_communication(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(0, 10, name=name), kernel(10, 15)])
    assert only(analyze(run, "gpu_breakdown").tables["whole"])["communication_ns"] == 10


def test_opaque_graph_time_stands_apart(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, device_intervals=[kernel(0, 10), device(DeviceKind.GRAPH, 5, 30), kernel(40, 50)]
    )
    result = analyze(run, "gpu_breakdown")
    found = only(result.tables["whole"][[*PARTS, "graph_ns"]])
    assert found == {"window_ns": 50, "active_ns": 20, "movement_ns": 0, "idle_ns": 10, "graph_ns": 20}
    assert OPAQUE_GRAPHS in result.notes


@pytest.mark.parametrize(
    ("calls", "note"),
    [
        ([], NO_DEVICE),
        ([host("cudaLaunchKernel", 2, 3, kind=HostKind.RUNTIME)], NOT_RECORDED),
        ([host("hipLaunchKernel", 2, 3, kind=HostKind.RUNTIME)], NOT_RECORDED),
        ([host("cudaDeviceGetAttribute", 2, 3, kind=HostKind.RUNTIME)], NO_DEVICE),
    ],
)
def test_without_device_intervals_the_host_is_shown_and_nothing_is_called_idle(
    tmp_path: Path, calls: list[Row], note: str
) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[host("aten::linear", 0, 100), host("aten::addmm", 10, 70, parent_row=0), *calls],
    )
    result = analyze(run, "gpu_breakdown")
    assert result.tables["host"].to_dict("records") == [
        {"name": "aten::addmm", "calls": 1, "self_ns": 60, "total_ns": 60, "self_share": 0.6},
        {"name": "aten::linear", "calls": 1, "self_ns": 40, "total_ns": 100, "self_share": 0.4},
    ]
    assert list(result.tables) == ["host"]
    assert result.notes == (note,)


intervals = st.tuples(
    st.sampled_from([str(kind) for kind in BUSY_KINDS]), st.integers(0, 300), st.integers(0, 60)
)


def breakdown(rows: list[tuple[str, int, int]]) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as directory:
        made = [device(kind, start, start + length) for kind, start, length in rows]
        run = make_run(Path(directory), device_intervals=made, steps=[step(0, 20, 90), step(1, 80, 200)])
        tables = analyze(run, "gpu_breakdown").tables
    return pd.concat([tables["whole"], tables["per_step"], tables["profiled_steps"]])


def painted(rows: list[tuple[str, int, int]], kinds: set[str], low: int, high: int) -> int:
    """Length of a union by painting every nanosecond: slow and plainly right."""
    line = np.zeros(400, bool)
    for kind, start, length in rows:
        if kind in kinds:
            line[start : start + length] = True
    return int(line[low:high].sum())


@settings(max_examples=examples(40))
@given(st.lists(intervals, min_size=1, max_size=12))
def test_parts_sum_to_the_window_and_equal_painting(rows: list[tuple[str, int, int]]) -> None:
    table = breakdown(rows)
    parts = table[["active_ns", "movement_ns", "graph_ns", "idle_ns"]]
    assert (parts.sum(axis=1) == table["window_ns"]).all()
    low, high = min(row[1] for row in rows), max(row[1] + row[2] for row in rows)
    whole = table.iloc[0]
    seen = {"kernel", "memcpy", "memset"}
    assert whole["active_ns"] == painted(rows, {"kernel"}, low, high)
    assert whole["copies_union_ns"] == painted(rows, {"memcpy", "memset"}, low, high)
    assert whole["idle_ns"] == high - low - painted(rows, {*seen, "graph"}, low, high)
    assert whole["kernel_sum_ns"] == sum(length for kind, _, length in rows if kind == "kernel")
    assert whole["kernels"] == sum(kind == "kernel" for kind, _, _ in rows)
    merged = table.iloc[-1]
    assert merged["window_ns"] == 180
    assert merged["active_ns"] == painted(rows, {"kernel"}, 20, 200)


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(st.lists(intervals, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows: list[tuple[str, int, int]], random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    pd.testing.assert_frame_equal(breakdown(rows), breakdown(shuffled))
