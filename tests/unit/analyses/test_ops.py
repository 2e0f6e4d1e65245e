from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest
from tracekit.analyses.ops import NO_MEMORY, NO_OPS, NO_SHAPES
from tracekit.analyses.shared.common import UNLINKED

from tests.builders import host, kernel, make_run, memcpy, step
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run


def test_device_time_climbs_and_recursion_counts_once(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[
            host("mul", 0, 100, input_shapes="[[2]]"),
            host("user range", 5, 95, kind=HostKind.ANNOTATION, parent_row=0, depth=1),
            host("mul", 10, 60, parent_row=1, depth=2, input_shapes="[[1]]"),
            host("cudaLaunchKernel", 20, 30, kind=HostKind.RUNTIME, parent_row=2, depth=3),
            host("add", 200, 230),
        ],
        device_intervals=[
            kernel(40, 45, op_row=2, launch_row=3),
            memcpy(50, 57, op_row=0),
            kernel(300, 320, op_row=None),
        ],
        allocations=[
            {C.T_NS: 11, C.BYTES: 512, C.OP_ROW: 2},
            {C.T_NS: 12, C.BYTES: -128, C.OP_ROW: 2},
            {C.T_NS: 13, C.BYTES: 64, C.OP_ROW: 0, C.DEVICE: -1},
        ],
    )
    result = analyze(run, "ops")
    common = {"freed_bytes": 0, "allocated_bytes": 0, "host_allocated_bytes": 0}
    assert result.tables["ops"].to_dict("records") == [
        {
            "name": "mul",
            "calls": 2,
            "host_self_ns": 100,
            "host_total_ns": 100,
            "host_self_share": 100 / 130,
            "one_off_ns": 0,
            "launches": 2,
            "device_self_ns": 12,
            "device_total_ns": 12,
            "device_share": 1.0,
            "allocated_bytes": 512,
            "freed_bytes": 128,
            "host_allocated_bytes": 64,
        },
        {
            "name": "add",
            "calls": 1,
            "host_self_ns": 30,
            "host_total_ns": 30,
            "host_self_share": 30 / 130,
            "one_off_ns": 0,
            "launches": 0,
            "device_self_ns": 0,
            "device_total_ns": 0,
            "device_share": 0.0,
            **common,
        },
    ]
    columns = [C.INPUT_SHAPES, "host_self_ns", "host_total_ns", "device_self_ns", "device_total_ns"]
    assert result.tables["shapes"][columns].to_numpy().tolist() == [
        ["[[1]]", 50, 50, 5, 5],
        ["[[2]]", 50, 100, 7, 12],
        ["", 30, 30, 0, 0],
    ]
    assert result.notes == ()


def test_what_was_not_recorded_is_missing_and_not_zero(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path, host_intervals=[host("add", 0, 5)]), "ops")
    row = result.tables["ops"].iloc[0]
    assert all(pd.isna(row[name]) for name in ("launches", "device_total_ns", "allocated_bytes"))
    assert list(result.tables) == ["ops", "tree"]
    assert result.notes[1:] == (NO_MEMORY, NO_SHAPES)


def test_families_ops_and_kernels_sum_to_those_above_them(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[
            host("aten::linear", 0, 100),
            host("aten::addmm", 10, 60, parent_row=0, depth=1),
            host("autograd::engine::evaluate_function: AddmmBackward0", 100, 130),
            host("aten::add_", 140, 150),
        ],
        device_intervals=[
            kernel(0, 5, name="gemm_1", op_row=1, launch_row=1),
            kernel(5, 16, name="gemm_2", op_row=1, launch_row=1),
            kernel(16, 17, name="bias", op_row=1, launch_row=1),
            kernel(20, 23, name="add", op_row=3, launch_row=3),
            kernel(30, 37, name="lost"),
        ],
    )
    tree = analyze(run, "ops").tables["tree"]
    columns = [C.NAME, "parent", "device_self_ns", "host_self_ns", "longest_row", "host_row"]
    assert tree[columns].astype(object).where(tree[columns].notna(), None).values.tolist() == [
        ["matrix product", None, 17, 130, None, None],
        ["aten::addmm", 0, 17, 50, 1, 1],
        ["gemm", 1, 16, None, 1, None],
        ["bias", 1, 1, None, 2, None],
        ["aten::linear", 0, None, 50, None, 0],
        ["autograd::engine::evaluate_function: AddmmBackward0", 0, None, 30, None, 2],
        ["outside of ops", None, 7, None, None, None],
        ["(no op recorded)", 6, 7, None, 4, None],
        ["lost", 7, 7, None, 4, None],
        ["elementwise", None, 3, 10, None, None],
        ["aten::add_", 9, 3, 10, 3, 3],
        ["add", 10, 3, None, 3, None],
    ]
    assert tree.loc[tree["level"] == "family", "device_share"].tolist() == [17 / 27, 7 / 27, 3 / 27]


