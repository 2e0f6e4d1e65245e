"""DLRM (Naumov et al. 2019) on random clicks: memory-bound embedding bags and small dense layers.

Sizes, and so the number of parameters, are those of its published script for Criteo's Kaggle data:
`--arch-sparse-feature-size=16 --arch-mlp-bot=13-512-256-64-16 --arch-mlp-top=512-256-1`, with tables of at
most 100,000 rows (`--max-ind-range=100000`).
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Batch, Task, build_program

DENSE = 13
WIDTH = 16
BOTTOM = (DENSE, 512, 256, 64, WIDTH)
TOP = (512, 256, 1)
LARGEST_TABLE = 100_000
CATEGORIES = (
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194, 27, 14_992,
    5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip
"""Distinct values of each of the data set's categorical features."""
ROWS = tuple(min(count, LARGEST_TABLE) for count in CATEGORIES)


def build(options: Options) -> Program:
    """Build the program."""
    batch, bag = options.batch_size, options.resolution

    def data(dtype: torch.dtype) -> Batch:
        bags = torch.stack([torch.randint(rows, (batch, bag)) for rows in ROWS], dim=1)
        return (torch.rand(batch, DENSE, dtype=dtype), bags), (torch.randint(2, (batch,)).to(dtype),)

    loss = functional.binary_cross_entropy_with_logits
    return build_program(
        Task(model=DLRM, data=data, loss=loss, optimizer=partial(torch.optim.SGD, lr=0.1)), options
    )


class DLRM(nn.Module):
    """Predict the logit of a click from dense features and bags of categories."""

    rows: torch.Tensor
    columns: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([_table(rows) for rows in ROWS])
        self.bottom = _layers(BOTTOM, last_relu=True)
        features = 1 + len(ROWS)
        pairs = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("rows", pairs[0], persistent=False)
        self.register_buffer("columns", pairs[1], persistent=False)
        self.top = _layers((WIDTH + pairs.shape[1], *TOP), last_relu=False)

    def forward(self, dense: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch,) from dense (batch, 13) and bags (batch, tables, categories in a bag)."""
        bottom = self.bottom(dense)
        embedded = [table(bags[:, place]) for place, table in enumerate(self.tables)]
        return self.top(self._interact(bottom, embedded)).squeeze(1)

    def _interact(self, bottom: torch.Tensor, embedded: list[torch.Tensor]) -> torch.Tensor:
        """Return the dense feature and the dot products of each pair of features."""
        features = torch.stack([bottom, *embedded], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        return torch.cat([bottom, products[:, self.rows, self.columns]], dim=1)


def _table(rows: int) -> nn.Module:
    """Make a table with sparse gradients: a step updates only the rows it looked up."""
    table = nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True)
    nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)
    return table


def _layers(widths: tuple[int, ...], *, last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs)
        nn.init.normal_(linear.weight, std=(2 / (inputs + outputs)) ** 0.5)
        nn.init.normal_(linear.bias, std=outputs**-0.5)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*(layers if last_relu else layers[:-1]))
