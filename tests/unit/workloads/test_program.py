from __future__ import annotations

import pytest

from tests.unit.workloads.building import BUILT_INS, built, losses
from tracekit.errors import UnusableInputError

torch = pytest.importorskip("torch")

SMALL = BUILT_INS["mnist_cnn"]


@pytest.mark.slow_except("parameters-lennard_jones", "activations-lennard_jones", "activations-mnist_cnn")
@pytest.mark.parametrize("name", ["lennard_jones", "mnist_cnn", "resnet18"])
@pytest.mark.parametrize("what", ["parameters", "activations"])
def test_offloading_changes_no_loss(name: str, what: str) -> None:
    assert losses(BUILT_INS[name], 3, offload=what) == losses(BUILT_INS[name], 3)


def places(model: torch.nn.Module) -> list[int]:
    return [parameter.data_ptr() for parameter in model.parameters()]


def test_parameters_move_for_their_uses_and_back() -> None:
    program = built(SMALL, offload="parameters")
    before = places(program.model)
    with program.offload.parameters(program.model):
        during = places(program.model)
    after = places(program.model)
    assert not set(before) & set(during)
    assert not set(during) & set(after)


def test_parameters_return_when_a_step_fails() -> None:
    program = built(SMALL, offload="parameters")
    during: list[int] = []

    def fail() -> None:
        with program.offload.parameters(program.model):
            during.extend(places(program.model))
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fail()
    assert during
    assert not set(during) & set(places(program.model))


@pytest.mark.parametrize(("what", "moved"), [("activations", True), ("none", False)])
def test_saved_tensors_are_offloaded_as_copies(what: str, moved: bool) -> None:
    program = built(SMALL, offload=what)
    values = torch.ones(3, requires_grad=True)
    with program.offload.activations():
        result = values.exp()
    assert (result.grad_fn._saved_result.data_ptr() != result.data_ptr()) is moved


def test_inference_with_parameters_on_the_host_gives_the_same() -> None:
    here, there = (built(SMALL, mode="infer", offload=what).step() for what in ("none", "parameters"))
    assert torch.equal(here, there)


def test_inference_keeps_no_activations() -> None:
    with pytest.raises(UnusableInputError, match="use --mode train or --offload parameters"):
        built(SMALL, mode="infer", offload="activations")
