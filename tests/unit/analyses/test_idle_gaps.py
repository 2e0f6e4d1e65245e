from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.idle_gaps import NEVER_IDLE
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS, NOT_RECORDED
from tracekit.analyses.shared.host_columns import read_host_columns

from tests.builders import Row, device, host, kernel, make_run, memcpy, step
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.runs import intervals
from tracekit.runs.meta import Timings
from tracekit.schema import BUSY_KINDS, C, CopyKind, DeviceKind, HostKind, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tests.thresholds import Make
    from tracekit.analysis import Result
    from tracekit.runs.run import Run

CALL = {"kind": HostKind.RUNTIME}
SYNC = {"kind": HostKind.SYNC}


def with_idle(rows: list[Row]) -> list[Row]:
    """The rows and the idle rows an import derives from them, numbered by start."""
    places = sorted({(row.get(C.RANK, 0), row.get(C.DEVICE, 0)) for row in rows})
    full = list(rows)
    for rank, index in places:
        own = [row for row in rows if (row.get(C.RANK, 0), row.get(C.DEVICE, 0)) == (rank, index)]
        own = [row for row in own if row[C.KIND] in BUSY_KINDS]
        start = np.array([row[C.START_NS] for row in own])
        end = start + np.array([row[C.DUR_NS] for row in own])
        idle = zip(*intervals.gaps(start, end), strict=True)
        places_of = {C.RANK: rank, C.DEVICE: index}
        full += [device(DeviceKind.IDLE, int(low), int(high), **places_of) for low, high in idle]
    return [{C.ROW_ID: 100 + number, **row} for number, row in enumerate(full)]


def explained(path: Path, host_rows: list[Row], rows: list[Row], steps: list[Row] | None = None) -> Result:
    run = make_run(path, host_intervals=host_rows, device_intervals=with_idle(rows), steps=steps or [])
    return analyze(run, "idle_gaps")


def causes(result: Result) -> list[tuple[str, int]]:
    """Cause and length of each gap, by start."""
    gaps = result.tables["gaps"].sort_values([C.RANK, C.DEVICE, C.START_NS])
    return list(zip(gaps["cause"], gaps[C.DUR_NS], strict=True))


def one_gap(path: Path, *host_rows: Row, gap: tuple[int, int] = (20_000, 60_000), **after: Any) -> Result:
    """A kernel launched by row 0, a gap, and a kernel launched by row 1."""
    rows = [kernel(10_000, gap[0], launch_row=0), kernel(gap[1], 90_000, launch_row=1, **after)]
    return explained(path, [host("cudaLaunchKernel", 1_000, 4_000, **CALL), *host_rows], rows)


@pytest.mark.parametrize(
    ("calls", "call_ns", "cause"),
    [(20, 9_000, "launch_bound"), (19, 9_000, "unknown"), (20, 2_900, "unknown")],
)
def test_a_host_that_waits_for_each_kernel_was_late_for_work_of_unknown_launch(
    tmp_path: Path, calls: int, call_ns: int, cause: str
) -> None:
    starts = [number * 10_000 for number in range(calls)]
    ops = [host("launch", start, start + call_ns, **CALL) for start in starts]
    end = starts[-1] + 9_000
    copying = host("aten::_copy_from", end, end + 300_000)
    rows = [kernel(start + 1_000, start + 5_000, launch_row=number) for number, start in enumerate(starts)]
    rows += [memcpy(end + 250_000, end + 260_000)]
    result = explained(tmp_path, [*ops, copying], rows)
    last = result.tables["gaps"].sort_values(C.START_NS).iloc[-1]
    assert last["cause"] == cause
    assert last["op"] == ("aten::_copy_from" if cause == "launch_bound" else "(launch not recorded)")


@pytest.mark.timeout(20)
def test_a_damaged_depth_ends_the_search_for_what_is_around_two_rows(tmp_path: Path) -> None:
    rows = [host("aten::mm", start, start + 10, depth=-start) for start in (0, 50)]
    found = read_host_columns(make_run(tmp_path, host_intervals=rows))
    assert found.common_ancestor(np.array([0]), np.array([1])).tolist() == [-1]


def test_a_gap_with_its_evidence(tmp_path: Path) -> None:
    ops = [
        host("aten::linear", 0, 70_000),
        host("aten::mm", 500, 6_000, parent_row=0, depth=1),
        host("cudaLaunchKernel", 1_000, 4_000, parent_row=1, depth=2, **CALL),
        host("aten::add", 45_000, 58_000, parent_row=0, depth=1),
        host("cudaLaunchKernel", 50_000, 54_000, parent_row=3, depth=2, **CALL),
    ]
    rows = [
        kernel(10_000, 20_000, name="gemm", launch_row=2, op_row=1),
        kernel(56_000, 90_000, name="add", launch_row=4, op_row=3, step=0),
    ]
    result = explained(tmp_path, ops, rows, [step(0, 0, 90_000)])
    assert list(result.tables) == ["by_cause", "by_op", "summary", "gaps"]
    assert result.notes == ()
    (gap,) = result.tables["gaps"].to_dict("records")
    assert [pd.isna(gap.pop(name)) for name in ("wait_ns", "wait_row")] == [True, True]
    assert gap == {
        "rank": 0,
        "device": 0,
        "start_ns": 20_000,
        "dur_ns": 36_000,
        "counted_ns": 36_000,
        "recurring_ns": 36_000,
        "call_ns": 0,
        "cause": "launch_bound",
        "op": "aten::linear",  # aten::add covers 5 of the 30 µs before the launch
        "call": "",
        "source_line": "",
        "next_op": "aten::add",
        "common_op": "aten::linear",
        "before": "gemm",
        "after": "add",
        "host_ns": 30_000,
        "queued_ns": 2_000,
        "step": 0,
        "row_id": 102,
        "host_row": 0,
        "launch_row": 4,
    }
    table = result.tables["by_cause"].to_dict("records")
    assert table == [
        {
            "rank": 0,
            "device": 0,
            "cause": "launch_bound",
            "idle_ns": 36_000,
            "share": 1.0,
            "gaps": 1,
            "per_step_ns": 36_000,
            "longest_ns": 36_000,
            "steps_ns": 36_000,
            "aside_ns": 0,
            "warm_up_ns": 0,
            "start_up_ns": 0,
            "overhead_ns": 0,
            "launch_latency_ns": 6_000,
        }
    ]
    summary = result.tables["summary"].iloc[0]
    assert summary[["idle_ns", "window_ns", "host_late_ns", "listed", "edges_ns"]].tolist() == [
        36_000,
        80_000,
        36_000,
        1,
        10_000,
    ]


@pytest.mark.slow_except(3)
@pytest.mark.parametrize(
    ("launch", "gap", "cause"),
    [
        ((5_000, 8_000), (20_000, 49_999), "kernel_to_kernel"),
        ((5_000, 8_000), (20_000, 50_000), "stream_dependency"),
        ((5_000, 20_000), (20_000, 21_000), "kernel_to_kernel"),  # the call ends as the gap begins
        ((20_000, 24_000), (20_000, 26_000), "launch_bound"),
        ((19_000, 24_001), (20_000, 28_000), "launch_bound"),  # under way for more than half of the gap
        ((19_000, 24_000), (20_000, 28_000), "kernel_to_kernel"),
        ((21_000, 24_000), (20_000, 80_000), "stream_dependency"),  # queued for 56 of 60 µs
        ((31_000, 34_000), (20_000, 60_000), "launch_bound"),  # queued for 26 of 40 µs: under 30
        ((70_000, 74_000), (20_000, 60_000), "launch_bound"),  # clocks disagree
    ],
)
def test_when_work_was_queued(
    tmp_path: Path, launch: tuple[int, int], gap: tuple[int, int], cause: str
) -> None:
    result = one_gap(tmp_path, host("cudaLaunchKernel", *launch, **CALL), gap=gap)
    assert causes(result) == [(cause, gap[1] - gap[0])]


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("wait", "cause"),
    [
        ((6_000, 21_000), "sync"),  # 15 of the 30 µs before the launch
        ((6_001, 21_000), "launch_bound"),
        ((2_000, 15_000), "launch_bound"),  # ended more than 5 µs before the gap
        ((0, 15_000), "sync"),
        ((21_000, 36_001), "sync"),  # covers more than half
        ((21_000, 36_000), "launch_bound"),
    ],
)
def test_a_wait_is_blamed_by_its_length(tmp_path: Path, wait: tuple[int, int], cause: str) -> None:
    launch = host("cudaLaunchKernel", 50_000, 54_000, **CALL)
    waiting = host("cudaStreamSynchronize", *wait, **SYNC)
    shifted = host("cudaLaunchKernel", -8_000, -5_000, **CALL)
    rows = [kernel(-4_000, 20_000, launch_row=0), kernel(56_000, 90_000, launch_row=1)]
    result = explained(tmp_path, [shifted, launch, waiting], rows)
    assert causes(result) == [(cause, 36_000)]


