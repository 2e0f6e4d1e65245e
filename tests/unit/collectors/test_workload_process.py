"""What cannot be compiled, or does not fit, is an error with a next step; a fault stays a fault."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tracekit.collectors.workload_process import build_workload, describe_process, resolve_device

from tests.unit.collectors.fake_nvml import Gpu, Library, installed
from tests.unit.runs.test_gpus import Cuda, device, torch_of
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request

torch = pytest.importorskip("torch")
TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)."


@pytest.mark.parametrize(("built", "hip"), [("13.0", None), (None, "7.0.1")])
def test_a_build_for_rocm_uses_its_gpu_as_one_for_cuda_does(
    built: str | None, hip: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of(Cuda(device("a")), built=built, hip=hip))
    assert [resolve_device(one) for one in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    monkeypatch.setitem(sys.modules, "torch", torch_of(Cuda(init_error=TOO_OLD), built=built, hip=hip))
    assert [resolve_device(one) for one in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(UnusableInputError, match=r"torch can use no GPU: The NVIDIA driver .* is too old"):
        resolve_device("cuda")


def test_without_torch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CollectionError, match=r"torch is not installed.*pip install"):
        resolve_device("cpu")


@pytest.mark.parametrize(
    ("gpus", "requested", "known"),
    [((Gpu(),), "auto", True), ((), "auto", False), ((Gpu(),), "cpu", False)],
)
def test_a_gpu_that_auto_could_not_use_is_explained(
    gpus: tuple[Gpu, ...], requested: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = torch_of(Cuda(init_error=TOO_OLD))
    fake.get_num_threads = fake.get_num_interop_threads = lambda: 1
    monkeypatch.setitem(sys.modules, "torch", fake)
    with installed(monkeypatch, Library(*gpus)):
        found = describe_process("cpu", requested=requested)["environment"]
    assert found.get("gpu_problem") == (TOO_OLD if known else None)


def request(**known: Any) -> Request:
    return decide(Request(workload="lennard_jones", size="test", device="cpu", **known))


def refuse(*_: Any) -> Any:
    raise NotImplementedError("no such thing")


def test_a_compile_error_suggests_other_backends() -> None:
    with (
        pytest.raises(CollectionError) as reported,
        build_workload(request(level="compile", backend="aot_eager"), device="cpu"),
    ):
        torch.compile(torch.nn.Linear(2, 2), backend=refuse)(torch.ones(2))
    torch._dynamo.reset()
    assert str(reported.value).startswith("aot_eager could not compile lennard_jones: ")
    assert "--backend eager" in str(reported.value)


def test_running_out_of_memory_in_compilation_is_reported_as_such() -> None:
    with (
        pytest.raises(CollectionError, match="lower --batch-size"),
        build_workload(request(level="compile", backend="aot_eager"), device="cpu"),
    ):
        raise RuntimeError("can't allocate memory: you tried to allocate 4 bytes")


@pytest.mark.parametrize("known", [{}, {"level": "compile", "backend": "aot_eager"}])
def test_other_errors_are_not_changed(known: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="shapes"), build_workload(request(**known), device="cpu"):
        raise RuntimeError("shapes differ")
