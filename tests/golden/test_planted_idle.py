"""Planted reasons of idle time: each is found to the nanosecond, and the clean twin gives no advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import Program
from samples.simulator.planted.idle import (
    INDUCTOR,
    PLANTED,
    buffers,
    checks,
    first_uses,
    generated,
    host_work,
    loading,
    processing,
    read_back,
    read_back_late,
    small_ops,
    stalls,
)
from tests.shared_runs import analyze
from tracekit.analysis import Severity
from tracekit.analysis.findings import advise
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

NAMES = ("idle_gaps", "sync_points", "launch_latency")
each = pytest.mark.parametrize("name", PLANTED)


def gaps(program: Program) -> dict[str, int]:
    """Idle time by the cause that the kernel after each gap is named for."""
    found: dict[str, int] = {}
    events = sorted(program.on_device, key=lambda event: event.start_ns)
    reached = events[0].start_ns
    for event in events:
        if event.start_ns > reached:
            cause = event.name.removeprefix("after_")
            found[cause] = found.get(cause, 0) + event.start_ns - reached
        reached = max(reached, event.end_ns)
    return found


def codes(run: Run) -> set[str]:
    return {finding.code for name in NAMES for finding in analyze(run, name).findings}


@pytest.mark.slow_except("small_ops", "host_work", "slow_calls", "loading", "held_back", "profiled")
@each
def test_each_cause_has_its_planted_idle_time(name: str, shared_runs: SharedRuns) -> None:
    program = PLANTED[name][0]()
    expected = gaps(program)
    table = analyze(shared_runs.simulated(program), "idle_gaps").tables["by_cause"]
    assert dict(zip(table["cause"], table["idle_ns"], strict=True)) == expected
    assert expected


@pytest.mark.slow_except("small_ops", "loading", "read_back", "profiled")
@each
def test_rules_fire_on_the_planted_program_and_not_on_its_clean_twin(
    name: str, shared_runs: SharedRuns
) -> None:
    build, expected = PLANTED[name]
    assert codes(shared_runs.simulated(build())) == expected
    assert codes(shared_runs.simulated(build(clean=True))) == set()


@each
def test_findings_point_at_rows_of_the_run(name: str, shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(PLANTED[name][0]())
    for analysis in NAMES:
        for finding in analyze(run, analysis).findings:
            for table, rows in finding.evidence.items():
                known = run.table(table, columns=[C.ROW_ID])[C.ROW_ID]
                assert rows
                assert set(rows) <= set(known)


def test_the_op_and_the_line_that_held_the_device_up_are_named(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(host_work())
    result = analyze(run, "idle_gaps")
    first = result.tables["by_op"].iloc[0]
    assert first[["cause", "op", "source_line"]].tolist() == [
        "host_work",
        "aten::_unique2",
        "train.py(7): sort",
    ]
    (finding,) = result.findings
    assert "aten::_unique2 at train.py(7): sort (100%)" in finding.advice
    program = host_work()
    assert finding.saving_ns_per_step == sum(gaps(program).values()) // 3


def test_a_read_back_is_charged_with_the_idle_time_behind_it_once(shared_runs: SharedRuns) -> None:
    program = read_back()
    run = shared_runs.simulated(program)
    waits = analyze(run, "sync_points").tables["waits"]
    assert waits["idle_after_ns"].sum() == gaps(program)["sync"]
    reads = waits[waits["op"] == "aten::_local_scalar_dense"]
    assert reads["count"].tolist() == [3]
    assert reads["idle_caused_ns"].tolist() == reads["idle_after_ns"].tolist()
    copies = [event for event in program.on_device if event.name.startswith("Memcpy")]
    ends = [copy.end_ns for copy in copies]
    nexts = [min(e.start_ns for e in program.on_device if e.start_ns >= end) for end in ends]
    assert reads["idle_after_ns"].sum() == sum(b - a for a, b in zip(ends, nexts, strict=True))


def test_a_wait_far_shorter_than_the_work_behind_it_is_not_blamed(shared_runs: SharedRuns) -> None:
    program = read_back_late()
    run = shared_runs.simulated(program)
    table = analyze(run, "idle_gaps").tables["by_cause"]
    assert dict(zip(table["cause"], table["idle_ns"], strict=True)) == gaps(program)
    assert "sync_starves_device" not in codes(run)


@pytest.mark.parametrize(("ops", "cause"), [(3, "stall"), (2, "slow_call")])
def test_a_slow_call_stalled_where_ops_did(shared_runs: SharedRuns, ops: int, cause: str) -> None:
    gaps = analyze(shared_runs.simulated(stalls(ops=ops, call=True)), "idle_gaps").tables["gaps"]
    assert gaps.sort_values(C.START_NS)["cause"].iloc[-1] == cause


def test_slow_calls_of_few_ops_are_no_stalls(shared_runs: SharedRuns) -> None:
    causes = analyze(shared_runs.simulated(stalls(ops=2)), "idle_gaps").tables["by_cause"]["cause"]
    assert "stall" not in set(causes)


def test_data_loading_is_named_by_its_range_and_its_time_per_step(shared_runs: SharedRuns) -> None:
    program = loading()
    (finding,) = analyze(shared_runs.simulated(program), "idle_gaps").findings
    assert "aten::stack" in finding.advice
    before_ns = program.on_device[0].start_ns - min(event.start_ns for event in program.host)
    assert finding.saving_ns_per_step == (gaps(program)["dataload"] + before_ns) // 3


def test_no_worker_prepares_the_first_batch_of_an_iterator_made_in_the_step(shared_runs: SharedRuns) -> None:
    """Each step loads one batch: none of the time is saved by workers."""
    (finding,) = analyze(shared_runs.simulated(loading(anew=True)), "idle_gaps").findings
    assert not finding.saving_ns_per_step
    assert "make it once, before the steps" in finding.advice
    (twin,) = analyze(shared_runs.simulated(loading()), "idle_gaps").findings
    assert "make it once" not in twin.advice


def test_the_last_wait_of_a_capture_costs_nothing(shared_runs: SharedRuns) -> None:
    program = small_ops(clean=True)
    program.synchronize()
    waits = analyze(shared_runs.simulated(program), "sync_points")
    assert waits.tables["waits"][["count", "idle_caused_ns", "idle_after_ns"]].to_numpy().tolist() == [
        [1, 0, 0]
    ]
    assert waits.findings == ()


@pytest.mark.parametrize(
    ("frame", "is_compiled"),
    [
        (INDUCTOR, True),
        (INDUCTOR.replace("/ov/", "/vo/"), False),
        ("Torch-Compiled Region: 0/0", True),
        ("model.py(25): call", False),
    ],
)
def test_small_ops_in_compiled_code_are_to_be_replayed(
    shared_runs: SharedRuns, frame: str, *, is_compiled: bool
) -> None:
    (finding,) = analyze(shared_runs.simulated(generated(frame)), "idle_gaps").findings
    assert finding.code == "idle_launch_bound"
    assert ("(`torch.compile(mode='reduce-overhead')`, which" in finding.advice) == is_compiled
    assert ("(torch.compile, CUDA graphs," in finding.advice) != is_compiled


def test_recorded_checks_of_compiled_code_are_to_be_left_out(shared_runs: SharedRuns) -> None:
    (finding,) = analyze(shared_runs.simulated(checks()), "idle_gaps").findings
    assert finding.code == "idle_host_work"
    assert "`torch._inductor.config.size_asserts = False`" in finding.advice
    assert finding.saving_ns_per_step is None
    assert finding.how == "saving not estimated: recording each check takes most of this time"
    (finding,) = analyze(shared_runs.simulated(checks(function="len")), "idle_gaps").findings
    assert finding.code == "idle_host_work"
    assert "size_asserts" not in finding.advice
    assert finding.saving_ns_per_step is not None


@pytest.mark.parametrize(
    ("options", "is_broadcast"),
    [
        ({}, True),
        ({"frame": "torch/nn/parallel/distributed.py(2210): _sync_buffers"}, True),
        ({"frame": "model.py(7): merge"}, False),
        ({"inside": "## forward ##"}, False),
        ({"own": True}, False),
    ],
)
def test_broadcasts_of_buffers_are_named_in_the_forward_pass_of_ddp_alone(
    shared_runs: SharedRuns, options: dict[str, Any], *, is_broadcast: bool
) -> None:
    findings = analyze(shared_runs.simulated(buffers(**options)), "idle_gaps").findings
    named = [finding for finding in findings if "`broadcast_buffers=False`" in finding.advice]
    if is_broadcast:
        (finding,) = findings  # neither launch-bound gaps nor host work of the broadcast count again
        assert named == [finding]
        assert finding.title.startswith("GPU idle while DDP broadcasts buffers")
        assert "aten::unflatten_dense_tensors" in finding.advice
    else:
        assert named == []
        assert findings


@pytest.mark.parametrize(
    ("times", "codes", "gaps"),
    [
        ({}, ["idle_slow_call"], 2),
        ({"load_ns": 3_000_000, "tune_ns": 5_000_000}, ["idle_first_calls"], 2),
        ({"tune_ns": 1_000}, ["idle_slow_call"], 1),
        ({"load_ns": 4_000}, ["idle_first_calls"], 1),
    ],
)
def test_first_uses_are_one_finding(
    shared_runs: SharedRuns, times: dict[str, int], codes: list[str], gaps: int
) -> None:
    findings = analyze(shared_runs.simulated(first_uses(**times)), "idle_gaps").findings
    assert [finding.code for finding in findings] == codes
    assert f"in {gaps} gap" in findings[0].title
    assert ("slow first calls (ops, runtime)" in findings[0].title) == (gaps == 2)
    assert "before the first request" in findings[0].advice
    assert "before the first work" not in findings[0].advice


def test_a_slow_call_before_the_first_work_is_named(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(first_uses(initialize_ns=20_000_000))
    (finding,) = analyze(run, "idle_gaps").findings
    assert "cudaLaunchKernel takes 20 ms more before the first work" in finding.advice
    assert finding.saving_ns_per_step is not None
    assert finding.saving_ns_per_step < 10_000_000  # it is in no gap


@pytest.mark.parametrize(("delay_ns", "is_said"), [(20_000, True), (0, False)])
def test_the_time_from_launch_calls_to_their_work_is_said_apart(
    delay_ns: int, is_said: bool, shared_runs: SharedRuns
) -> None:
    """Kernels of 10 µs are launched every 50 µs: of 360 µs, seven times 20 or 40 pass before the calls."""
    program = Program()
    for _ in range(8):
        with program.op("aten::add"):
            program.kernel("k", 10_000, delay_ns=delay_ns, launch_ns=4_000)
            program.wait(45_000)
    advice = advise(shared_runs.simulated(program))
    assert advice.verdict is not None
    share = "38.9%" if is_said else "77.8%"
    assert f"until the CPU launches for {share} of the capture" in advice.verdict.sentence
    assert ("until the work starts for 38.9%" in advice.verdict.sentence) == is_said
    (launches,) = [one.finding for one in advice.findings if one.finding.code == "idle_launch_bound"]
    assert "77.8% of the time" in launches.title
    split = "38.9% of the time passes before the launch calls, 38.9% from then until the work starts"
    assert (split in launches.advice) == is_said


@pytest.mark.parametrize(
    ("options", "is_own"), [({}, True), ({"uploads": True}, False), ({"reads": False}, False)]
)
def test_work_of_the_host_on_what_it_read_is_told_from_a_wait_for_a_request(
    shared_runs: SharedRuns, options: dict[str, bool], *, is_own: bool
) -> None:
    findings = analyze(shared_runs.simulated(processing(**options)), "idle_gaps").findings
    (finding,) = [finding for finding in findings if finding.code == "idle_host_work"]
    assert ("the CPU uses what it copied" in finding.title) == is_own
    assert (finding.severity, finding.saving_ns_per_step is not None) == (
        (Severity.WARN, True) if is_own else (Severity.INFO, False)
    )
    if is_own:
        assert finding.saves == "saves up to"
        assert finding.saving_ns_per_step == pytest.approx(5_000_000, rel=0.01)


def test_short_work_of_the_host_on_what_it_read_is_no_finding(shared_runs: SharedRuns) -> None:
    findings = analyze(shared_runs.simulated(processing(stops_ns=50_000)), "idle_gaps").findings
    assert "idle_host_work" not in {finding.code for finding in findings}


@pytest.mark.parametrize("clean", [True, False])
def test_more_workers_are_advised_where_no_thread_lacks_a_core(
    shared_runs: SharedRuns, *, clean: bool
) -> None:
    workers = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    findings = analyze(shared_runs.simulated(stalls(clean=clean, loader=workers)), "idle_gaps").findings
    advice = {finding.code: finding.advice for finding in findings}
    assert ("idle_stalls" in advice) != clean
    assert ("add workers up to the number of cores" in advice["idle_dataload"]) == clean
    assert ("add workers only if cores are free" in advice["idle_dataload"]) != clean
