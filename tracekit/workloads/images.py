"""Steps of an image classifier on random data: what the built-in vision workloads share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.workloads.base import Options, Program

LEARNING_RATE = 1e-3
MOMENTUM = 0.9
LOAD_RANGE = "enumerate(DataLoader)#HostImages.__next__"
ZERO_GRAD_RANGE = "Optimizer.zero_grad#SGD.zero_grad"
"""The names torch gives these ranges itself, so that every reader of the trace knows them."""


@dataclass(frozen=True)
class HostImages:
    """Random images and labels in host memory, drawn in a new order each step as a loader would."""

    images: torch.Tensor
    labels: torch.Tensor
    pinned: bool

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next batch, in page-locked memory when asked for."""
        with record_function(LOAD_RANGE):
            order = torch.randperm(len(self.labels))
            images, labels = self.images[order], self.labels[order]
            if self.pinned:
                # torch's caching host allocator keeps the block until the copy has read it
                return images.pin_memory(), labels.pin_memory()
            return images, labels


@dataclass(frozen=True)
class Batches:
    """Host batches moved to the device of the model."""

    source: HostImages
    device: torch.device

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next batch on the device; with pinned memory the host does not wait for the copy."""
        images, labels = self.source.draw()
        pinned = self.source.pinned
        return images.to(self.device, non_blocking=pinned), labels.to(self.device, non_blocking=pinned)


@dataclass(frozen=True)
class Training:
    """One step: load, copy, zero the gradients, forward, backward, optimizer."""

    model: torch.nn.Module
    batches: Batches
    optimizer: torch.optim.Optimizer
    zero_grad: Callable[[torch.optim.Optimizer], None]

    def step(self) -> torch.Tensor:
        """Run one training step; returns the loss."""
        images, labels = self.batches.next()
        self.zero_grad(self.optimizer)
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.optimizer.step()
        return loss.detach()


@dataclass(frozen=True)
class Inference:
    """One step: load, copy, forward."""

    model: torch.nn.Module
    batches: Batches

    def step(self) -> torch.Tensor:
        """Run one inference step; returns the logits."""
        with torch.inference_mode():
            images, _ = self.batches.next()
            logits: torch.Tensor = self.model(images)
            return logits


def classifier(
    make: Callable[[], torch.nn.Module], options: Options, *, channels: int, classes: int
) -> Program:
    """Build the program of a classifier.

    Args:
        make: Makes the model, on the host in float32.
        options: How to build it.
        channels: Channels of an image.
        classes: Number of classes.
    """
    torch.manual_seed(options.seed)
    dtype: torch.dtype = getattr(torch, options.dtype)
    device = torch.device(options.device)
    model = make().to(device=device, dtype=dtype)
    shape = (options.batch_size, channels, options.resolution, options.resolution)
    source = HostImages(
        images=torch.randn(shape, dtype=dtype),
        labels=torch.randint(classes, (options.batch_size,)),
        pinned=options.pin_memory,
    )
    batches = Batches(source, device)
    if options.mode == "infer":
        return Inference(model.eval(), batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return Training(model.train(), batches, optimizer, _ZERO_GRADS[options.zero_grad])


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def _drop(optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()


def _zero_each(optimizer: torch.optim.Optimizer) -> None:
    with record_function(ZERO_GRAD_RANGE):
        for gradient in _gradients(optimizer):
            gradient.zero_()


def _zero_together(optimizer: torch.optim.Optimizer) -> None:
    with record_function(ZERO_GRAD_RANGE):
        if gradients := _gradients(optimizer):
            torch._foreach_zero_(gradients)


_ZERO_GRADS = {"default": _drop, "zero": _zero_each, "foreach": _zero_together}
