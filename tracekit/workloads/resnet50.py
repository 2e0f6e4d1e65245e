"""ResNet-50 on random images, the workload of most published GPU profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload
from tracekit.workloads.checks import one_pixel
from tracekit.workloads.datasets import DATASET_SHAPES

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.images import classifier
    from tracekit.workloads.resnet50_model import ResNet50

    return classifier(ResNet50, options)


RESNET50 = Workload(
    name="resnet50",
    domain="vision",
    summary="ResNet-50 classifying random 3-channel images into 1000 classes",
    parameters=25_557_032,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 8, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 64, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=one_pixel("resnet50", side=32),
)
"""Its number of parameters is the one torchvision documents for `resnet50`."""
