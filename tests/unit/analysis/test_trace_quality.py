"""Traces that support no findings: samples, and captures of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import Row, host, kernel, make_run
from tracekit.analysis import analyze
from tracekit.analysis.trace_quality import describe_capture, describe_sample, obstacle
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def calls(ids: Sequence[int]) -> list[Row]:
    """Launches 1 ms apart, with these correlation ids."""
    return [
        host(
            "cudaLaunchKernel",
            1_000_000 * place,
            1_000_000 * place + 5_000,
            kind=HostKind.RUNTIME,
            **{C.CORRELATION_ID: number},
        )
        for place, number in enumerate(ids)
    ]


def scattered(count: int, step: int) -> list[int]:
    """Ids about this far apart, of which few are equally far from the one before."""
    return [1 + step * place + place * place % (step - 3) for place in range(count)]


def launched(count: int) -> list[Row]:
    return [
        kernel(1_000_000 * place + 10_000, 1_000_000 * place + 20_000, **{C.LAUNCH_ROW: place})
        for place in range(count)
    ]


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (scattered(120, 100), True),  # 120 of 11,901: 1.0%
        (scattered(120, 40), False),  # 120 of 4,761: 2.5%
        (scattered(90, 100), False),  # 90 calls are too few
        (range(1, 12_000, 100), False),  # the same calls are left out each time
    ],
)
def test_a_sample_has_correlation_ids_far_and_irregularly_apart(
    tmp_path: Path, ids: Sequence[int], *, found: bool
) -> None:
    run = make_run(tmp_path, host_intervals=calls(ids), device_intervals=launched(len(ids)))
    assert bool(describe_sample(run)) == found
    checks = analyze(run, "integrity").tables["checks"].set_index("check")["level"]
    assert checks["sampled"] == ("error" if found else "ok")


def capture(count: int) -> list[Row]:
    """Launches of which all but the last are captured into a graph."""
    begin = host("cudaStreamBeginCapture", 0, 10, kind=HostKind.RUNTIME)
    inside = [host("cudaLaunchKernel", 20 * k, 20 * k + 5, kind=HostKind.RUNTIME) for k in range(1, count)]
    end = host("cudaStreamEndCapture", 20 * count, 20 * count + 10, kind=HostKind.RUNTIME)
    after = host("cudaLaunchKernel", 20 * count + 50, 20 * count + 60, kind=HostKind.RUNTIME)
    return [begin, *inside, end, after]


@pytest.mark.parametrize(("count", "found"), [(4, True), (2, False)])
def test_a_capture_of_a_graph_executes_few_of_its_launches(
    tmp_path: Path, count: int, *, found: bool
) -> None:
    run = make_run(tmp_path, host_intervals=capture(count), device_intervals=[kernel(0, 10)])
    assert bool(describe_capture(run)) == found
    assert describe_capture(run) == obstacle(run)


def test_findings_of_a_sample_are_withheld_with_the_reason(tmp_path: Path) -> None:
    ids = scattered(120, 100)
    rows = {"host_intervals": calls(ids), "device_intervals": launched(len(ids))}
    idle = [
        {**row, C.KIND: "idle", C.START_NS: row[C.START_NS] + 10_000, C.DUR_NS: 990_000}
        for row in rows["device_intervals"][:-1]
    ]
    for name, start in (("sample", 1), ("whole", 0)):
        for place, row in enumerate(rows["host_intervals"]):
            row[C.CORRELATION_ID] = ids[place] if start else 1 + place
        tables = {**rows, "device_intervals": [*rows["device_intervals"], *idle]}
        result = analyze(make_run(tmp_path / name, **tables), "idle_gaps")
        assert bool(result.findings) == (name == "whole")
        assert any("the trace is a sample" in note for note in result.notes) == (name == "sample")
