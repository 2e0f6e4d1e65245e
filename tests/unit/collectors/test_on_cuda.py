"""Workloads on a CUDA device: warm-up, timing, and the step before recording."""

from __future__ import annotations

import io
import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tracekit.collectors import protocol, torch_profiler, workload_process
from tracekit.collectors.compilation import Compilations
from tracekit.collectors.protocol import Reporter, read_result
from tracekit.collectors.workload_process import StepTimer, keep_busy, time_steps

from tests.fake_cuda import GIB, ILLEGAL, FakeCuda
from tracekit import registry
from tracekit.errors import CollectionError
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request, silent
from tracekit.recording.logs import LOG
from tracekit.runs.meta import Level
from tracekit.workloads.base import Memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch")
MS = 1_000_000
SECOND = 1000 * MS


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    fake.install(monkeypatch, torch)
    clocks = SimpleNamespace(perf_counter_ns=fake.clock, time_ns=time.time_ns)
    monkeypatch.setattr(workload_process, "time", clocks)
    return fake


class Kernels:
    """A program whose steps are kernels of a fixed duration."""

    def __init__(self, cuda: FakeCuda, duration_ns: int) -> None:
        self._cuda, self.duration_ns, self.steps = cuda, duration_ns, 0

    def step(self) -> None:
        self.steps += 1
        self._cuda.launch(self.duration_ns)


def request(**given: Any) -> Request:
    return decide(Request(workload="lennard_jones", size="test", device="cuda", **given))


def reporter() -> Reporter:
    return Reporter(io.StringIO())


def timed(program: Kernels, **given: Any) -> dict[str, Any]:
    return time_steps(program, request(**given), "cuda", reporter(), Compilations("eager"))


@pytest.mark.parametrize("duration_ns", [200_000, 5 * MS, 100 * MS])
def test_a_device_warms_up_and_is_timed_for_a_least_duration(cuda: FakeCuda, duration_ns: int) -> None:
    program = Kernels(cuda, duration_ns)
    found = timed(program, steps=2, warmup=1)
    assert found["clock"] == "cuda_event"
    assert sum(found["warmup_ns"][1:]) >= 0.95 * SECOND, "after the first step, which loads kernels"
    assert sum(found["step_ns"]) >= 0.95 * SECOND, "the rest is the host's time between steps"
    assert len(found["step_ns"]) >= 2
    assert program.steps == len(found["warmup_ns"]) + len(found["step_ns"])
    assert duration_ns <= min(found["step_ns"]) < duration_ns + MS


def test_progress_is_reported_at_intervals_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, done = io.StringIO(), iter(range(0, 10**10, 20 * MS))
    monkeypatch.setattr(protocol, "perf_counter_ns", lambda: next(done))
    Reporter(stream).steps("measure", 10, lambda: None)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["done"] for event in events] == [0, 1, 4, 7, 10]
    assert {event["total"] for event in events} == {10}


def test_as_many_steps_are_timed_as_are_profiled(cuda: FakeCuda) -> None:
    assert len(timed(Kernels(cuda, 200 * MS), steps=9, warmup=1)["step_ns"]) == 9


def test_without_warm_up_the_first_steps_are_timed(cuda: FakeCuda) -> None:
    found = timed(Kernels(cuda, MS), steps=3, warmup=0)
    assert (found["warmup_ns"], len(found["step_ns"])) == ([], 3)


def test_timing_goes_on_where_steps_became_faster(cuda: FakeCuda) -> None:
    program = Kernels(cuda, 20 * MS)

    class Quicker(Reporter):
        def steps(self, part: str, total: int, run: Callable[[], None]) -> None:
            program.duration_ns = MS
            super().steps(part, total, run)

    found = time_steps(
        program, request(steps=1, warmup=1), "cuda", Quicker(io.StringIO()), Compilations("eager")
    )
    assert sum(found["step_ns"]) >= 0.95 * SECOND, "50 steps would have been enough at the former pace"


def test_the_host_does_not_wait_between_timed_steps(cuda: FakeCuda) -> None:
    timer, program = StepTimer("cuda"), Kernels(cuda, 10 * MS)
    began, waits = cuda.now_ns, cuda.calls.count("synchronize")
    for _ in range(5):
        timer.time(program.step)
    assert cuda.calls.count("synchronize") == waits
    assert cuda.now_ns - began < MS
    assert [round(duration / MS) for duration in timer.durations_ns()] == [10] * 5


def test_steps_that_cannot_be_timed_cost_a_warning(cuda: FakeCuda) -> None:
    timer, program = StepTimer("cuda"), Kernels(cuda, MS)
    for _ in range(3):
        timer.time(program.step)
    timer._pairs[0][0]._at_ns = None
    assert len(timer.durations_ns()) == 2
    timed = {"step_ns": [], "warmup_ns": [], "clock": timer.name, "notes": timer.notes, "samples": []}
    process = {"device": "cuda", "threads": 1, "batch_size": 1, "environment": {}}
    recording = read_result({**process, **timed}, version="", options={})
    [found] = recording.diagnostics
    assert (found.level, found.code) == (Level.WARN, "steps_not_timed")
    assert found.message == "1 of 3 steps could not be timed: CUDA error: invalid resource handle"
    assert recording.timings is None


def test_a_device_is_kept_busy_with_few_waits(cuda: FakeCuda) -> None:
    program = Kernels(cuda, MS)
    pace = keep_busy(program.step, "cuda", least_ns=40 * MS)
    assert MS <= pace < 1.1 * MS
    assert cuda.calls.count("synchronize") < 12


