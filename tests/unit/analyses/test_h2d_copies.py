from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracekit.analyses.copies.tables import NO_BYTES
from tracekit.analyses.h2d_copies import NO_COPIES, SHAPES_MISSING
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS

from tests.builders import Row, host, kernel, make_run, memcpy, step
from tests.tiers import UNTIMED, examples
from tracekit.analysis import analyze, compare
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import random
    from pathlib import Path

NO_STACKS = "no stacks were recorded, so no source lines: record stacks (`tracekit collect --stacks`)"

SHAPES = {C.INPUT_SHAPES: "[[8,4],[8,4],[]]", C.INPUT_DTYPES: '["float","float","Scalar"]'}


def up(start: int, end: int, size: int | None = 128, **more: Any) -> Row:
    ends = {C.COPY_KIND: "H2D", C.SRC_MEMORY: "pageable", C.DST_MEMORY: "device"}
    return memcpy(start, end, **{**ends, C.BYTES: size, **more})


def call(name: str, start: int, end: int, parent: int | None = None, *, kind: str = HostKind.RUNTIME) -> Row:
    return host(name, start, end, kind=kind, **{C.PARENT_ROW: parent})


def plain(frame: pd.DataFrame) -> list[list[Any]]:
    """Rows with None where a value is missing."""
    return frame.astype(object).where(frame.notna(), None).to_numpy().tolist()


def test_copies_are_described_by_device_and_step(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[
            host("aten::to", 0, 40),
            host("aten::copy_", 0, 40, **{C.PARENT_ROW: 0, C.STACK: "train.py(3): f", **SHAPES}),
            call("cudaMemcpyAsync", 1, 6, 1),
            call("cudaStreamSynchronize", 8, 31, 1, kind=HostKind.SYNC),
            call("cudaMemcpyAsync", 50, 54),
            call("cudaDeviceSynchronize", 55, 90, kind=HostKind.SYNC),
        ],
        device_intervals=[
            kernel(0, 14),
            up(10, 20, **{C.STEP: 3, C.OP_ROW: 1, C.LAUNCH_ROW: 2}),
            up(15, 30, **{C.STEP: 3, C.OP_ROW: 1, C.LAUNCH_ROW: 2, C.STREAM: 9}),
            up(60, 64, 8, **{C.LAUNCH_ROW: 4, C.SRC_MEMORY: "pinned"}),
            up(0, 7, None, **{C.DEVICE: 1, C.STEP: 3}),
            memcpy(0, 50, **{C.COPY_KIND: "D2H", C.BYTES: 8}),
        ],
        steps=[step(3, 0, 100)],
    )
    result = analyze(run, "h2d_copies")
    assert plain(result.tables["per_step"]) == [
        [0, 0, 3, 2, 256, 25, 20, 16, 256 / 25, 256 / 20, 256, 1.0, 2 * (5 + 23)],
        [0, 0, None, 1, 8, 4, 4, 4, 2.0, 2.0, None, None, 4],
        [0, 1, 3, 1, None, 7, 7, 7, None, None, None, None, None],
    ]
    groups = result.tables["groups"].set_index("first_row")
    assert plain(groups.loc[[1], ["op", "bytes_each", "memory", "copies", "copies_per_step", "bytes"]]) == [
        ["aten::copy_", 128, "pageable", 2, 2.0, 256]
    ]
    assert plain(groups.loc[[1], ["sum_ns", "median_ns", "gb_per_s", "blocked_ns", "exposed_ns"]]) == [
        [25, 10, 256 / 25, 56, 16]
    ]
    assert plain(groups.loc[[1, 3], ["source", "outer_op"]]) == [
        ["train.py(3): f", "aten::to"],
        ["", "(no op recorded)"],
    ]
    assert plain(result.tables["sizes"]) == [
        [8, 16, 1, 8, 4, 4, 2.0, 2.0],
        [128, 256, 2, 256, 25, 20, 10.24, 12.8],
        [None, None, 1, None, 7, 7, None, None],
    ]
    assert result.notes == (NO_BYTES,)


def test_needed_bytes_follow_the_source_that_is_spread(tmp_path: Path) -> None:
    """A broadcast source is written out before it is copied."""
    spread = {C.INPUT_SHAPES: "[[8,4],[1,4],[]]", C.INPUT_DTYPES: '["float","float","Scalar"]'}
    run = make_run(
        tmp_path,
        host_intervals=[host("aten::copy_", 0, 9, **spread), host("aten::nonzero", 10, 19, **SHAPES)],
        device_intervals=[up(0, 5, **{C.OP_ROW: 0}), up(20, 25, **{C.OP_ROW: 1, C.DEVICE: 1})],
    )
    table = analyze(run, "h2d_copies").tables["per_step"]
    assert plain(table[["needed_bytes", "excess"]]) == [[16, 8.0], [None, None]]