@pytest.mark.parametrize(
    ("name", "end", "cause"),
    [
        ("Stream Synchronize", 36_001, "sync"),
        ("Stream Synchronize", 36_000, "launch_bound"),
        ("Stream Wait Event", 49_000, "launch_bound"),
    ],
)
def test_a_wait_that_only_the_device_has_is_blamed(tmp_path: Path, name: str, end: int, cause: str) -> None:
    calls = [host("cudaLaunchKernel", start, start + 3_000, **CALL) for start in (-8_000, 50_000)]
    work = [kernel(-4_000, 20_000, launch_row=0), kernel(56_000, 90_000, launch_row=1)]
    wait = {**kernel(21_000, end), C.KIND: DeviceKind.SYNC, C.NAME: name}
    assert causes(explained(tmp_path, calls, [*work, wait])) == [(cause, 36_000)]


ENCODES = {C.STACK: "numpy/core.py(5): add;data.py(6): encode", C.SOURCE_LINES: "7,8", C.TID: 1}


def sampled_gap(path: Path, *times: int, sample: Row = ENCODES) -> Result:
    """A gap of 8 ms in each of three steps, with samples of one stack at these times of the step."""
    rows, calls, steps, samples = [], [], [], []
    for number in range(3):
        begin = 10_000_000 * number
        calls.append(host("cudaLaunchKernel", begin + 8_400_000, begin + 8_404_000, **CALL))
        rows.append(kernel(begin + 8_410_000, begin + 10_000_000, launch_row=number))
        steps.append(step(number, begin, begin + 10_000_000))
        samples += [{C.T_NS: begin + time, **sample} for time in times]
    run = make_run(
        path, host_intervals=calls, device_intervals=with_idle(rows), steps=steps, host_samples=samples
    )
    return analyze(run, "idle_gaps")


def test_samples_name_the_code_that_a_device_waits_for(tmp_path: Path) -> None:
    result = sampled_gap(tmp_path / "sampled", 2_000_000, 5_000_000, 9_000_000)
    assert set(result.tables["gaps"]["source_line"]) == {"data.py(8): encode"}
    (finding,) = result.findings
    assert finding.title.startswith("GPU idle: CPU busy outside kernel launches ")
    assert "at data.py(8): encode" in finding.advice
    assert "was not recorded" not in finding.advice


@pytest.mark.parametrize(
    ("name", "said"),
    [("Garbage collection: generation 2", True), ("validate", False)],
)
def test_pauses_of_the_garbage_collector_behind_idle_time_are_named(
    tmp_path: Path, name: str, *, said: bool
) -> None:
    """They launch nothing, however short: of other ranges so much is their dispatch."""
    rows, hosts = [], []
    for number in range(3):
        begin = 1_000_000 * number
        hosts.append(host("cudaLaunchKernel", begin + 480_000, begin + 484_000, **CALL))
        rows.append(kernel(begin + 490_000, begin + 1_000_000, launch_row=number))
    hosts += [
        host(name, 1_000_000 * number + 10_000, 1_000_000 * number + 470_000, kind=HostKind.ANNOTATION)
        for number in range(3)
    ]
    result = explained(
        tmp_path,
        hosts,
        rows,
        [step(number, 1_000_000 * number, 1_000_000 * (number + 1)) for number in range(3)],
    )
    (finding,) = result.findings
    assert finding.code == ("idle_host_work" if said else "idle_launch_bound")
    assert finding.advice.startswith(f"The largest part is {name} (")
    assert ("`gc.freeze()`" in finding.advice) == said


@pytest.mark.parametrize(
    ("innermost", "lock_ms", "rests"),
    [
        ("python3.11/selectors.py(451): select", 0, True),  # a server without requests
        ("python3.11/selectors.py(451): select", 5, False),  # it waits for what another thread computes
        ("python3.11/random.py(9): choice", 0, False),
    ],
)
def test_samples_tell_waiting_from_work(tmp_path: Path, innermost: str, lock_ms: int, *, rests: bool) -> None:
    stack = {C.STACK: f"{innermost};server.py(1): main", C.SOURCE_LINES: "468,9", C.TID: 1}
    times = {C.LOCK_WAIT_NS: lock_ms * 1_000_000}
    (finding,) = sampled_gap(tmp_path, 2_000_000, 5_000_000, 9_000_000, sample=stack | times).findings
    assert ("waits there for a request" in finding.advice) == rests
    assert (finding.saving_ns_per_step is None) == rests


def test_samples_outside_of_the_hosts_part_name_nothing(tmp_path: Path) -> None:
    result = sampled_gap(tmp_path, 8_450_000, 9_900_000)
    assert set(result.tables["gaps"]["source_line"]) == {""}
    (finding,) = result.findings
    assert finding.title.startswith("GPU idle while the CPU activity is unknown ")


def test_a_wait_of_another_thread_is_not_blamed(tmp_path: Path) -> None:
    launch = host("cudaLaunchKernel", 50_000, 54_000, **CALL)
    working = host("aten::add", 20_000, 55_000)
    waiting = host("cudaStreamSynchronize", 5_000, 21_000, tid=2, **SYNC)
    assert causes(one_gap(tmp_path, launch, working, waiting)) == [("launch_bound", 40_000)]


def test_the_thread_that_worked_is_in_charge_when_the_launching_one_recorded_nothing(tmp_path: Path) -> None:
    rows = [
        host("cudaLaunchKernel", 50_000, 54_000, tid=2, **CALL),
        host("aten::item", 2_000, 45_000),
        host("cudaStreamSynchronize", 2_500, 44_000, parent_row=2, depth=1, **SYNC),
    ]
    result = one_gap(tmp_path, *rows)
    assert causes(result) == [("sync", 40_000)]
    gap = result.tables["gaps"].iloc[0]
    assert gap[["op", "call", "wait_ns", "wait_row"]].tolist() == [
        "aten::item",
        "cudaStreamSynchronize",
        41_500,
        3,
    ]


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (host("enumerate(DataLoader)#x", 20_000, 36_000, kind=HostKind.ANNOTATION), "dataload"),
        (host("enumerate(DataLoader)#x", 20_000, 35_000, kind=HostKind.ANNOTATION), "launch_bound"),
        (host("next batch", 20_000, 36_000, phase="dataload"), "dataload"),
        (
            host("torch/utils/data/dataloader.py(630): __next__", 0, 49_000, kind=HostKind.PYTHON),
            "dataload",
        ),
        (host("Activity Buffer Request", 20_000, 36_000, kind=HostKind.OVERHEAD, tid=0), "profiler"),
        (
            host("Activity Buffer Request", 20_000, 36_000, kind=HostKind.OVERHEAD, tid=0, rank=1),
            "launch_bound",
        ),
        (host("Lazy Function Loading", 20_000, 36_000, kind=HostKind.OVERHEAD, tid=0), "launch_bound"),
        (
            host("Runtime Triggered Module Loading", 20_000, 36_000, kind=HostKind.OVERHEAD, tid=0),
            "launch_bound",
        ),
    ],
)
def test_what_covers_most_of_the_hosts_part_decides(tmp_path: Path, row: Row, cause: str) -> None:
    launch = host("cudaLaunchKernel", 50_000, 54_000, **CALL)
    assert causes(one_gap(tmp_path, launch, row)) == [(cause, 40_000)]


@pytest.mark.slow
def test_a_blocking_copy_is_a_wait_and_a_copy_that_returned_early_is_not(tmp_path: Path) -> None:
    def gap(path: Path, returned: int, memory: str) -> str:
        calls = [
            host("cudaMemcpyAsync", 1_000, returned, **CALL),
            host("cudaLaunchKernel", 41_000, 44_000, **CALL),
        ]
        copy = memcpy(5_000, 30_000, launch_row=0, copy_kind=CopyKind.D2H, dst_memory=memory)
        ((cause, _),) = causes(explained(path, calls, [copy, kernel(45_000, 90_000, launch_row=1)]))
        return cause

    assert gap(tmp_path / "a", 31_000, "pageable") == "sync"
    assert gap(tmp_path / "b", 29_000, "pageable") == "launch_bound"
    assert gap(tmp_path / "c", 31_000, "pinned") == "launch_bound"


