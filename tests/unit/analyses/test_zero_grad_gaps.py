from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses import zero_grad_gaps
from tracekit.analyses.shared.common import NO_DEVICE
from tracekit.analyses.zero_grad_gaps import HOST_ONLY, NO_RANGES

from tests.builders import host, kernel, make_run, memset, step
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import Row
    from tracekit.runs.run import Run

NAME = "Optimizer.zero_grad#SGD.zero_grad"
MEASURES = [
    "mode",
    "kernels",
    "kernel_ns",
    "idle_ns",
    C.DUR_NS,
    "saving_ns",
    "memsets",
    "memset_ns",
    "span_ns",
]


def annotation(name: str, start: int, end: int, **more: Any) -> Row:
    return host(name, start, end, kind=HostKind.ANNOTATION, **more)


def launch(row: int, start: int, **more: Any) -> Row:
    return host("cudaLaunchKernel", start, start + 2, kind=HostKind.RUNTIME, **{C.ROW_ID: row, **more})


def measured(run: Run) -> list[list[Any]]:
    rows: list[list[Any]] = analyze(run, "zero_grad_gaps").tables["ranges"][MEASURES].to_numpy().tolist()
    return rows


def test_idle_is_what_nothing_on_the_device_fills(tmp_path: Path) -> None:
    """From 10 to 60, with 10-14, 20-24, 50-60 of its own and 30-45 of another stream, 5 of it overlapped."""
    run = make_run(
        tmp_path,
        host_intervals=[
            annotation(NAME, 0, 100, **{C.ROW_ID: 0, C.DEPTH: 0}),
            *(launch(row, 10 * row) for row in (1, 2, 3, 4)),
            launch(9, 100),
        ],
        device_intervals=[
            kernel(10, 14, **{C.LAUNCH_ROW: 1}),
            kernel(20, 24, **{C.LAUNCH_ROW: 2}),
            kernel(22, 24, **{C.LAUNCH_ROW: 3, C.STREAM: 9}),
            memset(50, 60, **{C.LAUNCH_ROW: 4}),
            kernel(30, 45, **{C.STREAM: 9}),
            kernel(70, 90, **{C.LAUNCH_ROW: 9}),
            kernel(11, 90, **{C.DEVICE: 1}),
        ],
    )
    # the shortest fill, 2 ns, is paid 3 times too often
    assert measured(run) == [["per_parameter", 3, 8, 50 - 8 - 10 - 15, 100, 17 + 3 * 2, 1, 10, 50]]


def test_what_a_fill_writes_is_no_saving(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[annotation(NAME, 0, 100), launch(1, 10), launch(2, 20), launch(3, 30)],
        device_intervals=[
            kernel(9_000 * row, 9_000 * row + 8_000, **{C.LAUNCH_ROW: row}) for row in (1, 2, 3)
        ],
    )
    (row,) = analyze(run, "zero_grad_gaps").tables["ranges"].to_dict("records")
    assert row["saving_ns"] == 2 * 1_000 + 2 * 2_000


def test_nested_ranges_are_one_and_the_outermost_names_it(tmp_path: Path) -> None:
    rows = [
        host("torch/optim/optimizer.py(1019): zero_grad", 0, 50, kind=HostKind.PYTHON),
        annotation(NAME, 0, 50, **{C.DEPTH: 1}),
        annotation(NAME, 60, 70),
        annotation(NAME, 70, 80),
        host("zero_grad_tools.py(3): other", 80, 90, kind=HostKind.PYTHON),
        annotation(NAME, 60, 70, **{C.TID: 2}),
    ]
    ranges = analyze(make_run(tmp_path, host_intervals=rows), "zero_grad_gaps").tables["ranges"]
    assert ranges[C.NAME].tolist() == ["torch/optim/optimizer.py(1019): zero_grad", NAME, NAME, NAME]
    assert ranges["host_row"].tolist() == [0, 2, 5, 3]


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("ops", "mode", "parameters"),
    [
        (["aten::zero_", "aten::zero_"], "per_parameter", 2),
        (["aten::_foreach_zero_"], "foreach", None),
        (["aten::zeros"], "none", 0),
        ([], "none", 0),
    ],
)
def test_without_a_device_the_ops_tell_the_mode_and_nothing_is_zero(
    tmp_path: Path, ops: list[str], mode: str, parameters: int | None
) -> None:
    rows = [annotation(NAME, 0, 100)]
    for number, name in enumerate(ops):
        rows.append(host(name, 10 * number, 10 * number + 5, **{C.DEPTH: 1}))
        rows.append(host("aten::zero_", 10 * number, 10 * number + 4, **{C.DEPTH: 2}))
    result = analyze(make_run(tmp_path, host_intervals=rows), "zero_grad_gaps")
    (row,) = result.tables["ranges"].astype(object).to_dict("records")
    assert (row["mode"], row[C.DUR_NS], row["parameters"]) == (mode, 100, parameters)
    assert result.tables["ranges"][["kernels", "kernel_ns", "idle_ns", "saving_ns"]].isna().all(axis=None)
    assert result.notes == (f"{NO_DEVICE}; {HOST_ONLY}",)
    assert result.findings == ()


