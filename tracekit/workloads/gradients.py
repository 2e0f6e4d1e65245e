"""The three ways to clear gradients that published profiles compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Callable

    Clear = Callable[[torch.optim.Optimizer], None]


def zeroing(name: str) -> Clear:
    """How to clear the gradients of an optimizer.

    Args:
        name: One of `tracekit.workloads.base.ZERO_GRADS`.
    """
    return _ZERO_GRADS[name]


def _drop(optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()


def _zero_each(optimizer: torch.optim.Optimizer) -> None:
    with record_function(_range(optimizer)):
        for gradient in _gradients(optimizer):
            gradient.zero_()


def _zero_together(optimizer: torch.optim.Optimizer) -> None:
    with record_function(_range(optimizer)):
        if gradients := _gradients(optimizer):
            torch._foreach_zero_(gradients)


def _range(optimizer: torch.optim.Optimizer) -> str:
    """The name torch gives this range itself, so that every reader of the trace knows it."""
    return f"Optimizer.zero_grad#{type(optimizer).__name__}.zero_grad"


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


_ZERO_GRADS = {"default": _drop, "zero": _zero_each, "foreach": _zero_together}
