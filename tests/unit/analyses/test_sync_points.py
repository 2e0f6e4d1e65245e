from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS
from tracekit.analyses.sync_points import NO_CALLS, NO_WAITS

from tests.builders import Row, device, host, kernel, make_run, memcpy, step
from tests.unit.analyses.test_idle_gaps import CALL, SYNC, with_idle
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

COSTS = ["call", "op", "count", "idle_caused_ns", "host_ns", "idle_after_ns", "device_busy_ns"]


def read_back(path: Path, *, work_ns: int = 15_000) -> Run:
    """A kernel, a copy that is waited for twice, and a kernel launched `work_ns` after the copy's end."""
    launch = 40_000 + work_ns
    calls: list[Row] = [
        host("cudaLaunchKernel", 1_000, 4_000, **CALL),
        host("aten::item", 5_000, 46_000, stack="train.py(3): step"),
        host("aten::_local_scalar_dense", 5_500, 45_500, parent_row=1, depth=1, stack="train.py(3): step"),
        host("cudaMemcpyAsync", 6_000, 41_000, parent_row=2, depth=2, step=0, **CALL),
        host("cudaStreamSynchronize", 42_000, 44_000, parent_row=2, depth=2, step=0, **SYNC),
        host("cudaLaunchKernel", launch, launch + 3_000, **CALL),
    ]
    rows = [
        kernel(10_000, 38_000, launch_row=0),
        memcpy(38_000, 40_000, launch_row=3, src_memory="device", dst_memory="pageable"),
        kernel(launch + 5_000, launch + 45_000, launch_row=5, step=0),
    ]
    return make_run(
        path, host_intervals=calls, device_intervals=with_idle(rows), steps=[step(0, 0, launch + 45_000)]
    )


def test_idle_time_is_charged_once_to_the_wait_in_which_the_device_ran_dry(tmp_path: Path) -> None:
    result = analyze(read_back(tmp_path), "sync_points")
    assert result.tables["waits"][COSTS].to_numpy().tolist() == [
        ["cudaMemcpyAsync", "aten::_local_scalar_dense", 1, 20_000, 35_000, 20_000, 30_000],
        ["cudaStreamSynchronize", "aten::_local_scalar_dense", 1, 0, 2_000, 0, 0],
    ]
    assert result.tables["waits"]["idle_share"].tolist() == [1.0, 0.0]
    calls = result.tables["calls"]
    assert calls[["host_row", "source_line"]].to_numpy().tolist() == [
        [3, "train.py(3): step"],
        [4, "train.py(3): step"],
    ]
    assert calls["idle_row"].tolist()[:1] == [103]


@pytest.mark.parametrize(
    ("work_ns", "idle", "due"),
    [
        (15_000, "20 µs", ""),
        (60_000, "65 µs", "35 µs of it is due to the waits: at most as long as each lasted"),
    ],
)
def test_idle_time_after_a_wait_and_its_part_due_to_it_are_told_apart(
    tmp_path: Path, work_ns: int, idle: str, due: str
) -> None:
    (finding,) = analyze(read_back(tmp_path, work_ns=work_ns), "sync_points").findings
    assert f": GPU idle {idle} per step after 1 wait" in finding.title
    assert due in finding.advice
    assert ("due to the waits" in finding.advice) is bool(due)


def test_the_finding_names_the_read_back_its_line_and_what_it_costs(tmp_path: Path) -> None:
    (finding,) = analyze(read_back(tmp_path), "sync_points").findings
    assert finding.code == "sync_starves_device"
    assert finding.saving_ns_per_step == 20_000
    assert (
        finding.title == "cudaMemcpyAsync in aten::_local_scalar_dense: GPU idle 20 µs per step after 1 wait"
    )
    assert finding.advice.startswith("It waits at train.py(3): step. ")
    assert ".item()" in finding.advice
    assert finding.evidence == {"device_intervals": [103], "host_intervals": [3]}


def test_a_wait_saves_a_step_nothing_between_the_steps(tmp_path: Path) -> None:
    calls = [
        host("cudaLaunchKernel", 1_000, 4_000, **CALL),
        host("cudaDeviceSynchronize", 5_000, 505_000, step=0, **SYNC),
        host("cudaLaunchKernel", 900_000, 905_000, **CALL),
    ]
    rows = [kernel(5_000, 500_000, launch_row=0, step=0), kernel(910_000, 920_000, launch_row=2, step=1)]
    steps = [step(0, 0, 507_000), step(1, 899_000, 920_000)]
    run = make_run(tmp_path, host_intervals=calls, device_intervals=with_idle(rows), steps=steps)
    result = analyze(run, "sync_points")
    assert result.tables["waits"]["idle_caused_ns"].tolist() == [410_000]
    (finding,) = result.findings
    assert finding.saving_ns_per_step == (7_000 + 11_000) // 2


@pytest.mark.slow
def test_a_host_that_waits_for_a_request_loses_nothing_by_waiting_for_the_device(tmp_path: Path) -> None:
    def found(path: Path, frame: str) -> list[tuple[str, int | None]]:
        calls = [
            host("cudaLaunchKernel", 1_000, 4_000, **CALL),
            host("cudaStreamSynchronize", 5_000, 300_000, **SYNC),
            host(frame, 301_000, 900_000, kind=HostKind.PYTHON),
            host("cudaLaunchKernel", 901_000, 905_000, **CALL),
        ]
        rows = [kernel(5_000, 299_000, launch_row=0), kernel(906_000, 920_000, launch_row=3)]
        run = make_run(path, host_intervals=calls, device_intervals=with_idle(rows))
        both = [analyze(run, name).findings for name in ("sync_points", "idle_gaps")]
        return [(finding.code, finding.saving_ns_per_step) for one in both for finding in one]

    resting = found(tmp_path / "a", "<built-in method acquire of _thread.lock object at 0x7f>")
    assert resting == [("idle_host_work", None)]
    working = found(tmp_path / "b", "serve.py(7): answer")
    assert working == [("sync_starves_device", 295_000), ("idle_host_work", 607_000)]


