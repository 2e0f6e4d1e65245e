"""Speech recognition on random mel frames: convolutions, a transformer encoder, and CTC loss.

The number of parameters follows from the small encoder of Karita et al. 2019; see `speech_transformer_model`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import Workload

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program
    from tracekit.workloads.program import Batch

_FRAMES_PER_PIECE = 4
"""Downsampled frames per word piece, which takes about 160 ms."""


def _build(options: Options) -> Program:
    import torch

    from tracekit.workloads.program import Task, build_program
    from tracekit.workloads.speech_transformer_model import (
        MELS,
        TOKENS,
        SpeechTransformer,
        alignment_loss,
        downsampled,
    )

    batch, frames = options.batch_size, options.resolution
    pieces = max(1, downsampled(frames) // _FRAMES_PER_PIECE)

    def data(dtype: torch.dtype) -> Batch:
        # 0 is CTC's blank
        return (torch.randn(batch, frames, MELS, dtype=dtype),), (torch.randint(1, TOKENS, (batch, pieces)),)

    adam = partial(torch.optim.Adam, lr=1e-4, betas=(0.9, 0.98), fused=True)
    task = Task(model=SpeechTransformer, data=data, loss=alignment_loss, optimizer=adam)
    return build_program(task, options)


SPEECH_TRANSFORMER = Workload(
    name="speech_transformer",
    domain="speech",
    summary="Transformer encoder aligning word pieces with random mel frames by CTC",
    parameters=18_904_456,
    defaults={"batch_size": 4, "resolution": 400},
    sizes={"test": {"batch_size": 1, "resolution": 64}, "gpu": {"batch_size": 32, "resolution": 1600}},
    smallest_resolution=7,
    resolution_means="Frames of 10 ms",
    build=_build,
)
