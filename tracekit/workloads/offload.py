"""Parameters or activations that lie in host memory between uses: copies there and back in each step."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class Offload:
    """What moves in a step; without a GPU the same copies go from host memory to host memory.

    Attributes:
        what: One of `tracekit.workloads.base.OFFLOADS`.
        device: Where the model computes.
        pinned: Keep activations in page-locked memory; parameters always return to pageable memory.
    """

    what: str
    device: torch.device
    pinned: bool = False

    def parameters(self, model: torch.nn.Module) -> AbstractContextManager[None]:
        """Around the uses of the parameters: bring them to the device, then return them to the host."""
        return _visiting(model, self.device) if self.what == "parameters" else nullcontext()

    def activations(self) -> AbstractContextManager[Any]:
        """Around the forward pass: what it keeps for the backward pass waits in host memory."""
        if self.what != "activations":
            return nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self.pinned)


def offload(what: str, device: torch.device, *, pinned: bool) -> Offload:
    """The moves that an option asks for."""
    return Offload(what=what, device=device, pinned=pinned)


@contextmanager
def _visiting(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    _move(model, device)
    try:
        yield
    finally:
        _move(model, torch.device("cpu"))


def _move(model: torch.nn.Module, device: torch.device) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device, copy=True)
