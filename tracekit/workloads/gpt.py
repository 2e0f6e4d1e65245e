"""GPT-2 (Radford et al. 2019) predicting the next of random tokens.

The 124,439,808 parameters are those of transformers' `GPT2LMHeadModel(GPT2Config())`, whose head shares the
weight of the token embedding. There is no dropout, as in later GPT trainings.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Batch, Task, build_program
from tracekit.workloads.tasks import adamw, next_tokens, token_loss

VOCABULARY = 50_257
CONTEXT = 1024
WIDTH = 768
HEADS = 12
LAYERS, _TEST_LAYERS = 12, 2


def build(options: Options) -> Program:
    """Build the program."""
    model = partial(GPT2, _TEST_LAYERS if options.size == "test" else LAYERS)

    def data(_: torch.dtype) -> Batch:
        tokens, labels = next_tokens(options.batch_size, options.resolution, VOCABULARY)
        return (tokens,), (labels,)

    return build_program(Task(model=model, data=data, loss=token_loss, optimizer=adamw), options)


class Attention(nn.Module):
    """Causal self-attention; one linear layer makes queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to this and earlier tokens; (batch, tokens, width) in and out."""
        batch, tokens, _ = x.shape
        queries, keys, values = (
            part.view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.c_attn(x).split(WIDTH, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))


class Block(nn.Module):
    """Pre-norm transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        x = x + self.attn(self.ln_1(x))
        wide = functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.c_proj(wide)


class GPT2(nn.Module):
    """Predict logits of the next token; the head shares its weight with the token embedding."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(layers)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.apply(_initialize)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, tokens, vocabulary)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, Block):
        for projection in (module.c_proj, module.attn.c_proj):
            nn.init.normal_(projection.weight, std=0.02 / math.sqrt(2 * LAYERS))
