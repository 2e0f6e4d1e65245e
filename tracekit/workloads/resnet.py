"""ResNet-18 and ResNet-50 on random images; ResNet-50 is the workload of most published GPU profiles.

The layers, strides and initialization are those of torchvision. ResNet-18 has smaller kernels, so it is more
launch-bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from tracekit.workloads.base import Options, Program
from tracekit.workloads.tasks import image_classifier

WIDTHS = (64, 128, 256, 512)
EXPANSION = 4
"""Output channels of a bottleneck over its width."""


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut; the first carries the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _downsample(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve and add the shortcut."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += shortcut
        activated: torch.Tensor = self.relu(out)
        return activated


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with a shortcut; the 3×3 carries the stride (ResNet v1.5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve and add the shortcut."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += shortcut
        activated: torch.Tensor = self.relu(out)
        return activated


class ResNet(nn.Module):
    """A residual network; its state dict fits torchvision's.

    Args:
        block: Makes a block from input channels, width and stride.
        blocks: Number of blocks of each stage.
        expansion: Output channels of a block over its width.
        channels: Channels of an image.
        classes: Number of classes.
    """

    layer1: nn.Module
    layer2: nn.Module
    layer3: nn.Module
    layer4: nn.Module

    def __init__(
        self,
        block: Callable[[int, int, int], nn.Module],
        blocks: tuple[int, ...],
        expansion: int,
        channels: int = 3,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, WIDTHS[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = WIDTHS[0]
        for stage, (width, count) in enumerate(zip(WIDTHS, blocks, strict=True), start=1):
            outputs = width * expansion
            first = block(inputs, width, 1 if stage == 1 else 2)
            rest = [block(outputs, width, 1) for _ in range(count - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(first, *rest))
            inputs = outputs
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        self.apply(_initialize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of a batch of images."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


_MODELS = {
    18: partial(ResNet, BasicBlock, (2, 2, 2, 2), 1),
    50: partial(ResNet, Bottleneck, (3, 4, 6, 3), EXPANSION),
}


def build(options: Options, *, depth: int) -> Program:
    """Build the program of the network of 18 or 50 layers."""
    return image_classifier(_MODELS[depth], options)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
