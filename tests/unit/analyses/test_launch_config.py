from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.launch_config import NO_KERNELS, NO_LIMITS, NO_SHAPES, SEARCHES, configs
from tracekit.analyses.launch_config.configs import kind_of
from tracekit.analyses.shared.common import NO_DEVICE
from tracekit.analyses.shared.host_rows import NO_OP

from tests.builders import host, kernel, make_run, memcpy, step
from tracekit.analysis import analyze, compare
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import Row

    Side = tuple[str | None, Row]

GPU = {
    "index": 0,
    "sm_count": 10,
    "compute_capability": "8.0",
    "max_threads_per_sm": 2048,
    "registers_per_sm": 65536,
    "shared_bytes_per_sm": 167936,
    "warp_size": 32,
}
META = {"environment": {"gpus": [GPU]}}
KEYS = ["op", "family", C.GRID_X, C.BLOCK_X, "launches", "total_ns", "median_ns"]


def grid(x: int, *, block: int = 128, registers: int | None = 32, shared: int | None = 0) -> Row:
    return {
        C.GRID_X: x,
        C.GRID_Y: 1,
        C.GRID_Z: 1,
        C.BLOCK_X: block,
        C.BLOCK_Y: 1,
        C.BLOCK_Z: 1,
        C.REGISTERS: registers,
        C.DYNAMIC_SHARED_BYTES: shared,
    }


def op(row: int, name: str, shapes: str | None = None) -> Row:
    return host(name, 0, 1000, **{C.ROW_ID: row, C.INPUT_SHAPES: shapes})


def resident(sm: dict[str, Any], *, threads: int, registers: int, shared: int) -> Any:
    table = pd.DataFrame({C.DEVICE: [0], "block_threads": [threads]}).assign(
        **{C.REGISTERS: pd.array([registers], "Int64"), "shared_bytes": pd.array([shared], "Int64")}
    )
    fields = {"count": 10, "threads": 2048, "registers": 65536, "shared_bytes": 167936, "warp": 32}
    return configs.resident_blocks(table, {0: configs.Sm(**{**fields, **sm})}).tolist()[0]


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "expected"),
    [
        ("8.0", 1024, 16, 0, 2),  # threads
        ("8.0", 128, 33, 0, 12),  # 33 registers of 32 threads are rounded up to 1280, so 12 warps a quarter
        ("8.0", 96, 32, 0, 21),  # 64 warps in blocks of 3
        ("8.0", 32, 16, 0, 32),  # blocks
        ("8.6", 32, 16, 0, 16),
        ("8.0", 128, 16, 48 * 1024, 3),  # 48 KiB and 1 KiB for the system
        ("8.0", 128, 16, 167936 // 4, 3),
        ("7.0", 128, 16, 48 * 1024, 3),
        ("7.0", 128, 16, 1, 16),
        ("8.0", 128, 16, 200 * 1024, pd.NA),  # does not fit
        ("9.4", 128, 16, 0, pd.NA),  # an architecture that is not known
    ],
)
def test_the_tightest_limit_bounds_the_resident_blocks(
    capability: str, threads: int, registers: int, shared: int, expected: Any
) -> None:
    got = resident({"capability": capability}, threads=threads, registers=registers, shared=shared)
    assert got is expected or got == expected


def test_kernels_are_grouped_by_configuration(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        meta=META,
        host_intervals=[op(0, "aten::relu", "[[16,160]]"), op(1, "aten::relu", "[[8],[]]")],
        device_intervals=[
            kernel(0, 30, **{C.NAME: "a<1>", C.OP_ROW: 0, **grid(20)}),
            kernel(30, 50, **{C.NAME: "a<2>", C.OP_ROW: 0, **grid(20)}),
            kernel(50, 60, **{C.NAME: "a<1>", C.OP_ROW: 0, **grid(240)}),
            kernel(60, 61, **{C.NAME: "a<1>", C.OP_ROW: 1, **grid(20)}),
            kernel(70, 73, **{C.NAME: "a<1>"}),
            memcpy(80, 90),
        ],
    )
    result = analyze(run, "launch_config")
    table = result.tables["configs"]
    assert table[KEYS].to_numpy().tolist() == [
        ["aten::relu", "a", 20, 128, 2, 50, 20],
        ["aten::relu", "a", 240, 128, 1, 10, 10],
        ["aten::relu", "a", 20, 128, 1, 1, 1],
    ]
    assert table["numel"].tolist() == [2560, 2560, 8]
    assert table["waves"].tolist() == [20 / 160, 240 / 160, 20 / 160]
    assert table["tail_share"].tolist() == [1 - 0.125, 0.25, 1 - 0.125]
    assert table["threads_per_element"].tolist() == [1, 12, 320]
    assert table["share"].sum() == 1
    assert table["first_row"].tolist() == [0, 2, 3]
    assert result.notes[0].startswith("1 of 5 kernels have no grid")