@pytest.mark.slow
def test_kernels_of_one_graph_launch_were_queued_together(tmp_path: Path) -> None:
    graph = host("cudaGraphLaunch", 1_000, 50_000, **CALL)
    rows = [kernel(t, t + 4_000, launch_row=0, graph_id=1) for t in (10_000, 20_000, 58_000)]
    result = explained(tmp_path, [graph], rows)
    assert causes(result) == [("kernel_to_kernel", 6_000), ("stream_dependency", 34_000)]


def test_a_stream_that_was_told_to_wait_for_another(tmp_path: Path) -> None:
    def gap(path: Path, stream: int, at: int) -> str:
        calls = [
            host("cudaLaunchKernel", 1_000, 4_000, **CALL),
            host("cudaStreamWaitEvent", at, at + 500, **CALL),
            host("cudaLaunchKernel", 6_000, 9_000, **CALL),
        ]
        rows = [
            kernel(10_000, 20_000, launch_row=0, stream=7),
            kernel(24_000, 30_000, launch_row=2, stream=stream),
        ]
        ((cause, _),) = causes(explained(path, calls, rows))
        return cause

    assert gap(tmp_path / "a", 9, 5_000) == "stream_dependency"
    assert gap(tmp_path / "b", 7, 5_000) == "kernel_to_kernel"
    assert gap(tmp_path / "c", 9, 500) == "kernel_to_kernel"


@pytest.mark.slow
def test_the_next_launch_of_the_stream_speaks_for_an_unlinked_interval_if_it_is_near(tmp_path: Path) -> None:
    def gap(path: Path, start: int, stream: int) -> Result:
        calls = [
            host("cudaLaunchKernel", 1_000, 4_000, **CALL),
            host("cudaLaunchKernel", 5_000, 9_000, **CALL),
        ]
        unlinked = kernel(20_000, 22_000, stream=7)
        linked = kernel(start, start + 1_000, stream=stream, launch_row=1)
        return explained(path, calls, [kernel(10_000, 15_000, launch_row=0, stream=7), unlinked, linked])

    assert causes(gap(tmp_path / "a", 22_000, 7))[0] == ("kernel_to_kernel", 5_000)
    assert causes(gap(tmp_path / "b", 22_000, 8))[0] == ("unknown", 5_000)
    assert causes(gap(tmp_path / "d", 50_000, 7))[0] == ("kernel_to_kernel", 5_000)
    far = gap(tmp_path / "c", 50_001, 7)
    assert causes(far)[0] == ("unknown", 5_000)
    assert far.tables["gaps"].set_index("cause").loc["unknown", "op"] == "(launch not recorded)"


def test_a_zero_length_interval_splits_a_gap_and_overlaps_are_united(tmp_path: Path) -> None:
    calls = [host("cudaLaunchKernel", t, t + 1_000, **CALL) for t in (0, 2_000, 4_000, 31_000)]
    rows = [
        kernel(5_000, 20_000, launch_row=0),
        kernel(7_000, 9_000, launch_row=1),
        kernel(25_000, 25_000, launch_row=2),
        kernel(40_000, 50_000, launch_row=3),
    ]
    result = explained(tmp_path, calls, rows)
    assert causes(result) == [("kernel_to_kernel", 5_000), ("launch_bound", 15_000)]


def test_gaps_below_a_microsecond_count_and_are_not_listed(tmp_path: Path) -> None:
    call = host("cudaLaunchKernel", 0, 1_000, **CALL)
    rows = [kernel(t, t + 2_001, launch_row=0) for t in (0, 3_000, 6_001, 9_000)]
    result = explained(tmp_path, [call], rows)
    assert [length for _, length in causes(result)] == [1_000]
    assert result.tables["by_cause"]["idle_ns"].sum() == 999 + 1_000 + 998


def test_ranks_and_devices_stay_apart(tmp_path: Path) -> None:
    calls = [
        host("cudaLaunchKernel", 50_000, 54_000, rank=rank, **CALL) for rank in (0, 1)
    ]  # the same process and thread numbers
    wait = host("cudaDeviceSynchronize", 1_000, 21_000, rank=1, **SYNC)
    first = [host("cudaLaunchKernel", 0, 900, rank=rank, **CALL) for rank in (0, 1)]
    rows: list[Row] = []
    for rank, index in ((0, 0), (0, 1), (1, 0)):
        place = {C.RANK: rank, C.DEVICE: index}
        rows += [kernel(10_000, 20_000, launch_row=3 + rank, **place)]
        rows += [kernel(55_000, 60_000 + index, launch_row=rank, **place)]
    result = explained(tmp_path, [*calls, wait, *first], rows)
    found = result.tables["by_cause"][["rank", "device", "cause", "idle_ns"]].to_numpy().tolist()
    assert found == [
        [0, 0, "launch_bound", 35_000],
        [0, 1, "launch_bound", 35_000],
        [1, 0, "sync", 35_000],
    ]
    assert result.findings[0].saving_ns_per_step == 35_000 // 2  # one device of rank 0, over two captures


def test_runs_without_device_steps_or_gaps_say_so(tmp_path: Path) -> None:
    assert analyze(make_run(tmp_path / "a"), "idle_gaps").notes == (NO_DEVICE,)
    blind = make_run(tmp_path / "b", host_intervals=[host("cudaLaunchKernel", 0, 1, **CALL)])
    assert analyze(blind, "idle_gaps").notes == (NOT_RECORDED,)
    busy = explained(tmp_path / "c", [], [kernel(0, 10_000)])
    assert (list(busy.tables), busy.notes) == (["summary"], (NO_STEPS, NEVER_IDLE))
    alone = explained(tmp_path / "d", [], [kernel(0, 10_000), kernel(20_000, 30_000)])
    assert alone.tables["by_cause"]["cause"].tolist() == ["unknown"]
    assert alone.notes[1].startswith("no host activity was recorded")
    half = explained(tmp_path / "e", [host("x", 0, 9)], [kernel(0, 10_000), kernel(20_000, 30_000)])
    assert half.notes[1].startswith("100% of the idle time has no known cause")


def test_what_to_know_before_acting_is_noted(tmp_path: Path) -> None:
    launch = host("cudaLaunchKernel", 50_000, 54_000, **CALL)
    flush = host("Buffer Flush", 20_000, 45_000, kind=HostKind.OVERHEAD, tid=0)
    _, ops, profiler = one_gap(tmp_path, launch, flush).notes
    assert ops.startswith("no ops were recorded")
    assert profiler.startswith("100% of the idle time is profiler overhead")


def test_addresses_of_objects_do_not_tell_ops_apart(tmp_path: Path) -> None:
    frames = [
        host(f"<built-in method f of object at 0x7{digit}>", low, low + 20_000, kind=HostKind.PYTHON)
        for digit, low in ((1, 20_000), (2, 60_000))
    ]
    calls = [host("cudaLaunchKernel", t, t + 1_000, **CALL) for t in (0, 40_000, 80_000)]
    rows = [kernel(t - 1_000, t, launch_row=n) for n, t in enumerate((20_000, 60_000, 99_000))]
    result = explained(tmp_path, [*calls, *frames], rows)
    assert result.tables["by_op"][["op", "gaps"]].to_numpy().tolist() == [
        ["<built-in method f of object>", 2]
    ]


