"""Speech recognition on random mel frames: convolutions that shorten them, a transformer encoder, CTC.

The number of parameters follows from the sizes of the small encoder in Karita et al. 2019; see
`speech_transformer_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from tracekit.workloads.base import Options, Program

_FRAMES_PER_PIECE = 4
"""Of the shortened frames: a word piece takes about 160 ms."""


def _build(options: Options) -> Program:
    import torch

    from tracekit.workloads.program import Task, program
    from tracekit.workloads.speech_transformer_model import (
        MELS,
        TOKENS,
        SpeechTransformer,
        alignment_loss,
        shortened,
    )

    batch, frames = options.batch_size, options.resolution
    pieces = max(1, shortened(frames) // _FRAMES_PER_PIECE)

    def data(dtype: torch.dtype) -> tuple[tuple[torch.Tensor], tuple[torch.Tensor]]:
        # 0 is CTC's blank
        return (torch.randn(batch, frames, MELS, dtype=dtype),), (torch.randint(1, TOKENS, (batch, pieces)),)

    return program(
        Task(model=SpeechTransformer, data=data, loss=alignment_loss, optimizer=_optimizer), options
    )


def _optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), fused=True)


SPEECH_TRANSFORMER = Workload(
    name="speech_transformer",
    domain="speech",
    summary="Transformer encoder aligning word pieces with random mel frames by CTC",
    parameters=18_904_456,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 4, "resolution": 400},
    sizes={"test": {"batch_size": 1, "resolution": 64}, "gpu": {"batch_size": 32, "resolution": 1600}},
    smallest_resolution=7,
    resolution_means="Frames of 10 ms",
    build=_build,
)
