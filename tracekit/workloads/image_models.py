"""Networks on random images: MNIST's, VGG-16, MobileNetV2, ResNet-18 and ResNet-50, and U-Net.

The layers, strides and initialization of all but the first and the last are those of torchvision, whose state
dicts fit. ResNet-50 is the workload of most published GPU profiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.tasks import image_classifier


def mnist_cnn(options: Options) -> Program:
    """Build the small, launch-bound network for 28×28 digits of PyTorch's own examples."""
    return image_classifier(partial(_mnist_cnn, options.resolution), options, channels=1, classes=10)


def _mnist_cnn(resolution: int, channels: int, classes: int) -> nn.Module:
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


def _initialize_classifier(module: nn.Module) -> None:
    """Draw the weights of a layer as torchvision does in its older classifiers."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


VGG_STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
"""Convolutions of each stage and their channels."""
VGG_HIDDEN = 4096
VGG_SMALL_HIDDEN = 32
"""Width of the linear layers, which hold 124 of the 138 million parameters, in size `test`."""
VGG_POOLED = 7


def vgg16(options: Options) -> Program:
    """Build VGG-16: few large kernels; most of its 138 million parameters are in one layer."""
    make = partial(VGG16Model, hidden=VGG_SMALL_HIDDEN) if options.size == "test" else VGG16Model
    return image_classifier(make, options)


class VGG16Model(nn.Module):
    """The network; its state dict fits torchvision's."""

    def __init__(self, channels: int = 3, classes: int = 1000, *, hidden: int = VGG_HIDDEN) -> None:
        super().__init__()
        self.features = _vgg_features(channels)
        self.avgpool = nn.AdaptiveAvgPool2d(VGG_POOLED)
        self.classifier = nn.Sequential(
            nn.Linear(VGG_STAGES[-1][1] * VGG_POOLED * VGG_POOLED, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )
        self.apply(_initialize_classifier)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of a batch of images."""
        pooled = torch.flatten(self.avgpool(self.features(x)), 1)
        return self.classifier(pooled)


def _vgg_features(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for convolutions, outputs in VGG_STAGES:
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, number of blocks, and stride of the first block of each stage."""
MOBILENET_FIRST, MOBILENET_LAST = 32, 1280


def mobilenet_v2(options: Options) -> Program:
    """Build MobileNetV2: memory-bound depthwise convolutions."""
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
        out = self.conv(x)
        return x + out if self.shortcut else out


class MobileNetV2(nn.Module):
    """The network; its state dict fits torchvision's."""

    def __init__(self, channels: int = 3, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(channels, MOBILENET_FIRST, 3, stride=2)]
        inputs = MOBILENET_FIRST
        for widen, outputs, blocks, first in MOBILENET_STAGES:
            for number in range(blocks):
                stride = first if number == 0 else 1
                layers.append(InvertedResidual(inputs, outputs, stride, widen=widen))
                inputs = outputs
        self.features = nn.Sequential(*layers, _convolution(inputs, MOBILENET_LAST, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(MOBILENET_LAST, classes))
        self.apply(_initialize_classifier)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of a batch of images."""
        pooled = torch.flatten(self.avgpool(self.features(x)), 1)
        return self.classifier(pooled)


def _convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


RESNET_WIDTHS = (64, 128, 256, 512)
RESNET_EXPANSION = 4
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
        return self.relu(out)


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with a shortcut; the 3×3 carries the stride (ResNet v1.5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * RESNET_EXPANSION
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
        return self.relu(out)


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
        self.conv1 = nn.Conv2d(channels, RESNET_WIDTHS[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(RESNET_WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = RESNET_WIDTHS[0]
        for stage, (width, count) in enumerate(zip(RESNET_WIDTHS, blocks, strict=True), start=1):
            outputs = width * expansion
            first = block(inputs, width, 1 if stage == 1 else 2)
            rest = [block(outputs, width, 1) for _ in range(count - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(first, *rest))
            inputs = outputs
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        self.apply(_initialize_resnet)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of a batch of images."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


_RESNETS = {
    18: partial(ResNet, BasicBlock, (2, 2, 2, 2), 1),
    50: partial(ResNet, Bottleneck, (3, 4, 6, 3), RESNET_EXPANSION),
}


def resnet(options: Options, *, depth: int) -> Program:
    """Build the network of 18 or 50 layers; the smaller kernels of 18 are more launch-bound."""
    return image_classifier(_RESNETS[depth], options)


def _initialize_resnet(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


UNET_WIDTH = 64
UNET_SMALL_WIDTH = 8
"""Channels of the first level in size `test`."""
UNET_DEPTH = 4


def unet(options: Options) -> Program:
    """Build U-Net (arXiv 1505.04597) that segments images: large activations at full resolution."""
    make = partial(UNet, width=UNET_SMALL_WIDTH) if options.size == "test" else UNet
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
        return self.conv(torch.cat([skipped, x], dim=1))


class UNet(nn.Module):
    """Four levels down, four up, with skips between.

    As in `Pytorch-UNet` with transposed convolutions; unlike the paper, convolutions are padded so that the
    output is as large as the input, and use batch normalization.
    """

    def __init__(self, channels: int = 3, classes: int = 2, *, width: int = UNET_WIDTH) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(UNET_DEPTH + 1)]
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
        return self.outc(x)


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)
