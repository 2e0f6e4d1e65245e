from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tracekit.analyses import launch_latency
from tracekit.analyses.launch_latency import NO_LINKS
from tracekit.analyses.shared.common import NO_DEVICE

from tests.builders import Row, host, kernel, make_run, memcpy, step
from tests.unit.analyses.test_idle_gaps import CALL, with_idle
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.analysis import Result


def launched(path: Path, calls: list[Row], rows: list[Row]) -> Result:
    run = make_run(path, host_intervals=calls, device_intervals=with_idle(rows))
    return analyze(run, "launch_latency")


def test_each_kind_has_its_calls_and_delays(tmp_path: Path) -> None:
    calls = [
        host("cudaLaunchKernel", 0, 4_000, **CALL),
        host("cudaLaunchKernel", 5_000, 11_000, **CALL),
        host("cudaGraphLaunch", 12_000, 20_000, **CALL),
        host("cudaMemcpyAsync", 30_000, 40_000, **CALL),
    ]
    rows = [
        kernel(6_000, 10_000, launch_row=0),
        kernel(10_000, 15_000, launch_row=1),  # before its call returned
        kernel(25_000, 26_000, launch_row=2),
        kernel(27_000, 29_000, launch_row=2),
        memcpy(29_500, 50_000, launch_row=3),  # before the call began
    ]
    result = launched(tmp_path, calls, rows)
    assert result.tables["summary"].drop(columns=["rank", "device"]).to_numpy().tolist() == [
        ["graph", 1, 8_000, 5_000, 8_000, 5_000, 13_000, 8_000, 5_000, 8_000, 0],
        ["kernel", 2, 4_000, 0, 6_000, 2_000, 5_000, 6_000, 2_000, 10_000, 0],
        ["memcpy", 1, 10_000, 0, 10_000, 0, -500, 10_000, 0, 10_000, 1],
    ]
    (queue,) = result.tables["queue"].to_dict("records")
    # from 6 to 50 µs: one waits from 6 (called at 5) to 10, and from 12 to 25
    assert queue == {
        "rank": 0,
        "device": 0,
        "launch_bound_share": 1_500 / 44_000,
        "mean_depth": 17_000 / 44_000,
        "max_depth": 2,
        "launches": 4,
        "empty_idle_ns": 1_500,
        "empty_ns": 27_000,
        "idle_ns": 11_500,
        "window_ns": 44_000,
    }
    assert result.tables["histogram"].drop(columns=["rank", "device"]).to_numpy().tolist() == [
        [0, 1_000, 0, 2],
        [2_000, 4_000, 0, 1],
        [4_000, 8_000, 2, 1],
        [8_000, 16_000, 2, 0],
    ]
    slowest = result.tables["slowest"].sort_values("called_ns")
    assert slowest["queued"].tolist() == [0, 1, 0, 0]
    assert result.notes[0].startswith("1 launch starts on the device before the call begins")


@pytest.mark.parametrize(
    ("beside", "name", "why"),
    [
        ([], "again", launch_latency.NONE),
        ([], "new", launch_latency.FIRST),
        (
            [host("Lazy Function Loading", 60_000, 61_000, kind=HostKind.OVERHEAD, tid=0)],
            "new",
            launch_latency.LOADS,
        ),
        (
            [host("Buffer Flush", 51_000, 80_000, kind=HostKind.OVERHEAD, tid=0)],
            "again",
            launch_latency.PROFILER,
        ),
        ([host("Buffer Flush", 60_000, 61_000, kind=HostKind.OVERHEAD, tid=0)], "again", launch_latency.NONE),
        (
            [host("Buffer Flush", 51_000, 80_000, kind=HostKind.OVERHEAD, tid=0, rank=1)],
            "again",
            launch_latency.NONE,
        ),
        ([host("cudaMalloc", 51_000, 90_000, tid=2, **CALL)], "again", launch_latency.ALLOCATION),
    ],
)
def test_a_slow_call_gets_a_reason_only_on_evidence(
    tmp_path: Path, beside: list[Row], name: str, why: str
) -> None:
    calls = [host("cudaLaunchKernel", 0, 4_000, **CALL), host("cudaLaunchKernel", 50_000, 99_000, **CALL)]
    rows = [kernel(5_000, 9_000, launch_row=0, name="again"), kernel(99_000, 99_500, launch_row=1, name=name)]
    first = launched(tmp_path, [*calls, *beside], rows).tables["slowest"].iloc[0]
    assert first[["api_ns", "why", "idle_in_call_ns", "queued", "host_row"]].tolist() == [
        49_000,
        why,
        49_000,
        0,
        1,
    ]


def test_a_full_queue_holds_the_caller_back(tmp_path: Path) -> None:
    count = 1_001
    calls = [host("cudaLaunchKernel", 10 * n, 10 * n + 5, **CALL) for n in range(count)]
    calls.append(host("cudaLaunchKernel", 10 * count, 500_000, **CALL))
    rows = [kernel(20_000 + 1_000 * n, 21_000 + 1_000 * n, launch_row=n) for n in range(count + 1)]
    result = launched(tmp_path, calls, rows)
    assert result.tables["slowest"].iloc[0][["queued", "why"]].tolist() == [count, launch_latency.QUEUE_FULL]
    assert result.tables["queue"]["max_depth"].tolist() == [count + 1]


def test_slow_calls_before_the_steps_say_nothing_of_the_steps(tmp_path: Path) -> None:
    slow, fast = range(0, 3_000_000, 100_000), range(4_000_000, 6_000_000, 100_000)
    calls = [
        host("cudaLaunchKernel", at, at + (50_000 if at < 3_000_000 else 22_000), **CALL)
        for at in (*slow, *fast)
    ]
    rows = [
        kernel(at + 60_000, at + 62_000, launch_row=row, step=0 if at >= 4_000_000 else None)
        for row, at in enumerate((*slow, *fast))
    ]
    run = make_run(
        tmp_path,
        host_intervals=calls,
        device_intervals=with_idle(rows),
        steps=[step(0, 4_000_000, 6_000_000)],
    )
    (finding,) = analyze(run, "launch_latency").findings
    assert finding.title == "Kernel launch calls take 22 µs (median of 20 calls)"


def test_devices_have_their_own_queues(tmp_path: Path) -> None:
    calls = [host("cudaLaunchKernel", 0, 2_000, **CALL), host("cudaLaunchKernel", 3_000, 5_000, **CALL)]
    rows = [
        kernel(10_000, 20_000, launch_row=0),
        kernel(10_000, 20_000, launch_row=1, **{C.DEVICE: 1}),
        kernel(21_000, 22_000),
    ]
    result = launched(tmp_path, calls, rows)
    assert result.tables["queue"][["device", "max_depth", "launches"]].to_numpy().tolist() == [
        [0, 1, 1],
        [1, 1, 1],
    ]
    assert result.notes[0].startswith("1 of 3 device intervals has no recorded launch")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert analyze(make_run(tmp_path / "a"), "launch_latency").notes == (NO_DEVICE,)
    assert launched(tmp_path / "b", [], [kernel(0, 1)]).notes == (NO_LINKS,)
