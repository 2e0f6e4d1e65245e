"""Random data in host memory, drawn and copied to the device in each step as a loader would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.profiler import record_function

LOAD_RANGE = "enumerate(DataLoader)#HostBatches.__next__"
"""A name torch gives such ranges itself, so that every reader of the trace knows it."""

Batch: TypeAlias = tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class HostBatches:
    """One batch in host memory, drawn in a new order each step.

    Attributes:
        inputs: What the model is called with; the first dimension of each counts the samples.
        targets: What the loss compares with.
        pinned: Draw into page-locked memory.
    """

    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    pinned: bool = False

    def draw(self) -> Batch:
        """The next batch, in page-locked memory when asked for."""
        with record_function(LOAD_RANGE):
            order = torch.randperm(len(self.inputs[0]))
            return self._taken(self.inputs, order), self._taken(self.targets, order)

    def _taken(self, tensors: tuple[torch.Tensor, ...], order: torch.Tensor) -> tuple[torch.Tensor, ...]:
        drawn = (tensor[order] for tensor in tensors)
        # torch's caching host allocator keeps a pinned block until the copy has read it
        return tuple(tensor.pin_memory() if self.pinned else tensor for tensor in drawn)


@dataclass(frozen=True)
class Batches:
    """Host batches moved to the device of the model."""

    source: HostBatches
    device: torch.device

    def next(self) -> Batch:
        """The next batch on the device; with pinned memory the host does not wait for the copy."""
        inputs, targets = self.source.draw()
        return self._moved(inputs), self._moved(targets)

    def example(self) -> tuple[torch.Tensor, ...]:
        """Inputs of the model as `next` gives them, on the device; draws no random number."""
        return tuple(tensor.to(self.device) for tensor in self.source.inputs)

    def _moved(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.to(self.device, non_blocking=self.source.pinned) for tensor in tensors)
