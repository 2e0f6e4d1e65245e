"""Kernels whose recorded end is wrong: no analysis sums their durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.shared.intervals_by_class import find_overruns

from tests.builders import host, kernel, make_run, memcpy
from tracekit.analysis import Bottleneck, analyze
from tracekit.analysis.verdict import judge
from tracekit.schema import HostKind

if TYPE_CHECKING:
    from pathlib import Path

SUMS = {
    ("kernels", "families"): "sum_ns",
    ("ops", "ops"): "device_self_ns",
    ("modules", "tree"): "device_self_ns",
    ("modules", "ops"): "device_self_ns",
    ("call_tree", "nodes"): "device_self_ns",
}


@pytest.mark.parametrize(
    ("over_ns", "stream", "left_ns"), [(100_001, 7, 30_000), (100_000, 7, 140_000), (100_001, None, 140_001)]
)
def test_sums_leave_out_kernels_that_run_over_later_ones(
    tmp_path: Path, over_ns: int, stream: int | None, left_ns: int
) -> None:
    rows = [
        host("nn.Module: Net_0", 0, 100_000, kind=HostKind.PYTHON),
        *(host("aten::mm", at, at + 5_000, parent_row=0) for at in (0, 10_000, 20_000)),
    ]
    kernels = [
        kernel(start, end, op_row=row, launch_row=row, stream=stream)
        for row, (start, end) in enumerate([(0, 10_000 + over_ns), (10_000, 20_000), (20_000, 40_000)], 1)
    ]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=kernels)
    sums = {key: int(analyze(run, key[0]).tables[key[1]][column].sum()) for key, column in SUMS.items()}
    assert sums == dict.fromkeys(SUMS, left_ns)


@pytest.mark.parametrize(("end", "computes"), [(790_000, 920), (110_000, 920), (100_000, 910)])
def test_a_verdict_counts_them_until_the_next_kernel_starts(tmp_path: Path, end: int, computes: int) -> None:
    """Ten kernels of one stream, one every 110 us; the second has this end, the others take 90 us."""
    ends = [at + 90_000 for at in range(0, 1_100_000, 110_000)]
    ends[1] = 110_000 + end
    rows = [
        kernel(at, at_end, stream=7) for at, at_end in zip(range(0, 1_100_000, 110_000), ends, strict=True)
    ]
    parts = judge(make_run(tmp_path, device_intervals=rows)).parts
    assert sum(part.dur_ns for part in parts if part.bound == Bottleneck.COMPUTE) == computes * 1_000


@pytest.mark.parametrize(
    ("call", "stream", "length", "found"),
    [
        ("cudaMemcpyAsync", 7, 320_000, True),
        ("cuMemcpyHtoDAsync_v2", 7, 320_000, True),
        ("cudaMemcpyAsync", 7, 205_000, False),  # the next copy begins after 100 and ends after 210 µs
        ("cudaMemcpyAsync", 8, 320_000, False),  # in another stream
        ("hipMemcpyAsync", 7, 320_000, False),  # written with a stream that need not be its own
        ("cudaGraphLaunch", 7, 320_000, False),  # branches of a graph run at once
        (None, 7, 320_000, False),
    ],
)
def test_a_kernel_that_runs_over_copies_of_its_stream_has_a_wrong_end(
    tmp_path: Path, call: str | None, stream: int, length: int, *, found: bool
) -> None:
    rows = [host(call, 0, 1_000, kind=HostKind.RUNTIME)] if call else []
    launch = {"launch_row": 0} if call else {}
    over, last = kernel(0, length, stream=7), kernel(500_000, 550_000, stream=7)
    copies = [memcpy(at, at + 110_000, stream=stream, **launch) for at in (100_000, 300_000)]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=[over, *copies, last])
    assert find_overruns(run).tolist() == [0] * found
    whole = analyze(run, "gpu_breakdown").tables["whole"]
    assert whole["kernel_sum_ns"].tolist() == [50_000 if found else 50_000 + length]
    assert whole["overrun_ns"].tolist() == [length - 100_000 if found else 0]
    noted = any("1 kernel runs over whole later work" in note for note in analyze(run, "kernels").notes)
    assert noted == found
