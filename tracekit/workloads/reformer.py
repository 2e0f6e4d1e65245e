"""Reformer on random bytes, as first published and without the scalar it copies in each attention.

`reformer` multiplies by `torch.rsqrt(torch.tensor(64.0).to(device))`: six times a step, the host copies a
scalar from pageable memory to the device and waits for it. `reformer_fixed` multiplies by a Python number.

The 5,975,872 parameters are those of transformers' `ReformerForMaskedLM(ReformerConfig())`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import Options, Workload
from tracekit.workloads.checks import positions_check

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Program
    from tracekit.workloads.program import Batch

_CHUNK = 64
_MASK = 3


def _build(options: Options, *, copies: bool) -> Program:
    from tracekit.workloads.program import Task, build_program
    from tracekit.workloads.reformer_model import VOCABULARY, Reformer, constant_scale, copied_scale
    from tracekit.workloads.tasks import adamw, masked_tokens, token_loss

    def data(_: torch.dtype) -> Batch:
        tokens, labels = masked_tokens(options.batch_size, options.resolution, VOCABULARY, mask=_MASK)
        return (tokens,), (labels,)

    model = partial(Reformer, copied_scale if copies else constant_scale)
    return build_program(Task(model=model, data=data, loss=token_loss, optimizer=adamw), options)


def _workload(name: str, summary: str, *, copies: bool) -> Workload:
    return Workload(
        name=name,
        domain="language",
        summary=summary,
        parameters=5_975_872,
        defaults={"batch_size": 2, "resolution": 512},
        sizes={"test": {"batch_size": 1, "resolution": 128}, "gpu": {"batch_size": 8, "resolution": 4096}},
        smallest_resolution=2 * _CHUNK,
        resolution_means=f"Bytes in a sequence, a multiple of {_CHUNK}",
        build=partial(_build, copies=copies),
        check=positions_check(name, 4096, chunk=_CHUNK),
    )


REFORMER = _workload(
    "reformer", "Reformer recovering masked bytes; each attention copies a scalar to the device", copies=True
)
REFORMER_FIXED = _workload(
    "reformer_fixed", "The same Reformer with the scalar as a Python number: no copy", copies=False
)
