"""Steps of optimizers and calls of modules that are reported, beside other tools that wrap the same."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.recording.agent import step_hooks
from tracekit.recording.agent.step_hooks import MAX_OTHER_STEPS, ModuleCalls, watch_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def optimizer(log: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes watched optimizers of a class of the test; `inner` ones are stepped by it."""

    class Own(torch.optim.SGD):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, *inner: Any) -> None:
            super().__init__(torch.nn.Linear(2, 2).parameters(), lr=0.1)
            self.inner = inner

        def step(self, closure: Any = None) -> None:
            if closure:
                closure()
            for one in self.inner:
                one.step()

    patch = torch.optim.Optimizer._patch_step_function
    monkeypatch.setattr(torch.optim.Optimizer, "_patch_step_function", patch)
    watch_optimizers(torch, made=lambda: log.append("made"), stepped=lambda _: log.append("stepped"))
    return Own


def test_a_step_inside_another_is_a_part_of_it(optimizer: Callable[..., Any], log: list[str]) -> None:
    inner = optimizer()
    outer = optimizer(inner)
    outer.step()
    assert log == ["made", "made", "stepped"]
    inner.step()  # of another than the first
    assert log[2:] == ["stepped"]


def test_a_step_that_fails_is_not_reported(optimizer: Callable[..., Any], log: list[str]) -> None:
    own = optimizer()
    with pytest.raises(ZeroDivisionError):
        own.step(lambda: 1 // 0)
    own.step()
    assert log == ["made", "stepped"]


@pytest.mark.parametrize("freed", [False, True])
def test_another_optimizer_takes_over_when_the_first_is_no_longer_used(
    freed: bool, optimizer: Callable[..., Any], log: list[str]
) -> None:
    first, second = optimizer(), optimizer()
    first.step()
    if freed:
        del first
    others = 0 if freed else MAX_OTHER_STEPS
    for _ in range(others + 3):
        second.step()
    assert log.count("stepped") == 1 + 3


def test_calls_of_a_module_are_reported_beside_another_tool(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, model = torch.nn.Module, torch.nn.Linear(2, 2)
    original = base.__call__
    monkeypatch.setattr(base, "__call__", original)

    def begun(_name: str) -> bool:
        log.append("begun")
        return True

    calls = ModuleCalls(torch, begun=begun, ended=lambda: log.append("ended"))
    ours = base.__call__

    def theirs(module: Any, *arguments: Any) -> Any:
        log.append("theirs")
        return ours(module, *arguments)

    base.__call__ = theirs
    for _ in range(2):
        model(torch.ones(2))
    assert log == ["theirs", "begun", "ended", "theirs", "ended"]
    calls.stop()
    calls.stop()
    assert "__call__" not in torch.nn.Linear.__dict__
    assert base.__call__ is theirs, "the other tool restores what it replaced"
    model(torch.ones(2))
    assert log[5:] == ["theirs"]


def test_ops_are_marked_by_the_package_nvtx_where_torch_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[str] = []
    package = SimpleNamespace(push_range=marked.append, pop_range=lambda: marked.append("pop"))
    monkeypatch.setitem(sys.modules, "nvtx", package)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters={"frames": {}}))
    with step_hooks.ranges_of_ops(torch):
        total = torch.ones(2, 3).sum()
    assert total == 6
    assert marked == [
        *("aten::ones, op_id = 1, sizes = [[]]", "pop"),
        *("aten::sum, op_id = 2, sizes = [[2, 3]]", "pop"),
    ]
    compiling = SimpleNamespace(counters={"frames": {"total": 1}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", compiling)
    with pytest.raises(ImportError, match="compiles"):
        step_hooks.ranges_of_ops(torch)
