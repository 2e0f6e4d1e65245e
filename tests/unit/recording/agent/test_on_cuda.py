"""Recording of programs on a CUDA device: what waits for it, what is timed, and captures of graphs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.fake_cuda import ILLEGAL, FakeCuda
from tracekit.recording.agent import agent as agents
from tracekit.recording.agent.agent import Agent
from tracekit.recording.agent.recorder import NvtxRecorder, TorchRecorder
from tracekit.recording.agent.step_hooks import ModuleCalls
from tracekit.recording.agent.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
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
    found: list[int] = []
    start = torch.profiler.profile.start_trace

    def start_trace(profiler: Any) -> None:
        found.append(cuda.pending_ns())
        start(profiler)

    monkeypatch.setattr(torch.profiler.profile, "start_trace", start_trace)
    return found


def recorded(
    path: Path,
    start: int,
    step: Callable[[], object],
    steps: int = 2,
    *,
    kind: type[TorchRecorder] = TorchRecorder,
) -> TorchRecorder:
    """Record a window of a program that takes one step more than needed."""
    recorder = kind(torch, {"stacks": False})
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
    recorder = TorchRecorder(torch, {"stacks": False})
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
    assert (window.steps_done, window.state, pending) == (4, "done", [0])
    assert [code for code, _ in recorder.notes] == ["captured_steps"]


def test_the_interval_around_a_captured_step_is_not_timed(cuda: FakeCuda, tmp_path: Path) -> None:
    recorder = TorchRecorder(torch, {"stacks": False})
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

    def begun() -> bool:
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
    monkeypatch.setattr(agents, "_at_exit", lambda _: None)

    def attach(**options: Any) -> Agent:
        request = {"directory": str(tmp_path), "stacks": False, "start_step": 2, "steps": 2, **options}
        return Agent(torch, request)

    return attach


def test_a_program_that_captures_its_steps_is_told_to_mark_replays(
    cuda: FakeCuda, attached: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = attached()
    agent.optimizer_made()
    agent.optimizer_stepped()
    with cuda.capture():
        for _ in range(5):
            agent.optimizer_stepped()
            agent.step_marked()
    agent.finish()
    [note] = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert (note["steps_done"], note["codes"]) == (1, ["captured_steps"])


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
    agent.optimizer_stepped()
    cuda.broken = ILLEGAL
    agent.optimizer_stepped()  # the program's own call fails after it
    agent.finish()
    [note] = [json.loads(path.read_text()) for path in tmp_path.glob("*.note")]
    assert note["error"] == f"RuntimeError: {ILLEGAL}"


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NvtxRecorder, "opened", False)


@pytest.mark.usefixtures("nvtx")
def test_nsys_gets_a_window_of_whole_steps(cuda: FakeCuda, tmp_path: Path) -> None:
    written: list[int] = []
    recorder = NvtxRecorder(torch, {"stacks": False})
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
def test_an_abandoned_window_for_nsys_stays_open_for_the_next(cuda: FakeCuda, tmp_path: Path) -> None:
    for discarded in (True, False):
        recorder = NvtxRecorder(torch, {"stacks": False})
        recorder.trace_path = lambda: tmp_path / "trace.json"
        recorder.start(0, warm=False)
        recorder.discard() if discarded else recorder.stop(1, open_step=None)
    assert cuda.calls.count("profiler.start") == 1
    assert cuda.calls.count("profiler.stop") == 1
