"""Each level of a workload computes the outputs and gradients of the eager level."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.workloads.building import BUILT_INS, SMALL, built
from tracekit.errors import UnusableInputError
from tracekit.workloads.base import COMPILE, EAGER, TORCHSCRIPT

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTED = [(name, mode) for name, one in BUILT_INS.items() for mode in one.modes]
TRACED = [
    pytest.param(name, mode, marks=() if name in SMALL and mode == "infer" else pytest.mark.slow)
    for name, mode in LISTED
    if TORCHSCRIPT in BUILT_INS[name].levels
]
COMPILED = [(name, mode) for name, mode in LISTED if COMPILE in BUILT_INS[name].levels]
pytestmark = [
    # warnings of torch during compilation
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture(autouse=True)
def reset_compiler() -> Iterator[None]:
    """Reset torch's compiler after each test."""
    from torch._dynamo import config

    before = config.trace_autograd_ops
    yield
    torch._dynamo.reset()
    config.trace_autograd_ops = before


def tensors(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


def gradients(program: Any) -> dict[str, Any]:
    """Return the gradients that exist, by parameter."""
    named = program.model.named_parameters()
    return {name: p.grad.to_dense() for name, p in named if p.grad is not None}


def assert_same_gradients(eager: Any, other: Any) -> None:
    """Compare up to rounding, which dominates e.g. the gradients of biases before a normalization."""
    a, b = gradients(eager), gradients(other)
    assert a.keys() == b.keys()
    largest = max(float(one.abs().max()) for one in a.values())
    for name, one in a.items():
        torch.testing.assert_close(
            b[name], one, rtol=0, atol=1e-3 * float(one.abs().max()) + 1e-5 * largest, msg=name
        )


def callables(program: Any) -> list[Any]:
    """Return the callables that a program uses for its networks."""
    names = ("sample", "critic_values", "target_values", "actor", "forward")
    return [getattr(program, name) for name in names if hasattr(program, name)]


def assert_agrees(name: str, mode: str, *, steps: int, **way: Any) -> Any:
    """Compare steps with those of the eager program from the same weights; returns the other program."""
    eager, other = built(BUILT_INS[name], mode=mode), built(BUILT_INS[name], mode=mode, **way)
    for _ in range(steps):
        found = []
        for program in (eager, other):
            torch.manual_seed(3)
            found.append(tensors(program.step()))
        for expected, one in zip(*found, strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-3, atol=1e-4)
        if mode == "train":
            assert_same_gradients(eager, other)
        # Differences by rounding must not grow from step to step: first gradients are large.
        other.model.load_state_dict(eager.model.state_dict())
    return other


@pytest.mark.parametrize(("name", "mode"), TRACED)
def test_a_trace_computes_the_same(name: str, mode: str) -> None:
    # TorchScript profiles the first call and then optimizes the graph
    program = assert_agrees(name, mode, steps=3, level=TORCHSCRIPT)
    assert all(isinstance(one, torch.jit.ScriptModule) for one in callables(program))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), COMPILED)
def test_a_compiled_workload_computes_the_same(name: str, mode: str) -> None:
    from torch._dynamo.utils import counters

    counters.clear()
    assert_agrees(name, mode, steps=2, level=COMPILE, backend="aot_eager")
    assert counters["stats"]["unique_graphs"] > 0


@pytest.mark.slow
@needs_compiler
def test_inductor_computes_the_same() -> None:
    assert_agrees("lennard_jones", "train", steps=2, level=COMPILE)


def test_all_workloads_compile_and_all_but_one_can_be_traced() -> None:
    assert {name for name, one in BUILT_INS.items() if TORCHSCRIPT not in one.levels} == {"lennard_jones"}
    assert {name for name, one in BUILT_INS.items() if COMPILE not in one.levels} == set()
    assert all(one.levels[0] == EAGER for one in BUILT_INS.values())


def test_tracing_leaves_buffers_and_random_numbers_alone() -> None:
    from tracekit.workloads.levels import trace_module

    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    trace_module(model, (torch.rand(4, 3, generator=torch.Generator().manual_seed(2)),))
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_a_backend_that_torch_does_not_list_is_refused() -> None:
    with pytest.raises(UnusableInputError) as refused:
        built(BUILT_INS["mnist_cnn"], level=COMPILE, backend="nope")
    assert "no compile backend 'nope'" in str(refused.value)
    assert "aot_eager" in str(refused.value)


def test_a_level_that_a_workload_does_not_list_is_refused() -> None:
    with pytest.raises(UnusableInputError, match="lennard_jones has no level 'torchscript'"):
        built(BUILT_INS["lennard_jones"], level=TORCHSCRIPT)
