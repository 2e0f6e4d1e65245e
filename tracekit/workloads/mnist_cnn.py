"""Small, launch-bound convolutional network for 28×28 digits, as in PyTorch's own examples."""

from __future__ import annotations

from functools import partial

from torch import nn

from tracekit.workloads.base import Options, Program
from tracekit.workloads.tasks import image_classifier


def build(options: Options) -> Program:
    """Build the program."""
    return image_classifier(partial(_model, options.resolution), options, channels=1, classes=10)


def _model(resolution: int, channels: int, classes: int) -> nn.Module:
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
