from __future__ import annotations

from typing import Any

import pytest

from tests.unit.workloads.building import BUILT_INS, built
from tracekit.errors import UnusableInputError
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request
from tracekit.workloads.base import DATASET_SHAPES

torch = pytest.importorskip("torch")

STUDY = {
    "mnist": (128, 1, 28, 10),
    "cifar10": (128, 3, 32, 10),
    "stl10": (128, 3, 96, 10),
    "pascal": (16, 3, 224, 20),
}


def decided(**asked: Any) -> tuple[int | None, int | None]:
    request = decide(Request(**asked))
    return request.batch_size, request.resolution


@pytest.mark.parametrize("shape", STUDY)
def test_a_data_set_has_the_sizes_of_the_study(shape: str) -> None:
    batch, channels, side, classes = STUDY[shape]
    assert decided(workload="resnet50", dataset_shape=shape) == (batch, side)
    assert (DATASET_SHAPES[shape].channels, DATASET_SHAPES[shape].classes) == (channels, classes)


def test_options_precede_the_data_set_which_precedes_the_size() -> None:
    assert decided(workload="resnet50", dataset_shape="stl10", size="test") == (128, 96)
    assert decided(workload="resnet50", dataset_shape="pascal", size="test") == (16, 64)
    assert decided(workload="resnet50", dataset_shape="stl10", batch_size=2, resolution=40) == (2, 40)
    assert decided(workload="resnet50", size="test") == (2, 64)


@pytest.mark.slow_except("mobilenet_v2")
@pytest.mark.parametrize("name", [name for name, one in BUILT_INS.items() if one.dataset_shapes])
def test_images_and_logits_have_the_shape_of_the_data_set(name: str) -> None:
    workload = BUILT_INS[name]
    for shape in workload.dataset_shapes:
        program = built(workload, mode="infer", dataset_shape=shape, batch_size=1, resolution=32)
        (drawn,), _ = program.batches.next()
        assert drawn.shape == (1, DATASET_SHAPES[shape].channels, 32, 32)
        assert program.step().shape[:2] == (1, DATASET_SHAPES[shape].classes)


@pytest.mark.parametrize(
    ("workload", "shape", "said"),
    [
        ("resnet50", "imagenet", "resnet50 has no dataset-shape 'imagenet' (use --dataset-shape mnist or"),
        (
            "lennard_jones",
            "mnist",
            "does not apply to lennard_jones, which has no images (remove --dataset-shape)",
        ),
        ("vgg16", "mnist", "vgg16 has no dataset-shape 'mnist' (use --dataset-shape cifar10 or"),
    ],
)
def test_an_unsupported_shape_is_refused(workload: str, shape: str, said: str) -> None:
    with pytest.raises(UnusableInputError) as refused:
        decide(Request(workload=workload, dataset_shape=shape))
    assert said in str(refused.value)


def test_an_unknown_size_lists_the_known_ones() -> None:
    with pytest.raises(UnusableInputError, match="use --size default or test or gpu"):
        decide(Request(workload="resnet50", size="huge"))
