"""Speech synthesis on random text: Tacotron 2, whose decoder launches many small kernels for each frame.

The reference, NVIDIA's Tacotron 2 with 148 symbols, has 28,193,153 parameters; the loss takes distances
as the first Tacotron did, where the reference takes squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from tracekit.workloads.base import Options, Program

_FRAMES_PER_SYMBOL = 6
"""A spoken letter takes about 70 ms, a frame 11.6 ms."""


def _build(options: Options) -> Program:
    from tracekit.workloads.program import Task, program
    from tracekit.workloads.tts_model import Tacotron2, speech_loss

    def data(dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        return _speech(options, dtype)

    return program(Task(model=Tacotron2, data=data, loss=speech_loss, optimizer=_optimizer), options)


def _speech(
    options: Options, dtype: torch.dtype
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    import torch

    from tracekit.workloads.tts_model import MELS, SYMBOLS

    batch, frames = options.batch_size, options.resolution
    symbols = torch.randint(SYMBOLS, (batch, max(2, frames // _FRAMES_PER_SYMBOL)))
    mels = torch.randn(batch, frames, MELS, dtype=dtype)
    stops = torch.zeros(batch, frames, dtype=dtype)
    stops[:, -1] = 1
    # inference reads no true frame, so none is copied
    read = mels if options.mode == "train" else mels.new_empty(batch, frames, 0)
    return (symbols, read), (mels, stops)


def _optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.Adam(parameters, lr=1e-3, weight_decay=1e-6, fused=True)


TTS = Workload(
    name="tts",
    domain="speech",
    summary="Tacotron 2 speaking random text into mel frames, one after another",
    parameters=28_193_153,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 4, "resolution": 40},
    sizes={"test": {"batch_size": 1, "resolution": 4}, "gpu": {"batch_size": 64, "resolution": 400}},
    smallest_resolution=2,
    resolution_means="Frames of 11.6 ms",
    build=_build,
)