class Work:
    """A workload whose program is `Kernels`."""

    sizes: ClassVar = {"gpu": {"batch_size": 64, "resolution": 224}}
    memory: ClassVar = {"train": Memory(fixed=GIB // 4, sample=GIB // 10)}

    def __init__(self, cuda: FakeCuda, *, fails: str = "") -> None:
        self._cuda, self._fails = cuda, fails

    def build(self, _options: Any) -> Kernels:
        if self._fails:
            raise RuntimeError(self._fails)
        return Kernels(self._cuda, 30 * MS)


ASKED: dict[str, Any] = {
    "workload": "resnet50", "size": "test", "device": "cuda", "steps": 2, "warmup": 1,
}  # fmt: skip


def record(work: Work, monkeypatch: pytest.MonkeyPatch, folder: Path, **given: Any) -> dict[str, Any]:
    asked = decide(Request(**{**ASKED, **given}))
    monkeypatch.setattr(registry, "load", lambda _group, _name: work)
    monkeypatch.setattr(workload_process, "resolve_device", lambda _: "cuda")
    return workload_process.record(asked, folder, reporter())


def test_no_work_is_queued_when_recording_of_a_workload_begins(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pending = cuda.queued_at_recordings(monkeypatch, torch)
    result = record(Work(cuda), monkeypatch, tmp_path)
    assert pending == [0]
    assert (result["device"], result["clock"]) == ("cuda", "cuda_event")
    assert {sample["metric"] for sample in result["samples"]} == {
        "host_peak_bytes",
        "device_peak_allocated_bytes",
        "device_peak_reserved_bytes",
    }
    names = [one["name"] for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert [name for name in names if name.startswith("ProfilerStep#")] == [
        "ProfilerStep#1",
        "ProfilerStep#2",
    ]


def test_a_failed_kernel_stays_an_error_of_its_own(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access") as raised:
        record(Work(cuda, fails=ILLEGAL), monkeypatch, tmp_path)
    assert not isinstance(raised.value, CollectionError)


def test_a_library_that_cannot_allocate_ran_out_of_memory(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fails = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    with pytest.raises(CollectionError, match="resnet50 ran out of memory: CUDA error: CUBLAS") as raised:
        record(Work(cuda, fails=fails), monkeypatch, tmp_path)
    assert "--batch-size" in raised.value.hint


@pytest.mark.slow_except("fits", "reduced", "smaller-elements", "given", "other-size")
@pytest.mark.parametrize(
    ("given", "free_gib", "batch"),
    [
        ({"size": "gpu"}, 79, 64),
        ({"size": "gpu"}, 6, 32),
        ({"size": "gpu", "dtype": "bfloat16"}, 6, 64),
        ({"size": "gpu", "batch_size": 64}, 6, 64),
        ({"size": "gpu", "resolution": 96}, 6, 64),
        ({"size": "gpu", "mode": "infer"}, 6, 64),
        ({"size": "default"}, 6, 8),
    ],
    ids=["fits", "reduced", "smaller-elements", "given", "other-resolution", "unknown", "other-size"],
)
def test_size_gpu_has_the_batch_that_fits_the_device(
    given: dict[str, Any],
    free_gib: int,
    batch: int,
    cuda: FakeCuda,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cuda.free_bytes = free_gib * GIB
    result = record(Work(cuda), monkeypatch, tmp_path, no_profile=True, **given)
    assert result["batch_size"] == batch
    messages = [message for code, message in result["notes"] if code == "batch_reduced"]
    reduced = "batch size 32 instead of 64, which needs 9.3 GiB of device memory: 6.0 GiB are free"
    assert messages == ([reduced] if batch == 32 else [])


def test_size_gpu_stays_on_a_cpu() -> None:
    asked = decide(Request(workload="resnet50", size="gpu", device="cpu"))
    assert workload_process.fit_batch_size(asked, "cpu") == (asked, [])


def test_the_process_answers_a_request(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream, work = io.StringIO(), Work(cuda)
    asked = decide(Request(**ASKED))
    monkeypatch.setattr(protocol, "receive_request", lambda: (asked, tmp_path, Reporter(stream)))
    monkeypatch.setattr(workload_process, "resolve_device", lambda _: "cuda")
    monkeypatch.setattr(registry, "load", lambda _group, _name: work)
    assert protocol.serve_request(workload_process.record) == 0
    final = json.loads(stream.getvalue().splitlines()[-1])
    assert (final["event"], final["device"], final["trace"]) == ("result", "cuda", "trace.json")


PREPARED = {
    "device": "cuda", "version": "2.13", "environment": {}, "batch_size": 32, "program": "p", "job": "j",
    "notes": [["batch_reduced", "batch size 32 instead of 64"]],
}  # fmt: skip
MEASURED = {"threads": 2, "step_ns": [5], "warmup_ns": [6], "clock": "cuda_event", "samples": []}


@pytest.mark.parametrize("level", ["eager", "libtorch"])
def test_what_the_process_measured_is_the_recording(
    level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = {**PREPARED, **MEASURED, "trace": "trace.json", "options": {}, "compilation": None}
    commands: list[Any] = []

    def run(command: Any, *_: Any, **__: Any) -> dict[str, Any]:
        commands.append(command)
        return answers

    monkeypatch.setattr(torch_profiler, "run_process", run)
    (tmp_path / LOG).write_text("")
    asked = decide(Request(**{**ASKED, "size": "gpu", "level": level, "stacks": True}))
    found = torch_profiler.TorchProfilerCollector().record(asked, tmp_path, progress=silent)
    assert (found.device, found.batch_size, found.traces) == ("cuda", 32, (tmp_path / "trace.json",))
    assert found.timings is not None
    assert found.timings.clock == "cuda_event"
    codes = ["batch_reduced", *(["stacks_ignored"] if level == "libtorch" else [])]
    assert [one.code for one in found.diagnostics] == codes
    assert len(commands) == (2 if level == "libtorch" else 1)