def test_unlinked_device_work_is_unknown_and_no_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path, host_intervals=[annotation(NAME, 0, 9)], device_intervals=[kernel(1, 2)])
    result = analyze(run, "zero_grad_gaps")
    assert result.tables["ranges"]["kernels"].isna().all()
    assert "could not be linked" in result.notes[0]


def test_ranks_devices_and_threads_are_not_mixed(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[
            annotation(NAME, 0, 100, **{C.ROW_ID: 0}),
            annotation(NAME, 0, 100, **{C.ROW_ID: 1, C.RANK: 1}),
            launch(2, 10),
            launch(3, 20),
            launch(4, 10, **{C.RANK: 1}),
            launch(5, 10, **{C.TID: 7}),
        ],
        device_intervals=[
            kernel(10, 12, **{C.LAUNCH_ROW: 2}),
            kernel(20, 23, **{C.LAUNCH_ROW: 3, C.DEVICE: 1}),
            kernel(30, 34, **{C.LAUNCH_ROW: 4, C.RANK: 1}),
            kernel(40, 45, **{C.LAUNCH_ROW: 5}),
        ],
    )
    table = analyze(run, "zero_grad_gaps").tables["ranges"]
    assert table[[C.RANK, C.DEVICE, "kernels", "kernel_ns"]].to_numpy().tolist() == [
        [0, 0, 1, 2],
        [0, 1, 1, 3],
        [1, 0, 1, 4],
    ]


def test_a_run_without_ranges_says_how_to_get_them(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path, device_intervals=[kernel(0, 5)]), "zero_grad_gaps")
    assert (result.tables, result.notes) == ({}, (NO_RANGES,))


def test_a_step_is_the_denominator_of_the_share(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(7, 0, 1000)],
        host_intervals=[annotation(NAME, 0, 200, **{C.STEP: 7}), launch(1, 10), launch(2, 20)],
        device_intervals=[
            kernel(100, 200, **{C.LAUNCH_ROW: 1, C.STEP: 7}),
            kernel(300, 350, **{C.LAUNCH_ROW: 2, C.STEP: 7}),
        ],
    )
    (row,) = analyze(run, "zero_grad_gaps").tables["ranges"].to_dict("records")
    assert (row[C.STEP], row["share"], row["host_share"]) == (7, 0.25, 0.2)


def test_range_names() -> None:
    wanted = [NAME, "## zero_grad ##", "torch/optim/sgd.py(1): zero_grad", "my_zero_grad"]
    others = ["zero_grad.py(9): main", "aten::zero_", "train.py(3): step"]
    found = [bool(re.search(zero_grad_gaps.NAMED, name)) for name in wanted + others]
    assert found == [True] * 4 + [False] * 3


@settings(max_examples=examples(25))
@given(
    spans=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30), st.booleans()), min_size=1, max_size=12)
)
def test_idle_and_busy_sum_to_the_span(tmp_path_factory: Any, spans: list[tuple[int, int, bool]]) -> None:
    """Counted one nanosecond at a time."""
    own = [(start, start + length) for start, length, mine in spans if mine]
    rows = [
        kernel(start, start + length, **({C.LAUNCH_ROW: 1 + number} if mine else {}))
        for number, (start, length, mine) in enumerate(spans)
    ]
    run = make_run(
        tmp_path_factory.mktemp("run"),
        host_intervals=[
            annotation(NAME, 0, 500, **{C.ROW_ID: 0}),
            *(launch(1 + n, 1 + n) for n in range(len(spans))),
        ],
        device_intervals=rows,
    )
    (row,) = analyze(run, "zero_grad_gaps").tables["ranges"].to_dict("records")
    if not own:
        return
    first, last = min(start for start, _ in own), max(end for _, end in own)
    busy = {moment for start, length, _ in spans for moment in range(start, start + length)}
    assert row["span_ns"] == last - first
    assert row["idle_ns"] == len(set(range(first, last)) - busy)
    assert row["kernel_ns"] == len({moment for start, end in own for moment in range(start, end)})