def test_what_the_trace_does_not_say_is_missing_and_no_guess(tmp_path: Path) -> None:
    amd = {**GPU, "registers_per_sm": None, "shared_bytes_per_sm": None, "compute_capability": "9.0"}
    bare = {**grid(20, registers=None, shared=None), C.OCCUPANCY_PCT: 0.0}
    run = make_run(
        tmp_path,
        meta={"environment": {"gpus": [amd]}},
        host_intervals=[op(0, "aten::relu")],
        device_intervals=[kernel(0, 5, **{C.OP_ROW: 0, **bare})],
    )
    result = analyze(run, "launch_config")
    table = result.tables["configs"]
    unknown = ["numel", "waves", "tail_share", "resident_blocks", "threads_per_element", C.REGISTERS]
    assert table[[*unknown, "shared_bytes", "occupancy"]].isna().all(axis=None)
    assert (table["blocks_per_sm"].tolist(), table["threads"].tolist()) == ([2], [2560])
    assert result.notes == (NO_LIMITS, NO_SHAPES)


def test_ranks_and_devices_are_not_mixed(tmp_path: Path) -> None:
    places = [(0, 0), (0, 1), (1, 0)]
    run = make_run(
        tmp_path,
        meta=META,
        device_intervals=[
            kernel(0, 5, **{C.RANK: rank, C.DEVICE: device, **grid(20)}) for rank, device in places
        ],
    )
    table = analyze(run, "launch_config").tables["configs"]
    assert list(zip(table[C.RANK], table[C.DEVICE], table["launches"], strict=True)) == [
        (rank, device, 1) for rank, device in places
    ]
    assert table["waves"].isna().tolist() == [False, True, False]


def test_runs_without_kernels_or_grids_say_so(tmp_path: Path) -> None:
    empty = analyze(make_run(tmp_path / "a"), "launch_config")
    copies = analyze(make_run(tmp_path / "b", device_intervals=[memcpy(0, 1)]), "launch_config")
    bare = analyze(make_run(tmp_path / "c", device_intervals=[kernel(0, 1)]), "launch_config")
    assert [one.notes for one in (empty, copies)] == [(NO_DEVICE,), (NO_KERNELS,)]
    assert bare.notes[0].startswith("1 of 1 kernels have no grid")
    assert [one.tables for one in (empty, copies, bare)] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("name", "launching", "kind"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", "aten::cudnn_convolution", "fused"),
        ("cutlass_80_tensorop_s1688gemm_relu_f32", "aten::addmm", "fused"),
        ("sm80_xmma_fprop_implicit_gemm_relu", "aten::relu", "fused"),
        ("elementwise_kernel<threshold_kernel_impl>", "aten::threshold_backward", "relu"),
        ("elementwise_kernel<clamp_min_scalar_kernel_impl>", "aten::clamp_min", "relu"),
        ("launch_clamp_scalar", "aten::relu_", "relu"),
        ("elementwise_kernel<threshold_kernel_impl>", NO_OP, "relu"),
        ("linear_relu_square_kernel", NO_OP, "other"),
        ("elementwise_kernel<leaky_relu_kernel>", "aten::leaky_relu", "other"),
        ("elementwise_kernel<leaky_relu_kernel>", NO_OP, "other"),
        ("triton_poi_fused_relu_0", "triton_poi_fused_relu_0", "compiled"),
        ("gemm", "aten::mm", ""),
    ],
)
def test_a_word_in_a_name_makes_no_relu(name: str, launching: str, kind: str) -> None:
    assert kind_of(name, launching) == kind


@pytest.mark.parametrize(("times", "codes"), [(1, []), (2, ["config_varies"])])
def test_grids_that_occur_once_may_follow_from_the_data(tmp_path: Path, times: int, codes: list[str]) -> None:
    hosts = [op(row, "aten::index", "[[8]]") for row in range(2 * times)]
    rows = [
        kernel(10 * row, 10 * row + 9, **{C.OP_ROW: row, **grid(10 + row % 2)}) for row in range(2 * times)
    ]
    run = make_run(tmp_path, meta=META, host_intervals=hosts, device_intervals=rows)
    assert [one.code for one in analyze(run, "launch_config").findings] == codes