def test_rates_of_copies_at_once_add_up(tmp_path: Path) -> None:
    copies = [up(100, 120, 400), up(110, 150, 400), up(120, 120, 900), up(130, 140, None)]
    run = make_run(tmp_path, device_intervals=[*copies, up(200, 300, 100, **{C.DEVICE: 1})])
    assert plain(analyze(run, "h2d_copies").tables["rates"]) == [
        [0, 0, 100, 10, 200, 20.0],
        [0, 0, 110, 10, 300, 30.0],
        [0, 0, 120, 30, 300, 10.0],
        [0, 1, 200, 100, 100, 1.0],
    ]
    many = [up(10 * at, 10 * at + 5, 50) for at in range(1000)]
    table = analyze(make_run(tmp_path / "many", device_intervals=many), "h2d_copies").tables["rates"]
    assert (len(table), int(table[C.BYTES].sum())) == (64, 50_000)


def test_sizes_are_half_open_powers_of_two(tmp_path: Path) -> None:
    sizes = [0, 1, 2, 3, 4, (1 << 40) - 1, 1 << 40]
    run = make_run(
        tmp_path, device_intervals=[up(10 * at, 10 * at + 1, size) for at, size in enumerate(sizes)]
    )
    assert plain(analyze(run, "h2d_copies").tables["sizes"][["from_bytes", "to_bytes", "copies"]]) == [
        [0, 1, 1],
        [1, 2, 1],
        [2, 4, 2],
        [4, 8, 1],
        [1 << 39, 1 << 40, 1],
        [1 << 40, 1 << 41, 1],
    ]


def test_a_wait_that_is_not_the_copys_own_does_not_count(tmp_path: Path) -> None:
    rows = [
        host("aten::copy_", 0, 90),
        call("cudaMemcpyAsync", 1, 4, 0),
        call("cudaLaunchKernel", 5, 9, 0),
        call("cudaStreamSynchronize", 10, 60, 0, kind=HostKind.SYNC),
        host("aten::copy_", 100, 110),
        call("cudaMemcpyAsync", 101, 108, 4),
        call("cudaStreamSynchronize", 120, 160, kind=HostKind.SYNC),
    ]
    copies = [up(2, 3, **{C.LAUNCH_ROW: 1, C.OP_ROW: 0}), up(105, 106, **{C.LAUNCH_ROW: 5, C.OP_ROW: 4})]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=copies)
    assert analyze(run, "h2d_copies").tables["groups"]["blocked_ns"].tolist() == [3 + 7]


def test_calls_of_another_thread_do_not_part_a_copy_from_its_wait(tmp_path: Path) -> None:
    rows = [
        host("aten::copy_", 0, 90),
        call("cudaMemcpyAsync", 1, 4, 0),
        call("cudaStreamSynchronize", 5, 60, 0, kind=HostKind.SYNC),
        host("cudaMemcpyAsync", 3, 5, kind=HostKind.RUNTIME, tid=2),
    ]
    copies = [up(2, 3, **{C.LAUNCH_ROW: 1, C.OP_ROW: 0}), up(4, 5, **{C.LAUNCH_ROW: 3})]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=copies)
    assert sorted(analyze(run, "h2d_copies").tables["groups"]["blocked_ns"]) == [2, 3 + 55]


def test_the_wait_of_the_next_op_does_not_count(tmp_path: Path) -> None:
    rows = [
        host("aten::copy_", 0, 10),
        call("cudaMemcpyAsync", 1, 4, 0),
        host("aten::copy_", 20, 90),
        call("cudaStreamSynchronize", 21, 80, 2, kind=HostKind.SYNC),
        call("cudaMemcpyAsync", 81, 86, 2),
    ]
    copies = [up(2, 3, **{C.LAUNCH_ROW: 1, C.OP_ROW: 0}), up(82, 84, **{C.LAUNCH_ROW: 4, C.OP_ROW: 2})]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=copies)
    assert analyze(run, "h2d_copies").tables["groups"]["blocked_ns"].tolist() == [3 + 5]


def test_the_users_own_wait_after_a_copy_outside_of_ops_does_not_count(tmp_path: Path) -> None:
    rows = [
        host("train.py(1): f", 0, 90, kind=HostKind.PYTHON),
        call("cudaMemcpyAsync", 1, 4, 0),
        call("cudaStreamSynchronize", 5, 60, 0, kind=HostKind.SYNC),
        host("aten::copy_", 100, 110),
        call("cudaMemcpyAsync", 101, 108, 3),
        host("aten::sum", 111, 150),
        call("cudaStreamSynchronize", 112, 140, 5, kind=HostKind.SYNC),
    ]
    copies = [up(2, 3, **{C.LAUNCH_ROW: 1}), up(105, 106, **{C.LAUNCH_ROW: 4, C.OP_ROW: 3})]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=copies)
    assert sorted(analyze(run, "h2d_copies").tables["groups"]["blocked_ns"]) == [3, 7]