def test_no_ops_says_so(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path), "ops")
    assert (result.tables, result.notes) == ({}, (NO_OPS,))


def test_device_time_that_cannot_be_linked_is_missing_and_not_zero(tmp_path: Path) -> None:
    rows = [host("add", 0, 5), host("cudaLaunchKernel", 6, 7, kind=HostKind.RUNTIME)]
    unlinked = make_run(tmp_path / "a", host_intervals=rows, device_intervals=[kernel(8, 9)])
    outside = make_run(tmp_path / "b", host_intervals=rows, device_intervals=[kernel(8, 9, launch_row=1)])
    columns = ["launches", "device_self_ns", "device_total_ns", "device_share"]
    result = analyze(unlinked, "ops")
    assert result.tables["ops"][columns].isna().all(axis=None)
    assert result.notes[0] == UNLINKED
    assert analyze(outside, "ops").tables["ops"][columns[:3]].to_numpy().tolist() == [[0, 0, 0]]


def allocating(path: Path, lengths_ms: tuple[float, ...], *, steps: int) -> Run:
    """Calls of `aten::empty` of these lengths inside `aten::zeros`, each beside an `aten::mm` of 0.5 ms.

    Args:
        path: Where to make the run.
        lengths_ms: Self time of each `aten::empty`; there is one every 100 ms.
        steps: Number of marked steps of 100 ms.
    """
    half, rows = {C.INPUT_SHAPES: "[[64]]", C.INPUT_DTYPES: '["c10::Half"]'}, []
    for number, length_ms in enumerate(lengths_ms):
        start, length, inside = number * 100_000_000, int(length_ms * 1_000_000), {C.STEP: number}
        inside = inside if number < steps else {}
        rows += [
            host("aten::zeros", start, start + length + 10_000, **half, **inside),
            host("aten::empty", start, start + length, parent_row=len(rows), depth=1, **half, **inside),
            host("aten::mm", start + 90_000_000, start + 90_500_000, **inside),
        ]
    marks = [step(number, number * 100_000_000, (number + 1) * 100_000_000) for number in range(steps)]
    return make_run(path, host_intervals=rows, steps=marks)


def test_a_one_off_call_is_listed_apart_and_judged_as_the_median(tmp_path: Path) -> None:
    result = analyze(allocating(tmp_path, (84, 0.02, 0.03, 0.01, 0.02), steps=5), "ops")
    columns = [C.NAME, "host_self_ns", "one_off_ns"]
    assert result.tables["ops"][columns].to_numpy().tolist() == [
        ["aten::mm", 2_500_000, 0],
        ["aten::empty", 84_080_000, 83_980_000],
        ["aten::zeros", 50_000, 0],
    ]
    assert result.tables["shapes"]["one_off_ns"].tolist() == [0, 83_980_000, 0]
    (once,) = result.tables["one_offs"].to_dict("records")
    assert once == {
        C.RANK: 0,
        C.STEP: 0,
        C.NAME: "aten::empty",
        C.INPUT_SHAPES: "[[64]]",
        "host_self_ns": 84_000_000,
        "median_ns": 20_000,
        "others": 4,
    }
    assert result.findings == ()


@pytest.mark.parametrize(
    ("lengths_ms", "steps"),
    [
        ((84, 0.02, 0.02, 84, 0.02), 5),
        ((9.9, 0.02, 0.02, 0.02, 0.02), 5),
        ((84, 0.9, 0.9, 0.9, 0.9), 5),
        ((84, 0.02, 0.02, 0.02, 9), 5),
        ((84, 0.02, 0.02), 3),
        ((84, 0.02, 0.02, 0.02, 0.02), 0),
    ],
    ids=["again", "short", "usual", "not so much longer", "few", "unmarked"],
)
def test_calls_that_may_recur_are_no_one_offs(
    tmp_path: Path, lengths_ms: tuple[float, ...], steps: int
) -> None:
    result = analyze(allocating(tmp_path, lengths_ms, steps=steps), "ops")
    assert "one_offs" not in result.tables
    assert result.tables["ops"][C.NAME].iloc[0] == "aten::empty"
    if lengths_ms[0] > 80:
        assert [finding.code for finding in result.findings] == ["host_half_precision"]
