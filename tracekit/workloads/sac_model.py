"""Networks of soft actor-critic (Haarnoja et al. 2018) at its sizes: two hidden layers of 256 in each."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from tracekit.workloads.pendulum import ACTIONS, OBSERVED

HIDDEN = 256
_LOG_STD = (-20.0, 2.0)


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)
    )


class Actor(nn.Module):
    """Observations in, actions between -1 and 1 out, drawn from a normal distribution behind a tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.network = _network(OBSERVED, 2 * ACTIONS)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """The likeliest actions (batch, actions)."""
        return torch.tanh(self.network(seen)[:, :ACTIONS])

    def sample(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions (batch, actions) and the logarithm of their density (batch,)."""
        mean, log_std = self.network(seen).split(ACTIONS, dim=1)
        log_std = log_std.clamp(*_LOG_STD)
        noise = torch.randn_like(mean)
        raw = mean + noise * log_std.exp()
        density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh²) without its cancellation
        squash = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        return torch.tanh(raw), (density - squash).sum(dim=1)


class Sampler(nn.Module):
    """An actor whose call draws actions: a trace and a compiler take a module's `forward`."""

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Actor.sample`."""
        return self.actor.sample(seen)


class Critics(nn.Module):
    """Two values of an action, of which the smaller is believed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _network(OBSERVED + ACTIONS, 1)
        self.second = _network(OBSERVED + ACTIONS, 1)

    def forward(self, seen: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both values, (batch,) each."""
        both = torch.cat([seen, actions], dim=1)
        return self.first(both).squeeze(1), self.second(both).squeeze(1)


class Agent(nn.Module):
    """What is trained: the actor, the critics, and how much randomness is worth."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = Actor()
        self.critics = Critics()
        self.log_alpha = nn.Parameter(torch.zeros(()))
