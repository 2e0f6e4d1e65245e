"""Adapter for models of Hugging Face's transformers: tensors in, logits out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


class Logits(torch.nn.Module):
    """Call a model with its inputs by name and return its logits.

    Args:
        model: Model of transformers.
        inputs: Names of its inputs.
    """

    def __init__(self, model: Any, *, inputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.inputs = tuple(inputs)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the logits for tensors in the order of the names."""
        named = dict(zip(self.inputs, tensors, strict=True))
        logits: torch.Tensor = self.model(**named).logits
        return logits
