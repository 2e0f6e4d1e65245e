"""Small, launch-bound convolutional network for 28×28 digits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import DATASET_SHAPES, Workload

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Options, Program


def _model(resolution: int, channels: int, classes: int) -> torch.nn.Module:
    from torch import nn

    side = (resolution - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * side * side, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def _build(options: Options) -> Program:
    from tracekit.workloads.tasks import image_classifier

    return image_classifier(partial(_model, options.resolution), options, channels=1, classes=10)


MNIST_CNN = Workload(
    name="mnist_cnn",
    domain="vision",
    summary="Two convolutions and two linear layers classifying random 1-channel images into 10 classes",
    parameters=1_199_882,
    defaults={"batch_size": 64, "resolution": 28},
    sizes={"test": {"batch_size": 16, "resolution": 28}, "gpu": {"batch_size": 1024, "resolution": 28}},
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=6,
    build=_build,
)
"""`parameters` is the number of the MNIST network in PyTorch's own examples."""
