"""Properties of all built-in workloads: parameters, training, and the effect of options."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.unit.workloads.building import BUILT_INS, SMALL, built, losses
from tracekit.workloads.base import DOMAINS, Options, Workload

torch = pytest.importorskip("torch")

PUBLISHED = {
    "bert": 109_482_240,
    "dlrm": 13_924_673,
    "gpt": 124_439_808,
    "lennard_jones": 865,
    "mnist_cnn": 1_199_882,
    "mobilenet_v2": 3_504_872,
    "reformer": 5_975_872,
    "reformer_fixed": 5_975_872,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "sac": 201_989,
    "speech_transformer": 18_904_456,
    "tts": 28_193_153,
    "unet": 31_037_698,
    "vgg16": 138_357_544,
}
SHAPES = {
    "mnist_cnn": (16, 10),
    "mobilenet_v2": (2, 1000),
    "resnet18": (2, 1000),
    "resnet50": (2, 1000),
    "unet": (1, 2, 64, 64),
    "vgg16": (1, 1000),
}
STEPS = {"sac": 60}
"""Steps until the loss falls, if more than 8."""
STATES = {
    "mobilenet_v2": (314, {"features.1.conv.0.0.weight", "features.18.1.running_var", "classifier.1.bias"}),
    "resnet18": (
        122,
        {"conv1.weight", "layer2.0.downsample.1.running_var", "layer4.1.bn2.bias", "fc.weight"},
    ),
    "resnet50": (
        320,
        {"conv1.weight", "layer1.0.downsample.1.running_var", "layer4.2.bn3.bias", "fc.weight"},
    ),
    "vgg16": (32, {"features.0.weight", "features.28.bias", "classifier.0.weight", "classifier.6.bias"}),
}
all_workloads = pytest.mark.parametrize("workload", BUILT_INS.values(), ids=BUILT_INS)
small_first = pytest.mark.parametrize(
    "workload",
    [
        pytest.param(one, id=name, marks=() if name in SMALL else pytest.mark.slow)
        for name, one in BUILT_INS.items()
    ],
)
images = pytest.mark.parametrize("name", SHAPES)


def reference(workload: Workload) -> Any:
    """Build a model in its default size on the meta device."""
    options = Options(mode="infer", device="meta", **workload.defaults)
    with torch.device("meta"):
        program: Any = workload.build(options)
    return program.model


@cache
def learned(name: str) -> list[float]:
    """Return the losses of the first training steps."""
    return losses(BUILT_INS[name], STEPS.get(name, 8))


@all_workloads
def test_the_number_of_parameters_is_the_published_one(workload: Workload) -> None:
    counted = sum(parameter.numel() for parameter in reference(workload).parameters())
    assert counted == workload.parameters == PUBLISHED[workload.name]


@pytest.mark.parametrize("name", STATES)
def test_the_state_dict_has_the_names_of_torchvision(name: str) -> None:
    length, some = STATES[name]
    state = reference(BUILT_INS[name]).state_dict()
    assert len(state) == length
    assert some < set(state)


@all_workloads
def test_workloads_have_a_domain_and_sizes(workload: Workload) -> None:
    assert workload.domain in DOMAINS
    assert {"test", "gpu"} <= set(workload.sizes)
    assert all(set(size) == {"batch_size", "resolution"} for size in workload.sizes.values())


@pytest.mark.slow_except("mnist_cnn", "mobilenet_v2", "unet")
@images
def test_inference_gives_logits(name: str) -> None:
    logits = built(BUILT_INS[name], mode="infer").step()
    assert logits.shape == SHAPES[name]
    assert not logits.requires_grad


@small_first
def test_the_loss_falls_on_one_batch(workload: Workload) -> None:
    found = learned(workload.name)
    assert sum(found[-3:]) < sum(found[:3])


@small_first
def test_the_seed_determines_parameters_and_data(workload: Workload) -> None:
    default = Options(mode="train", device="cpu", **workload.sizes["test"]).seed
    again, other = (losses(workload, 2, seed=seed) for seed in (default, default + 1))
    assert learned(workload.name)[:2] == again
    assert other != again


@small_first
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_dtypes_reach_parameters_and_loss(workload: Workload, dtype: str) -> None:
    program = built(workload, dtype=dtype)
    loss = program.step()
    assert torch.isfinite(loss)
    assert loss.dtype == getattr(torch, dtype)
    assert {parameter.dtype for parameter in program.model.parameters()} == {getattr(torch, dtype)}


@small_first
def test_the_smallest_resolution_trains(workload: Workload) -> None:
    assert torch.isfinite(built(workload, batch_size=2, resolution=workload.smallest_resolution).step())
