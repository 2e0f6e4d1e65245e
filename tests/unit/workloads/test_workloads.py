"""The built-in workloads are the programs they say they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tracekit import registry
from tracekit.errors import UnusableInputError
from tracekit.workloads.base import Options, Workload

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = {"resnet50": 32, "mnist_cnn": 28}
PARAMETERS = {"resnet50": 25_557_032, "mnist_cnn": 1_199_882}
CLASSES = {"resnet50": 1000, "mnist_cnn": 10}
names = pytest.mark.parametrize("name", SMALL)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def workload(name: str) -> Workload:
    found: Workload = registry.load(registry.WORKLOADS, name)
    return found


def options(name: str, **more: Any) -> Options:
    return replace(Options(mode="train", device="cpu", batch_size=2, resolution=SMALL[name]), **more)


@names
def test_the_number_of_parameters_is_that_of_the_architecture(name: str) -> None:
    program: Any = workload(name).build(options(name))
    counted = sum(parameter.numel() for parameter in program.model.parameters() if parameter.requires_grad)
    assert counted == workload(name).parameters == PARAMETERS[name]


@names
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inference_gives_one_logit_a_class(name: str, dtype: str) -> None:
    logits = workload(name).build(options(name, mode="infer", dtype=dtype)).step()
    assert tuple(logits.shape) == (2, CLASSES[name])
    assert logits.dtype is getattr(torch, dtype)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("zero_grad", ["default", "zero", "foreach"])
def test_training_lowers_the_loss(zero_grad: str) -> None:
    program = workload("mnist_cnn").build(options("mnist_cnn", batch_size=8, zero_grad=zero_grad))
    losses = [float(program.step()) for _ in range(12)]
    assert losses[-1] < losses[0]


def test_the_three_ways_to_zero_gradients_train_alike() -> None:
    """They differ in cost, never in what is learned."""

    def trained(zero_grad: str) -> Any:
        program: Any = workload("mnist_cnn").build(options("mnist_cnn", zero_grad=zero_grad))
        for _ in range(3):
            program.step()
        return [parameter.detach().clone() for parameter in program.model.parameters()]

    reference = trained("default")
    for mode in ("zero", "foreach"):
        for mine, theirs in zip(trained(mode), reference, strict=True):
            torch.testing.assert_close(mine, theirs)


def recorded(step: Callable[[], Any]) -> list[str]:
    from torch.profiler import ProfilerActivity, profile

    step()  # gradients exist from the second step on
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    return [event.key for event in profiler.key_averages() for _ in range(event.count)]


def test_each_way_to_zero_gradients_shows_in_the_profile() -> None:
    found = {
        way: recorded(workload("mnist_cnn").build(options("mnist_cnn", zero_grad=way)).step)
        for way in ("default", "zero", "foreach")
    }
    ranges = {way: names.count("Optimizer.zero_grad#SGD.zero_grad") for way, names in found.items()}
    assert ranges == {"default": 1, "zero": 1, "foreach": 1}
    fills = {way: names.count("aten::zero_") for way, names in found.items()}
    assert fills["zero"] - fills["default"] == 8  # one for each parameter
    fused = {way: names.count("aten::_foreach_zero_") for way, names in found.items()}
    assert fused == {"default": 0, "zero": 0, "foreach": 1}


@names
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mode": "dream"}, "--mode"),
        ({"dtype": "int8"}, "--dtype"),
        ({"batch_size": 0}, "--batch-size"),
        ({"resolution": 1}, "--resolution"),
        ({"zero_grad": "never"}, "--zero-grad"),
    ],
)
def test_what_is_impossible_is_refused_with_what_is_possible(
    name: str, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnusableInputError, match=named):
        workload(name).validate(options(name, **change))


@names
def test_an_unknown_level_is_refused(name: str) -> None:
    with pytest.raises(UnusableInputError, match="eager"):
        workload(name).validate(options(name), level="warp")


def test_the_same_seed_gives_the_same_step() -> None:
    first, second, other = (
        float(workload("mnist_cnn").build(options("mnist_cnn", seed=seed)).step()) for seed in (1, 1, 2)
    )
    assert first == second != other
