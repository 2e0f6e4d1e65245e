"""Speech recognition on random mel frames: convolutions, a transformer encoder, and CTC loss.

Sizes of the small encoder in Karita et al. 2019 ("A comparative study on Transformer vs RNN in speech
applications"): two convolutions of stride 2 over 80 mel bands, then 12 layers of width 256 with 4 heads and
feed-forward layers of 2048; 5000 word pieces, the first of them CTC's blank.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Batch, Task, build_program

MELS = 80
WIDTH = 256
HEADS = 4
WIDE = 2048
LAYERS = 12
DROPOUT = 0.1
TOKENS = 5000
_FRAMES_PER_PIECE = 4  # downsampled frames per word piece, which takes about 160 ms


def build(options: Options) -> Program:
    """Build the program."""
    batch, frames = options.batch_size, options.resolution
    pieces = max(1, downsample_size(frames) // _FRAMES_PER_PIECE)

    def data(dtype: torch.dtype) -> Batch:
        # 0 is CTC's blank
        return (torch.randn(batch, frames, MELS, dtype=dtype),), (torch.randint(1, TOKENS, (batch, pieces)),)

    adam = partial(torch.optim.Adam, lr=1e-4, betas=(0.9, 0.98), fused=True)
    task = Task(model=SpeechTransformer, data=data, loss=alignment_loss, optimizer=adam)
    return build_program(task, options)


def downsample_size(size: int) -> int:
    """Return the number of frames, or mel bands, after the two convolutions."""
    return ((size - 1) // 2 - 1) // 2


class SpeechTransformer(nn.Module):
    """Predict logits of word pieces from mel frames."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, stride=2), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, stride=2), nn.ReLU()
        )
        self.embed = nn.Linear(WIDTH * downsample_size(MELS), WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList([_layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, downsampled frames, tokens) of frames (batch, frames, mels)."""
        features = self.convolutions(frames.unsqueeze(1))
        x = self.embed(features.transpose(1, 2).flatten(2)) * math.sqrt(WIDTH)
        x = self.dropout(x + _positions(x))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def _layer() -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, dim_feedforward=WIDE, dropout=DROPOUT, batch_first=True, norm_first=True
    )


def _positions(x: torch.Tensor) -> torch.Tensor:
    """Compute sinusoidal position embeddings on the device; (frames, width)."""
    positions = torch.arange(x.shape[1], device=x.device, dtype=torch.float32).unsqueeze(1)
    steps = torch.arange(0, WIDTH, 2, device=x.device, dtype=torch.float32)
    angles = positions * torch.exp(steps * (-math.log(10_000.0) / WIDTH))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).to(x.dtype)


def alignment_loss(logits: torch.Tensor, pieces: torch.Tensor) -> torch.Tensor:
    """CTC loss of logits (batch, frames, tokens) and pieces (batch, pieces), at least in float32."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    batch, frames, _ = logits.shape
    lengths = torch.full((batch,), frames), torch.full((batch,), pieces.shape[1])
    loss = functional.ctc_loss(exact.log_softmax(dim=2).transpose(0, 1), pieces, *lengths)
    return loss.to(logits.dtype)
