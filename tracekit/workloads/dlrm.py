"""DLRM on random clicks: embedding bags that gather from memory, beside small dense layers.

The number of parameters follows from the sizes of the published script for Criteo's Kaggle data, whose tables
are cut at 100,000 rows; see `dlrm_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import DTYPES, LEVELS, MODES, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    import torch
    from torch.nn import functional

    from tracekit.workloads.dlrm_model import DENSE, DLRM, ROWS
    from tracekit.workloads.program import Task, program

    batch, bag = options.batch_size, options.resolution

    def data(dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        bags = torch.stack([torch.randint(rows, (batch, bag)) for rows in ROWS], dim=1)
        return (torch.rand(batch, DENSE, dtype=dtype), bags), (torch.randint(2, (batch,)).to(dtype),)

    loss = functional.binary_cross_entropy_with_logits
    return program(Task(model=DLRM, data=data, loss=loss, optimizer=_optimizer), options)


def _optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.SGD(parameters, lr=0.1)


DLRM = Workload(
    name="dlrm",
    domain="recommendation",
    summary="DLRM with 26 embedding tables judging random clicks",
    parameters=13_924_673,
    modes=MODES,
    levels=LEVELS,
    dtypes=DTYPES,
    defaults={"batch_size": 128, "resolution": 1},
    sizes={"test": {"batch_size": 128, "resolution": 1}, "gpu": {"batch_size": 16_384, "resolution": 1}},
    smallest_resolution=1,
    resolution_means="Categories in a bag",
    build=_build,
)
