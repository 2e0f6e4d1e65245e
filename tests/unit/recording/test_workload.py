from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from samples.simulator import Program, write
from tracekit import registry
from tracekit.errors import PluginError, UnusableInputError
from tracekit.recording.collect import collect, command, decide
from tracekit.recording.collector import Recording, Request
from tracekit.runs import environment
from tracekit.runs.meta import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.store import Store

pytestmark = pytest.mark.usefixtures("outside_repositories")

MNIST = Request(workload="mnist_cnn")
GPU = {"index": 0, "name": "H100", "sm_count": 132, "compute_capability": "9.0"}


def test_default_sizes_are_those_of_the_workload() -> None:
    decided = decide(MNIST)
    assert (decided.batch_size, decided.resolution) == (64, 28)
    assert decide(Request(workload="mnist_cnn", batch_size=3)).batch_size == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": 0}, "--steps 0 is too low"),
        ({"warmup": -1}, "use --warmup 0 or more"),
        ({"threads": 0}, "use --threads 1 or more"),
        ({"repeat": 0}, "use --repeat 1 or more"),
        ({"device": "tpu"}, "use --device auto or cpu or cuda"),
        ({"level": "script"}, "use --level eager or torchscript or compile"),
        ({"backend": "aot_eager"}, "use --level compile, or remove --backend"),
        ({"batch_size": 0}, "use --batch-size 1 or more"),
        ({"compile_artifacts": True}, "--compile-artifacts does not apply to level eager"),
        ({"no_profile": True, "stacks": True}, "--stacks cannot be combined with --no-profile"),
    ],
)
def test_impossible_requests_are_refused_before_a_process_starts(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableInputError) as refused:
        decide(Request(workload="mnist_cnn", **changed))
    assert said in str(refused.value)


def test_an_unknown_workload_lists_the_known_ones() -> None:
    with pytest.raises(PluginError, match=r"mnist_cnn, .*resnet50"):
        decide(Request(workload="nope"))


def test_pinned_batches_are_only_for_a_gpu() -> None:
    request = decide(Request(workload="mnist_cnn", pin_memory=True))
    assert not request.options(device="cpu").pin_memory
    assert request.options(device="cuda").pin_memory


def test_a_request_is_decided_before_its_workload_is_built() -> None:
    with pytest.raises(UnusableInputError, match=r"are open.*call `decide` first"):
        MNIST.options(device="cpu")


def test_the_command_repeats_the_request() -> None:
    from tracekit.cli.collect import command as collect

    request = Request(
        workload="resnet50",
        batch_size=8,
        resolution=64,
        stacks=True,
        zero_grad="foreach",
        offload="activations",
        dataset_shape="stl10",
        size="gpu",
        level="compile",
        backend="aot_eager",
    )
    words = command(request)
    context = collect.make_context("collect", words[2:])
    shared = {name: value for name, value in context.params.items() if hasattr(request, name)}
    assert Request(**shared) == request


def test_inductor_is_the_default_backend() -> None:
    assert decide(Request(workload="mnist_cnn", level="compile")).backend == "inductor"
    assert decide(Request(workload="mnist_cnn")).backend is None


class Recorder:
    """A collector that finds a CPU with four threads and records one op."""

    name = "recorder"
    environment: ClassVar[dict[str, Any]] = {}

    def record(self, request: Request, directory: Path, **_: Any) -> Recording:
        program = Program()
        with program.op("aten::relu"):
            pass
        trace = write(program, directory / "trace.json")
        return Recording(
            traces=(trace,), device="cpu", threads=4, version="1", timings=None, environment=self.environment
        )


def test_the_stored_command_has_the_values_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", _recorder_or(registry.load))
    meta = collect(store, Request(workload="mnist_cnn", pin_memory=True)).meta
    words = meta.command
    assert words[words.index("--device") + 1] == "cpu"
    assert words[words.index("--threads") + 1] == "4"
    assert words[words.index("--batch-size") + 1] == "64"
    assert "--pin-memory" not in words
    assert [item.code for item in meta.diagnostics if item.code == "pin_memory_ignored"]


@pytest.mark.parametrize(("device", "said"), [("auto", 1), ("cpu", 0)])
def test_a_gpu_that_auto_could_not_use_is_reported(
    device: str, said: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "load", _recorder_or(registry.load))
    monkeypatch.setattr(Recorder, "environment", {environment.GPU_PROBLEM: "the driver is too old"})
    meta = collect(store, Request(workload="mnist_cnn", device=device)).meta
    found = [one.message for one in meta.diagnostics if one.code == "gpu_not_used"]
    assert len(found) == said
    assert all(message.endswith("because torch cannot use it: the driver is too old") for message in found)


def test_the_stored_batch_size_is_the_one_that_fitted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reducer(Recorder):
        def record(self, request: Request, directory: Path, **_: Any) -> Recording:
            assert (request.batch_size, request.fit_batch) == (1024, True)
            return replace(super().record(request, directory), batch_size=512)

    load = registry.load
    monkeypatch.setattr(
        registry, "load", lambda group, name: Reducer if group == registry.COLLECTORS else load(group, name)
    )
    meta = collect(store, Request(workload="mnist_cnn", size="gpu")).meta
    assert meta.workload is not None
    assert (meta.workload["batch_size"], meta.fingerprint["batch_size"]) == (512, 512)
    assert meta.command[meta.command.index("--batch-size") + 1] == "512"


def _recorder_or(load: Callable[..., Any]) -> Callable[..., Any]:
    return lambda group, name: Recorder if group == registry.COLLECTORS else load(group, name)


def test_the_fingerprint_is_flat_and_names_the_gpu_only_when_it_was_used() -> None:
    surroundings = {"torch": "2.13", "gpus": [GPU]}
    on_gpu = fingerprint(
        {"name": "w", "device": "cuda"}, surroundings, {"with_stack": True}, collector="torch"
    )
    on_cpu = fingerprint({"name": "w", "device": "cpu"}, surroundings, {}, collector="torch")
    assert (on_gpu["gpu"], on_gpu["sm_count"], on_gpu["profiler_with_stack"]) == ("H100", 132, True)
    assert (on_cpu["gpu"], on_cpu["sm_count"]) == (None, None)
    assert on_gpu.keys() == on_cpu.keys()


def test_the_environment_names_no_host_user_or_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2-secret")
    text = str(environment.capture())
    assert "hunter2-secret" not in text
    assert str(Path.home()) + os.sep not in text
    assert socket.gethostname() not in text.replace(environment.cpu_name(), "").split()


def test_the_environment_is_complete_without_a_driver() -> None:
    found = environment.capture()
    versions = {"python", "torch", "cuda", "hip", "cudnn", "driver"}
    assert versions | {"os", "cpu", "gpus", "settings", "packages"} == found.keys()
