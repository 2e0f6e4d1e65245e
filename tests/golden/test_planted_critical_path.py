"""Programs with a known critical path: path, savings and advice are the planted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.shared.common import duration

from samples.simulator.planted import critical_path as planted
from tests.shared_runs import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from samples.simulator import Program
    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result

OUT = "(no op recorded)"
Path_ = list[tuple[str, str, int]]


def analyzed(shared_runs: SharedRuns, program: Program) -> Result:
    return analyze(shared_runs.simulated(program), "critical_path")


def path(result: Result, step: int = 0) -> Path_:
    """The path of a step in order of time, neighbours of one kind and op together."""
    table = result.tables["segments"]
    found: Path_ = []
    for row in table[table[C.STEP] == step].sort_values(C.START_NS).to_dict("records"):
        if found and found[-1][:2] == (row[C.KIND], row["op"]):
            found[-1] = (*found[-1][:2], found[-1][2] + row[C.DUR_NS])
        else:
            found.append((row[C.KIND], row["op"], row[C.DUR_NS]))
    return found


def savings(result: Result) -> dict[tuple[str, str], int]:
    rows = result.tables["what_if"].to_dict("records")
    return {(row["where"], row["removed"]): row["saving_ns"] for row in rows}


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_full_queue_leaves_the_path_to_the_kernels(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.device_bound())
    for step in range(planted.STEPS):
        assert path(result, step) == [
            ("CPU outside ATen ops", OUT, 500),
            ("CPU op", "aten::mm", 500),
            ("launch call", "aten::mm", 4_000),
            ("launch delay", "aten::mm", 1_000),
            ("compute", "aten::mm", 50_000),
            ("compute", "aten::relu", 50_000),
            ("compute", "aten::mm", 50_000),
        ]
    assert savings(result) == {
        ("device", "aten::mm"): 95_000,  # the relu starts when its launch arrives, 5 µs after the first
        ("device", "aten::relu"): 50_000,
        ("all", "launch overhead"): 5_000,
        ("all", "sync waits"): 6_000 // 2,  # the second step's kernels then follow at once
        ("host", "aten::mm"): 500,
        ("host", OUT): 500,
    }
    assert codes(result) == []


def test_a_slow_host_is_the_path_up_to_its_end(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.host_bound())
    slow = [("CPU op", "aten::slow", 30_000), ("launch call", "aten::slow", 4_000)]
    half = ("CPU op", "aten::slow", 60_000)
    assert path(result) == [
        ("CPU outside ATen ops", OUT, 500),
        slow[0],
        slow[1],
        half,
        slow[1],
        half,
        slow[1],
        slow[0],
        ("CPU outside ATen ops", OUT, 500),
    ]
    found = savings(result)
    assert found["host", "aten::slow"] == (2 * 180_000 - 2_500) // 2  # the last kernel then ends later
    assert found["all", "launch overhead"] == 3 * 4_000


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("build", [planted.host_bound, planted.outside_bound, planted.waiting])
def test_idle_time_that_has_its_finding_is_not_told_again(
    shared_runs: SharedRuns, build: Callable[[], Program]
) -> None:
    run = shared_runs.simulated(build())
    assert codes(analyze(run, "critical_path")) == []
    assert {*codes(analyze(run, "idle_gaps")), *codes(analyze(run, "sync_points"))}


def test_host_time_before_the_device_has_begun_is_a_fact_without_advice(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.late_start())
    assert savings(result)["host", "aten::prepare"] == 200_000
    assert codes(result) == []


def test_waits_that_keep_the_host_from_running_ahead_cost_more_than_the_idle_time_behind_them(
    shared_runs: SharedRuns,
) -> None:
    run = shared_runs.simulated(planted.running_ahead())
    (finding,) = analyze(run, "critical_path").findings
    assert finding.code == "critical_path_sync_waits"
    waits_ns = analyze(run, "sync_points").tables["waits"]["idle_caused_ns"].sum() // planted.STEPS
    assert finding.saving_ns_per_step is not None
    assert finding.saving_ns_per_step > 5 * waits_ns
    assert codes(analyzed(shared_runs, planted.running_ahead(wait=False))) == []


READ_BACK, REMOVE = "A value is read back with .item()", "or remove the wait"


@pytest.mark.parametrize(("read", "remedies"), [(False, [REMOVE]), (True, [REMOVE, READ_BACK])])
def test_each_op_with_a_large_part_of_the_waiting_has_its_remedy(
    shared_runs: SharedRuns, read: bool, remedies: list[str]
) -> None:
    run = shared_runs.simulated(planted.running_ahead(read=read))
    (finding,) = analyze(run, "critical_path").findings
    assert [text for text in (REMOVE, READ_BACK) if text in finding.advice] == remedies
    waits = analyze(run, "sync_points").tables["waits"]
    assert len(waits) == len(remedies)
    for took, op in zip(waits["host_ns"] // planted.STEPS, waits["op"], strict=True):
        place = f"in {op}" if op.startswith("aten") else "outside ops"
        assert f"{round(took / 1e6, 2):g} ms {place} (cudaStreamSynchronize)" in finding.advice


def test_a_wait_in_the_middle_leads_through_the_device(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.waiting())
    once = [
        ("launch call", "aten::mm", 4_000),
        ("launch delay", "aten::mm", 1_000),
        ("compute", "aten::mm", 50_000),
        ("CPU op", "aten::prepare", 10_000),
    ]
    head = [("CPU outside ATen ops", OUT, 500), ("CPU op", "aten::mm", 500)]
    assert path(result) == [*head, *once, head[1], *once, head[0]]
    found = savings(result)
    assert found["device", "aten::mm"] == 100_000
    # 4 kernels in a row, after one launch, and the second prepare of the second step no longer counts
    assert found["all", "sync waits"] == (265_000 - (1_000 + 5_000 + 4 * 50_000)) // 2


def test_blocking_copies_are_on_the_path_and_overlapped_ones_are_not(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.copying())
    assert savings(result)["all", "copies"] == 100_000
    assert codes(result) == []  # `overlap` and `pinned_memory` advise on copies
    twin = analyzed(shared_runs, planted.copying(pinned=True))
    assert "memcpy" not in set(twin.tables["by_kind"][C.KIND])
    assert codes(twin) == []


def test_communication_that_something_waits_for_is_on_the_path(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.communicating())
    tail = path(result)[-2:]
    assert tail == [("communication", "c10d::allreduce_", 80_000), ("compute", "aten::add", 50_000)]
    hidden = 56_000 - 11_000  # of it runs beside the first kernel
    assert savings(result)["all", "communication"] == 80_000 - hidden
    assert codes(result) == ["critical_path_communication"]
    assert codes(analyzed(shared_runs, planted.communicating(overlapped=True))) == []


def test_a_stream_that_waits_continues_on_the_other(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.two_streams())
    assert path(result)[-2:] == [("compute", "aten::first", 50_000), ("compute", "aten::second", 100_000)]
    # without the first kernel the second starts when its launch arrives: 7 µs after the first one's
    assert savings(result)["device", "aten::first"] == 50_000 - 7_000
    assert savings(result)["device", "aten::second"] == 100_000


def test_the_path_goes_through_the_backward_thread(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, planted.backward_thread())
    assert path(result) == [
        ("CPU outside ATen ops", OUT, 500),
        ("CPU op", "aten::mul", 10_000),
        ("launch call", "aten::mul", 4_000),
        ("CPU op", "aten::mul", 10_000),
        ("thread handover", OUT, 800),
        ("CPU op", planted.NODE, 20_000),
        ("launch call", planted.NODE, 4_000),
        ("CPU op", planted.NODE, 20_000),
        ("thread handover", OUT, 300),
        ("CPU outside ATen ops", "Optimizer.step#SGD.step", 6_000),
        ("launch call", "Optimizer.step#SGD.step", 4_000),
        ("CPU outside ATen ops", "Optimizer.step#SGD.step", 6_000),
        ("CPU outside ATen ops", OUT, 500),
    ]
    assert savings(result)["host", planted.NODE] == 40_000


PROGRAMS: dict[str, Any] = {
    "device": planted.device_bound,
    "host": planted.host_bound,
    "waiting": planted.waiting,
    "copying": planted.copying,
    "communicating": planted.communicating,
    "streams": planted.two_streams,
    "backward": planted.backward_thread,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_segments_fill_every_step_without_overlap(shared_runs: SharedRuns, name: str) -> None:
    run = shared_runs.simulated(PROGRAMS[name]())
    windows = analyze(run, "steps").tables["steps"]
    table = analyze(run, "critical_path").tables["segments"].sort_values([C.STEP, C.START_NS])
    for step, rows in table.groupby(C.STEP):
        ends = (rows[C.START_NS] + rows[C.DUR_NS]).tolist()
        assert rows[C.START_NS].tolist()[1:] == ends[:-1]
        window = windows.loc[windows[C.STEP] == step, "window_ns"].item()
        assert rows[C.DUR_NS].sum() == window


@pytest.mark.parametrize("ends", [False, True])
def test_waits_are_the_same_time_wherever_they_are_spoken_of(shared_runs: SharedRuns, *, ends: bool) -> None:
    """The wait at the end of the last step delays nothing, so it is in neither."""
    run = shared_runs.simulated(planted.running_ahead(ends=ends))
    calls = analyze(run, "sync_points").tables["calls"].sort_values(C.START_NS)
    delaying_ns = int(calls[C.DUR_NS].iloc[: -1 if ends else None].sum()) // planted.STEPS
    said = [
        finding.advice
        for name in ("critical_path", "idle_gaps")
        for finding in analyze(run, name).findings
        if finding.code in ("critical_path_sync_waits", "idle_launch_bound")
    ]
    assert len(said) == 2
    assert f"The host waits {duration(delaying_ns)} per step" in said[0]
    assert f"The host waits for the device, {duration(delaying_ns)} per step" in said[1]