def test_no_more_is_charged_than_the_host_lost_by_waiting(tmp_path: Path) -> None:
    (wait, _) = analyze(read_back(tmp_path, work_ns=95_000), "sync_points").tables["waits"].to_dict("records")
    assert (wait["idle_caused_ns"], wait["idle_after_ns"]) == (35_000, 100_000)


def test_waits_by_kind_and_place(tmp_path: Path) -> None:
    calls = [
        host("cudaEventSynchronize", 0, 10_000, **SYNC),
        host("cudaMemcpy", 20_000, 60_000, **CALL),
        host("cudaMemcpy", 70_000, 80_000, **CALL),  # returned before its copy was done: staged
        host("mine", 100_000, 140_000, kind=HostKind.ANNOTATION),
        host("hipDeviceSynchronize", 110_000, 120_000, parent_row=3, depth=1, **SYNC),
        host("ProfilerStep#0", 150_000, 190_000, kind=HostKind.ANNOTATION),
        host("cudaDeviceSynchronize", 160_000, 170_000, parent_row=5, depth=1, **SYNC),
    ]
    rows = [memcpy(50_000, 60_000, launch_row=1), memcpy(75_000, 90_000, launch_row=2)]
    run = make_run(tmp_path, host_intervals=calls, device_intervals=with_idle(rows))
    result = analyze(run, "sync_points")
    assert result.tables["waits"][["call", "op", "host_ns"]].to_numpy().tolist() == [
        ["cudaMemcpy", "(outside of ops)", 40_000],
        ["cudaDeviceSynchronize", "(outside of ops)", 10_000],
        ["cudaEventSynchronize", "(outside of ops)", 10_000],
        ["hipDeviceSynchronize", "mine", 10_000],
    ]
    assert result.notes == (NO_STEPS,)
    (finding,) = result.findings
    assert finding.title == "cudaMemcpy outside ops: GPU idle 15 µs per capture after 1 wait"
    assert "pinned memory" in finding.advice


def test_the_wait_in_progress_is_charged_before_one_that_ended_shortly_before(tmp_path: Path) -> None:
    calls = [
        host("cudaEventSynchronize", 1_000, 18_000, **SYNC),
        host("cudaStreamSynchronize", 19_000, 21_000, **SYNC),
        host("cudaLaunchKernel", 25_000, 28_000, **CALL),
    ]
    rows = [kernel(2_000, 20_000), kernel(30_000, 90_000, launch_row=2)]
    waits = analyze(make_run(tmp_path, host_intervals=calls, device_intervals=with_idle(rows)), "sync_points")
    found = waits.tables["waits"].set_index("call")["idle_after_ns"].to_dict()
    assert found == {"cudaEventSynchronize": 0, "cudaStreamSynchronize": 10_000}


def test_ranks_are_charged_with_their_own_idle_time(tmp_path: Path) -> None:
    calls: list[Row] = []
    rows: list[Row] = []
    for rank in (0, 1):
        first = len(calls)
        calls += [
            host("cudaDeviceSynchronize", 0, 20_000, rank=rank, **SYNC),
            host("cudaLaunchKernel", 25_000, 28_000, rank=rank, **CALL),
        ]
        place = {C.RANK: rank, C.DEVICE: rank}
        rows += [kernel(5_000, 19_000, **place), kernel(30_000 + rank, 90_000, launch_row=first + 1, **place)]
    waits = analyze(make_run(tmp_path, host_intervals=calls, device_intervals=with_idle(rows)), "sync_points")
    assert waits.tables["waits"][["rank", "idle_caused_ns"]].to_numpy().tolist() == [[1, 11_001], [0, 11_000]]


def test_the_busy_part_of_a_wait_is_that_of_its_own_rank(tmp_path: Path) -> None:
    calls = [host("cudaDeviceSynchronize", 0, 20_000, rank=rank, **SYNC) for rank in (0, 1)]
    work = [kernel(5_000, end, **{C.RANK: rank}) for rank, end in ((0, 19_000), (1, 9_000))]
    waits = analyze(make_run(tmp_path, host_intervals=calls, device_intervals=work), "sync_points")
    found = waits.tables["calls"].set_index("rank")["device_busy_ns"]
    assert found.to_dict() == {0: 14_000, 1: 4_000}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert analyze(make_run(tmp_path / "a"), "sync_points").notes == (NO_DEVICE,)
    blind = make_run(tmp_path / "b", device_intervals=[kernel(0, 1)])
    assert analyze(blind, "sync_points").notes == (NO_CALLS,)
    call = host("cudaLaunchKernel", 0, 1, **CALL)
    free = make_run(tmp_path / "c", device_intervals=[kernel(0, 1)], host_intervals=[call])
    assert analyze(free, "sync_points").notes == (NO_WAITS,)


def test_waits_that_only_a_device_records_are_listed(tmp_path: Path) -> None:
    waits = [device("sync", start, start + 7_000, name="Stream Synchronize") for start in (2_000, 12_000)]
    rows = with_idle([kernel(0, 1_000), kernel(10_000, 11_000)])
    run = make_run(tmp_path, host_intervals=[host("f", 0, 100)], device_intervals=[*rows, *waits])
    assert analyze(run, "sync_points").tables["on_device"].to_numpy().tolist() == [
        ["Stream Synchronize", 2, 14_000, 7_000, 0]
    ]
