"""ResNet-18 on random images: small kernels, so launches weigh more than in ResNet-50."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload
from tracekit.workloads.checks import one_pixel
from tracekit.workloads.datasets import DATASET_SHAPES

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.images import classifier
    from tracekit.workloads.resnet18_model import ResNet18

    return classifier(ResNet18, options)


RESNET18 = Workload(
    name="resnet18",
    domain="vision",
    summary="ResNet-18 classifying random 3-channel images into 1000 classes",
    parameters=11_689_512,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 16, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 128, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=one_pixel("resnet18", side=32),
)
"""Its number of parameters is the one torchvision documents for `resnet18`."""
