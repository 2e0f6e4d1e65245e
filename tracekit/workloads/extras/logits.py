"""A model of transformers, called with tensors and answering with one, as steps and losses take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


class Logits(torch.nn.Module):
    """Calls a model with its inputs by name and takes the logits of what it returns.

    Args:
        model: Of transformers.
        inputs: Names of the tensors it is called with.
    """

    def __init__(self, model: Any, *, inputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.inputs = tuple(inputs)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Logits of the tensors, in the order of the names."""
        named = dict(zip(self.inputs, tensors, strict=True))
        logits: torch.Tensor = self.model(**named).logits
        return logits
