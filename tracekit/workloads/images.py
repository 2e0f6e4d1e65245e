"""What the workloads on images share: random images of a data set's shape, sorted into its classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from tracekit.workloads.datasets import DATASET_SHAPES
from tracekit.workloads.program import Task, program, sgd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.workloads.base import Options, Program


def classifier(
    make: Callable[[int, int], torch.nn.Module],
    options: Options,
    *,
    channels: int = 3,
    classes: int = 1000,
    per_pixel: bool = False,
) -> Program:
    """Build the program of a classifier that learns by cross-entropy.

    Args:
        make: Makes the model from the number of channels and of classes, on the host in float32.
        options: How to build it; a data set's shape decides channels and classes in place of the next two.
        channels: Channels of an image.
        classes: Number of classes.
        per_pixel: Each pixel has a class of its own, as in segmentation.
    """
    if options.dataset_shape in DATASET_SHAPES:
        shape = DATASET_SHAPES[options.dataset_shape]
        channels, classes = shape.channels, shape.classes
    side, size = (options.resolution, options.resolution), options.batch_size

    def data(dtype: torch.dtype) -> tuple[tuple[torch.Tensor], tuple[torch.Tensor]]:
        images = torch.randn((size, channels, *side), dtype=dtype)
        return (images,), (torch.randint(classes, (size, *side) if per_pixel else (size,)),)

    return program(
        Task(model=lambda: make(channels, classes), data=data, loss=functional.cross_entropy, optimizer=sgd),
        options,
    )
