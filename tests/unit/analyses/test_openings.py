"""Time from the start of a profiled step to the first work of a device, and what it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator.planted.idle import host_work, loading
from samples.simulator.program import Program
from tests.builders import Row, host, kernel, make_run, step
from tests.unit.analyses.test_idle_gaps import CALL, SYNC, with_idle
from tracekit.analysis import analyze
from tracekit.analysis.device_verdict import HOST_WORK, LAUNCHES
from tracekit.analysis.verdict import Evidence
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result

RANDOM = host("aten::normal_", 1_000, 890_000)


def opened(path: Path, hosts: list[Row], rows: list[Row], steps: list[Row]) -> Result:
    run = make_run(path, host_intervals=hosts, device_intervals=with_idle(rows), steps=steps)
    return analyze(run, "idle_gaps")


def launched_at(start_ns: int, *, wait: bool = True, **more: Any) -> tuple[list[Row], list[Row]]:
    """A launch in step 0 after an op, its kernel of 100 µs, and if asked for a wait for it."""
    calls = [
        RANDOM,
        host("cudaLaunchKernel", start_ns, start_ns + 4_000, **CALL),
        *([host("cudaDeviceSynchronize", start_ns + 10_000, start_ns + 106_000, **SYNC)] if wait else []),
    ]
    more = {C.LAUNCH_ROW: 1, C.STEP: 0} | more
    return calls, [kernel(start_ns + 5_000, start_ns + 105_000, **more)]


def test_the_host_until_the_first_launch_of_a_step_is_named(tmp_path: Path) -> None:
    result = opened(tmp_path, *launched_at(900_000), [step(0, 0, 1_010_000)])
    (row,) = result.tables["before_work"].to_dict("records")
    assert (row["dur_ns"], row["cause"], row["op"], row["start_up_ns"]) == (
        *(905_000, "launch_bound", "aten::normal_"),
        0,
    )
    (finding,) = result.findings
    assert finding.saving_ns_per_step == 905_000
    assert result.tables["summary"][["idle_ns", "edges_ns"]].to_numpy().tolist() == [[0, 5_000]]
    assert "by_cause" not in result.tables  # which is about idle time between first start and last end


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ({C.LAUNCH_ROW: None}, 0),  # its launch is unknown
        ({C.STEP: None}, 0),  # launched in no step
        ({}, 905_000),  # the step begins with the work
    ],
)
def test_other_time_before_the_first_work_is_an_edge(
    tmp_path: Path, more: dict[str, Any], start: int
) -> None:
    calls, rows = launched_at(900_000, **more)
    result = opened(tmp_path, calls, rows, [step(0, start, 1_010_000)])
    assert "before_work" not in result.tables
    assert result.findings == ()


def test_a_launch_that_was_queued_waited_for_what_is_not_recorded(tmp_path: Path) -> None:
    calls, _ = launched_at(2_000, wait=False)
    rows = [kernel(900_000, 1_000_000, launch_row=1, step=0)]
    assert "before_work" not in opened(tmp_path, calls, rows, [step(0, 0, 1_000_000)]).tables


@pytest.mark.parametrize("wait", [True, False])
def test_the_start_of_a_host_that_gets_ahead_is_an_edge(tmp_path: Path, *, wait: bool) -> None:
    """Without a wait later steps begin while the device is busy; with one they begin like the first."""
    calls, rows = launched_at(900_000, wait=wait)
    calls.append(host("cudaLaunchKernel", 1_110_000, 1_114_000, **CALL))
    rows.append(kernel(1_115_000, 9_000_000, launch_row=len(calls) - 1, step=1))
    steps = [step(0, 0, 1_007_000), step(1, 1_007_000, 1_207_000)]
    assert ("before_work" in opened(tmp_path, calls, rows, steps).tables) == wait


def test_a_late_host_counts_after_work_of_before_the_capture(tmp_path: Path) -> None:
    calls, rows = launched_at(900_000, correlation_id=9)
    rows.append(kernel(0, 100_000, correlation_id=1))
    result = opened(tmp_path, calls, rows, [step(0, 0, 1_010_000)])
    assert result.tables["by_cause"][["cause", "idle_ns", "steps_ns", "aside_ns"]].to_numpy().tolist() == [
        ["launch_bound", 805_000, 805_000, 0]
    ]


def test_each_step_counts_alike(shared_runs: SharedRuns) -> None:
    """The batch of the first step is loaded before any work of the device, those of others in gaps."""
    result = analyze(shared_runs.simulated(loading()), "idle_gaps")
    between = result.tables["by_cause"].set_index("cause")["idle_ns"]["dataload"]
    (before,) = result.tables["before_work"]["dur_ns"]
    assert result.findings[0].saving_ns_per_step == (between + before) // 3
    assert before >= 400_000


def test_work_that_is_launched_at_once_has_an_opening_of_its_dispatch(shared_runs: SharedRuns) -> None:
    table = analyze(shared_runs.simulated(host_work()), "idle_gaps").tables["before_work"]
    assert table[["cause", "op"]].to_numpy().tolist() == [["launch_bound", "aten::mm"]]
    assert table["dur_ns"].max() < 20_000


def test_a_step_without_work_has_none(shared_runs: SharedRuns) -> None:
    program = Program()
    with program.step(), program.op("aten::add"):
        program.wait(1_000)
    assert "before_work" not in analyze(shared_runs.simulated(program), "idle_gaps").tables


@pytest.mark.parametrize(
    ("goes_on", "more", "tail"),
    [
        (host("aten::cpu", 1_010_000, 1_206_000), {}, [200_000, 195_000, 0]),
        (host("offload.py(3): free", 1_010_000, 1_206_000, kind="python"), {}, [200_000, 195_000, 0]),
        (host("aten::cpu", 1_010_000, 1_105_000), {}, [0, None, 200_000]),  # not more than half of the time
        (host("cudaFree", 1_010_000, 1_206_000, **CALL), {}, [0, None, 200_000]),
        (host("next", 1_010_000, 1_206_000, phase="dataload"), {}, [0, None, 200_000]),
        (host("aten::cpu", 1_010_000, 1_206_000), {C.STEP: None}, [0, None, 1_105_000]),
        (host("aten::cpu", 1_010_000, 1_206_000), {C.LAUNCH_ROW: None}, [0, None, 1_105_000]),
    ],
)
def test_a_step_that_goes_on_after_its_last_work_is_no_edge(
    tmp_path: Path, goes_on: Row, more: dict[str, Any], tail: list[int | None]
) -> None:
    calls, rows = launched_at(900_000, wait=False, **more)
    result = opened(tmp_path, [*calls, goes_on], rows, [step(0, 0, 1_205_000)])
    table = result.tables["summary"][["tail_ns", "tail_work_ns", "edges_ns"]].astype(object)
    assert table.where(table.notna(), None).to_numpy().tolist() == [tail]
    assert (result.tables["summary"]["tail_work"] == goes_on["name"]).all() == (tail[0] != 0)


@pytest.mark.parametrize(("end_ns", "tail_ns"), [(1_005_000, 0), (1_004_000, 0), (1_006_000, 1_000)])
def test_a_step_that_ends_with_its_work_has_no_tail(tmp_path: Path, end_ns: int, tail_ns: int) -> None:
    calls, rows = launched_at(900_000, wait=False)
    calls.append(host("aten::cpu", 905_000, 1_100_000))
    result = opened(tmp_path, calls, rows, [step(0, 0, end_ns)])
    assert result.tables["summary"]["tail_ns"].tolist() == [tail_ns]


def test_the_tail_of_a_step_counts_as_work_of_the_host(tmp_path: Path) -> None:
    calls, rows = launched_at(900_000, wait=False)
    calls.append(host("aten::cpu", 1_010_000, 3_006_000))
    run = make_run(
        tmp_path,
        host_intervals=calls,
        device_intervals=with_idle(rows),
        steps=[step(0, 0, 3_005_000)],
    )
    evidence = Evidence()
    for name in ("gpu_breakdown", "idle_gaps"):
        evidence.add(name, analyze(run, name))
    lengths, edges_ns = evidence._lengths(evidence.tables[("gpu_breakdown", "profiled_steps")], stepped=True)
    assert (lengths[HOST_WORK], lengths[LAUNCHES], edges_ns) == (2_000_000, 905_000, 0)
