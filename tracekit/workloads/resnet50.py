"""ResNet-50 on random images, the workload of most published GPU profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.workloads.base import DTYPES, MODES, Workload
from tracekit.workloads.datasets import DATASET_SHAPES

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program

_ONE_PIXEL = 32
"""Up to this resolution the last stage sees one pixel, and batch normalization cannot train on one value."""


def _build(options: Options) -> Program:
    from tracekit.workloads.images import classifier
    from tracekit.workloads.resnet50_model import ResNet50

    return classifier(ResNet50, options, channels=3, classes=1000)


def _check(options: Options) -> None:
    if options.mode == "train" and options.batch_size == 1 and options.resolution <= _ONE_PIXEL:
        raise UnusableInputError(
            f"resnet50 cannot train on one image of {options.resolution} pixels: "
            "its batch normalization would see one value per channel",
            hint=f"use --batch-size 2 or --resolution {_ONE_PIXEL + 1} or more",
        )


RESNET50 = Workload(
    name="resnet50",
    domain="vision",
    summary="ResNet-50 classifying random 3-channel images into 1000 classes",
    parameters=25_557_032,
    modes=MODES,
    levels=("eager",),
    dtypes=DTYPES,
    defaults={"batch_size": 8, "resolution": 224},
    sizes={"test": {"batch_size": 2, "resolution": 64}, "gpu": {"batch_size": 64, "resolution": 224}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=8,
    build=_build,
    check=_check,
)