def test_a_device_that_is_busy_for_95_percent_gets_no_advice(tmp_path: Path) -> None:
    def codes(path: Path, end: int) -> list[str]:
        calls = [host("cudaLaunchKernel", 0, 1_000, **CALL), host("cudaLaunchKernel", 21_000, 24_000, **CALL)]
        rows = [kernel(0, 20_000, launch_row=0), kernel(25_000, end, launch_row=1)]
        return [finding.code for finding in explained(path, calls, rows).findings]

    assert codes(tmp_path / "a", 100_000) == ["idle_launch_bound"]
    assert codes(tmp_path / "b", 100_001) == []


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("unprofiled_ns", "saving_ns", "severity", "text"),
    [
        (None, 20_000, "high", "the profiler slows the host"),
        (100_000, 20_000, "high", "the profiler slows the host"),
        (85_000, 5_000, "warn", "of the 20 µs per step in this profile, at most the idle time"),
        (80_500, None, "info", "unprofiled steps take 80.5 µs, and the device is busy for 80 µs of them"),
        (70_000, None, "info", "unprofiled steps take 70 µs, and the device is busy for 80 µs of them"),
    ],
)
def test_a_saving_is_at_most_the_idle_time_of_an_unprofiled_step(
    tmp_path: Path, unprofiled_ns: int | None, saving_ns: int | None, severity: str, text: str
) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 50_000, 90_000, 150_000)]
    rows = [
        kernel(at, at + 40_000, launch_row=number, step=number // 2)
        for number, at in enumerate((0, 60_000, 100_000, 160_000))
    ]
    rows[0:1] = [rows[0] | {C.DUR_NS: 20_000}, kernel(20_000, 40_000, launch_row=0, step=0)]
    timed = {} if unprofiled_ns is None else {"timings": Timings([unprofiled_ns] * 9, [], "cuda_event")}
    run = make_run(
        tmp_path,
        host_intervals=calls,
        device_intervals=with_idle(rows),
        steps=[step(0, 0, 100_000), step(1, 100_000, 200_000)],
        meta=timed,
    )
    (finding,) = analyze(run, "idle_gaps").findings
    assert (finding.code, finding.severity) == ("idle_launch_bound", severity)
    assert "20.0% of the time: 20 µs per step" in finding.title
    assert finding.saving_ns_per_step == saving_ns
    assert text in finding.how


def test_idle_time_between_the_steps_is_no_saving_of_a_step(tmp_path: Path) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 10_000_100_000, 10_000_110_000)]
    rows = [
        kernel(5_000, 8_000, launch_row=0),
        kernel(10_000_105_000, 10_000_205_000, launch_row=1, step=0),
        kernel(10_000_205_000, 10_000_305_000, launch_row=2, step=0),
    ]
    result = explained(tmp_path, calls, rows, [step(0, 10_000_090_000, 10_000_310_000)])
    assert result.tables["by_cause"][["idle_ns", "per_step_ns"]].to_numpy().tolist() == [
        [10_000_097_000, 15_000]
    ]
    (finding,) = result.findings
    assert finding.saving_ns_per_step is None  # it is unknown what the host did for 10 s
    assert (
        "6.8% of the time: 15 µs per step, in 1 gap" in finding.title
    )  # from the step's start to its kernel


def test_a_device_busy_in_the_steps_gets_no_advice_on_what_is_before_them(tmp_path: Path) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 990_000)]
    rows = [kernel(5_000, 8_000, launch_row=0), kernel(1_010_000, 2_000_000, launch_row=1, step=0)]
    assert explained(tmp_path, calls, rows, [step(0, 970_000, 2_000_000)]).findings == ()


@pytest.mark.slow
def test_sentences_bear_neither_hashes_nor_names_without_end(tmp_path: Path) -> None:
    graph = f"## Call CompiledFxGraph f{'em7v7a2b' * 6} ##"
    long = host("x" * 5_000, 100_000, 1_300_000, stack=f"{'y' * 5_000}.py(1): main")
    calls = [
        host("cudaLaunchKernel", 0, 4_000, **CALL),
        host("cudaLaunchKernel", 1_295_000, 1_299_000, **CALL),
    ]
    rows = [kernel(5_000, 90_000, launch_row=0), kernel(1_300_000, 1_400_000, launch_row=1)]
    (finding,) = explained(tmp_path / "a", [*calls, long], rows).findings
    assert len(finding.advice) < 500
    (finding,) = explained(tmp_path / "b", [*calls, {**long, C.NAME: graph}], rows).findings
    assert "CompiledFxGraph fem7v7a2… ##" in finding.advice


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("filler", "says"),
    [
        (None, "was not recorded"),
        (
            {C.KIND: HostKind.PYTHON, C.NAME: "/usr/lib/python3.11/threading.py(327): wait"},
            "The host waits there",
        ),
        ({C.KIND: HostKind.PYTHON, C.NAME: "<built-in function sleep>"}, "The host waits there"),
        ({C.KIND: HostKind.PYTHON, C.NAME: "train.py(7): sort"}, "The host is busy there"),
        ({C.NAME: "aten::_unique2"}, "The host is busy there"),
        ({C.NAME: "Optimizer.step#SGD.step"}, "construct it with `fused=True`"),
        ({C.NAME: "aten::normal_"}, 'make it on the device (`device="cuda"`'),
        ({C.NAME: "getc", **CALL}, "waits there for a file or for input"),
        ({C.NAME: "Nvrtc::CompileProgram", "kind": HostKind.ANNOTATION}, "compiles or loads code there"),
    ],
)
def test_the_host_is_said_to_work_only_where_it_was_seen_to(
    tmp_path: Path, filler: Row | None, says: str
) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 1_995_000)]
    rows = [kernel(5_000, 10_000, launch_row=0), kernel(2_000_000, 2_100_000, launch_row=1)]
    seen = [{**host("x", 12_000, 1_990_000), **filler}] if filler else []
    (finding,) = explained(tmp_path, [*calls, *seen], rows).findings
    assert finding.code == "idle_host_work"
    assert says in finding.advice


@pytest.mark.parametrize(
    ("second_ns", "steps", "is_single"),
    [
        (4_000_000, [], True),
        (4_200_000, [], False),
        (4_000_000, [step(0, 0, 41_115_000), step(1, 41_115_000, 50_000_000)], True),
        (4_000_000, [step(0, 0, 50_000_000)], False),  # one of many steps
    ],
)
def test_a_gap_happens_once_unless_another_of_its_op_is_a_tenth_as_long(
    tmp_path: Path, second_ns: int, steps: list[Row], *, is_single: bool
) -> None:
    ends = [10_000, 41_110_000, 41_120_000 + second_ns]
    calls = [host("cudaLaunchKernel", end - 4_000, end, **CALL) for end in ends]
    work = [host("aten::_unique2", 12_000, 41_100_000), host("aten::_unique2", 41_121_000, ends[-1] - 5_000)]
    rows = [kernel(end, end + 9_000, launch_row=number) for number, end in enumerate(ends)]
    (finding,) = explained(tmp_path, [*calls, *work], rows, steps).findings
    assert ("if it happens only once" in finding.advice) == is_single


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ("_SingleProcessDataLoaderIter", "Load in the background"),
        ("_MultiProcessingDataLoaderIter", "add workers"),
    ],
)
def test_workers_are_advised_where_there_are_none(tmp_path: Path, loader: str, says: str) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 995_000)]
    rows = [kernel(5_000, 10_000, launch_row=0), kernel(1_000_000, 1_100_000, launch_row=1)]
    name = f"enumerate(DataLoader)#{loader}.__next__"
    load = host(name, 12_000, 990_000, kind=HostKind.ANNOTATION, phase=Phase.DATALOAD)
    (finding,) = explained(tmp_path, [*calls, load], rows).findings
    assert (finding.code, says in finding.advice) == ("idle_dataload", True)


