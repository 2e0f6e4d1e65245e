"""U-Net on random images: large activations at full resolution, and a class for each pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload
from tracekit.workloads.checks import one_pixel
from tracekit.workloads.datasets import DATASET_SHAPES

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from functools import partial

    from tracekit.workloads.images import classifier
    from tracekit.workloads.unet_model import SMALL_WIDTH, UNet

    make = partial(UNet, width=SMALL_WIDTH) if options.size == "test" else UNet
    return classifier(make, options, classes=2, per_pixel=True)


UNET = Workload(
    name="unet",
    domain="vision",
    summary="U-Net giving each pixel of random 3-channel images one of 2 classes; narrower in size test",
    parameters=31_037_698,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 1, "resolution": 256},
    sizes={"test": {"batch_size": 1, "resolution": 64}, "gpu": {"batch_size": 8, "resolution": 512}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=16,
    build=_build,
    check=one_pixel("unet", side=31),
)
"""Its number of parameters is 31,037,633, published for this network with one class, and 65 for one more."""