def test_ranks_and_devices_stay_apart(tmp_path: Path) -> None:
    rows = [up(0, 10, **{C.RANK: rank, C.DEVICE: device}) for rank in (0, 1) for device in (0, 1)]
    run = make_run(tmp_path, device_intervals=[*rows, kernel(0, 10, **{C.RANK: 1, C.DEVICE: 0})])
    table = analyze(run, "h2d_copies").tables["per_step"]
    assert plain(table[[C.RANK, C.DEVICE, "copies", "union_ns", "exposed_ns"]]) == [
        [0, 0, 1, 10, 10],
        [0, 1, 1, 10, 10],
        [1, 0, 1, 10, 0],
        [1, 1, 1, 10, 10],
    ]


@pytest.mark.parametrize(
    ("rows", "notes"),
    [
        ([], (NO_DEVICE,)),
        ([kernel(0, 5)], (NO_COPIES,)),
        ([up(0, 0)], (SHAPES_MISSING, NO_STEPS, NO_STACKS)),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, rows: list[Row], notes: tuple[str, ...]) -> None:
    assert analyze(make_run(tmp_path, device_intervals=rows), "h2d_copies").notes == notes


INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans(), st.integers(0, 1), st.integers(0, 1)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(25), suppress_health_check=[*UNTIMED, HealthCheck.function_scoped_fixture])
@given(INTERVALS, st.randoms(use_true_random=False))
def test_parts_sum_to_wholes_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int, bool, int, int]],
    shuffler: random.Random,
) -> None:
    rows = [
        (up if copies else kernel)(start, start + size, **{C.ROW_ID: at, C.DEVICE: device, C.STEP: at % 2})
        for at, (start, size, copies, device, _) in enumerate(drawn)
    ]
    rows.append(up(0, 1, **{C.ROW_ID: len(rows), C.STEP: 0}))
    tables = analyze(make_run(tmp_path_factory.mktemp("a"), device_intervals=rows), "h2d_copies").tables
    shuffler.shuffle(rows)
    again = analyze(make_run(tmp_path_factory.mktemp("b"), device_intervals=rows), "h2d_copies").tables
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name])
    whole = [(row[C.DUR_NS], row[C.BYTES]) for row in rows if row.get(C.COPY_KIND)]
    for name in ("per_step", "groups", "sizes"):
        assert tables[name]["sum_ns"].sum() == sum(took for took, _ in whole)
        assert tables[name]["bytes"].sum() == sum(size for _, size in whole)
        assert tables[name]["copies"].sum() == len(whole)
    steps = tables["per_step"]
    assert (steps["exposed_ns"] <= steps["union_ns"]).all()
    assert (steps["union_ns"] <= steps["sum_ns"]).all()


def test_copies_are_matched_by_order_where_shapes_are_unknown(tmp_path: Path) -> None:
    def run(name: str, *sizes: int) -> Any:
        rows = [up(10 * at, 10 * at + 5, size, **{C.STEP: 0}) for at, size in enumerate(sizes)]
        return make_run(tmp_path / name, device_intervals=rows, steps=[step(0, 0, 100)])

    result = compare(run("base", 4000, 256), run("head", 8000, 256, 64), "h2d_copies")
    assert plain(result.tables["causes"][["cause", "base_bytes", "head_bytes"]]) == [
        ["unknown", 4000, 8000],
        ["one run only", 0, 64],
        ["", 256, 256],
    ]
    assert plain(result.tables["totals"].iloc[:, :3]) == [[4256, 8320, 8320 / 4256]]
    assert [finding.code for finding in result.findings] == [
        "h2d_compare_one_side",
        "h2d_compare_unknown",
    ]
    assert [finding.evidence for finding in result.findings] == [
        {"device_intervals": [2]},
        {"device_intervals": [0]},
    ]


@pytest.mark.slow
def test_a_copy_in_one_run_only_is_no_duplicate(tmp_path: Path) -> None:
    base = make_run(tmp_path / "base", device_intervals=[kernel(0, 9)], steps=[step(0, 0, 10)])
    head = make_run(tmp_path / "head", device_intervals=[up(0, 9, **{C.STEP: 0})], steps=[step(0, 0, 10)])
    for one, other in ((base, head), (head, base)):
        result = compare(one, other, "h2d_copies")
        assert result.tables["causes"]["cause"].tolist() == ["one run only"]
        assert [finding.code for finding in result.findings] == ["h2d_compare_one_side"]
    assert compare(base, base, "h2d_copies").notes == ("neither run has host-to-device copies",)
