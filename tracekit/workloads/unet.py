"""U-Net (arXiv 1505.04597) segmenting random images: large activations at full resolution.

As in `Pytorch-UNet` with transposed convolutions; unlike the paper, convolutions are padded so that the
output is as large as the input, and use batch normalization.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.tasks import image_classifier

WIDTH = 64
SMALL_WIDTH = 8
"""Channels of the first level in size `test`."""
DEPTH = 4


def build(options: Options) -> Program:
    """Build the program."""
    make = partial(UNet, width=SMALL_WIDTH) if options.size == "test" else UNet
    return image_classifier(make, options, classes=2, per_pixel=True)


class Up(nn.Module):
    """Upsample by 2, concatenate the skip connection, convolve."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        outputs = inputs // 2
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.conv = _double(inputs, outputs)

    def forward(self, x: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
        """Upsample `x` to the size of `skipped`, padded if that is odd."""
        x = self.up(x)
        rows, columns = skipped.shape[-2] - x.shape[-2], skipped.shape[-1] - x.shape[-1]
        x = functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        convolved: torch.Tensor = self.conv(torch.cat([skipped, x], dim=1))
        return convolved


class UNet(nn.Module):
    """Four levels down, four up, with skips between."""

    def __init__(self, channels: int = 3, classes: int = 2, *, width: int = WIDTH) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(DEPTH + 1)]
        self.inc = _double(channels, width)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _double(inputs, inputs * 2)) for inputs in widths[:-1]
        )
        self.up = nn.ModuleList(Up(inputs) for inputs in reversed(widths[1:]))
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of each class for each pixel: (batch, classes, height, width)."""
        x = self.inc(x)
        skipped = []
        for down in self.down:
            skipped.append(x)
            x = down(x)
        for up, level in zip(self.up, reversed(skipped), strict=True):
            x = up(x, level)
        logits: torch.Tensor = self.outc(x)
        return logits


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for given in (inputs, outputs):
        layers += [
            nn.Conv2d(given, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)
