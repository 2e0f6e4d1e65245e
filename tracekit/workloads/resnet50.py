"""ResNet-50 on random images, the workload of most published GPU profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DATASET_SHAPES, Workload
from tracekit.workloads.checks import batch_norm_check

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.resnet_model import ResNet50
    from tracekit.workloads.tasks import image_classifier

    return image_classifier(ResNet50, options)


RESNET50 = Workload(
    name="resnet50",
    domain="vision",
    summary="ResNet-50 classifying random 3-channel images into 1000 classes",
    parameters=25_557_032,
    defaults={"batch_size": 8, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 64, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=batch_norm_check("resnet50", side=32),
)
"""`parameters` is the number that torchvision documents for `resnet50`."""
