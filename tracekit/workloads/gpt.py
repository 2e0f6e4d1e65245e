"""GPT-2 predicting the next of random tokens.

The 124,439,808 parameters are those of transformers' `GPT2LMHeadModel(GPT2Config())`, whose head shares the
weight of the token embedding. There is no dropout, as in later GPT trainings.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import Workload
from tracekit.workloads.checks import positions_check

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Options, Program
    from tracekit.workloads.program import Batch

_TEST_LAYERS = 2


def _build(options: Options) -> Program:
    from tracekit.workloads.gpt_model import GPT2, LAYERS, VOCABULARY
    from tracekit.workloads.program import Task, build_program
    from tracekit.workloads.tasks import adamw, next_tokens, token_loss

    model = partial(GPT2, _TEST_LAYERS if options.size == "test" else LAYERS)

    def data(_: torch.dtype) -> Batch:
        tokens, labels = next_tokens(options.batch_size, options.resolution, VOCABULARY)
        return (tokens,), (labels,)

    return build_program(Task(model=model, data=data, loss=token_loss, optimizer=adamw), options)


GPT = Workload(
    name="gpt",
    domain="language",
    summary="GPT-2 (124M) predicting the next of random tokens; two layers in size test",
    parameters=124_439_808,
    defaults={"batch_size": 1, "resolution": 128},
    sizes={"test": {"batch_size": 1, "resolution": 8}, "gpu": {"batch_size": 8, "resolution": 1024}},
    smallest_resolution=1,
    resolution_means="Tokens in a sequence",
    build=_build,
    check=positions_check("gpt", 1024),
)
