"""Speech synthesis on random text: Tacotron 2, whose decoder launches many small kernels per frame.

The 28,193,153 parameters are those of NVIDIA's Tacotron 2 with 148 symbols. The loss uses absolute
differences as the first Tacotron did, where the reference uses squares.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import Workload

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Options, Program
    from tracekit.workloads.program import Batch

_FRAMES_PER_SYMBOL = 6
"""A symbol takes about 70 ms, a frame 11.6 ms."""


def _build(options: Options) -> Program:
    import torch

    from tracekit.workloads.program import Task, build_program
    from tracekit.workloads.tts_model import Tacotron2, speech_loss

    adam = partial(torch.optim.Adam, lr=1e-3, weight_decay=1e-6, fused=True)
    task = Task(model=Tacotron2, data=partial(_speech, options), loss=speech_loss, optimizer=adam)
    return build_program(task, options)


def _speech(options: Options, dtype: torch.dtype) -> Batch:
    import torch

    from tracekit.workloads.tts_model import MELS, SYMBOLS

    batch, frames = options.batch_size, options.resolution
    symbols = torch.randint(SYMBOLS, (batch, max(2, frames // _FRAMES_PER_SYMBOL)))
    mels = torch.randn(batch, frames, MELS, dtype=dtype)
    stops = torch.zeros(batch, frames, dtype=dtype)
    stops[:, -1] = 1
    # inference uses no target frames, so none are copied
    teacher = mels if options.mode == "train" else mels.new_empty(batch, frames, 0)
    return (symbols, teacher), (mels, stops)


TTS = Workload(
    name="tts",
    domain="speech",
    summary="Tacotron 2 speaking random text into mel frames, one after another",
    parameters=28_193_153,
    defaults={"batch_size": 4, "resolution": 40},
    sizes={"test": {"batch_size": 1, "resolution": 4}, "gpu": {"batch_size": 64, "resolution": 400}},
    smallest_resolution=2,
    resolution_means="Frames of 11.6 ms",
    build=_build,
)