def late_launches(
    *, wait_ns: int = 0, inside: bool = False, load_ns: int = 0, loader: str = ""
) -> tuple[list[Row], list[Row]]:
    """Rounds of ten launches, 40 us apart, of kernels of 10 us: the device is idle for 30 us before each.

    Before a round the host loads a batch, or waits for a kernel that takes as long.
    """
    calls: list[Row] = []
    rows: list[Row] = []
    now = 0

    def launch(length: int) -> None:
        rows.append(kernel(now + 5_000, now + 5_000 + length, launch_row=len(calls)))
        calls.append(host("cudaLaunchKernel", now, now + (6_000 + length if inside else 4_000), **CALL))

    for _ in range(5):
        if wait_ns:
            launch(wait_ns)
            calls.append(host("cudaStreamSynchronize", now + 6_000, now + wait_ns, kind=HostKind.SYNC))
            now += wait_ns + 35_000
        if load_ns:
            name = f"enumerate(DataLoader)#{loader}.__next__"
            kinds = {C.KIND: HostKind.ANNOTATION, "phase": Phase.DATALOAD}
            calls.append(host(name, now, now + load_ns, **kinds))
            now += load_ns
        for _ in range(10):
            launch(10_000)
            now += 40_000
    return calls, rows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "The host launches more slowly than the device runs: launch less often ("),
        ({"wait_ns": 500_000}, "and then launches into an empty queue: remove these waits first ("),
        ({"wait_ns": 200_000}, "The host launches more slowly than the device runs"),
        ({"inside": True}, "Launch calls return only after their kernels"),
    ],
)
def test_late_launches_are_told_from_waits_before_them(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    findings = explained(tmp_path, *late_launches(**options)).findings
    advice = {finding.code: finding.advice for finding in findings}
    assert says in advice["idle_launch_bound"]


@pytest.mark.parametrize(
    ("loader", "load_ns", "saves"),
    [
        ("_MultiProcessingDataLoaderIter", 900_000, False),
        ("_MultiProcessingDataLoaderIter", 100_000, True),
        ("_SingleProcessDataLoaderIter", 900_000, True),
    ],
)
def test_a_faster_host_saves_nothing_while_workers_set_the_pace(
    tmp_path: Path, loader: str, load_ns: int, *, saves: bool
) -> None:
    calls, rows = late_launches(load_ns=load_ns, loader=loader)
    (late,) = (one for one in explained(tmp_path, calls, rows).findings if one.code == "idle_launch_bound")
    assert (late.saving_ns_per_step is not None) == saves
    assert ("workers of the data loader set the pace" in late.how) != saves


@pytest.mark.parametrize(
    ("call", "overhead", "cause", "overhead_ns", "latency_ns"),
    [
        ((40_000, 55_000), (20_000, 36_000), "profiler", 16_000, 20_000),
        ((30_000, 59_000), (32_000, 56_000), "profiler", 24_000, 6_000),
        ((30_000, 59_000), (32_000, 44_000), "launch_bound", 0, 30_000),
    ],
)
def test_overhead_of_the_profiler_is_no_latency_of_the_launch_in_which_it_runs(
    tmp_path: Path,
    call: tuple[int, int],
    overhead: tuple[int, int],
    cause: str,
    overhead_ns: int,
    latency_ns: int,
) -> None:
    flush = host("Activity Buffer Request", *overhead, kind=HostKind.OVERHEAD, tid=0)
    table = one_gap(tmp_path, host("cudaLaunchKernel", *call, **CALL), flush).tables["by_cause"]
    columns = ["cause", "overhead_ns", "launch_latency_ns"]
    assert table[columns].to_numpy().tolist() == [[cause, overhead_ns, latency_ns]]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("triton_poi_fused_add_0", "GPU idle while the CPU compiles or loads code "),
        ("gemm", "GPU idle while the CPU activity is unknown "),
    ],
)
def test_unrecorded_compilation_is_not_called_unknown(tmp_path: Path, name: str, title: str) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 19_995_000)]
    rows = [kernel(5_000, 10_000, launch_row=0), kernel(20_000_000, 20_100_000, name=name, launch_row=1)]
    (finding,) = explained(tmp_path / "alone", calls, rows).findings
    assert finding.title.startswith(title)
    assert ("compiles or loads code there" in finding.advice) == ("loads" in title)
    reads = host("cudaMemcpyAsync", 5_000, 16_000, **SYNC)
    copy = memcpy(10_000, 15_000, name="Memcpy DtoH (Device -> Pageable)", launch_row=2)
    (finding,) = explained(tmp_path / "reads", [*calls, reads], [*rows, copy]).findings
    assert finding.title.startswith(
        title if "loads" in title else "GPU idle while the CPU uses what it copied"
    )
    assert (finding.saving_ns_per_step is None) == ("loads" in title)


@pytest.mark.parametrize(("op", "place"), [([], ""), ([host("aten::mm", 11_000, 5_009_500)], " in aten::mm")])
def test_a_slow_call_is_in_an_op_only_where_one_was_recorded(
    tmp_path: Path, op: list[Row], place: str
) -> None:
    inside: Row = {C.PARENT_ROW: 1, C.DEPTH: 1} if op else {}
    slow = host("cudaLaunchKernel", 12_000, 5_009_000, **CALL, **inside)
    calls = [host("cudaLaunchKernel", 0, 4_000, **CALL), *op, slow]
    rows = [kernel(5_000, 10_000, launch_row=0), kernel(5_010_000, 5_110_000, launch_row=1 + len(op))]
    (finding,) = explained(tmp_path, calls, rows).findings
    assert finding.code == "idle_slow_call"
    assert finding.advice.startswith(f"The largest part is cudaLaunchKernel{place} (100%)")


@pytest.mark.parametrize(("copied_ns", "is_said"), [(100_000, True), (40_000, False), (151_000, False)])
def test_copies_between_waiting_launches_are_told_from_them(
    tmp_path: Path, copied_ns: int, *, is_said: bool
) -> None:
    """Between kernels 200 us apart a copy without a launch ends most of the idle time, or a fifth of it.

    One that starts at most 50 us before the next call uploads what that needs.
    """
    starts = range(0, 25 * 200_000, 200_000)
    calls = [host("launch", start, start + 12_000, **CALL) for start in starts]
    rows = [kernel(at + 1_000, at + 11_000, launch_row=number) for number, at in enumerate(starts)]
    copies = [memcpy(start + copied_ns, start + copied_ns + 1_000, stream=9) for start in starts]
    findings = explained(tmp_path, calls, [*rows, *copies]).findings
    (advice,) = [finding.advice for finding in findings if finding.code == "idle_launch_bound"]
    assert "Launch calls return only after their kernels" in advice
    assert ("passes before 25 copies of data" in advice) == is_said


@pytest.mark.parametrize("copied", [True, False])
def test_idle_time_before_work_without_a_call_is_not_before_calls(tmp_path: Path, *, copied: bool) -> None:
    calls, rows = late_launches(inside=True)
    copies = [memcpy(row[C.START_NS] + 25_000, row[C.START_NS] + 26_000, stream=9) for row in rows]
    findings = explained(tmp_path, calls, [*rows, *copies] if copied else rows).findings
    (advice,) = [finding.advice for finding in findings if finding.code == "idle_launch_bound"]
    assert "of the time passes before the launch calls" in advice
    assert ("before work without a recorded call" in advice) == copied


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaGraphLaunch"])
def test_a_program_that_replays_graphs_is_told_to_replay_more(tmp_path: Path, call: str) -> None:
    calls, rows = late_launches()
    replay = host(call, calls[-1][C.START_NS] + 5_000, calls[-1][C.START_NS] + 6_000, **CALL)
    findings = explained(tmp_path, [*calls, replay], rows).findings
    (advice,) = [finding.advice for finding in findings if finding.code == "idle_launch_bound"]
    assert ("more of the step in its CUDA graphs" in advice) == (call == "cudaGraphLaunch")


@pytest.mark.slow
def test_gaps_without_op_and_line_are_said_to_be_so(tmp_path: Path) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 95_000)]
    rows = [kernel(5_000, 10_000, launch_row=0), kernel(100_000, 110_000, launch_row=1)]
    (finding,) = explained(tmp_path, calls, rows).findings
    assert finding.advice.startswith("No op or source line was recorded for these gaps. ")


def programs() -> st.SearchStrategy[list[tuple[int, int, int, int, bool]]]:
    """Kernels by pause, length, how long ago they were launched, stream, and whether the launch is known."""
    times = st.integers(0, 40_000)
    return st.lists(st.tuples(times, times, times, st.integers(0, 1), st.booleans()), min_size=2, max_size=12)


def built(plan: list[tuple[int, int, int, int, bool]]) -> tuple[list[Row], list[Row]]:
    rows, calls, now = [], [], 0
    for number, (pause, length, ago, stream, known) in enumerate(plan):
        now += pause
        calls.append(host("cudaLaunchKernel", now - ago, now - ago + 3_000, tid=1 + stream, **CALL))
        rows.append(kernel(now, now + length, stream=stream, **({C.LAUNCH_ROW: number} if known else {})))
        now += length // 2
    return calls, rows


