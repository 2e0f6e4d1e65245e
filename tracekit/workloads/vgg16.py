"""VGG-16 on random images: few large kernels; most of its 138 million parameters are in one layer.

The layers and initialization are those of torchvision's `vgg16`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from tracekit.workloads.base import Options, Program
from tracekit.workloads.tasks import image_classifier, initialize_classifier

STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
"""Convolutions of each stage and their channels."""
HIDDEN = 4096
SMALL_HIDDEN = 32
"""Width of the linear layers, which hold 124 of the 138 million parameters, in size `test`."""
POOLED = 7


def build(options: Options) -> Program:
    """Build the program."""
    make = partial(VGG16Model, hidden=SMALL_HIDDEN) if options.size == "test" else VGG16Model
    return image_classifier(make, options)


class VGG16Model(nn.Module):
    """The network; its state dict fits torchvision's."""

    def __init__(self, channels: int = 3, classes: int = 1000, *, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.features = _features(channels)
        self.avgpool = nn.AdaptiveAvgPool2d(POOLED)
        self.classifier = nn.Sequential(
            nn.Linear(STAGES[-1][1] * POOLED * POOLED, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )
        self.apply(initialize_classifier)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of a batch of images."""
        pooled = torch.flatten(self.avgpool(self.features(x)), 1)
        logits: torch.Tensor = self.classifier(pooled)
        return logits


def _features(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for convolutions, outputs in STAGES:
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)
