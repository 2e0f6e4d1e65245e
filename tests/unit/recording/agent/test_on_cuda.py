"""Recording of programs on a CUDA device: what waits for it, what is timed, and captures of graphs."""

from __future__ import annotations

import json
import multiprocessing.process
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.fake_cuda import ILLEGAL, FakeCuda
from tracekit.recording import agent as package
from tracekit.recording.agent import agent as agents
from tracekit.recording.agent.agent import Agent
from tracekit.recording.agent.recorder import LACKS_NVTX, OPEN_NAME, NvtxRecorder, TorchRecorder
from tracekit.recording.agent.stack_sampler import StackSampler
from tracekit.recording.agent.step_hooks import ModuleCalls
from tracekit.recording.agent.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")
MS = 1_000_000


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    fake.install(monkeypatch, torch)
    return fake


@pytest.fixture
def pending(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Work on the device, ns, each time that torch's profiler begins to record."""
    return cuda.queued_at_recordings(monkeypatch, torch)


def recorded(
    path: Path,
    start: int,
    step: Callable[[], object],
    steps: int = 2,
    *,
    kind: type[TorchRecorder] = TorchRecorder,
) -> TorchRecorder:
    """Record a window of a program that takes one step more than needed."""
    recorder = kind(torch, stacks=False)
    recorder.trace_path = lambda: path
    window = Window(start, steps, recorder)
    window.begin()
    for _ in range(start + steps + 1):
        step()
        window.end_step()
    return recorder


@pytest.mark.parametrize("start", [0, 1, 3])
def test_no_work_is_queued_when_recording_begins(
    start: int, cuda: FakeCuda, pending: list[int], tmp_path: Path
) -> None:
    cuda.launch(50 * MS)  # before the program is recorded
    recorded(tmp_path / "trace.json", start, lambda: cuda.launch(20 * MS))
    assert pending == [0]
    assert (tmp_path / "trace.json").is_file()


def test_steps_are_timed_by_the_device_without_waiting(cuda: FakeCuda, tmp_path: Path) -> None:
    waits: list[int] = []

    def step() -> None:
        cuda.launch(5 * MS)
        waits.append(cuda.calls.count("synchronize"))

    recorder = recorded(tmp_path / "trace.json", 5, step)
    durations, clock = recorder.timings()
    assert clock == "cuda_event"
    assert len(durations) == 4  # the fifth warms up the profiler
    assert all(5 * MS <= duration < 6 * MS for duration in durations)
    assert waits[:5] == [0] * 5


def test_times_of_the_host_end_when_the_program_first_uses_the_device(cuda: FakeCuda, tmp_path: Path) -> None:
    cuda.initialized = False
    count = iter(range(9))
    recorder = recorded(tmp_path / "trace.json", 5, lambda: next(count) > 1 and cuda.launch(MS))
    durations, clock = recorder.timings()
    assert (clock, len(durations)) == ("cuda_event", 1)


def test_steps_after_the_window_are_timed_without_waiting(cuda: FakeCuda, tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "trace.json", 2, lambda: cuda.launch(MS))
    waits = cuda.calls.count("synchronize")
    recorder._settled_ns = 0
    for number in range(5):
        cuda.launch(5 * MS)
        assert recorder.mark_later()
        if number == 3:
            cuda.now_ns = cuda.reached_ns()  # the last step is still running
    durations, clock = recorder.later_timings()
    assert (len(durations), clock) == (3, "cuda_event")
    assert all(5 * MS <= duration < 6 * MS for duration in durations)
    assert cuda.calls.count("synchronize") == waits
    cuda.broken = ILLEGAL
    assert recorder.later_timings() == ([], "cuda_event")


def test_events_that_cannot_be_read_cost_a_warning_not_the_trace(cuda: FakeCuda, tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "trace.json", 4, lambda: cuda.launch(MS))
    recorder._marks[1]._at_ns = None  # as an event of another device
    durations, _ = recorder.timings()
    assert len(durations) == 1
    assert recorder.timings()[0] == durations
    assert recorder.notes == [
        (
            "steps_not_timed",
            "2 of 3 steps before profiling could not be timed: CUDA error: invalid resource handle",
        )
    ]
    cuda.broken = ILLEGAL
    assert recorder.timings() == ([], "cuda_event")
    assert recorder.notes[-1][1] == f"3 of 3 steps before profiling could not be timed: {ILLEGAL}"


def test_memory_that_cannot_be_read_costs_a_warning(cuda: FakeCuda, tmp_path: Path) -> None:
    cuda.devices, cuda.unreadable = 3, {1}
    recorder = recorded(tmp_path / "trace.json", 1, lambda: cuda.launch(MS))
    assert {(device, metric) for source, device, metric, _ in recorder.peaks if source == "torch"} == {
        (0, "device_peak_allocated_bytes"),
        (0, "device_peak_reserved_bytes"),
    }
    assert [code for code, _ in recorder.notes] == ["peaks_not_read"]


def test_nothing_ends_the_capture_of_a_graph(cuda: FakeCuda, pending: list[int], tmp_path: Path) -> None:
    recorder = TorchRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    window = Window(2, 2, recorder)
    with cuda.capture():
        window.begin()
        for _ in range(9):  # of all steps, also those at which recording would begin or end
            cuda.launch(MS)
            window.end_step()
    assert (window.steps_done, window.state, pending) == (0, "waiting", [])
    for _ in range(2):
        cuda.launch(MS)
        window.end_step()
    with cuda.capture():
        window.end_step()
    assert window.state == "recording"
    window.end_step()
    window.end_step()
    assert (window.steps_done, window.state, pending) == (4, "timing", [0])
    with cuda.capture():
        window.end_step()
    window.end_step()
    assert recorder.later_timings() == ([], "cuda_event")
    assert [code for code, _ in recorder.notes] == ["captured_steps"]


def test_the_interval_around_a_captured_step_is_not_timed(cuda: FakeCuda, tmp_path: Path) -> None:
    recorder = TorchRecorder(torch, stacks=False)
    window = Window(9, 1, recorder)
    for captured in (False, False, True, False, False):
        if captured:
            with cuda.capture():
                window.end_step()
        else:
            cuda.launch(MS)
            window.end_step()
    assert window.steps_done == 4
    assert len(recorder.timings()[0]) == 2


def test_a_module_called_in_a_capture_is_not_the_first(cuda: FakeCuda) -> None:
    log: list[str] = []

    def begun(_name: str) -> bool:
        log.append("begun")
        return True

    calls = ModuleCalls(torch, begun=begun, ended=lambda: log.append("ended"))
    try:
        model = torch.nn.Linear(2, 2)
        with cuda.capture():
            model(torch.ones(2))
        assert log == []
        model(torch.ones(2))
        with cuda.capture():
            model(torch.ones(2))
        model(torch.ones(2))
    finally:
        calls.stop()
    assert log == ["begun", "ended", "ended"]


@pytest.fixture
def attached(cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Agent]:
    monkeypatch.setattr(agents, "at_exit", lambda _: None)

    def attach(**options: Any) -> Agent:
        plain = {"profiler": "torch", "stacks": False, "no_host_samples": False, "start_step": 2, "steps": 2}
        plain["collector_pid"] = os.getpid()
        return Agent(torch, agents.AgentRequest(directory=str(tmp_path), **{**plain, **options}))

    return attach


def test_a_program_that_captures_its_steps_is_told_to_mark_replays(
    cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = attached()
    agent.optimizer_made()
    agent.optimizer_stepped("SGD")
    with cuda.capture():
        for _ in range(5):
            agent.optimizer_stepped("SGD")
            agent.step_marked()
    agent.finish()
    [note] = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert (note["steps_done"], note["codes"]) == (1, ["captured_steps"])


@pytest.mark.parametrize("is_off", [False, True])
def test_a_program_is_sampled_unless_it_is_asked_not_to_be(
    is_off: bool, attached: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[StackSampler] = []
    monkeypatch.setattr(StackSampler, "start", lambda sampler, **_: started.append(sampler))
    agent = attached(no_host_samples=is_off)
    for _ in range(5):
        agent.step_marked()
    agent.finish()
    assert len(started) == (not is_off)


def test_marked_steps_around_replays_are_recorded(
    cuda: FakeCuda, attached: Callable[..., Agent], pending: list[int], tmp_path: Path
) -> None:
    agent = attached()
    with cuda.capture():
        agent.step_marked()
    for _ in range(5):
        cuda.launch(3 * MS)  # a replay
        agent.step_marked()
    agent.finish()
    facts = json.loads((tmp_path / "rank-0.facts").read_text())
    assert (facts["source"], facts["recorded_steps"], facts["device"]) == ("marked", 2, "cuda")
    assert (facts["clock"], facts["notes"], pending) == ("cuda_event", [], [0])


def test_a_failed_kernel_is_reported_by_its_own_line(
    cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = attached()
    agent.optimizer_made()
    cuda.broken = ILLEGAL
    agent.optimizer_stepped("SGD")  # the program's own call fails after it
    agent.finish()
    [note] = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert note["error"] == f"RuntimeError: {ILLEGAL}"


def test_a_failed_recording_does_not_leave_a_profiler_running(
    cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = attached()
    agent.optimizer_made()
    agent.optimizer_stepped("SGD")
    assert agent.is_recording()
    stopped: list[Any] = []
    stop = torch.profiler.profile.stop
    monkeypatch.setattr(
        torch.profiler.profile, "stop", lambda profiler: (stopped.append(profiler), stop(profiler))
    )
    with monkeypatch.context() as patch:
        patch.setattr(TorchRecorder, "_wait_for_device", lambda _: cuda.peak(1, 0))
        cuda.unreadable = {1}
        agent.optimizer_stepped("SGD")
    assert len(stopped) == 1
    assert not agent.is_recording()
    agent.finish()
    [note] = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert note["error"].startswith("RuntimeError: CUDA error: device(s)")


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NvtxRecorder, "opened", False)
    monkeypatch.setitem(sys.modules, "nvtx", None)  # as if it were not installed
    # torch leaves it set where ranges of ops cannot be enabled
    monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", False)


class Ranges:
    """Ranges of ops, in place of `emit_nvtx`."""

    def __init__(self, *, fails: bool = False) -> None:
        self.log: list[str] = []
        self._fails = fails

    def __enter__(self) -> None:
        if self._fails:
            raise RuntimeError("NVTX annotation context manager is not reentrant\nsecond line")
        self.log.append("begin")

    def __exit__(self, *_: object) -> None:
        self.log.append("end")


@pytest.mark.usefixtures("nvtx")
def test_nsys_gets_a_window_of_whole_steps(cuda: FakeCuda, tmp_path: Path) -> None:
    written: list[int] = []
    recorder = NvtxRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    recorder.on_written = lambda _path, steps: written.append(steps)
    window = Window(1, 2, recorder)
    for _ in range(4):
        cuda.launch(MS)
        window.end_step()
    assert written == [2]
    calls = [call for call in cuda.calls if call != "record"]
    opened = calls.index("profiler.start")
    assert calls[opened - 1] == "synchronize"
    assert calls[calls.index("profiler.stop") - 1] == "synchronize"
    assert [call for call in calls if call.startswith("push")] == [
        "push ProfilerStep#1",
        "push ProfilerStep#2",
    ]
    assert calls.count("pop") == 2
    assert recorder.device == "cuda"


@pytest.mark.usefixtures("nvtx")
def test_nsys_records_a_program_that_first_uses_the_device_in_its_window(
    cuda: FakeCuda, tmp_path: Path
) -> None:
    cuda.initialized = False
    recorder = NvtxRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    recorder.start(0, warm=False)
    recorder.stop(1, open_step=None)
    assert [call for call in cuda.calls if call.startswith("profiler")] == ["profiler.start", "profiler.stop"]


@pytest.mark.usefixtures("nvtx")
def test_a_program_on_the_cpu_gets_no_cuda_context_for_nsys(cuda: FakeCuda, tmp_path: Path) -> None:
    cuda.initialized = False
    recorder = NvtxRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    recorder.start(3, warm=False)
    recorder.stop(1, open_step=None)
    assert cuda.calls == ["push ProfilerStep#3", "pop"]
    assert not cuda.initialized
    assert [code for code, _ in recorder.notes] == ["no_nvtx_ops"]


@pytest.mark.usefixtures("nvtx")
def test_ranges_of_ops_end_where_the_program_starts_a_profiler(
    cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", lambda **_: ops)
    ops = Ranges()
    recorder = NvtxRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    recorder.start(0, warm=False)
    for _ in range(2):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            assert ops.log == ["begin", "end"]
    recorder.stop(1, open_step=None)
    assert [code for code, _ in recorder.notes] == ["no_nvtx_ops"]
    assert ops.log == ["begin", "end"]
    assert cuda.calls[-1] == "profiler.stop"


@pytest.mark.usefixtures("nvtx")
def test_an_abandoned_window_for_nsys_stays_open_for_the_next(cuda: FakeCuda, tmp_path: Path) -> None:
    for discarded in (True, False):
        recorder = NvtxRecorder(torch, stacks=False)
        recorder.trace_path = lambda: tmp_path / "trace.json"
        recorder.start(0, warm=False)
        recorder.discard() if discarded else recorder.stop(1, open_step=None)
    assert cuda.calls.count("profiler.start") == 1
    assert cuda.calls.count("profiler.stop") == 1


@pytest.mark.usefixtures("nvtx")
@pytest.mark.parametrize("marks_ops", [True, False])
def test_ops_are_marked_for_nsys_if_this_torch_can(
    marks_ops: bool, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = Ranges(fails=not marks_ops)

    def ranges(*, record_shapes: bool) -> Ranges:
        assert record_shapes
        return ops

    def no_nvtx(_text: str) -> None:
        raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", ranges)
    if not marks_ops:
        monkeypatch.setattr(torch.cuda.nvtx, "range_push", no_nvtx)
    recorder = NvtxRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    assert not recorder.needs_warmup
    recorder.start(0, warm=False)
    assert recorder.options == {"record_shapes": marks_ops}
    recorder.step()
    recorder.stop(2, open_step=None)
    assert ops.log == (["begin", "end"] if marks_ops else [])
    assert recorder.notes == (
        []
        if marks_ops
        else [
            (
                "no_nvtx_ops",
                "ops were not marked for the profiler: NVTX annotation context manager is not reentrant",
            ),
            ("no_nvtx_steps", f"steps were not marked for the profiler: {LACKS_NVTX}"),
        ]
    )


@pytest.mark.usefixtures("nvtx")
@pytest.mark.parametrize("kind", [TorchRecorder, NvtxRecorder])
def test_a_rank_that_another_process_records_is_left_alone(kind: type[TorchRecorder], cuda: FakeCuda) -> None:
    recorder = kind(torch, stacks=False)
    recorder.start(0, warm=False)
    recorder.step()
    recorder.stop(1, open_step=None)
    recorder.discard()
    assert [call for call in cuda.calls if call != "record"] == []


def test_the_programs_own_profiler_ends_the_recording(cuda: FakeCuda, tmp_path: Path) -> None:
    written: list[int] = []
    recorder = TorchRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    recorder.on_written = lambda _path, steps: written.append(steps)
    window = Window(0, 5, recorder)
    recorder.on_conflict = window.close
    window.begin()
    window.end_step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        cuda.launch(MS)
        late = TorchRecorder(torch, stacks=False)
        late.start(0, warm=False)
        late.step()
    assert written == [1]
    assert [code for code, _ in (*recorder.notes, *late.notes)] == ["other_profiler", "other_profiler"]
    assert OPEN_NAME in (tmp_path / "trace.json").read_text()


def test_the_first_call_is_recorded_in_case_that_the_window_is_never_reached(
    cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = attached(start_step=9)
    try:
        torch.nn.Linear(2, 2)(torch.ones(2))
    finally:
        agent.finish()
    facts = json.loads((tmp_path / "rank-0.first.facts").read_text())
    assert (facts["source"], facts["recorded_steps"], facts["device"]) == ("call", 1, "cuda")
    assert not agent.is_recording()


@pytest.mark.usefixtures("nvtx")
@pytest.mark.parametrize("options", [{"start_step": 0}, {"start_step": 2, "profiler": "outside"}])
def test_calls_are_steps_of_a_program_without_an_optimizer(
    options: dict[str, Any], cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = attached(**options)
    model = torch.nn.Linear(2, 2)
    try:
        for _ in range(5):
            cuda.launch(MS)
            model(torch.ones(2))
    finally:
        agent.finish()
    facts = json.loads((tmp_path / "rank-0.facts").read_text())
    assert (facts["source"], facts["recorded_steps"]) == ("call", 2)


@pytest.fixture
def process_group() -> Iterator[None]:
    """A group of 4 processes, of which the others are simulated."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=3, world_size=4, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("known_by", ["launcher", "process group"])
def test_a_program_recorded_from_the_first_step_begins_with_its_optimizer(
    known_by: str,
    request: pytest.FixtureRequest,
    cuda: FakeCuda,
    attached: Callable[..., Agent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if known_by == "launcher":
        monkeypatch.setenv("RANK", "3")
        monkeypatch.setenv("WORLD_SIZE", "4")
    else:
        request.getfixturevalue("process_group")
    agent = attached(start_step=0)
    agent.optimizer_made()
    assert agent.is_recording()
    for _ in range(2):
        cuda.launch(MS)
        agent.optimizer_stepped("SGD")
        agent.optimizer_made()  # another one
    other = attached(start_step=0)  # a process of another job
    other.optimizer_made()
    other.optimizer_stepped("SGD")
    other.finish()
    facts = json.loads((tmp_path / "rank-3-of-4.facts").read_text())
    assert (facts["rank"], facts["world_size"], facts["recorded_steps"]) == (3, 4, 2)
    facts = json.loads((tmp_path / "rank-3-of-4.1.facts").read_text())
    assert (facts["rank"], facts["recorded_steps"]) == (3, 1)
    assert not list(tmp_path.glob("*.note"))


def test_calls_in_data_loader_workers_are_no_steps(
    cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing.process, "parent_process", lambda: "the program")
    agent = attached(start_step=0)
    torch.nn.Linear(2, 2)(torch.ones(2))
    agent.finish()
    [note] = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert (note["source"], note["steps_done"], cuda.launched) == ("", 0, 0)


@pytest.mark.parametrize("start_step", [0, 2])
def test_a_fork_follows_its_own_steps_and_is_timed_only_where_a_profiler_has_run(
    start_step: int, attached: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchRecorder, "has_run", False)
    left: list[int] = []
    monkeypatch.setattr(package, "_leave_without_destructors", lambda: left.append(1))
    before = attached(start_step=start_step)
    monkeypatch.setattr(package, "_agent", before)
    before.optimizer_made()
    recording = before.is_recording()
    request = agents.AgentRequest(
        str(tmp_path),
        profiler="torch",
        start_step=1,
        steps=1,
        stacks=False,
        no_host_samples=False,
        collector_pid=1,
    )
    package._after_fork(torch, request)
    after = package._agent
    assert isinstance(after, agents.Agent)
    assert recording == (start_step == 0) == bool(left)
    assert before.source == agents.NONE
    for _ in range(4):
        package.step()
    assert (tmp_path / "rank-0.facts").is_file() != recording
    after.finish()
    notes = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert [note["codes"] for note in notes] == [[agents.TIMED_ONLY]] * recording
    if recording:
        assert ": 4 steps, " in notes[0]["error"]
        before._window._recorder.discard()  # of the parent process
