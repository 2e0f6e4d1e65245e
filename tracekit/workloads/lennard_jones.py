"""Launch-bound MLP that learns energies and, by autograd, forces of the Lennard-Jones potential.

Network and data are those of PyTorch's functorch example `lennard_jones`, which TorchBench runs, with
autograd in place of `jacrev`.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.base import Options, Program
from tracekit.workloads.program import Task, build_program

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
SIGMA, EPSILON = 0.5, 4.0
NEAREST, FARTHEST = 0.5, 1.0
"""Range of distances between points, as in the example."""
WIDTH, HIDDEN = 16, 4
FORCE_WEIGHT = 0.01 / 3


class Potential(nn.Module):
    """Energy of a pair from its distance; the force is minus the energy's gradient."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(1, WIDTH), nn.Tanh()]
        for _ in range(HIDDEN - 1):
            layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
        self.energy = nn.Sequential(*layers, nn.Linear(WIDTH, 1))

    def forward(self, vectors: torch.Tensor) -> Pair:
        """Return energies (batch, pairs) and forces (batch, pairs, 3) from vectors between points."""
        with torch.enable_grad():
            points = vectors.detach().requires_grad_()
            energies = self.energy(torch.linalg.vector_norm(points, dim=-1, keepdim=True)).squeeze(-1)
            (gradient,) = torch.autograd.grad(energies.sum(), points, create_graph=self.training)
        return (energies, -gradient) if self.training else (energies.detach(), -gradient)


def build(options: Options) -> Program:
    """Build the program."""
    return build_program(
        Task(
            model=Potential,
            data=partial(_data, options.batch_size, options.resolution),
            loss=_loss,
            optimizer=partial(torch.optim.Adam, lr=1e-3),
            needs_grad=True,
        ),
        options,
    )


def _data(samples: int, pairs: int, dtype: torch.dtype) -> tuple[tuple[torch.Tensor], Pair]:
    directions = functional.normalize(torch.randn(samples, pairs, 3), dim=-1)
    distances = torch.empty(samples, pairs, 1).uniform_(NEAREST, FARTHEST)
    ratio = (SIGMA / distances) ** 6
    energies = EPSILON * (ratio**2 - ratio)
    forces = EPSILON * (12 * ratio**2 - 6 * ratio) / distances * directions
    vectors = distances * directions
    return (vectors.to(dtype),), (energies.squeeze(-1).to(dtype), forces.to(dtype))


def _loss(output: Pair, energies: torch.Tensor, forces: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(output[0], energies) + FORCE_WEIGHT * functional.mse_loss(output[1], forces)