@settings(max_examples=examples(25))
@given(plan=programs(), seed=st.integers(0, 99))
def test_causes_sum_to_the_idle_time_whatever_the_order_of_rows(
    plan: list[tuple[int, int, int, int, bool]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("run")
    calls, rows = built(plan)
    calls = [{C.ROW_ID: number, **row} for number, row in enumerate(calls)]
    rows = with_idle(rows)
    run = make_run(path / "a", host_intervals=calls, device_intervals=rows)
    result = analyze(run, "idle_gaps")
    idle = analyze(run, "gpu_breakdown").tables["whole"]["idle_ns"].sum()
    assert result.tables["summary"]["idle_ns"].sum() == idle
    if not idle:
        return
    assert result.tables["by_cause"]["idle_ns"].sum() == idle
    assert result.tables["by_op"]["idle_ns"].sum() == idle
    random.Random(seed).shuffle(rows)
    random.Random(seed).shuffle(calls)
    other = analyze(make_run(path / "b", host_intervals=calls, device_intervals=rows), "idle_gaps")
    for name, table in result.tables.items():
        assert table.equals(other.tables[name]), name


def test_slow_calls_and_work_of_the_host_are_told_apart(tmp_path: Path) -> None:
    def found(path: Path, *rows: Row) -> list[tuple[str, bool, bool]]:
        calls = [host("cudaLaunchKernel", -5_000, -1_000, **CALL), *rows]
        intervals_of = [kernel(0, 20_000, launch_row=0), kernel(821_000, 900_000, launch_row=1)]
        findings = explained(path, calls, intervals_of).findings
        return [(f.code, "first use" in f.advice, "free memory" in f.advice) for f in findings]

    slow = host("cudaLaunchKernel", 300_000, 820_000, **CALL)
    quick = host("cudaLaunchKernel", 810_000, 820_000, **CALL)
    allocation = host("cudaMalloc", 30_000, 800_000, **CALL)
    assert found(tmp_path / "a", slow) == [("idle_slow_call", True, False)]
    assert found(tmp_path / "b", quick) == [("idle_host_work", False, False)]
    assert found(tmp_path / "c", quick, allocation) == [("idle_slow_call", False, True)]


def test_of_intervals_that_start_together_the_first_launched_ends_the_gap(tmp_path: Path) -> None:
    calls = [
        host("cudaLaunchKernel", 1_000, 4_000, **CALL),
        host("cudaLaunchKernel", 50_000, 54_000, **CALL),
        host("cudaLaunchKernel", 5_000, 9_000, **CALL),
    ]
    rows = [
        kernel(10_000, 20_000, launch_row=0),
        kernel(25_000, 30_000, name="unlinked"),
        kernel(25_000, 30_000, launch_row=1, name="late"),
        kernel(25_000, 30_000, launch_row=2, name="early"),
    ]
    result = explained(tmp_path, calls, rows)
    assert causes(result) == [("kernel_to_kernel", 5_000)]
    assert result.tables["gaps"]["after"].tolist() == ["early"]


@pytest.mark.slow
def test_an_op_must_cover_more_than_half_of_the_hosts_part(tmp_path: Path) -> None:
    def op(path: Path, end: int) -> str:
        launch = host("cudaLaunchKernel", 50_000, 54_000, **CALL)
        return str(one_gap(path, launch, host("aten::sort", 30_000, end)).tables["gaps"]["op"].iloc[0])

    assert op(tmp_path / "a", 45_000) == "(between ops)"
    assert op(tmp_path / "b", 45_001) == "aten::sort"


def two_kernels(
    path: Path, *more: Row, gap: tuple[int, int] = (100_000, 3_000_000), linked: bool = True
) -> Result:
    """A kernel, a gap, and a kernel whose launch ends at the end of the gap."""
    calls = [host("cudaLaunchKernel", 0, 4_000, **CALL)]
    calls += [host("cudaLaunchKernel", gap[1] - 6_000, gap[1] - 2_000, **CALL)]
    rows = [kernel(5_000, gap[0], launch_row=0 if linked else None), kernel(gap[1], gap[1] + 9, launch_row=1)]
    rows += [kernel(gap[1] + 9 + at, gap[1] + 10 + at, launch_row=1) for at in range(3)]
    return explained(path, [*calls, *more], rows)


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings if finding.saving_ns_per_step is not None]


@pytest.mark.slow
def test_work_of_the_host_in_marked_warm_up_gets_no_advice(tmp_path: Path) -> None:
    work = host("aten::prepare", 110_000, 2_900_000, parent_row=2, depth=1)
    named = {name: host(name, 1_000, 2_950_000, kind=HostKind.ANNOTATION) for name in ("warmup|x", "measure")}
    again = host("aten::prepare", 5_000_000, 7_000_000)
    found = {name: codes(two_kernels(tmp_path / name[:4], row, work, again)) for name, row in named.items()}
    assert found == {"warmup|x": [], "measure": ["idle_host_work"]}


@pytest.mark.slow
def test_idle_time_after_work_from_before_the_capture_gets_no_advice(tmp_path: Path) -> None:
    ops = [host("aten::prepare", 110_000, 2_900_000), host("aten::prepare", 5_000_000, 7_000_000)]
    assert codes(two_kernels(tmp_path / "launched", *ops)) == ["idle_host_work"]
    assert codes(two_kernels(tmp_path / "backlog", *ops, linked=False)) == []


def test_queued_work_behind_the_first_wait_of_a_capture_gets_no_advice(tmp_path: Path) -> None:
    def result(path: Path, *earlier: Row) -> Result:
        calls = [host("cudaLaunchKernel", 0, 4_000, **CALL), host("cudaLaunchKernel", 5_000, 9_000, **CALL)]
        wait = host("cudaDeviceSynchronize", 20_000, 2_900_000, **SYNC)
        rows = [kernel(6_000, 10_000, launch_row=0), kernel(3_000_000, 3_000_100, launch_row=1)]
        return explained(path, [*calls, *earlier, wait], rows)

    assert codes(result(tmp_path / "first")) == []
    earlier = host("cudaDeviceSynchronize", 9_500, 9_900, **SYNC)
    assert codes(result(tmp_path / "second", earlier)) == ["idle_stream_dependency"]
    assert codes(result(tmp_path / "other rank", {**earlier, C.RANK: 1})) == []


def test_waits_of_another_rank_do_not_end_the_lead_of_the_host(tmp_path: Path) -> None:
    """Work is queued for 6 ms when the host returns from its last launch, and it was late for 2.9 ms."""

    def result(path: Path, **place: Any) -> list[str]:
        calls = [host("cudaLaunchKernel", start, start + 4_000, **CALL) for start in (0, 2_994_000)]
        ops = [
            host("aten::prepare", start, start + 2_790_000, **{C.PARENT_ROW: None})
            for start in (110_000, 10_000_000)
        ]
        wait = host("cudaDeviceSynchronize", 1_000_000, 2_000_000, **SYNC, **place)
        rows = [kernel(5_000, 100_000, launch_row=0), kernel(3_000_000, 9_000_000, launch_row=1)]
        return codes(explained(path, [*calls, *ops, wait], rows))

    assert result(tmp_path / "own", **{C.TID: 2}) == ["idle_host_work"]
    assert result(tmp_path / "other", **{C.TID: 2, C.RANK: 1}) == []


def test_a_thread_of_another_rank_is_never_in_charge(tmp_path: Path) -> None:
    """Rank 0 records nothing in its gap; rank 1 works in its own, which is at the same time."""
    ranks = [{C.RANK: rank} for rank in (0, 1)]
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL, **rank) for at in (0, 50_000) for rank in ranks]
    working = host("aten::sort", 10_000, 49_000, **ranks[1])
    rows = [
        kernel(start, end, launch_row=2 * place + number, **rank)
        for place, (start, end) in enumerate([(5_000, 20_000), (55_000, 60_000)])
        for number, rank in enumerate(ranks)
    ]
    gaps = explained(tmp_path, [*calls, working], rows).tables["gaps"].set_index(C.RANK)
    assert gaps["op"].to_dict() == {0: "(between ops)", 1: "aten::sort"}


def test_overhead_of_the_profiler_counts_for_its_own_rank(tmp_path: Path) -> None:
    launch = host("cudaLaunchKernel", 50_000, 54_000, **CALL)
    overhead = [
        host("Activity Buffer Request", 20_000, end, kind=HostKind.OVERHEAD, tid=0, rank=rank)
        for rank, end in ((0, 21_000), (1, 50_000))
    ]
    assert causes(one_gap(tmp_path, launch, *overhead)) == [("launch_bound", 40_000)]


def test_overhead_of_the_profiler_counts_for_its_length(tmp_path: Path) -> None:
    launch = host("cudaLaunchKernel", 57_000, 59_000, **CALL)
    overhead = host("Activity Buffer Request", 25_000, 50_000, kind=HostKind.OVERHEAD)
    (row,) = one_gap(tmp_path, launch, overhead).tables["by_cause"].to_dict("records")
    assert (row["cause"], row["idle_ns"], row["overhead_ns"]) == ("profiler", 40_000, 25_000)


