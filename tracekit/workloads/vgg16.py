"""VGG-16 on random images: few large kernels; most of its 138 million parameters are in one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import Workload

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from functools import partial

    from tracekit.workloads.tasks import image_classifier
    from tracekit.workloads.vgg16_model import SMALL_HIDDEN, VGG16Model

    make = partial(VGG16Model, hidden=SMALL_HIDDEN) if options.size == "test" else VGG16Model
    return image_classifier(make, options)


VGG16 = Workload(
    name="vgg16",
    domain="vision",
    summary="VGG-16 classifying random 3-channel images into 1000 classes; narrow linear layers in size test",
    parameters=138_357_544,
    defaults={"batch_size": 4, "resolution": 224},
    sizes={"test": {"batch_size": 1, "resolution": 32}, "gpu": {"batch_size": 64, "resolution": 224}},
    dataset_shapes=("cifar10", "stl10", "pascal"),
    smallest_resolution=32,
    build=_build,
)
"""`parameters` is the number that torchvision documents for `vgg16`."""
