"""ResNet-18 on random images: smaller kernels, so more launch-bound than ResNet-50."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DATASET_SHAPES, Workload
from tracekit.workloads.checks import batch_norm_check

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.resnet_model import ResNet18
    from tracekit.workloads.tasks import image_classifier

    return image_classifier(ResNet18, options)


RESNET18 = Workload(
    name="resnet18",
    domain="vision",
    summary="ResNet-18 classifying random 3-channel images into 1000 classes",
    parameters=11_689_512,
    defaults={"batch_size": 16, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 128, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=batch_norm_check("resnet18", side=32),
)
"""`parameters` is the number that torchvision documents for `resnet18`."""
