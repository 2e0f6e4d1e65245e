"""What cannot be compiled, or does not fit, is an error with a next step; a fault stays a fault."""

from __future__ import annotations

from typing import Any

import pytest
from tracekit.collectors.workload_process import built_workload

from tracekit.errors import CollectionError
from tracekit.recording.collector import Request
from tracekit.recording.workload import decide

torch = pytest.importorskip("torch")


def request(**known: Any) -> Request:
    return decide(Request(workload="lennard_jones", size="test", device="cpu", **known))


def refuse(*_: Any) -> Any:
    raise NotImplementedError("no such thing")


def test_a_compile_error_suggests_other_backends() -> None:
    with (
        pytest.raises(CollectionError) as reported,
        built_workload(request(level="compile", backend="aot_eager"), device="cpu"),
    ):
        torch.compile(torch.nn.Linear(2, 2), backend=refuse)(torch.ones(2))
    torch._dynamo.reset()
    assert str(reported.value).startswith("aot_eager could not compile lennard_jones: ")
    assert "--backend eager" in str(reported.value)


def test_running_out_of_memory_in_compilation_is_reported_as_such() -> None:
    with (
        pytest.raises(CollectionError, match="lower --batch-size"),
        built_workload(request(level="compile", backend="aot_eager"), device="cpu"),
    ):
        raise RuntimeError("can't allocate memory: you tried to allocate 4 bytes")


@pytest.mark.parametrize("known", [{}, {"level": "compile", "backend": "aot_eager"}])
def test_other_errors_are_not_changed(known: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="shapes"), built_workload(request(**known), device="cpu"):
        raise RuntimeError("shapes differ")
