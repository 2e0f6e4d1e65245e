"""DLRM on random clicks: memory-bound embedding bags and small dense layers.

The number of parameters follows from the published script for Criteo's Kaggle data; see `dlrm_model`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.workloads.base import Workload

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program
    from tracekit.workloads.program import Batch


def _build(options: Options) -> Program:
    import torch
    from torch.nn import functional

    from tracekit.workloads.dlrm_model import DENSE, DLRM, ROWS
    from tracekit.workloads.program import Task, build_program

    batch, bag = options.batch_size, options.resolution

    def data(dtype: torch.dtype) -> Batch:
        bags = torch.stack([torch.randint(rows, (batch, bag)) for rows in ROWS], dim=1)
        return (torch.rand(batch, DENSE, dtype=dtype), bags), (torch.randint(2, (batch,)).to(dtype),)

    loss = functional.binary_cross_entropy_with_logits
    return build_program(
        Task(model=DLRM, data=data, loss=loss, optimizer=partial(torch.optim.SGD, lr=0.1)), options
    )


DLRM = Workload(
    name="dlrm",
    domain="recommendation",
    summary="DLRM with 26 embedding tables judging random clicks",
    parameters=13_924_673,
    defaults={"batch_size": 128, "resolution": 1},
    sizes={"test": {"batch_size": 128, "resolution": 1}, "gpu": {"batch_size": 16_384, "resolution": 1}},
    smallest_resolution=1,
    resolution_means="Categories in a bag",
    build=_build,
)