@pytest.mark.slow
def test_a_few_slow_calls_of_an_op_are_first_calls(tmp_path: Path) -> None:
    def result(path: Path, *lengths: int) -> Result:
        slow = host("aten::mm", 110_000, 2_900_000)
        others = [
            host("aten::mm", 10_000_000 * k, 10_000_000 * k + length) for k, length in enumerate(lengths, 1)
        ]
        return two_kernels(path, slow, *others)

    assert codes(result(tmp_path / "quick", 50_000, 60_000, 70_000)) == ["idle_first_calls"]
    assert codes(result(tmp_path / "slow", 2_000_000, 60_000, 2_500_000)) == ["idle_host_work"]
    assert codes(result(tmp_path / "alone")) == []  # it is unknown whether another call would be quicker


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([50_000] * 6, 2_900_000),
        ([50_000, 2_000_000, 50_000, 50_000, 50_000, 2_000_000, 2_000_000], 0),
        ([2_000_000, 2_000_000, 2_000_000, *[50_000] * 8], 2_900_000),
    ],
    ids=["once", "again and again", "early only"],
)
def test_calls_that_are_slow_at_first_only_are_start_up(
    tmp_path: Path, calls: list[int], expected: int
) -> None:
    slow = host("aten::mm", 110_000, 2_900_000)
    others = [host("aten::mm", 10_000_000 * k, 10_000_000 * k + ns) for k, ns in enumerate(calls, 1)]
    table = two_kernels(tmp_path, slow, *others).tables["by_cause"]
    assert table["start_up_ns"].sum() == expected


@pytest.mark.parametrize(
    ("name", "cause", "start_up_ns"),
    [
        ("Runtime Triggered Module Loading", "slow_call", 2_900_000),
        ("Lazy Function Loading", "slow_call", 2_900_000),
        ("Activity Buffer Request", "profiler", 0),
    ],
)
def test_overhead_that_loads_code_is_start_up_wherever_it_is_recorded(
    tmp_path: Path, name: str, cause: str, start_up_ns: int
) -> None:
    call = host("cudaLaunchKernel", 110_000, 2_900_000, **CALL)
    overhead = host(name, 120_000, 2_890_000, kind=HostKind.OVERHEAD, tid=0)
    table = two_kernels(tmp_path, call, overhead).tables["by_cause"]
    assert table[["cause", "start_up_ns"]].to_numpy().tolist() == [[cause, start_up_ns]]


@pytest.mark.parametrize(
    ("name", "length", "is_start_up"),
    [
        ("cuLibraryLoadData", 2_800_000, True),
        ("read", 12_000_000, False),
        ("cudaFree", 9_999_999, False),
        ("cudaFree", 10_000_000, True),
    ],
)
def test_a_call_that_loads_code_or_initializes_is_start_up(
    tmp_path: Path, name: str, length: int, is_start_up: bool
) -> None:
    call = host(name, 110_000, 110_000 + length, **CALL)
    table = two_kernels(tmp_path, call, gap=(100_000, 200_000 + length)).tables["by_cause"]
    assert list(table["cause"]) == ["host_work" if name == "read" else "slow_call"]
    assert (table["start_up_ns"].sum() > 0) == is_start_up


@pytest.mark.parametrize(
    ("name", "launched", "expected"),
    [
        ("Unified Memory Memcpy DtoH", False, ("host_work", "(managed memory used by the CPU)")),
        ("Unified Memory Memcpy HtoD", False, ("unknown", "(launch not recorded)")),
        ("Memcpy DtoH", False, ("unknown", "(launch not recorded)")),
        ("Unified Memory Memcpy DtoH", True, ("launch_bound", "(between ops)")),
    ],
)
def test_pages_of_managed_memory_move_to_the_host_as_the_cpu_uses_them(
    tmp_path: Path, name: str, expected: tuple[str, str], *, launched: bool
) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 80_000)]
    rows = [
        kernel(5_000, 20_000, launch_row=0),
        memcpy(90_000, 95_000, name=name, launch_row=1 if launched else None),
    ]
    (gap,) = explained(tmp_path, calls, rows).tables["gaps"].to_dict("records")
    assert (gap["cause"], gap["op"]) == expected


def test_moves_of_managed_memory_are_no_work_from_before_the_capture(tmp_path: Path) -> None:
    move = "Unified Memory Memcpy DtoH"
    for name, aside_ns in ((move, 0), ("Memcpy DtoH", 80_000)):
        rows = [
            memcpy(0, 10_000, name=name),
            memcpy(90_000, 95_000, name=name),
            kernel(95_000, 99_000, launch_row=0),
        ]
        calls = [host("cudaLaunchKernel", 90_000, 94_000, **CALL)]
        table = explained(tmp_path / name[:3], calls, rows).tables["by_cause"]
        assert table["aside_ns"].sum() == aside_ns


@pytest.mark.parametrize(
    ("length", "gap_ns", "is_start_up"),
    [(2_000_000, 10_000_000, True), (1_999_999, 10_000_000, False), (2_000_000, 9_999_999, False)],
)
def test_calls_that_load_a_fifth_of_unrecorded_time_explain_it(
    tmp_path: Path, length: int, gap_ns: int, *, is_start_up: bool
) -> None:
    call = host("cuLibraryLoadData", 1_000_000, 1_000_000 + length, **CALL)
    table = two_kernels(tmp_path, call, gap=(100_000, 106_000 + gap_ns)).tables["by_cause"]
    assert list(table["cause"]) == ["host_work"]
    assert (table["start_up_ns"].sum() > 0) == is_start_up


def test_what_happens_once_at_the_start_is_never_high(tmp_path: Path) -> None:
    call = host("cuLibraryLoadData", 110_000, 2_900_000, **CALL)
    other, again = host("aten::prepare", 110_000, 2_900_000), host("aten::prepare", 5_000_000, 7_000_000)
    found = [two_kernels(tmp_path / row[C.NAME], row, again).findings[0].severity for row in (call, other)]
    assert found == ["warn", "high"]


@pytest.mark.parametrize(
    ("names", "gap_ns", "is_start_up"),
    [
        (("own", "triton_poi_fused_0"), 10_000_000, True),
        (("own", "triton_poi_fused_0"), 9_999_999, False),
        (("own", "triton_softmax"), 10_000_000, False),
        (("triton_poi_fused_0", "triton_poi_fused_0"), 10_000_000, False),
    ],
    ids=["compiled", "short", "written by hand", "known"],
)
def test_what_precedes_the_first_generated_kernel_is_compilation(
    tmp_path: Path, names: tuple[str, str], gap_ns: int, *, is_start_up: bool
) -> None:
    calls = [host("cuLaunchKernel", 0, 4_000, **CALL)]
    calls += [host("cuLaunchKernel", 100_000 + gap_ns, 104_000 + gap_ns, **CALL)]
    rows = [
        kernel(5_000, 100_000, launch_row=0, name=names[0]),
        kernel(105_000 + gap_ns, 110_000 + gap_ns, launch_row=1, name=names[1]),
    ]
    table = explained(tmp_path, calls, rows).tables["by_cause"]
    assert list(table["cause"]) == ["host_work"]
    assert (table["start_up_ns"].sum() > 0) == is_start_up


@pytest.mark.parametrize(
    ("before", "after", "is_start_up"),
    [(9, 31, True), (10, 31, False), (3, 4, True), (3, 3, True), (4, 3, False)],
    ids=["a tenth", "less than a tenth", "first half", "middle", "second half"],
)
def test_a_slow_call_late_in_the_capture_is_no_start_up(
    tmp_path: Path, before: int, after: int, is_start_up: bool
) -> None:
    starts = [*(-1_000 * (k + 1) for k in range(before)), *(10_000_000 + 1_000 * k for k in range(after))]
    quick = [host("aten::mm", start, start + 500) for start in starts]
    table = two_kernels(tmp_path, host("aten::mm", 110_000, 2_900_000), *quick).tables["by_cause"]
    assert list(table["cause"]) == ["first_call"]
    assert (table["start_up_ns"].sum() > 0) == is_start_up


def test_the_launch_of_a_graph_is_no_start_up(tmp_path: Path) -> None:
    def result(path: Path, name: str) -> Result:
        calls = [host("cudaLaunchKernel", 0, 4_000, **CALL), host(name, 110_000, 2_990_000, **CALL)]
        rows = [kernel(5_000, 100_000, launch_row=0), kernel(3_000_000, 3_000_009, launch_row=1, name="new")]
        return explained(path, calls, rows)

    for name, is_start_up in (("cudaLaunchKernel", True), ("cudaGraphLaunch", False)):
        table = result(tmp_path / name, name).tables["by_cause"]
        assert (table["start_up_ns"].sum() > 0) == is_start_up