@pytest.mark.parametrize("meta", [META, {}], ids=["device known", "device unknown"])
def test_one_block_is_serial_whether_or_not_the_device_is_known(tmp_path: Path, meta: Row) -> None:
    rows = [kernel(100_000 * row, 100_000 * row + 90_000, **grid(1)) for row in range(3)]
    run = make_run(tmp_path, meta=meta, device_intervals=rows)
    (finding,) = analyze(run, "launch_config").findings
    assert finding.code == "serial_kernel"
    assert ("one block on 10 SMs" in finding.title) is bool(meta)


@pytest.mark.parametrize(("kernels", "codes"), [(8, set()), (7, {"serial_kernel"})])
def test_a_search_for_an_algorithm_gets_no_advice(tmp_path: Path, kernels: int, codes: set[str]) -> None:
    """The first of three calls runs kernels of four families, the others one kernel each."""
    searched = [
        kernel(at * 100_000, at * 100_000 + 90_000, **{C.NAME: "abcd"[at % 4], C.OP_ROW: 0, **grid(1)})
        for at in range(kernels)
    ]
    later = [
        kernel(at, at + 1_000, **{C.NAME: "a", C.OP_ROW: at // 10**6, **grid(20)})
        for at in (10**6, 2 * 10**6)
    ]
    hosts = [op(row, "aten::conv2d", "[[8]]") for row in range(3)]
    result = analyze(
        make_run(tmp_path, meta=META, host_intervals=hosts, device_intervals=[*searched, *later]),
        "launch_config",
    )
    assert {one.code for one in result.findings} == codes
    assert [note for note in result.notes if "algorithm" in note] == (
        [] if codes else [SEARCHES.format(count=8)]
    )


@pytest.mark.parametrize(("beside", "codes"), [(40_000, ["serial_kernel"]), (50_000, [])])
def test_kernels_that_mostly_run_beside_others_are_not_serial(
    tmp_path: Path, beside: int, codes: list[str]
) -> None:
    rows = [kernel(100_000 * row, 100_000 * row + 90_000, **grid(1)) for row in range(3)]
    rows += [kernel(100_000 * row, 100_000 * row + beside, **grid(400)) for row in range(3)]
    found = analyze(make_run(tmp_path, meta=META, device_intervals=rows), "launch_config").findings
    assert [one.code for one in found if "1 block" in one.title or "one block" in one.title] == codes
    for one in found:
        assert one.saving_ns_per_step is None or one.saving_ns_per_step <= 3 * (90_000 - beside)


def test_shapes_of_lists_count_and_scalars_do_not() -> None:
    assert configs.shapes_of("[[8,3],[],[[2],[4,5]]]") == [(8, 3), (2,), (4, 5)]
    assert configs.shapes_of("") == []


def compared(
    tmp_path: Path, *sides: tuple[str | None, Row], batches: tuple[int, int] | None = None
) -> list[Any]:
    runs = []
    for number, (shapes, config) in enumerate(sides):
        workload = {"batch_size": batches[number]} if batches else None
        runs.append(
            make_run(
                tmp_path / str(number),
                meta={"workload": workload},
                steps=[step(0, 0, 1000)],
                host_intervals=[op(0, "mine", shapes)],
                device_intervals=[kernel(0, 500, **{C.OP_ROW: 0, C.STEP: 0, **config})],
            )
        )
    result = compare(*runs, "launch_config")
    table = result.tables.get("changes")
    verdicts = [] if table is None else table["verdict"].tolist()
    return [verdicts, [one.code for one in result.findings]]


def test_causes_are_named_on_evidence_alone(tmp_path: Path) -> None:
    work, config = ["different work"], ["same work"]
    one, two = grid(10), grid(20)
    cases = [
        (("[[8]]", one), ("[[16]]", two), work, ["launch_work_differs"]),
        (("[[8]]", one), ("[[8]]", two), config, ["launch_config_changed"]),
        (("[[8]]", one), ("[[8]]", grid(10, block=256)), config, ["launch_config_changed"]),
        (("[[8]]", one), ("[[24]]", two), ["unknown"], []),
        (("[[8]]", one), ("[[16]]", one), ["unknown"], []),
        ((None, one), (None, two), ["unknown"], []),
        (("[[8]]", one), ("[[8]]", one), [], []),
    ]
    got = [compared(tmp_path / str(number), base, head) for number, (base, head, *_) in enumerate(cases)]
    assert got == [[verdict, codes] for *_, verdict, codes in cases]
    batches = compared(tmp_path / "batches", (None, one), (None, two), batches=(16, 32))
    assert batches == [work, ["launch_work_differs"]]
