"""Reformer (Kitaev et al. 2020) on random bytes, as first published and without the scalar it copies.

`reformer` multiplies by `torch.rsqrt(torch.tensor(64.0).to(device))`: six times a step, the host copies a
scalar from pageable memory to the device and waits for it. `reformer_fixed` multiplies by a Python number.

Sizes, and the 5,975,872 parameters, are those of transformers' `ReformerForMaskedLM(ReformerConfig())`: six
layers that alternate local and locality-sensitive-hashing attention in chunks, 12 heads of 64, axial position
embeddings, a vocabulary of 320. Layers have the two streams of reversible layers, but keep their activations
instead of recomputing them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Batch, Task, build_program
from tracekit.workloads.tasks import adamw, initialize_transformer, mask_tokens, token_loss

Scale: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
VOCABULARY = 320
WIDTH = 256
HEADS = 12
HEAD = 64
WIDE = 512
LAYERS = 6
CHUNK = 64
AXES = (64, 64)
AXIAL_WIDTHS = (64, 192)
DROPOUT = 0.05
_MASK = 3
_SELF = -1e4  # attention score that masks a token from itself; fits float16


def build(options: Options, *, copies: bool) -> Program:
    """Build the program; `copies` selects the scalar of the publication."""

    def data(_: torch.dtype) -> Batch:
        tokens, labels = mask_tokens(options.batch_size, options.resolution, VOCABULARY, mask=_MASK)
        return (tokens,), (labels,)

    model = partial(Reformer, copied_scale if copies else constant_scale)
    return build_program(Task(model=model, data=data, loss=token_loss, optimizer=adamw), options)


def copied_scale(x: torch.Tensor) -> torch.Tensor:
    """Divide by the square root of the head size, copied to the device in each call."""
    root = torch.rsqrt(torch.tensor(float(HEAD), dtype=x.dtype).to(x.device))
    return x * root


def constant_scale(x: torch.Tensor) -> torch.Tensor:
    """Divide by the square root of the head size, a Python number: nothing is copied."""
    return x * float(HEAD**-0.5)


def _split(x: torch.Tensor) -> torch.Tensor:
    """(batch, tokens, heads · head) to (batch, heads, tokens, head)."""
    return x.view(*x.shape[:2], HEADS, HEAD).transpose(1, 2)


def _chunks(x: torch.Tensor) -> torch.Tensor:
    """Split dimension 2, the tokens, into chunks of `CHUNK`."""
    return x.reshape(*x.shape[:2], -1, CHUNK, *x.shape[3:])


def _look_back(x: torch.Tensor) -> torch.Tensor:
    """Prepend to each chunk the previous one; (..., chunks, 2 · chunk, ...)."""
    return torch.cat([x.roll(1, dims=2), x], dim=3)


class LocalAttention(nn.Module):
    """Attention of a token to its own chunk and the previous one."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale = scale
        self.query = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.key = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.mixed = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend; (batch, tokens, width) in and out."""
        queries = _chunks(_split(self.query(x)))
        keys = _look_back(_chunks(self.scale(_split(self.key(x)))))
        values = _look_back(_chunks(_split(self.value(x))))
        weights = functional.softmax(queries @ keys.transpose(-1, -2), dim=-1)
        heads = (weights @ values).flatten(2, 3)
        return self.mixed(heads.transpose(1, 2).flatten(2))


class HashedAttention(nn.Module):
    """Attention within chunks of tokens sorted by the hash of their shared query-key vectors."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale = scale
        self.query_key = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.mixed = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend; (batch, tokens, width) in and out."""
        vectors, values = _split(self.query_key(x)), _split(self.value(x))
        order = self._buckets(vectors).argsort(dim=-1, stable=True)
        take = order.unsqueeze(-1).expand_as(vectors)
        queries = _chunks(vectors.gather(2, take))
        keys = _look_back(self.scale(self._unit(queries)))
        positions = _chunks(order)
        scores = queries @ keys.transpose(-1, -2)
        is_self = positions.unsqueeze(-1) == _look_back(positions).unsqueeze(-2)
        weights = functional.softmax(scores.masked_fill(is_self, _SELF), dim=-1)
        heads = (weights @ _look_back(_chunks(values.gather(2, take)))).flatten(2, 3)
        back = order.argsort(dim=-1).unsqueeze(-1).expand_as(heads)
        return self.mixed(heads.gather(2, back).transpose(1, 2).flatten(2))

    def _buckets(self, vectors: torch.Tensor) -> torch.Tensor:
        """Hash each token to the nearest of random directions and their opposites, two per chunk."""
        chunks = vectors.shape[2] // CHUNK
        directions = torch.randn(HEADS, HEAD, chunks, device=vectors.device, dtype=vectors.dtype)
        rotated = vectors.detach() @ directions
        return torch.cat([rotated, -rotated], dim=-1).argmax(dim=-1)

    def _unit(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors * torch.rsqrt(vectors.square().mean(dim=-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    """One reversible layer: attention updates the first stream, the feed-forward part the second."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.attention = attention
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.wide = nn.Linear(WIDTH, WIDE)
        self.narrow = nn.Linear(WIDE, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both streams after this layer."""
        first = first + self.dropout(self.attention(self.attention_norm(second)))
        wide = functional.relu(self.dropout(self.wide(self.norm(first))))
        return first, second + self.dropout(self.narrow(wide))


class Reformer(nn.Module):
    """Predict logits of each byte."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH)
        self.rows = nn.Parameter(torch.randn(AXES[0], 1, AXIAL_WIDTHS[0]))
        self.columns = nn.Parameter(torch.randn(1, AXES[1], AXIAL_WIDTHS[1]))
        kinds = [LocalAttention, HashedAttention] * (LAYERS // 2)
        self.layers = nn.ModuleList([Layer(kind(scale)) for kind in kinds])
        self.norm = nn.LayerNorm(2 * WIDTH, eps=1e-12)
        self.head = nn.Linear(2 * WIDTH, VOCABULARY)
        self.apply(initialize_transformer)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, tokens, vocabulary)."""
        first = second = self.word(tokens) + self._positions(tokens.shape[1])
        for layer in self.layers:
            first, second = layer(first, second)
        return self.head(self.norm(torch.cat([first, second], dim=-1)))

    def _positions(self, tokens: int) -> torch.Tensor:
        parts = [part.expand(*AXES, -1) for part in (self.rows, self.columns)]
        return torch.cat(parts, dim=-1).flatten(0, 1)[:tokens]
