"""Parameters or activations that lie in host memory between uses: copies there and back in each step."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

Kept: TypeAlias = "tuple[torch.device, torch.Tensor]"
"""Where a tensor was, and its copy on the host."""
HOST = torch.device("cpu")


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
        """Around the forward pass: what it keeps for the backward pass, parameters too, waits on the host."""
        if self.what != "activations":
            return nullcontext()
        hooks: Any = torch.autograd.graph.saved_tensors_hooks
        kept: AbstractContextManager[Any] = hooks(self._leave, self._return)
        return kept

    def _leave(self, tensor: torch.Tensor) -> Kept:
        host = torch.empty_like(tensor, device=HOST, pin_memory=self.pinned)
        return tensor.device, host.copy_(tensor)

    def _return(self, kept: Kept) -> torch.Tensor:
        device, host = kept
        # torch's caching host allocator keeps a pinned block until the copy has read it
        return host.to(device, non_blocking=self.pinned, copy=True)


@contextmanager
def _visiting(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    _move(model, device)
    try:
        yield
    finally:
        _move(model, HOST)


def _move(model: torch.nn.Module, device: torch.device) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device, copy=True)