@pytest.mark.parametrize("name", ["aten::normal_", ""])
def test_an_op_in_a_callback_of_an_event_loop_is_no_wait_for_a_request(tmp_path: Path, name: str) -> None:
    loop = host("asyncio/base_events.py(1922): _run_once", 105_000, 2_950_000, kind=HostKind.PYTHON)
    (finding,) = two_kernels(tmp_path, loop, *([host(name, 110_000, 2_900_000)] if name else [])).findings
    assert finding.code == "idle_host_work"
    assert ("waits there for a request" in finding.advice) == (not name)


@pytest.mark.slow
def test_calls_that_together_cover_the_host_are_slow_calls(tmp_path: Path) -> None:
    op = host("aten::relu", 110_000, 2_990_000)
    frees = [
        host("hipFree", 120_000 + 950_000 * k, 1_000_000 + 950_000 * k, parent_row=2, depth=1, **CALL)
        for k in range(2)
    ]
    (finding,) = two_kernels(tmp_path, op, *frees).findings
    assert finding.code == "idle_slow_call"
    assert "hipFree in aten::relu" in finding.advice


def test_a_gap_is_shared_by_the_calls_that_run_in_it(tmp_path: Path) -> None:
    """Of 2,990 µs, calls of one name take 900, the one after them 1,750, and the last one 190."""
    op = host("aten::relu", 110_000, 2_990_000)
    spans = [(120_000, 570_000), (600_000, 1_050_000), (1_050_000, 2_800_000), (2_800_000, 2_990_000)]
    names = ["cudaFree", "cudaFree", "cudaMalloc", "cudaEventCreate"]
    calls = [
        host(name, *span, parent_row=2, depth=1, **CALL) for name, span in zip(names, spans, strict=True)
    ]
    (finding,) = two_kernels(tmp_path, op, *calls).findings
    parts = "The largest parts are cudaMalloc in aten::relu (60%), cudaFree in aten::relu (31%). "
    assert finding.advice.startswith(parts)


@pytest.mark.parametrize(("end", "share"), [(2_478_000, 82), (2_990_000, 100)])
def test_a_function_has_the_share_of_the_time_in_which_it_runs(tmp_path: Path, end: int, share: int) -> None:
    function = host("train.py(3): prepare", 90_000, end, kind=HostKind.PYTHON)
    (finding,) = two_kernels(tmp_path, function).findings
    assert finding.advice.startswith(f"The largest part is train.py(3): prepare ({share}%). ")


@pytest.mark.slow
def test_the_dispatch_of_an_op_up_to_a_millisecond_is_launch_bound(tmp_path: Path) -> None:
    ops = [host("aten::mm", 10_000_000 * k, 10_000_000 * k + 800_000) for k in range(1, 4)]
    for end, code in ((1_000_000, "idle_launch_bound"), (1_200_000, "idle_host_work")):
        op = host("aten::mm", 101_000, end - 7_000)
        assert codes(two_kernels(tmp_path / code, op, *ops, gap=(100_000, end))) == [code]


@pytest.mark.parametrize(("backlog_ns", "says"), [(70_000, False), (20_000, True)])
def test_a_wait_for_work_of_earlier_steps_is_none_of_the_step(
    tmp_path: Path, backlog_ns: int, *, says: bool
) -> None:
    """The wait ends at 65 µs: of 60 µs, 45 lie in a step whose window begins at 20 µs."""
    rows = [kernel(0, backlog_ns, stream=7, **{C.CORRELATION_ID: 1})]
    waits = [host("cudaDeviceSynchronize", 5_000, 65_000, kind=HostKind.SYNC, step=0)]
    for number in range(3):
        begun = 80_000 + 20_000 * number
        waits.append(host("cudaLaunchKernel", begun + 3_000, begun + 7_000, **CALL, step=0))
        linked = {C.CORRELATION_ID: number + 2, C.STREAM: 7, C.STEP: 0, C.LAUNCH_ROW: number + 1}
        rows.append(kernel(begun + 8_000, begun + 14_000, **linked))
    result = explained(tmp_path, waits, rows, [step(0, 1_000, 135_000)])
    advice = [one.advice for one in result.findings if one.code == "idle_launch_bound"]
    assert [" waits for the device, 45 µs per step" in text for text in advice] == [says]


@pytest.mark.parametrize(("op", "is_hinted"), [("aten::_coalesce", True), ("aten::mm", False)])
def test_sparse_tensors_are_to_be_coalesced_once(tmp_path: Path, op: str, *, is_hinted: bool) -> None:
    calls = [host("cudaLaunchKernel", at, at + 4_000, **CALL) for at in (0, 105_000)]
    rows = [kernel(5_000, 10_000, launch_row=0), kernel(110_000, 120_000, launch_row=1)]
    (finding,) = explained(tmp_path, [*calls, host(op, 11_000, 109_500)], rows).findings
    assert finding.code == "idle_launch_bound"
    assert ("`.coalesce()` once" in finding.advice) == is_hinted


def test_what_the_launching_thread_did_longest_before_the_first_work_is_told(tmp_path: Path) -> None:
    """A call has the time of what it asks of the system, and threads that launch nothing do not count."""
    rows = [
        host("aten::to", 0, 95_000, **{C.PARENT_ROW: None}),
        host("cudaHostAlloc", 10_000, 70_000, **CALL, **{C.PARENT_ROW: 0}),
        host("ioctl", 11_000, 69_000, **CALL, **{C.PARENT_ROW: 1}),
        host("poll", 0, 99_000, **CALL, **{C.TID: 2, C.PARENT_ROW: None}),
        host("cudaLaunchKernel", 98_000, 99_000, **CALL, **{C.PARENT_ROW: None}),
    ]
    result = explained(tmp_path, rows, [kernel(100_000, 110_000, launch_row=4)])
    summary = result.tables["summary"].iloc[0]
    assert (summary["lead_ns"], summary["lead_work"], summary["lead_work_ns"]) == (
        100_000,
        "cudaHostAlloc",
        60_000,
    )


def test_steps_after_all_device_work_count_in_no_mean(tmp_path: Path) -> None:
    ops = [host("cudaLaunchKernel", start, start + 10, **CALL) for start in (0, 500)]
    rows = [kernel(100, 200, launch_row=0, step=0), kernel(600, 700, launch_row=1, step=0)]
    result = explained(tmp_path, ops, rows, [step(0, 0, 800), step(1, 800, 900)])
    (row,) = result.tables["by_cause"].to_dict("records")
    assert (row["steps_ns"], row["per_step_ns"]) == (400, 400)


def test_the_thread_that_holds_the_interpreter_lock_is_named_behind_idle_time(tmp_path: Path) -> None:
    rows = [kernel(10_000, 400_000, launch_row=0), kernel(8_410_000, 10_000_000, launch_row=1)]
    waits = {C.T_NS: 4_000_000, C.TID: 1, C.STACK: "train.py(1): main", C.SOURCE_LINES: "9"}
    waits |= {C.SINCE_NS: 9_000_000, C.ASLEEP_NS: 8_000_000, C.LOCK_WAIT_NS: 5_000_000}
    holds = {C.T_NS: 4_000_000, C.TID: 2, C.STACK: "side.py(3): count", C.SOURCE_LINES: "6"}
    run = make_run(
        tmp_path,
        host_intervals=[host("cudaLaunchKernel", start, start + 4_000, **CALL) for start in (0, 8_400_000)],
        device_intervals=with_idle(rows),
        steps=[step(0, 0, 10_000_000)],
        host_samples=[waits, holds | {C.RAN_NS: 8_000_000}],
    )
    assert set(analyze(run, "idle_gaps").tables["gaps"]["source_line"]) == {"side.py(6): count"}


def first_calls(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    calls = [host("cudaLaunchKernel", start, start + 4_000, **CALL) for start in (0, 2_994_000)]
    ops = [host("aten::mm", 110_000, 2_900_000)]
    ops += [host("aten::mm", 10_000_000 * k, 10_000_000 * k + 60_000) for k in range(1, 4)]
    work = [kernel(5_000, 100_000, launch_row=0), kernel(3_000_000, 3_000_009, launch_row=1)]
    return (make_run(path, host_intervals=[*calls, *ops], device_intervals=with_idle(work)),)


THRESHOLD_RUNS: dict[str, Make] = {
    "idle_first_calls": first_calls,
}
