"""The roofline of hand-made runs: whole tables, what is counted once, and what is said to be unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracekit.analyses import roofline
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS, NOT_RECORDED

from tests.builders import Row, device, host, kernel, make_run, step
from tests.tiers import UNTIMED, examples
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.analysis import Result

SHAPES, HALF = "[[64,64],[64,64]]", '["c10::Half","c10::Half"]'
FLOPS, BYTES = 2 * 64**3, 3 * 64 * 64 * 2


def a100(*indices: int) -> Row:
    gpus = [{"index": index, "name": "NVIDIA A100-SXM4-40GB"} for index in indices or (0,)]
    return {"environment": {"gpus": gpus}}


def mm(start: int, end: int, **more: Any) -> Row:
    known = {C.INPUT_SHAPES: SHAPES, C.INPUT_DTYPES: HALF, C.FLOPS: FLOPS}
    return host("aten::mm", start, end, **{**known, **more})


def analyzed(
    path: Path, ops: list[Row], kernels: list[Row], *, meta: Row | None = None, **more: Any
) -> Result:
    run = make_run(
        path, meta=a100() if meta is None else meta, host_intervals=ops, device_intervals=kernels, **more
    )
    return roofline.compute(run)


def rows(result: Result, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = result.tables[table][list(columns)].astype(object)
    return list(frame.where(frame.notna(), None).itertuples(index=False, name=None))


def test_whole_tables(tmp_path: Path) -> None:
    ops = [
        mm(0, 10),
        host("aten::relu", 20, 30, **{C.INPUT_SHAPES: "[[64,64]]", C.INPUT_DTYPES: '["c10::Half"]'}),
    ]
    kernels = [kernel(10, 20, **{C.OP_ROW: 0, C.STEP: 4}), kernel(30, 50, **{C.OP_ROW: 1, C.STEP: 4})]
    result = analyzed(tmp_path, ops, kernels, steps=[step(4, 0, 40)])
    roof = FLOPS / 312_000
    expected = {
        "op": ["aten::relu", "aten::mm"],
        C.INPUT_SHAPES: ["[[64,64]]", SHAPES],
        "precision": ["fp16", "fp16"],
        "calls": [1, 1],
        "device_ns": [20, 10],
        "utilization": [2 * 8192 / 1555 / 20, BYTES / 1555 / 10],
        "bound": ["memory", "memory"],
        "tflops": [None, FLOPS / 10_000],
        "gb_per_s": [2 * 8192 / 20, BYTES / 10],
        "intensity": [None, FLOPS / BYTES],
        C.FLOPS: [None, FLOPS],
        C.BYTES: [2 * 8192, BYTES],
        "roof_ns": [11, 16],
        "peak_tflops": [None, 312],
        "peak_gb_per_s": [1555, 1555],
        "sum_ns": [20, 10],
        "share": [2 / 3, 1 / 3],
        C.RANK: [0, 0],
        C.DEVICE: [0, 0],
    }
    pd.testing.assert_frame_equal(result.tables["ops"], pd.DataFrame(expected), check_dtype=False)
    assert rows(result, "families", "op", "calls", "device_ns", C.FLOPS, C.BYTES, "roof_ns", "sum_ns") == [
        ("aten::relu", 1, 20, None, 2 * 8192, 11, 20),
        ("aten::mm", 1, 10, FLOPS, BYTES, 16, 10),
    ]
    measures = ("window_ns", "matrix_ns", "uncounted_ns", C.FLOPS, "mfu", "tflops")
    assert rows(result, "summary", C.RANK, C.DEVICE, *measures) == [
        (0, 0, 40, 10, 0, FLOPS, pytest.approx(roof / 40), FLOPS / 40_000)
    ]
    assert rows(result, "per_step", C.STEP, *measures) == [
        (4, 50, 10, 0, FLOPS, pytest.approx(roof / 50), FLOPS / 50_000)
    ]
    (note,) = result.notes
    assert note.startswith("1 row (op, shapes and precision) is above the roof, the highest at 158.0%")
    assert "exceeds the memory bandwidth" in note


def test_work_counts_at_the_innermost_op_that_has_flops(tmp_path: Path) -> None:
    ops = [
        host("aten::linear", 0, 90, **{C.INPUT_SHAPES: SHAPES, C.INPUT_DTYPES: HALF, C.FLOPS: FLOPS}),
        mm(10, 80, **{C.PARENT_ROW: 0}),
        host("aten::contiguous", 20, 70, **{C.PARENT_ROW: 1}),
        host("frame.py(1): f", 30, 60, kind=HostKind.PYTHON, **{C.PARENT_ROW: 2}),
    ]
    kernels = [kernel(100 + 10 * row, 105 + 10 * row, **{C.OP_ROW: row}) for row in range(3)]
    result = analyzed(tmp_path, ops, kernels)
    assert rows(result, "families", "op", "calls", "device_ns", C.FLOPS) == [
        ("aten::mm", 1, 10, FLOPS),
        ("aten::linear", 1, 5, None),
    ]
    assert rows(result, "summary", C.FLOPS, "matrix_ns", "uncounted_ns") == [(FLOPS, 10, 0)]


def test_overlapping_kernels_of_a_group_are_united_and_summed(tmp_path: Path) -> None:
    kernels = [
        kernel(0, 100, **{C.OP_ROW: 0, C.STREAM: 7}),
        kernel(50, 150, **{C.OP_ROW: 1, C.STREAM: 8}),
        kernel(150, 150, **{C.OP_ROW: 1}),
    ]
    result = analyzed(tmp_path, [mm(0, 1), mm(2, 3)], kernels)
    assert rows(result, "ops", "calls", "device_ns", "sum_ns", "tflops") == [
        (2, 150, 200, 2 * FLOPS / 150_000)
    ]


def test_overlapping_groups_of_an_op_are_united(tmp_path: Path) -> None:
    ops = [mm(0, 1), mm(2, 3, **{C.INPUT_SHAPES: "[[64,8],[8,64]]"})]
    kernels = [kernel(0, 100, **{C.OP_ROW: 0}), kernel(50, 150, **{C.OP_ROW: 1})]
    result = analyzed(tmp_path, ops, kernels)
    assert rows(result, "ops", "device_ns") == [(100,), (100,)]
    assert rows(result, "families", "device_ns", "sum_ns", "tflops") == [(150, 200, 2 * FLOPS / 150_000)]


def test_ranks_and_devices_stay_apart(tmp_path: Path) -> None:
    ops = [mm(0, 1), mm(2, 3), mm(4, 5, **{C.RANK: 1})]
    kernels = [
        kernel(0, 10, **{C.OP_ROW: 0, C.DEVICE: 0}),
        kernel(0, 30, **{C.OP_ROW: 1, C.DEVICE: 1}),
        kernel(0, 40, **{C.OP_ROW: 2, C.DEVICE: 0, C.RANK: 1}),
    ]
    result = analyzed(tmp_path, ops, kernels, meta=a100(0, 1))
    assert rows(result, "summary", C.RANK, C.DEVICE, "window_ns", C.FLOPS) == [
        (0, 0, 10, FLOPS),
        (0, 1, 30, FLOPS),
        (1, 0, 40, FLOPS),
    ]
    assert rows(result, "ops", C.RANK, C.DEVICE, "device_ns", "share") == [
        (1, 0, 40, 1),
        (0, 1, 30, 1),
        (0, 0, 10, 1),
    ]


def test_kernels_without_an_op_or_without_shapes_are_uncounted(tmp_path: Path) -> None:
    ops = [mm(0, 1), host("aten::convolution", 2, 3)]
    kernels = [
        kernel(0, 10, **{C.OP_ROW: 0}),
        kernel(10, 15, **{C.NAME: "nvjet_tst_64x8"}),
        kernel(20, 24, **{C.OP_ROW: 1}),
        kernel(30, 90, **{C.NAME: "elementwise"}),
    ]
    result = analyzed(tmp_path, ops, kernels)
    assert rows(result, "summary", "matrix_ns", "uncounted_ns", "mfu") == [
        (10, 9, pytest.approx(FLOPS / 312_000 / 90))
    ]
    assert "ran for up to 10.0% of a device's window" in result.notes[0]


def test_no_utilization_is_given_where_most_of_the_work_is_unknown(tmp_path: Path) -> None:
    kernels = [kernel(0, 10, **{C.OP_ROW: 0}), kernel(10, 30, **{C.NAME: "ampere_sgemm"})]
    assert rows(analyzed(tmp_path, [mm(0, 1)], kernels), "summary", "mfu") == [(None,)]


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("names", "precision"),
    [
        (["ampere_sgemm_128x64_tn"], "fp32"),
        (["sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ffma"], "fp32"),
        (["kernel"], "fp32"),
        (["cutlass_80_tensorop_s1688gemm_128x128"], "tf32"),
        (["sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n"], "tf32"),
        (["sm80_xmma_gemm_tf32f32_f32f32_f32_tn_n"], "tf32"),
        (["splitKreduce_kernel", "sm80_xmma_fprop_implicit_gemm_tf32f32"], "tf32"),
    ],
)
def test_tf32_is_told_by_a_name_among_the_kernels_of_the_call(
    names: list[str], precision: str, tmp_path: Path
) -> None:
    kernels = [kernel(10 * at, 10 * at + 5, **{C.OP_ROW: 0, C.NAME: name}) for at, name in enumerate(names)]
    result = analyzed(tmp_path, [mm(0, 1, **{C.INPUT_DTYPES: '["float","float"]'})], kernels)
    assert rows(result, "ops", "precision", "peak_tflops") == [
        (precision, {"fp32": 19.5, "tf32": 156}[precision])
    ]
    assert ("kernel names of some" in " ".join(result.notes)) == (names == ["kernel"])


def test_a_precision_without_a_known_peak_has_rates_only(tmp_path: Path) -> None:
    ops = [mm(0, 1, **{C.INPUT_DTYPES: '["c10::complex<float>","c10::complex<float>"]'})]
    result = analyzed(tmp_path, ops, [kernel(0, 10, **{C.OP_ROW: 0})])
    assert rows(result, "ops", "precision", "tflops", "utilization", "bound", "roof_ns") == [
        ("c10::complex<float>", FLOPS / 10_000, None, None, None)
    ]
    assert rows(result, "summary", "mfu", "peaks") == [(None, "c10::complex<float> unknown; 1555 GB/s")]


def test_work_on_the_host_is_told_by_its_own_time(tmp_path: Path) -> None:
    ops = [mm(0, 100), mm(200, 400), host("aten::linear", 500, 900, **{C.FLOPS: FLOPS})]
    ops.append(mm(600, 700, **{C.PARENT_ROW: 2}))
    result = analyzed(tmp_path, ops, [])
    expected = {
        "op": ["aten::mm"],
        C.INPUT_SHAPES: [SHAPES],
        "dtype": ["c10::Half"],
        "calls": [3],
        "host_ns": [400],
        "tflops": [3 * FLOPS / 400_000],
        "threads": pd.array([None], dtype="Int64"),
        C.FLOPS: [3.0 * FLOPS],
        C.RANK: [0],
    }
    assert list(result.tables) == ["host"]
    pd.testing.assert_frame_equal(result.tables["host"], pd.DataFrame(expected), check_dtype=False)
    assert result.notes == (NO_DEVICE, roofline.HOST_HAS_NO_PEAK)


def test_what_is_absent_is_named(tmp_path: Path) -> None:
    launch = host("cudaLaunchKernel", 0, 1, kind=HostKind.RUNTIME)
    plain, shaped = host("aten::mm", 0, 1), host("aten::sum", 0, 1, **{C.INPUT_SHAPES: "[[4]]"})
    unlinked, linked = kernel(0, 10), kernel(0, 10, **{C.OP_ROW: 0})
    cases: list[tuple[list[Row], list[Row], tuple[str, ...]]] = [
        ([], [], (NO_DEVICE, roofline.NO_SHAPES)),
        ([mm(0, 1), launch], [], (NOT_RECORDED,)),
        ([mm(0, 1)], [unlinked], (roofline.UNLINKED_NOTE,)),
        ([plain], [linked], (roofline.NO_SHAPES,)),
        ([shaped], [linked], (roofline.NO_WORK,)),
        ([mm(0, 1, **{C.FLOPS: None, C.INPUT_DTYPES: None})], [linked], (roofline.NOT_COUNTED,)),
    ]
    for number, (ops, kernels, expected) in enumerate(cases):
        result = analyzed(tmp_path / str(number), ops, kernels)
        assert (result.tables, result.notes) == ({}, expected)


def test_bytes_without_flops_give_no_utilization_of_the_model(tmp_path: Path) -> None:
    ops = [host("aten::relu", 0, 1, **{C.INPUT_SHAPES: "[[64]]", C.INPUT_DTYPES: '["float"]'})]
    result = analyzed(tmp_path, ops, [kernel(0, 10, **{C.OP_ROW: 0}), device("memcpy", 20, 30)])
    assert list(result.tables) == ["families", "ops", "kernels"]
    assert result.notes == (roofline.NO_FLOPS,)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([], "the name of a device was not recorded"),
        ([{"index": 0, "name": "Novel GPU"}], "the peaks of 'Novel GPU' are unknown"),
    ],
)
def test_an_unknown_device_is_said_to_be_unknown(gpus: list[Row], expected: str, tmp_path: Path) -> None:
    result = analyzed(
        tmp_path, [mm(0, 1)], [kernel(0, 10, **{C.OP_ROW: 0})], meta={"environment": {"gpus": gpus}}
    )
    assert result.notes[0].startswith(expected)
    assert result.notes[1:] == (NO_STEPS,)
    assert rows(result, "ops", "tflops", "utilization", "bound") == [(FLOPS / 10_000, None, None)]


@settings(max_examples=examples(8), suppress_health_check=[*UNTIMED, HealthCheck.function_scoped_fixture])
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    order=st.randoms(use_true_random=False),
)
def test_parts_sum_to_the_whole_in_any_order(
    spans: list[tuple[int, int, int, bool]], order: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each call is in one group, no kernel counts twice, and the order of equal starts does not matter."""
    ops = [
        mm(at, at + 1, **{C.INPUT_SHAPES: f"[[64,64],[64,{8 * at}]]", C.FLOPS: 8 * at}) for at in range(1, 5)
    ]
    kernels = [
        kernel(start, start + length, **{C.ROW_ID: at, C.OP_ROW: op, C.NAME: "gemm" if named else "k"})
        for at, (start, length, op, named) in enumerate(spans)
    ]
    result = analyzed(tmp_path_factory.mktemp("a"), ops, kernels)
    table = result.tables["ops"]
    launched = {op for _, _, op, _ in spans}
    assert table["sum_ns"].sum() == sum(length for _, length, _, _ in spans)
    assert table["calls"].sum() == len(launched)
    assert (
        table[C.FLOPS].sum()
        == result.tables["summary"][C.FLOPS].sum()
        == sum(8 * (op + 1) for op in launched)
    )
    moments = {moment for start, length, _, _ in spans for moment in range(start, start + length)}
    assert result.tables["summary"]["matrix_ns"].tolist() == [len(moments)]
    assert (table["device_ns"] <= table["sum_ns"]).all()
    order.shuffle(kernels)
    again = analyzed(tmp_path_factory.mktemp("b"), ops, kernels)
    for name, frame in result.tables.items():
        pd.testing.assert_frame_equal(frame, again.tables[name])
