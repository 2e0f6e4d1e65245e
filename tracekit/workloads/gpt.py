"""GPT-2 on random tokens, predicting the next one: the transformer most language-model profiles start from.

The reference has 124,439,808 parameters: those of transformers' `GPT2LMHeadModel(GPT2Config())`, whose head
shares the weight of the token embedding. Its dropout is left out, as later GPT trainings leave it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload
from tracekit.workloads.limits import at_most

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Options, Program

_POSITIONS = 1024
_LAYERS = {"test": 2}
"""Layers of the sizes that do not take the reference's 12."""


def _build(options: Options) -> Program:
    from tracekit.workloads.gpt_model import GPT2, LAYERS, VOCABULARY
    from tracekit.workloads.program import Task, program
    from tracekit.workloads.text import adamw, following, token_loss

    model = partial(GPT2, _LAYERS.get(options.size, LAYERS))

    def data(_: torch.dtype) -> tuple[tuple[torch.Tensor], tuple[torch.Tensor]]:
        tokens, labels = following(options.batch_size, options.resolution, VOCABULARY)
        return (tokens,), (labels,)

    return program(Task(model=model, data=data, loss=token_loss, optimizer=adamw), options)


def _check(options: Options) -> None:
    at_most("gpt", options.resolution, _POSITIONS)


GPT = Workload(
    name="gpt",
    domain="language",
    summary="GPT-2 (124M) predicting the next of random tokens; two layers in size test",
    parameters=124_439_808,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 1, "resolution": 128},
    sizes={"test": {"batch_size": 1, "resolution": 8}, "gpu": {"batch_size": 8, "resolution": 1024}},
    smallest_resolution=1,
    resolution_means="Tokens in a sequence",
    build=_build,
    check=_check,
)
