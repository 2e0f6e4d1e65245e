"""Parts of the driving thread: each of a planted length, and together as long as the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator.planted import idle
from tests.builders import host, kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.analysis.host_verdict import NOT_RECORDED, HostPart
from tracekit.analysis.verdict import judge
from tracekit.runs.conditions import STEP_THREAD_RAN, STEP_THREAD_WAITED
from tracekit.runs.meta import Collector, CpuLoad, Timings
from tracekit.schema import C, HostKind, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tests.thresholds import Make
    from tracekit.runs.run import Run

PLANTED = {
    HostPart.GARBAGE_COLLECTION: 20,
    HostPart.LOADING: 280,
    HostPart.COMPILATION: 90,
    HostPart.PROFILER: 10,
    HostPart.COMMUNICATION: 80,
    HostPart.WAITS: 40,
    HostPart.RUNTIME: 30,
    HostPart.OPS: 200,
    HostPart.OTHER_THREADS: 100,
    HostPart.OUTSIDE: 150,
}
MARK = host("ProfilerStep#1", 0, 1000, kind=HostKind.ANNOTATION)
LOADING = {C.PHASE: Phase.DATALOAD}
ROWS = [
    MARK,
    host(
        "enumerate(DataLoader)#_Iter.__next__",
        0,
        300,
        kind=HostKind.ANNOTATION,
        phase=Phase.DATALOAD,
        parent_row=0,
    ),
    host("aten::stack", 100, 200, phase=Phase.DATALOAD, parent_row=1),
    host("Garbage collection: generation 0", 200, 220, kind=HostKind.ANNOTATION, parent_row=1),
    host("compile_fx (dynamo_timed)", 300, 390, kind=HostKind.ANNOTATION, parent_row=0),
    host("aten::empty", 310, 320, parent_row=4),
    host("Buffer Flush", 390, 400, kind=HostKind.OVERHEAD, parent_row=0),
    host("c10d::allreduce_", 400, 480, parent_row=0),
    host("cudaLaunchKernel", 410, 420, kind=HostKind.RUNTIME, parent_row=7),
    host("aten::mm", 480, 750, parent_row=0),
    host("cudaStreamSynchronize", 500, 540, kind=HostKind.SYNC, parent_row=9),
    host("cudaLaunchKernel", 600, 630, kind=HostKind.RUNTIME, parent_row=9),
    host("train.py(3): encode", 750, 840, kind=HostKind.PYTHON, parent_row=0),
    host("aten::mm_backward", 700, 940, tid=2),
]


def planted(path: Path, **more: Any) -> Run:
    """One step with each part; backward on another thread begins while the driving one is in an op."""
    return make_run(path, host_intervals=ROWS, steps=[step(1, 0, 1000)], **more)


def times(run: Run) -> dict[str, int]:
    whole = analyze(run, "host_breakdown").tables["whole"]
    return dict(zip(whole["part"], whole["time_ns"].tolist(), strict=True))


def test_every_part_has_its_planted_length(tmp_path: Path) -> None:
    outside = PLANTED[HostPart.OUTSIDE]
    other = {HostPart.OTHER_THREADS: 190, HostPart.OUTSIDE: outside - 90}  # it also runs beside encode
    assert times(planted(tmp_path)) == {**PLANTED, **other}


def test_a_function_is_named_and_the_rest_is_not(tmp_path: Path) -> None:
    alone = make_run(tmp_path, host_intervals=ROWS[:-1], steps=[step(1, 0, 1000)])
    names = analyze(alone, "host_breakdown").tables["by_name"]
    assert int(names["time_ns"].sum()) == 1000
    outside = names[names["part"] == HostPart.OUTSIDE]
    assert dict(zip(outside[C.NAME], outside["time_ns"], strict=True)) == {
        "train.py(3): encode": 90,
        NOT_RECORDED: 160,
    }


def test_the_largest_part_is_the_verdict_without_a_device(tmp_path: Path) -> None:
    stack = [host("aten::stack", at, at + 25, **LOADING, parent_row=1) for at in range(100, 200, 25)]
    loading = make_run(tmp_path / "loading", host_intervals=[*ROWS[:2], *stack], steps=[step(1, 0, 400)])
    assert judge(loading).sentence == (
        "Bound by input: loading data takes 75.0% of the profiled steps. No GPU work is recorded."
    )
    waiting = [MARK, *(host("aten::mm", at, at + 20, parent_row=0) for at in range(0, 100, 20))]
    idle_run = make_run(tmp_path / "waiting", host_intervals=waiting, steps=[step(1, 0, 1000)])
    assert judge(idle_run).sentence.startswith("Bound by host work outside ops: ")
    computing = [MARK, *(host("aten::mm", at, at + 180, parent_row=0) for at in range(0, 900, 180))]
    busy_run = make_run(tmp_path / "computing", host_intervals=computing, steps=[step(1, 0, 1000)])
    assert judge(busy_run).sentence == (
        "Bound by ops on the CPU: they take 90.0% of the profiled steps, largest: aten::mm 90.0%. "
        "No GPU work is recorded."
    )


def test_a_collection_of_another_thread_holds_the_interpreter_lock(tmp_path: Path) -> None:
    rows = [MARK, host("aten::mm", 0, 400, parent_row=0)]
    rows += [host("Garbage collection: generation 2", 300, 900, kind=HostKind.ANNOTATION, tid=2)]
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 1000)])
    assert times(run) == {HostPart.GARBAGE_COLLECTION: 500, HostPart.OPS: 400, HostPart.OUTSIDE: 100}


def test_communication_of_another_thread_is_waited_for(tmp_path: Path) -> None:
    rows = [MARK, host("aten::mm", 0, 400, parent_row=0)]
    rows += [host("gloo:all_reduce", 300, 900, kind=HostKind.ANNOTATION, tid=2)]
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 1000)])
    assert {part: time for part, time in times(run).items() if time} == {
        HostPart.COMMUNICATION: 500,
        HostPart.OPS: 400,
        HostPart.OUTSIDE: 100,
    }


def stepping(path: Path, *ranks: Any, count: int = 5, **more: Any) -> Run:
    """Steps of 1 ms in each of which the rows of each rank recur, or are those it gives for the step.

    `parent_row` counts the rows of the step from 0.
    """
    hosts, steps = [], []
    for rank, rows in enumerate(ranks):
        for number in range(count):
            start, parent = number * 1_000_000, len(hosts)
            steps.append(step(number, start, start + 1_000_000, rank=rank))
            mark = {**host(f"ProfilerStep#{number}", start, start + 1_000_000), C.KIND: HostKind.ANNOTATION}
            inside = [
                {
                    C.STEP: number,
                    **row,
                    C.PARENT_ROW: parent + 1 + row.get(C.PARENT_ROW, -1),
                    C.START_NS: row[C.START_NS] + start,
                }
                for row in (rows(number) if callable(rows) else rows)
            ]
            hosts += [{C.RANK: rank, C.PID: rank, **row} for row in (mark, *inside)]
    return make_run(path, host_intervals=hosts, steps=steps, **more)


def loads(share: float, loader: str = "SingleProcess") -> dict[str, Any]:
    name = f"enumerate(DataLoader)#_{loader}DataLoaderIter.__next__"
    return host(name, 0, int(share * 1_000_000), kind=HostKind.ANNOTATION, **LOADING)


@pytest.mark.parametrize(
    ("lengths_ms", "start_up_ms"),
    [
        ((10.0, 0.1, 0.1, 0.1), 10),
        ((9.9, 0.09, 0.09, 0.09), 0),
        ((10.0, 0.11, 0.11, 0.11), 0),
        ((10.0, 0.1, 0.1), 0),
        ((0.1, 10.0, 0.1, 0.1), 0),
    ],
    ids=["first", "short", "not so much longer", "few calls", "later"],
)
def test_a_first_call_that_initializes_is_start_up(
    tmp_path: Path, lengths_ms: tuple[float, ...], start_up_ms: int
) -> None:
    starts = [20_000_000 * number for number in range(len(lengths_ms))]
    rows = [
        host(name, at, at + int(length * 1_000_000), parent_row=None if name == "aten::to" else 2 * number)
        for number, (at, length) in enumerate(zip(starts, lengths_ms, strict=True))
        for name in ("aten::to", "aten::empty_strided")
    ]
    rows += [host("aten::mm", 90_000_000 + at, 90_000_010 + at) for at in (0, 10)]
    run = make_run(tmp_path, host_intervals=rows)
    assert times(run).get("start_up", 0) == start_up_ms * 1_000_000
    assert ("; start-up takes" in judge(run).sentence) == (start_up_ms > 0)


@pytest.mark.parametrize(("waited_ms", "start_up_ms"), [(10, 30), (21, 0)])
def test_waiting_for_a_core_in_a_first_call_initializes_nothing(
    tmp_path: Path, waited_ms: int, start_up_ms: int
) -> None:
    calls = [(0, 30_000_000), *((at, at + 1_000) for at in range(40_000_000, 44_000_000, 1_000_000))]
    rows = [host("ProfilerStep#1", 0, 50_000_000, kind=HostKind.ANNOTATION)]
    rows += [host("aten::mm", start, end, parent_row=0) for start, end in calls]
    waited_ns = waited_ms * 1_000_000
    readings = [
        {C.T_NS: at, C.SOURCE: "scheduler", C.RANK: 0, C.METRIC: metric, C.UNIT: "ns", C.VALUE: value}
        for at, ran, waited in ((0, 0, 0), (49_999_999, 50_000_000 - waited_ns, waited_ns))
        for metric, value in (("step_thread_ran_ns", ran), ("step_thread_waited_ns", waited))
    ]
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 50_000_000)], counters=readings)
    assert times(run).get("start_up", 0) == start_up_ms * 1_000_000


@pytest.mark.parametrize(("kept", "said"), [([True], False), ([True, False], True), ([], True)])
def test_workers_that_are_kept_need_not_be(tmp_path: Path, kept: list[bool], said: bool) -> None:
    loaders = [{"num_workers": 2, "persistent_workers": is_kept} for is_kept in kept]
    rows = [loads(0.8, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")]
    run = stepping(tmp_path, rows, meta={"environment": {"program": {"data_loaders": loaders}}})
    (finding,) = analyze(run, "host_breakdown").findings
    assert ("keep them between epochs" in finding.advice) == said


def test_a_view_that_takes_long_initializes_nothing(tmp_path: Path) -> None:
    rows = [host("aten::t", 0, 30_000_000)]
    rows += [host("aten::t", at, at + 1_000) for at in range(40_000_000, 44_000_000, 1_000_000)]
    assert "start_up" not in times(make_run(tmp_path, host_intervals=rows))


def test_compilation_in_a_first_call_is_no_start_up(tmp_path: Path) -> None:
    first = host("aten::mm", 0, 30_000_000)
    inside = host("compile_fx (dynamo_timed)", 5_000_000, 25_000_000, kind=HostKind.ANNOTATION, parent_row=0)
    others = [host("aten::mm", at, at + 1_000) for at in range(40_000_000, 44_000_000, 1_000_000)]
    parts = times(make_run(tmp_path, host_intervals=[first, inside, *others]))
    assert (parts["compilation"], parts["start_up"]) == (20_000_000, 10_000_000)


def runs_op(start: float, end: float, name: str = "aten::mm") -> dict[str, Any]:
    return host(name, int(start * 1_000_000), int(end * 1_000_000))


def compiles(share: float) -> dict[str, Any]:
    return {**runs_op(0, share, "compile_fx (dynamo_timed)"), C.KIND: HostKind.ANNOTATION}


def checks_for_nan(nodes: int, checking: int) -> list[dict[str, Any]]:
    """Nodes of backward, of which some look for NaN for 10% of the step altogether."""
    rows = []
    for number in range(nodes):
        node = "autograd::engine::evaluate_function: MulBackward0"
        rows.append(runs_op(number / nodes, (number + 1) / nodes, node))
        if number < checking:
            inside = runs_op(number / nodes, number / nodes + 0.1 / checking, "aten::isnan")
            rows.append({**inside, C.PARENT_ROW: len(rows) - 1})
    return rows


def iterates(count: int, backwards: int) -> list[dict[str, Any]]:
    """Optimizer steps, of which the first ones follow a backward pass each."""
    rows = []
    for number in range(count):
        start = number / count
        if number < backwards:
            rows.append(runs_op(start, start + 0.5 / count, "MulBackward0"))
        update = runs_op(start + 0.5 / count, start + 0.9 / count, "Optimizer.step#SGD.step")
        rows.append({**update, C.KIND: HostKind.ANNOTATION})
    return rows


def collects(share: float) -> dict[str, Any]:
    return {**runs_op(0, share, "Garbage collection: generation 2"), C.KIND: HostKind.ANNOTATION}


RULED = {
    "host_garbage_collection": ([[collects(0.05), runs_op(0.05, 1)]], [[collects(0.02), runs_op(0.02, 1)]]),
    "anomaly_detection": ([checks_for_nan(6, 4)], [checks_for_nan(6, 2)]),
    "steps_of_many_iterations": ([[*iterates(9, 9), runs_op(0, 1)]], [[*iterates(9, 3), runs_op(0, 1)]]),
    "host_loading": ([[loads(0.2), runs_op(0.2, 1)]], [[loads(0.05), runs_op(0.05, 1)]]),
    "host_outside_ops": ([[runs_op(0, 0.4)]], [[runs_op(0, 0.8)]]),
    "host_compilation": ([[compiles(0.5), runs_op(0.5, 1)]], [[compiles(0.05), runs_op(0.05, 1)]]),
    "host_straggler": (
        [[runs_op(0, 0.4), runs_op(0.4, 1, "c10d::allreduce_")], [runs_op(0, 1, "aten::bmm")]],
        [[runs_op(0, 0.5), runs_op(0.5, 1, "c10d::allreduce_")]] * 2,
    ),
}
"""Rows of each rank on which a rule speaks, and on which it is silent."""


@pytest.mark.parametrize("code", RULED)
def test_a_rule_speaks_and_is_silent(tmp_path: Path, code: str) -> None:
    for name, ranks, spoken in zip(("over", "under"), RULED[code], ([code], []), strict=True):
        findings = analyze(stepping(tmp_path / name, *ranks), "host_breakdown").findings
        assert [finding.code for finding in findings] == spoken
        assert all((finding.saving_ns_per_step or 0) <= 1_000_000 for finding in findings)


@pytest.mark.parametrize(("cores", "spoken"), [(4, []), (2, ["more_threads_than_cores"])])
def test_threads_are_compared_with_cores(tmp_path: Path, cores: int, spoken: list[str]) -> None:
    threads = {"intra_op": 3, "affinity": 8, "cgroup_limit": cores - 0.5}
    meta = {"environment": {"program": {"threads": threads}}}
    result = analyze(stepping(tmp_path, [runs_op(0, 1)], meta=meta), "host_breakdown")
    assert [finding.code for finding in result.findings] == spoken


LOADER = {"dataset": "Rows", "samples": 95, "batch_size": 16, "num_workers": 2, "persistent_workers": False}
EPOCHS = [5, 90, 10, 10, 10, 10, 10, 70, 10, 10, 10, 10, 10]
"""Times of steps of which the second, and six later another, are the first of an epoch."""


def restarting(path: Path, times: list[int], **loader: Any) -> Run:
    meta = {
        "timings": Timings([500, *times], [], "perf_counter", later=len(times)),
        "environment": {"program": {"data_loaders": [LOADER | loader]}},
    }
    return stepping(path, [runs_op(0, 1)], meta=meta)


def test_workers_that_start_anew_are_found_by_their_period(tmp_path: Path) -> None:
    (finding,) = analyze(restarting(tmp_path, EPOCHS), "host_breakdown").findings
    assert finding.code == "workers_restarted"
    assert finding.title == "Workers of a data loader start anew every 6 steps: 80 ns, else 10 ns"
    assert finding.saving_ns_per_step == (80 + 60) * 5 // len(EPOCHS) // 5


@pytest.mark.parametrize(
    ("times", "loader"),
    [
        (EPOCHS, {"persistent_workers": True}),
        (EPOCHS, {"num_workers": 0}),
        (EPOCHS, {"samples": None}),
        (EPOCHS, {"samples": 300}),  # longer epochs than what was timed
        ([5, 90, 10, 10, 10, 10, 70, 10, 10, 10, 10, 10, 10], {}),  # five steps apart
        ([10, 13, 10, 10, 10, 10, 10, 13, 10, 10, 10, 10, 10], {}),
    ],
)
def test_other_slow_steps_are_no_workers_that_start(
    tmp_path: Path, times: list[int], loader: dict[str, Any]
) -> None:
    assert analyze(restarting(tmp_path, times, **loader), "host_breakdown").findings == ()


def test_what_anomaly_detection_costs_is_the_time_of_its_checks(tmp_path: Path) -> None:
    (finding,) = analyze(stepping(tmp_path, checks_for_nan(6, 6)), "host_breakdown").findings
    assert finding.saving_ns_per_step == pytest.approx(100_000, abs=6)


def test_stack_traces_of_anomaly_detection_are_counted_by_samples(tmp_path: Path) -> None:
    traced = "torch/fx/traceback.py(9): format_stack;net.py(3): forward"
    stacks = [traced, "net.py(3): forward", "net.py(3): forward", traced, traced]
    run = stepping(tmp_path, checks_for_nan(6, 6), host_samples=samples_of(stacks))
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.saving_ns_per_step == pytest.approx(700_000, abs=6)


def blocked_for(blocked_ns: int) -> list[dict[str, Any]]:
    """Readings of the thread that runs the 5 steps of `stepping`: it waits 0.1 ms of each for a core."""
    readings = []
    for number in range(6):
        at, ran_ns = number * 1_000_000 + (1 if number < 5 else -1), number * (900_000 - blocked_ns)
        for metric, value in (("step_thread_ran_ns", ran_ns), ("step_thread_waited_ns", number * 100_000)):
            readings.append(
                {C.T_NS: at, C.SOURCE: "scheduler", C.RANK: 0, C.METRIC: metric, C.UNIT: "ns", C.VALUE: value}
            )
    return readings


@pytest.mark.parametrize(("blocked_ns", "said"), [(700_000, True), (500_000, False)])
def test_waiting_outside_of_ops_is_told_from_working(tmp_path: Path, blocked_ns: int, said: bool) -> None:
    run = stepping(tmp_path, [runs_op(0, 0.1)], counters=blocked_for(blocked_ns))
    result = analyze(run, "host_breakdown")
    states = result.tables["thread_states"]
    assert states["run_delay_ns"].tolist() == pytest.approx([100_000] * 5, abs=2)
    assert states["blocked_ns"].tolist() == pytest.approx([blocked_ns] * 5, abs=2)
    assert (states[["on_core_ns", "run_delay_ns", "blocked_ns"]].sum(axis=1) == states["step_ns"]).all()
    assert ("For at least 600.00 µs per step the thread is blocked" in result.findings[0].advice) == said
    assert ("conversions" in result.findings[0].advice) != said


def samples_of(stacks: list[str]) -> list[dict[str, Any]]:
    """A sample in the middle of each step; every function runs its line 9."""
    thread = {C.RANK: 0, C.PID: 0, C.TID: 0}
    return [
        {
            C.T_NS: 1_000_000 * number + 500_000,
            **thread,
            C.STACK: stack,
            C.SOURCE_LINES: ",".join(["9"] * len(stack.split(";"))),
        }
        for number, stack in enumerate(stacks)
    ]


def test_the_loop_around_what_takes_the_time_is_no_cause(tmp_path: Path) -> None:
    inner = ["a.py(1): one", "b.py(1): two", "torch/c.py(1): three", "torch/d.py(1): four", "e.py(1): five"]
    samples = samples_of([f"{name};train.py({place}): <module>" for place, name in enumerate(inner)])
    for place, sample in enumerate(samples):  # each in another line
        sample[C.STACK] = f"{inner[place]};train.py(1): <module>"
        sample[C.SOURCE_LINES] = f"9,{place}"
    run = stepping(tmp_path, [runs_op(0, 0.3)], host_samples=samples)
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.saving_ns_per_step is None
    assert "No function has most of it: a.py(1): one 14.0%" in finding.advice
    assert "(`call_tree.samples` shows what calls them)" in finding.advice
    assert judge(run).sentence.startswith(
        "Bound by host work outside ops: it takes 70.0% of the profiled steps; ops take 30.0%."
    )


def test_the_function_that_is_compiled_again_is_named_with_the_guard_that_fails(tmp_path: Path) -> None:
    again = {"function": "net.py(6): forward", "recompilations": 7, "guard": "self.mode == 'm7'"}
    settings = {"recompilations": [{**again, "recompilations": 1}, {**again, "limit_reached": True}]}
    ranks, _ = RULED["host_compilation"]
    run = stepping(tmp_path, *ranks, meta={"environment": {"program": settings}})
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.advice.startswith(
        "net.py(6): forward was compiled again 7 times, up to the limit of recompilations: from then on it "
        "runs uncompiled. The guard that failed last: `self.mode == 'm7'`."
    )


@pytest.mark.parametrize(("tool", "is_python"), [("nsys 2025.1", False), ("torch", True)])
def test_code_of_other_programs_is_not_called_python(tmp_path: Path, tool: str, *, is_python: bool) -> None:
    rows = [host("cudaMalloc", at, at + 20_000, kind=HostKind.RUNTIME) for at in range(0, 1_000_000, 200_000)]
    collector = Collector("import", options={"tool": tool})
    run = make_run(tmp_path, host_intervals=rows, meta={"collector": collector})
    (finding,) = analyze(run, "host_breakdown").findings
    assert ("It is Python" in finding.advice) == is_python
    assert ("garbage collection" in finding.advice) == is_python


def test_a_device_has_idle_causes_instead(tmp_path: Path) -> None:
    ranks, _ = RULED["host_outside_ops"]
    run = stepping(tmp_path, *ranks, device_intervals=[kernel(0, 10)])
    assert analyze(run, "host_breakdown").findings == ()


@pytest.mark.parametrize(("loader", "saving_ns"), [("SingleProcess", 200_000), ("MultiProcessing", 800_000)])
def test_a_worker_hides_what_the_rest_of_a_step_takes(tmp_path: Path, loader: str, saving_ns: int) -> None:
    run = stepping(tmp_path, [loads(0.8, loader), runs_op(0.8, 1)])
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.saving_ns_per_step == saving_ns


@pytest.mark.parametrize(("blocked_ns", "waits"), [(150_000, True), (99_000, False), (0, False)])
def test_a_process_waits_for_its_workers_only_while_it_is_blocked(
    tmp_path: Path, blocked_ns: int, waits: bool
) -> None:
    rows = [loads(0.2, "MultiProcessing"), runs_op(0.2, 1)]
    run = stepping(tmp_path, rows, counters=blocked_for(blocked_ns))
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.saving_ns_per_step == (pytest.approx(blocked_ns, abs=2) if blocked_ns else None)
    assert ("use more of them" in finding.advice) == waits
    assert ("is not blocked, so it does not wait" in finding.advice) != waits


@pytest.mark.parametrize("loader", ["SingleProcess", "MultiProcessing"])
def test_loading_in_one_step_need_not_recur(tmp_path: Path, loader: str) -> None:
    def spoken(name: str, shares: list[float]) -> list[int | None]:
        run = stepping(tmp_path / name, lambda number: [loads(shares[number], loader), runs_op(0, 1)])
        return [finding.saving_ns_per_step for finding in analyze(run, "host_breakdown").findings]

    assert spoken("once", [0.05, 0.05, 0.9, 0.05, 0.05]) == []
    assert spoken("twice", [0, 0.6, 0, 0.6, 0]) == [150_000 if loader == "MultiProcessing" else 240_000]


def test_workers_that_other_programs_slow_down_have_no_saving(tmp_path: Path) -> None:
    waits = {"step_thread_cpu_ns": 20, "step_thread_wait_ns": 60, "program_ns": 20, "others_ns": 170}
    load = CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=20, **waits)
    for loader, saving_ns in (("SingleProcess", 200_000), ("MultiProcessing", None)):
        rows = [loads(0.2, loader), runs_op(0.2, 1)]
        run = stepping(tmp_path / loader, rows, meta={"cpu_loads": [load]})
        (finding,) = analyze(run, "host_breakdown").findings
        assert finding.saving_ns_per_step == saving_ns
        assert ("quiet machine" in finding.advice) == (saving_ns is None)


@pytest.mark.parametrize(
    ("cores", "program_ns", "wait_ns", "others_ns", "saving_ns"),
    [
        (2, 110, 0, 0, 200_000),
        (2, 180, 0, 0, 100_000),
        (2, 140, 30, 0, 200_000),  # waits for its own threads
        (2, 110, 35, None, 100_000),
        (1, 80, 20, 20, None),
    ],
)
def test_workers_save_no_more_than_the_cores_that_are_free(
    tmp_path: Path, cores: int, program_ns: int, wait_ns: int, others_ns: int | None, saving_ns: int | None
) -> None:
    used = {"step_thread_cpu_ns": 80, "step_thread_wait_ns": wait_ns, "program_ns": program_ns}
    load = CpuLoad(rank=0, cores=cores, wall_ns=100, cpu_ns=80, others_ns=others_ns, **used)
    run = stepping(tmp_path, [loads(0.2), runs_op(0.2, 1)], meta={"cpu_loads": [load]})
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.saving_ns_per_step == saving_ns
    assert ("No core is free" in finding.advice) == (saving_ns is None)


def test_a_straggler_is_named_with_its_work_and_what_balance_saves(tmp_path: Path) -> None:
    (finding,) = analyze(stepping(tmp_path, *RULED["host_straggler"][0]), "host_breakdown").findings
    assert (
        finding.title == "Rank 1 is waited for: rank 0 communicates for 600.00 µs per step, rank 1 for 0 ns"
    )
    assert "aten::bmm" in finding.advice
    assert finding.saving_ns_per_step == 300_000  # 0.4 and 1 ms of work are 0.7 ms each


def test_a_straggler_is_named_with_its_function_where_it_runs_no_more_ops(tmp_path: Path) -> None:
    encode = host("data.py(6): encode", 0, 600_000, kind=HostKind.PYTHON)
    late = [encode, runs_op(0.6, 1, "aten::bmm")]
    waits = [runs_op(0, 0.4), runs_op(0.4, 1, "c10d::allreduce_")]
    findings = analyze(stepping(tmp_path, late, waits), "host_breakdown").findings
    (finding,) = [finding for finding in findings if finding.code == "host_straggler"]
    assert finding.advice.startswith("Rank 0 runs other work meanwhile, most in data.py(6): encode:")


def test_the_innermost_function_of_the_program_with_most_of_the_time_is_named(tmp_path: Path) -> None:
    python = {C.KIND: HostKind.PYTHON}
    rows = [
        {**runs_op(0, 1, "train.py(1): <module>"), **python},
        {**runs_op(0.1, 0.7, "data.py(6): encode"), **python},
        {**runs_op(0.1, 0.6, "<built-in function sum>"), **python},
        runs_op(0.7, 1),
    ]
    run = stepping(tmp_path, rows)
    (finding,) = analyze(run, "host_breakdown").findings
    assert "data.py(6): encode" in finding.advice
    assert finding.saving_ns_per_step == 600_000
    assert judge(run).sentence == (
        "Bound by host work outside ops: it takes 70.0% of the profiled steps, mostly data.py(6): encode; "
        "ops take 30.0%. No GPU work is recorded."
    )


@pytest.mark.parametrize("program", [idle.small_ops, idle.loading, idle.read_back])
def test_parts_sum_to_each_step(shared_runs: SharedRuns, program: Any) -> None:
    tables = analyze(shared_runs.simulated(program()), "host_breakdown").tables
    steps = tables["per_step"]
    parts = steps[[f"{part}_ns" for part in HostPart]]
    assert (parts.sum(axis=1) == steps["step_ns"]).all()
    assert (parts >= 0).all(axis=None)
    assert int(tables["whole"]["time_ns"].sum()) == int(steps["step_ns"].sum())


def test_the_thread_with_most_marks_drives_else_the_one_with_most_ops(tmp_path: Path) -> None:
    waiting = [host("loguru.py(9): worker", 0, 2_000, kind=HostKind.PYTHON, tid=3)]
    backward = [
        host("autograd::engine::evaluate_function: MmBackward0", 100 * number, 100 * number + 80, tid=2)
        for number in range(9)
    ]
    forward = [host("aten::mm", 0, 300), host("aten::mm", 400, 900)]
    rows = [*waiting, *backward, *forward]
    assert times(make_run(tmp_path / "unmarked", host_intervals=rows))[HostPart.OPS] == 800
    marked = [*rows, {**MARK, C.TID: 2}]
    assert (
        times(make_run(tmp_path / "marked", host_intervals=marked, steps=[step(1, 0, 1000)]))[HostPart.OPS]
        == 720
    )


def test_ranges_of_the_user_do_not_compile(tmp_path: Path) -> None:
    rows = [MARK, host("compile_report", 0, 1_000, kind=HostKind.ANNOTATION, parent_row=0)]
    rows += [host("aten::mm", 0, 700, parent_row=1)]
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 1000)])
    assert times(run)[HostPart.OPS] == 700


def test_a_full_queue_is_waited_for_and_loading_of_code_is_not_the_profilers(tmp_path: Path) -> None:
    rows = [
        host("Command Buffer Full", 0, 100, kind=HostKind.OVERHEAD),
        host("Runtime Triggered Module Loading", 100, 300, kind=HostKind.OVERHEAD),
        host("Buffer Flush", 300, 340, kind=HostKind.OVERHEAD),
    ]
    run = make_run(tmp_path, host_intervals=[MARK, *rows], steps=[step(1, 0, 1000)])
    assert {part: time for part, time in times(run).items() if time} == {
        HostPart.WAITS: 100,
        HostPart.COMPILATION: 200,
        HostPart.PROFILER: 40,
        HostPart.OUTSIDE: 660,
    }


def test_a_name_outside_ops_takes_no_time_of_other_threads(tmp_path: Path) -> None:
    rows = [MARK, host("## backward ##", 0, 1_000, kind=HostKind.ANNOTATION, parent_row=0)]
    rows += [host("aten::mm", 100, 900, tid=2)]
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 1000)])
    names = analyze(run, "host_breakdown").tables["by_name"]
    assert dict(zip(names[C.NAME], names["time_ns"], strict=True)) == {"## backward ##": 200}


def test_without_steps_the_window_is_the_thread(tmp_path: Path) -> None:
    rows = [host("aten::mm", 50, 60), host("aten::mm", 80, 90), host("aten::add", 0, 5, tid=2)]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=[kernel(90, 99)])
    assert {part: time for part, time in times(run).items() if time} == {
        HostPart.OPS: 20,
        HostPart.OUTSIDE: 20,
    }


def sample(t_ns: int, *frames: tuple[str, int, str, int], rank: int = 0) -> dict[str, Any]:
    """Functions from the innermost one: file, first line, name, and the line that runs."""
    stack = ";".join(f"{file}({first}): {name}" for file, first, name, _ in frames)
    lines = ",".join(str(line) for *_, line in frames)
    return {C.T_NS: t_ns, C.RANK: rank, C.TID: 1, C.STACK: stack, C.SOURCE_LINES: lines}


MAIN, ENCODE = ("train.py", 20, "main"), ("data.py", 6, "encode")
INSIDE = [("data.py", 8, "<genexpr>", 8), (*ENCODE, 8), (*MAIN, 25)]


def sampled(path: Path, *samples: dict[str, Any]) -> Run:
    """A step of 1 ms with an op in its last 20%, a range in the 20% before, and samples."""
    marked = host("load", 600_000, 800_000, kind=HostKind.ANNOTATION, parent_row=0)
    step_range = host("ProfilerStep#1", 0, 1_000_000, kind=HostKind.ANNOTATION)
    rows = [step_range, marked, host("aten::mm", 800_000, 1_000_000, parent_row=0)]
    return make_run(path, host_intervals=rows, steps=[step(1, 0, 1_000_000)], host_samples=list(samples))


def test_samples_divide_the_time_that_no_row_covers(tmp_path: Path) -> None:
    run = sampled(
        tmp_path,
        *(sample(time, *INSIDE) for time in (100_000, 200_000)),
        sample(300_000, ("python3.11/random.py", 3, "choice", 4), (*ENCODE, 9), (*MAIN, 25)),
        sample(599_999, (*MAIN, 26)),
        sample(700_000, (*MAIN, 27)),  # in the range
        sample(900_000, (*MAIN, 28)),  # in the op
        sample(1_000_000, *INSIDE),  # after the step
        sample(100_000, *INSIDE, rank=1),
    )
    tables = analyze(run, "host_breakdown").tables
    names = tables["by_name"].set_index(C.NAME)
    assert int(names["time_ns"].sum()) == 1_000_000
    assert names["time_ns"].to_dict() == {
        "data.py(6): encode": 300_000,
        "train.py(20): main": 150_000,
        "python3.11/random.py(3): choice": 150_000,
        "load": 200_000,
        "aten::mm": 200_000,
    }
    assert names.loc["data.py(6): encode", ["total_ns", "source", "samples"]].tolist() == [
        450_000,
        "",  # line 8 in two of them, and 9 in one
        3,
    ]
    assert names["samples"].isna().to_dict()["load"]
    functions = tables["by_function"].set_index(C.NAME)
    assert functions["samples"].to_dict() == {
        "train.py(20): main": 6,
        "data.py(6): encode": 3,
        "python3.11/random.py(3): choice": 1,
    }
    assert functions.loc["train.py(20): main", ["share", "self_samples", "unrecorded_samples"]].tolist() == [
        1.0,
        3,
        4,
    ]


def test_the_function_of_most_samples_is_named_with_its_line(tmp_path: Path) -> None:
    run = sampled(tmp_path, *(sample(time * 100_000, *INSIDE) for time in range(5)))
    (finding,) = analyze(run, "host_breakdown").findings
    assert "data.py(6): encode, line 8" in finding.advice
    assert finding.saving_ns_per_step == 600_000
    assert "mostly data.py(6): encode, line 8;" in judge(run).sentence


def test_few_samples_say_nothing_of_the_time(tmp_path: Path) -> None:
    run = sampled(tmp_path, *(sample(time, *INSIDE) for time in (1, 2, 900_000)))
    names = analyze(run, "host_breakdown").tables["by_name"]
    assert NOT_RECORDED in set(names[C.NAME])


def others(count: int, *frames: tuple[str, int, str, int]) -> list[dict[str, Any]]:
    """Samples of steps after the profiled ones."""
    return [{**sample(2_000_000 + 10 * place, *frames), C.PROFILED: 0} for place in range(count)]


def test_without_samples_of_profiled_steps_those_of_others_bound_what_a_function_takes(
    tmp_path: Path,
) -> None:
    few = [*others(1, (*MAIN, 21)), *others(2, (*ENCODE, 8), (*MAIN, 25))]
    tables = analyze(sampled(tmp_path / "few", *few), "host_breakdown").tables
    assert tables["by_name"].set_index(C.NAME).loc[NOT_RECORDED, "time_ns"] == 600_000
    assert tables["by_function"].set_index(C.NAME)["unprofiled_samples"].to_dict() == {
        "train.py(20): main": 3,
        "data.py(6): encode": 2,
    }
    samples = [*others(1, (*MAIN, 21)), *others(9, (*ENCODE, 8), (*MAIN, 25))]
    run = sampled(tmp_path / "enough", *samples, sample(300_000, *INSIDE))
    tables = analyze(run, "host_breakdown").tables
    names = tables["by_name"].set_index(C.NAME)
    # 90% of the samples, less the 20% in ops that they may be in as well
    assert names.loc["data.py(6): encode", ["time_ns", "total_ns", "source", "samples"]].tolist() == [
        600_000,
        700_000,
        "data.py(8): encode",
        9,
    ]
    assert NOT_RECORDED not in names.index
    assert int(names["time_ns"].sum()) == 1_000_000
    functions = tables["by_function"].set_index(C.NAME)
    assert functions.loc["data.py(6): encode", ["samples", "unprofiled_samples"]].tolist() == [1, 9]
    assert functions["unprofiled_share"]["data.py(6): encode"] == 0.9
    assert "mostly data.py(6): encode, line 8;" in judge(run).sentence


@pytest.mark.parametrize(("ops", "named"), [(0.2, True), (0.6, False)])
def test_a_function_around_all_samples_takes_the_share_of_its_line(
    tmp_path: Path, ops: float, *, named: bool
) -> None:
    """The line may run ops as well, as one that calls a model: then it does not explain the time outside."""
    choice = ("python3.11/random.py", 3, "choice", 4)
    samples = [*others(4, choice, (*MAIN, 25)), *others(4, (*MAIN, 25)), *others(2, (*MAIN, 26))]
    (finding,) = analyze(
        stepping(tmp_path, [runs_op(0, ops)], host_samples=samples), "host_breakdown"
    ).findings
    assert finding.code == "host_outside_ops"
    assert ("train.py(20): main, line 25" in finding.advice) == named
    assert (finding.saving_ns_per_step is not None) == named


def test_the_loop_is_not_named_beside_ops(tmp_path: Path) -> None:
    samples = [sample(30_000 * place, *[(*MAIN, 20 + place)][: place % 30]) for place in range(30)]
    run = stepping(tmp_path, [runs_op(0, 1)], host_samples=samples)
    assert "samples of Python" not in judge(run).sentence


def test_a_function_that_calls_what_takes_the_time_is_named_unless_it_is_the_loop(tmp_path: Path) -> None:
    split, encode = ("data.py", 2, "split", 3), ("data.py", 6, "encode")
    outside = [((split,) if place % 2 else ()) + ((*encode, 7 + place), (*MAIN, 25)) for place in range(6)]
    samples = [sample(90_000 * place, *frames) for place, frames in enumerate(outside)]
    in_op = [sample(900_000 + place, (*MAIN, 28)) for place in range(2)]
    run = sampled(tmp_path, *samples, *in_op)
    assert "mostly data.py(6): encode; ops take" in judge(run).sentence


@pytest.mark.parametrize(("folder", "waits"), [("python3.11/asyncio", True), ("python3.11", False)])
def test_an_event_loop_that_waits_is_told_from_work(tmp_path: Path, folder: str, *, waits: bool) -> None:
    """`subprocess` uses selectors as well, without a loop."""
    frames = [
        ("python3.11/selectors.py", 451, "select", 468),
        (f"{folder}/base_events.py", 1, "_run_once", 9),
    ]
    run = sampled(tmp_path, *(sample(90_000 * place, *frames, (*MAIN, 25)) for place in range(6)))
    assert ("mostly waiting in the event loop of asyncio" in judge(run).sentence) == waits
    (finding,) = analyze(run, "host_breakdown").findings
    assert finding.advice.startswith("Most of it is waiting in the event loop of asyncio") == waits
    assert (finding.saving_ns_per_step is None) == waits


def test_starting_workers_of_a_loader_is_told_from_other_work(tmp_path: Path) -> None:
    loader = [("torch/utils/data/dataloader.py", 9, name, 9) for name in ("_get_iterator", "__iter__")]
    run = sampled(tmp_path, *(sample(90_000 * place, *loader, (*MAIN, 25)) for place in range(6)))
    assert "mostly starting workers of a data loader in train.py(20): main, line 25" in judge(run).sentence
    (finding,) = analyze(run, "host_breakdown").findings
    assert "persistent_workers=True" in finding.advice


@pytest.mark.parametrize(("line", "said"), [(8, True), (0, False)])
def test_beside_ops_the_line_of_many_samples_is_named(tmp_path: Path, line: int, said: bool) -> None:
    rows = [
        host("ProfilerStep#1", 0, 1_000_000, kind=HostKind.ANNOTATION),
        {**runs_op(0, 0.9), C.PARENT_ROW: 0},
    ]
    copies = [sample(10_000 * place, ("ema.py", 7, "keep", line or place), (*MAIN, 25)) for place in range(5)]
    others = [sample(200_000 + 10_000 * place, (*MAIN, 24 + place)) for place in range(5)]
    steps = [step(1, 0, 1_000_000)]
    run = make_run(tmp_path, host_intervals=rows, steps=steps, host_samples=[*copies, *others])
    assert ("; 50.0% of the samples of Python are in ema.py(8): keep." in judge(run).sentence) == said


def test_a_single_long_collection_has_no_saving(tmp_path: Path) -> None:
    once = [collects(0.5), runs_op(0.5, 1)]
    run = stepping(tmp_path, lambda number: once if number == 2 else [runs_op(0, 1)])
    (finding,) = analyze(run, "host_breakdown").findings
    assert (finding.code, finding.saving_ns_per_step) == ("host_garbage_collection", None)


def test_functions_that_a_loader_calls_are_named(tmp_path: Path) -> None:
    loader = ("torch/utils/data/dataloader.py", 700, "__next__", 733)
    rows = [host("ProfilerStep#1", 0, 1_000_000, kind=HostKind.ANNOTATION), {**loads(0.8), C.PARENT_ROW: 0}]
    inside = [*INSIDE[:2], ("data.py", 3, "__getitem__", 4), loader, (*MAIN, 25)]
    samples = [sample(time * 100_000, *inside) for time in range(10)]
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 1_000_000)], host_samples=samples)
    names = analyze(run, "host_breakdown").tables["by_name"].set_index(C.NAME)
    assert names.loc["data.py(6): encode", ["part", "time_ns", "total_ns"]].tolist() == [
        "loading",
        0,
        800_000,
    ]
    assert "train.py(20): main" not in names.index
    assert int(names["time_ns"].sum()) == 1_000_000
    loading, *_ = analyze(run, "host_breakdown").findings
    assert loading.advice.startswith("Most of it is in data.py(6): encode, line 8. ")
    assert "mostly data.py(6): encode, line 8" in judge(run).sentence


SPINS = [("side.py", 3, "count", 6), ("side.py", 20, "run", 22), ("python3.11/threading.py", 9, "_run", 9)]


def beside_thread(
    path: Path,
    *,
    ran_ms: float = 8,
    blocked_ms: float = 6,
    wait_ms: float = 2,
    count: int = 4,
    profiled: int = 1,
    **more: Any,
) -> Run:
    """Samples every 10 ms of the thread of the steps, and of another one while it is blocked."""
    samples = []
    for number in range(count):
        times = {C.SINCE_NS: 10, C.ASLEEP_NS: blocked_ms, C.LOCK_WAIT_NS: wait_ms}
        driver = sample(number * 200_000, (*MAIN, 25))
        other = {**sample(number * 200_000, *SPINS), C.TID: 2, C.RAN_NS: int(ran_ms * 1e6)}
        samples += [driver | {C.PROFILED: profiled} | {name: int(ms * 1e6) for name, ms in times.items()}]
        samples += [other] * (ran_ms > 0)
    return stepping(path, [runs_op(0, 0.3)], host_samples=samples, **more)


@pytest.mark.parametrize(
    ("changed", "spoken"),
    [
        ({}, True),
        ({"ran_ms": 0}, False),  # it sleeps
        ({"wait_ms": 0.4}, False),  # it runs in C code without the lock
        ({"blocked_ms": 0.9, "wait_ms": 0.9}, False),  # which the thread of the steps holds itself
        ({"blocked_ms": 1.1}, True),
        ({"count": 2}, False),
    ],
)
def test_a_thread_that_holds_the_interpreter_lock_is_named(
    tmp_path: Path, changed: dict[str, Any], *, spoken: bool
) -> None:
    run = beside_thread(tmp_path, **changed)
    findings = {finding.code: finding for finding in analyze(run, "host_breakdown").findings}
    assert ("interpreter_lock" in findings) == spoken
    sentence = "waiting for the interpreter lock, which side.py(3): count, line 6 holds on another thread"
    assert (sentence in judge(run).sentence) == spoken
    if not changed:
        assert findings.keys() == {"interpreter_lock"}
        assert findings["interpreter_lock"].saving_ns_per_step == 600_000
        assert "It runs side.py(3): count, line 6" in findings["interpreter_lock"].advice
        functions = analyze(run, "host_breakdown").tables["by_function"]
        assert set(functions[C.NAME]) == {"train.py(20): main"}, "of the thread of the steps"


def test_a_thread_that_holds_the_lock_costs_a_device_its_idle_time(tmp_path: Path) -> None:
    work = [kernel(1_000_000 * number, 1_000_000 * number + 900_000) for number in range(5)]
    findings = analyze(beside_thread(tmp_path, device_intervals=work), "host_breakdown").findings
    assert [finding.saving_ns_per_step for finding in findings] == [100_000]


LOADER_NEXT = ("torch/utils/data/dataloader.py", 700, "__next__", 701)
FORWARD = ("torch/nn/functional.py", 1, "linear", 2)


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (
            [ENCODED := (*ENCODE, 8)],
            "Bound by host work outside ops: code that is not known to run ops ",
        ),
        ([ENCODED, LOADER_NEXT], "Bound by input: loading data takes 80.0% of 10 samples, mostly in "),
        (
            [FORWARD, ENCODED],
            "Bound by ops on the CPU: code of torch that runs ops takes 80.0% of 10 ",
        ),
    ],
    ids=["program", "loading", "torch"],
)
@pytest.mark.parametrize("count", [8, 2])
def test_steps_that_the_profiler_slows_down_are_judged_by_samples_of_others(
    tmp_path: Path, inner: list[tuple[str, int, str, int]], said: str, count: int
) -> None:
    samples = [*others(count, *inner, (*MAIN, 25)), *others(count // 4, (*MAIN, 26))]
    meta = {"timings": Timings([300_000] * 6, [], "perf_counter")}
    sentence = judge(stepping(tmp_path, [runs_op(0, 0.5)], meta=meta, host_samples=samples)).sentence
    slowed = "a profiled step takes 233.3% longer than an unprofiled one"
    if count < 8:
        assert sentence == f"Cannot tell what bounds this run: {slowed}."
    else:
        assert sentence.startswith(f"A{slowed[1:]}, so samples of unprofiled steps are judged. {said}")
        assert "mostly in data.py(6): encode, line 8" in sentence


def test_without_a_function_of_most_of_the_time_that_of_most_samples_is_named(tmp_path: Path) -> None:
    samples = [frame for line in (8, 9) for frame in others(3, (*ENCODE, line), (*MAIN, 25))]
    run = stepping(tmp_path, [runs_op(0, 0.45)], host_samples=[*samples, *others(4, (*MAIN, 26))])
    assert "; 60.0% of the samples of Python are in data.py(6): encode" in judge(run).sentence


SAVE = ("train.py", 3, "save")


def rarely_slow(
    path: Path,
    *,
    later: int = 40,
    long_ns: int = 9_000_000,
    usual: int = 0,
    apart_ns: int = 900_000,
    shift: int = 0,
    noise_ns: int = 0,
) -> Run:
    """Unprofiled steps of 1 ms of which every tenth is longer; samples in it are in a function."""
    places = {9, 19 + shift, 29, 39}
    noise = [noise_ns * (number * 7 % 5) for number in range(later)]
    times = [
        (long_ns if number in places else 1_000_000) + more * (1 + 9 * (number in places))
        for number, more in enumerate(noise)
    ]
    meta = {"timings": Timings(times, [], "perf_counter", later=later)}
    samples = [*others(6, (*SAVE, 4), (*MAIN, 25)), *others(6, (*MAIN, 26))]
    samples += [sample(apart_ns * place, (*SAVE, 4), (*MAIN, 25)) for place in range(usual)]
    return stepping(path, [runs_op(0, 1)], meta=meta, host_samples=samples)


@pytest.mark.parametrize(
    ("changed", "spoken"),
    [
        ({}, True),
        ({"later": 19}, False),
        ({"long_ns": 4_000_000}, False),  # under 25% of the time
        ({"usual": 6}, False),  # it is in all profiled steps as well
        ({"usual": 8, "apart_ns": 90_000}, True),  # in one of them, as may be
        ({"usual": 8, "apart_ns": 90_000, "shift": 2}, False),
        ({"noise_ns": 150_000}, True),  # steps vary, as on a busy machine, and slow ones by more
        ({"shift": 2}, False),  # other programs may have run then
    ],
)
def test_a_function_that_makes_some_steps_slow_is_named(
    tmp_path: Path, changed: dict[str, int], *, spoken: bool
) -> None:
    findings = analyze(rarely_slow(tmp_path, **changed), "host_breakdown").findings
    assert [finding.code for finding in findings] == ["slow_steps_by_function"] * spoken
    if spoken:
        assert findings[0].title.startswith("Every 10 steps one takes far longer: up to ")
        assert "50.0% of the samples of unprofiled steps are in train.py(3): save" in findings[0].advice
        if not changed:
            assert findings[0].title.endswith(" 9.00 ms, where most take 1.00 ms")
            assert findings[0].saving_ns_per_step == 444_444


def test_waiting_for_a_core_outside_of_ops_has_no_saving(tmp_path: Path) -> None:
    counters = [
        {
            C.T_NS: time,
            C.SOURCE: "scheduler",
            C.RANK: 0,
            C.METRIC: metric,
            C.UNIT: "ns",
            C.VALUE: share * time,
        }
        for metric, share in ((STEP_THREAD_RAN, 0.5), (STEP_THREAD_WAITED, 0.5))
        for time in range(0, 5_000_001, 1_000_000)
    ]
    samples = samples_of(["train.py(3): encode"])
    (finding,) = analyze(
        stepping(tmp_path, [runs_op(0, 0.4)], host_samples=samples, counters=counters), "host_breakdown"
    ).findings
    assert finding.saving_ns_per_step is None
    assert "For 500.00 µs per step the thread is ready and waits for a core" in finding.advice


@pytest.mark.parametrize(
    ("blocked_ms", "said"),
    [
        (
            6,
            "Bound by host work outside ops: waiting for the interpreter lock, which side.py(3): count, ",
        ),
        (
            2,
            "; waiting for the interpreter lock, which side.py(3): count, line 6 holds on another thread",
        ),
    ],
)
def test_the_lock_is_named_also_where_samples_of_other_steps_are_judged(
    tmp_path: Path, blocked_ms: int, said: str
) -> None:
    meta = {"timings": Timings([300_000] * 6, [], "perf_counter")}
    run = beside_thread(tmp_path, blocked_ms=blocked_ms, count=8, meta=meta, profiled=0)
    assert said in judge(run).sentence


@pytest.mark.parametrize(
    ("name", "kind"),
    [("## backward ##", HostKind.ANNOTATION), ("torch/_tensor.py(570): backward", HostKind.PYTHON)],
)
@pytest.mark.parametrize("is_recorded", [False, True])
def test_backward_without_the_thread_of_autograd_is_no_work(
    tmp_path: Path, name: str, kind: HostKind, *, is_recorded: bool
) -> None:
    """The same time is the host's own where ops of autograd are recorded elsewhere."""
    rows = [host("ProfilerStep#1", 0, 1000, kind=HostKind.ANNOTATION)]
    rows += [host("aten::mm", at, at + 50, parent_row=0) for at in range(0, 300, 50)]
    rows += [host(name, 300, 950, kind=kind, parent_row=0), host("aten::ones_like", 300, 310, parent_row=7)]
    rows += [
        host("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 310, 310, parent_row=7)
    ]
    rows += [host("autograd::engine::evaluate_function: MmBackward0", 1000, 1400, tid=2)] * is_recorded
    run = make_run(tmp_path, host_intervals=rows, steps=[step(1, 0, 1000)])
    found, parts = judge(run), times(run)
    assert parts.get("unrecorded_backward", 0) == (0 if is_recorded else 640)
    codes = [finding.code for finding in analyze(run, "host_breakdown").findings]
    assert ("host_outside_ops" in codes) == is_recorded
    begins = (
        "Bound by host work outside ops: it takes 69.0%"
        if is_recorded
        else (
            "Cannot tell what bounds this run: backward, which waits for autograd's thread, of which nothing "
            "is recorded, takes 64.0% of the profiled steps; ops take 31.0%"
        )
    )
    assert found.sentence.startswith(begins)


THRESHOLD_RUNS: dict[str, Make] = {
    "slow_steps_by_function": lambda path, _shared: (rarely_slow(path),),
    "interpreter_lock": lambda path, _shared: (beside_thread(path),),
    "workers_restarted": lambda path, _shared: (restarting(path, EPOCHS),),
}
THRESHOLD_RUNS |= {
    code: lambda path, _shared, ranks=ranks: (stepping(path, *ranks),) for code, (ranks, _) in RULED.items()
}
