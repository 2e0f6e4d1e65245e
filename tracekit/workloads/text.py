"""What the workloads on text share: random tokens, what to predict of them, and limits of their length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterable

MASKED_SHARE = 0.15
IGNORED = -100
"""Label of a token that is not predicted, as `cross_entropy` knows it."""


def following(batch: int, tokens: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens and the token behind each; both (batch, tokens)."""
    drawn = torch.randint(vocabulary, (batch, tokens + 1))
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def masked(batch: int, tokens: int, vocabulary: int, *, mask: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens, 15% of them but at least one masked, and labels of those; both (batch, tokens)."""
    drawn = torch.randint(vocabulary, (batch, tokens))
    count = max(1, round(MASKED_SHARE * tokens))
    places = torch.rand(batch, tokens).argsort(dim=1)[:, :count]
    labels = torch.full_like(drawn, IGNORED).scatter(1, places, drawn.gather(1, places))
    return drawn.scatter(1, places, mask), labels


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits (batch, tokens, vocabulary), averaged over the labelled of (batch, tokens)."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def adamw(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer language models train with; one kernel updates many parameters."""
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)
