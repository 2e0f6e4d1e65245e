"""MobileNetV2 on random images: depthwise convolutions, which move much memory for little arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload
from tracekit.workloads.checks import one_pixel
from tracekit.workloads.datasets import DATASET_SHAPES

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.images import classifier
    from tracekit.workloads.mobilenet_v2_model import MobileNetV2

    return classifier(MobileNetV2, options)


MOBILENET_V2 = Workload(
    name="mobilenet_v2",
    domain="vision",
    summary="MobileNetV2 classifying random 3-channel images into 1000 classes",
    parameters=3_504_872,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 16, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 96, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=one_pixel("mobilenet_v2", side=32),
)
"""Its number of parameters is the one torchvision documents for `mobilenet_v2`."""
