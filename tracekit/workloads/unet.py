"""U-Net segmenting random images: large activations at full resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DATASET_SHAPES, Workload
from tracekit.workloads.checks import batch_norm_check

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from functools import partial

    from tracekit.workloads.tasks import image_classifier
    from tracekit.workloads.unet_model import SMALL_WIDTH, UNet

    make = partial(UNet, width=SMALL_WIDTH) if options.size == "test" else UNet
    return image_classifier(make, options, classes=2, per_pixel=True)


UNET = Workload(
    name="unet",
    domain="vision",
    summary="U-Net giving each pixel of random 3-channel images one of 2 classes; narrower in size test",
    parameters=31_037_698,
    defaults={"batch_size": 1, "resolution": 256},
    sizes={"test": {"batch_size": 1, "resolution": 64}, "gpu": {"batch_size": 8, "resolution": 512}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=16,
    build=_build,
    check=batch_norm_check("unet", side=31),
)
"""`parameters` is 31,037,633, published for one class, plus 65 for the second."""
