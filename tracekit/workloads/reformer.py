"""Reformer on random bytes, twice: as first published, and without the scalar it copies in each attention.

`reformer` multiplies by `torch.rsqrt(torch.tensor(64.0).to(device))`: six times a step a scalar goes from
pageable host memory to the device, and the host waits for it. `reformer_fixed` multiplies by a Python number
instead; all else is the same.

The reference has 5,975,872 parameters: those of transformers' `ReformerForMaskedLM(ReformerConfig())`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Options, Workload
from tracekit.workloads.limits import at_most, multiple_of

if TYPE_CHECKING:
    import torch

    from tracekit.workloads.base import Program

_POSITIONS = 4096
_CHUNK = 64
_MASK = 3


def _build(options: Options, *, copies: bool) -> Program:
    from tracekit.workloads.program import Task, program
    from tracekit.workloads.reformer_model import VOCABULARY, Reformer, constant_scale, copied_scale
    from tracekit.workloads.text import adamw, masked, token_loss

    def data(_: torch.dtype) -> tuple[tuple[torch.Tensor], tuple[torch.Tensor]]:
        tokens, labels = masked(options.batch_size, options.resolution, VOCABULARY, mask=_MASK)
        return (tokens,), (labels,)

    model = partial(Reformer, copied_scale if copies else constant_scale)
    return program(Task(model=model, data=data, loss=token_loss, optimizer=adamw), options)


def _check(options: Options, *, name: str) -> None:
    at_most(name, options.resolution, _POSITIONS)
    multiple_of(name, options.resolution, _CHUNK)


def _workload(name: str, summary: str, *, copies: bool) -> Workload:
    return Workload(
        name=name,
        domain="language",
        summary=summary,
        parameters=5_975_872,
        modes=MODES,
        levels=LEVELS,
        dtypes=DTYPES,
        defaults={"batch_size": 2, "resolution": 512},
        sizes={"test": {"batch_size": 1, "resolution": 128}, "gpu": {"batch_size": 8, "resolution": 4096}},
        smallest_resolution=2 * _CHUNK,
        resolution_means=f"Bytes in a sequence, a multiple of {_CHUNK}",
        build=partial(_build, copies=copies),
        check=partial(_check, name=name),
    )


REFORMER = _workload(
    "reformer", "Reformer recovering masked bytes; each attention copies a scalar to the device", copies=True
)
REFORMER_FIXED = _workload(
    "reformer_fixed", "The same Reformer with the scalar as a Python number: no copy", copies=False
)
