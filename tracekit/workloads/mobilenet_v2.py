"""MobileNetV2 on random images: memory-bound depthwise convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DATASET_SHAPES, Workload
from tracekit.workloads.checks import batch_norm_check

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.mobilenet_v2_model import MobileNetV2
    from tracekit.workloads.tasks import image_classifier

    return image_classifier(MobileNetV2, options)


MOBILENET_V2 = Workload(
    name="mobilenet_v2",
    domain="vision",
    summary="MobileNetV2 classifying random 3-channel images into 1000 classes",
    parameters=3_504_872,
    defaults={"batch_size": 16, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 96, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=batch_norm_check("mobilenet_v2", side=32),
)
"""`parameters` is the number that torchvision documents for `mobilenet_v2`."""
