"""MobileNetV2 on random images: memory-bound depthwise convolutions.

The layers, strides and initialization are those of torchvision's `mobilenet_v2`.
"""

from __future__ import annotations

import torch
from torch import nn

from tracekit.workloads.base import Options, Program
from tracekit.workloads.tasks import image_classifier, initialize_classifier

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, number of blocks, and stride of the first block of each stage."""
FIRST, LAST = 32, 1280


def build(options: Options) -> Program:
    """Build the program."""
    return image_classifier(MobileNetV2, options)


class InvertedResidual(nn.Module):
    """1×1 expansion, 3×3 depthwise and 1×1 projection, with a shortcut if shapes match."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, widen: int) -> None:
        super().__init__()
        width = inputs * widen
        expansion = [_convolution(inputs, width, 1)] if widen != 1 else []
        self.shortcut = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *expansion,
            _convolution(width, width, 3, stride=stride, groups=width),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve and, if shapes match, add the shortcut."""
        out: torch.Tensor = self.conv(x)
        return x + out if self.shortcut else out


class MobileNetV2(nn.Module):
    """The network; its state dict fits torchvision's."""

    def __init__(self, channels: int = 3, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(channels, FIRST, 3, stride=2)]
        inputs = FIRST
        for widen, outputs, blocks, first in STAGES:
            for number in range(blocks):
                stride = first if number == 0 else 1
                layers.append(InvertedResidual(inputs, outputs, stride, widen=widen))
                inputs = outputs
        self.features = nn.Sequential(*layers, _convolution(inputs, LAST, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(LAST, classes))
        self.apply(initialize_classifier)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of a batch of images."""
        pooled = torch.flatten(self.avgpool(self.features(x)), 1)
        logits: torch.Tensor = self.classifier(pooled)
        return logits


def _convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )
