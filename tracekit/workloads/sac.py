"""Soft actor-critic on a pendulum: the host steps the environment between updates, so a GPU is mostly idle.

The 201,989 trainable parameters are those of Haarnoja et al. 2018 (two hidden layers of 256) for 3
observations and 1 action: 67,330 of the actor, 67,329 of each critic, and the temperature. The environment
has the equations and limits of Gym's `Pendulum-v1`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import record_function

from tracekit.workloads.base import Options, Program
from tracekit.workloads.levels import at_level
from tracekit.workloads.program import LOAD_RANGE, ZERO_GRAD

ENVIRONMENT_RANGE = "environment"
DISCOUNT = 0.99
TARGET_RATE = 0.005
LEARNING_RATE = 3e-4
HIDDEN = 256
_LOG_STD = (-20.0, 2.0)
_REPLAY_ROWS = 10_000
_RANDOM_STEPS = 1000  # steps of a random policy that fill the replay before training
OBSERVATIONS = 3
ACTIONS = 1
TORQUE = 2.0
EPISODE = 200
_GRAVITY = 10.0
_MAX_SPEED = 8.0
_STEP_SECONDS = 0.05


def build(options: Options) -> Program:
    """Build the program: parameters, then the first transitions, both from the seed."""
    torch.manual_seed(options.seed)
    model = Agent().to(device=options.device, dtype=getattr(torch, options.dtype))
    random = np.random.default_rng(options.seed)
    return (Inference if options.mode == "infer" else Training)(model, options, random)


def _at_level(module: torch.nn.Module, options: Options, *widths: int) -> Callable[..., Any]:
    """Return a network at its level; its inputs are matrices of these widths."""

    def example() -> tuple[torch.Tensor, ...]:
        dtype, device = getattr(torch, options.dtype), options.device
        return tuple(torch.zeros(options.batch_size, width, dtype=dtype, device=device) for width in widths)

    return at_level(module, example, options)


def _random_replay(
    environment: Pendulum, random: np.random.Generator, dtype: torch.dtype, *, pinned: bool
) -> Replay:
    """Return a replay with the transitions of a random policy."""
    rows = torch.zeros(_REPLAY_ROWS, 2 * OBSERVATIONS + ACTIONS + 1, dtype=dtype)
    replay = Replay(rows=rows, pinned=pinned)
    for _ in range(_RANDOM_STEPS):
        observation, action = environment.observe(), random.uniform(-1.0, 1.0)
        next_observation, reward = environment.step(action)
        replay.add((*observation, action, reward, *next_observation))
    return replay


def _to_device(rows: list[tuple[float, float, float]], options: Options) -> torch.Tensor:
    return torch.tensor(rows, dtype=getattr(torch, options.dtype)).to(options.device)


@dataclass(kw_only=True)
class Replay:
    """Transitions in host memory; new ones overwrite the oldest."""

    rows: torch.Tensor  # observation, action, reward and next observation of each transition
    pinned: bool  # draw into page-locked memory
    count: int = 0  # transitions ever added

    def add(self, transition: Sequence[float]) -> None:
        """Add one transition."""
        self.rows[self.count % len(self.rows)] = torch.tensor(transition, dtype=self.rows.dtype)
        self.count += 1

    def draw(self, batch: int) -> torch.Tensor:
        """Draw random transitions, in page-locked memory if `pinned`."""
        with record_function(LOAD_RANGE):
            rows = self.rows[torch.randint(min(self.count, len(self.rows)), (batch,))]
            return rows.pin_memory() if self.pinned else rows


class Training:
    """One step: step the environment, draw a batch, update the critics, the actor and the temperature.

    Attributes:
        model: Trained parameters.
        targets: Target critics, which follow the critics slowly.
        sample: The actor at its level; draws actions and returns them with their log density.
        critic_values: The critics at their level.
        target_values: The target critics at their level.
        replay: Transitions to draw from.
    """

    def __init__(self, model: Agent, options: Options, random: np.random.Generator) -> None:
        self.model, self.options = model, options
        self.targets = copy.deepcopy(model.critics).requires_grad_(requires_grad=False)
        self.sample = _at_level(Sampler(model.actor), options, OBSERVATIONS)
        self.critic_values = _at_level(model.critics, options, OBSERVATIONS, ACTIONS)
        self.target_values = _at_level(self.targets, options, OBSERVATIONS, ACTIONS)
        adam = partial(torch.optim.Adam, lr=LEARNING_RATE)
        self.critic_optimizer = adam(model.critics.parameters())
        self.actor_optimizer = adam(model.actor.parameters())
        self.alpha_optimizer = adam([model.log_alpha])
        self.environment = Pendulum(random=random)
        dtype = getattr(torch, options.dtype)
        self.replay = _random_replay(self.environment, random, dtype, pinned=options.pin_memory)
        self.zero_grad = ZERO_GRAD[options.zero_grad]

    def step(self) -> torch.Tensor:
        """Run one step; returns the critics' loss."""
        for _ in range(self.options.resolution):
            self._step_environment()
        drawn = self.replay.draw(self.options.batch_size)
        rows = drawn.to(self.options.device, non_blocking=self.options.pin_memory)
        columns = torch.split(rows, [OBSERVATIONS, ACTIONS, 1, OBSERVATIONS], dim=1)
        loss = self._update_critics(*columns)
        self._update_actor(columns[0])
        self._update_targets()
        return loss

    def _step_environment(self) -> None:
        observation = self.environment.observe()
        rows = _to_device([observation], self.options)
        with torch.no_grad():
            action, _ = self.sample(rows)
        chosen = action.item()  # waits for the device
        with record_function(ENVIRONMENT_RANGE):
            next_observation, reward = self.environment.step(chosen)
            self.replay.add((*observation, chosen, reward, *next_observation))

    def _update_critics(
        self,
        observations: torch.Tensor,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        next_observations: torch.Tensor,
    ) -> torch.Tensor:
        with torch.no_grad():
            next_actions, density = self.sample(next_observations)
            value = torch.minimum(*self.target_values(next_observations, next_actions))
            target = rewards.squeeze(1) + DISCOUNT * (value - self.model.log_alpha.exp() * density)
        self.zero_grad(self.critic_optimizer)
        first, second = self.critic_values(observations, actions)
        loss = functional.mse_loss(first, target) + functional.mse_loss(second, target)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.critic_optimizer.step()
        return loss.detach()

    def _update_actor(self, observations: torch.Tensor) -> None:
        actions, density = self.sample(observations)
        value = torch.minimum(*self.critic_values(observations, actions))
        alpha = self.model.log_alpha.exp().detach()
        self._descend(self.actor_optimizer, (alpha * density - value).mean())
        surplus = (density.detach() - ACTIONS).mean()
        self._descend(self.alpha_optimizer, -self.model.log_alpha * surplus)

    def _descend(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        self.zero_grad(optimizer)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()

    def _update_targets(self) -> None:
        """Move the target critics towards the critics, tensor by tensor."""
        with torch.no_grad():
            pairs = zip(self.targets.parameters(), self.model.critics.parameters(), strict=True)
            for target, parameter in pairs:
                target.lerp_(parameter, TARGET_RATE)


class Inference:
    """One step: `resolution` rounds in which the policy acts in all environments."""

    def __init__(self, model: Agent, options: Options, random: np.random.Generator) -> None:
        self.model, self.options = model, options
        self.environments = tuple(Pendulum(random=random) for _ in range(options.batch_size))
        self.actor = _at_level(model.eval().actor, options, OBSERVATIONS)

    def step(self) -> torch.Tensor:
        """Run one step; returns the last actions (environments, actions)."""
        with torch.inference_mode():
            for _ in range(self.options.resolution):
                observations = [environment.observe() for environment in self.environments]
                actions: torch.Tensor = self.actor(_to_device(observations, self.options))
                chosen = actions[:, 0].tolist()
                with record_function(ENVIRONMENT_RANGE):
                    for environment, action in zip(self.environments, chosen, strict=True):
                        environment.step(action)
            return actions


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)
    )


class Actor(nn.Module):
    """Policy of actions between -1 and 1: a normal distribution through a tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.network = _network(OBSERVATIONS, 2 * ACTIONS)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the most likely actions (batch, actions)."""
        return torch.tanh(self.network(observations)[:, :ACTIONS])

    def sample(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw actions (batch, actions) and return them with their log density (batch,)."""
        mean, log_std = self.network(observations).split(ACTIONS, dim=1)
        log_std = log_std.clamp(*_LOG_STD)
        noise = torch.randn_like(mean)
        raw = mean + noise * log_std.exp()
        density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh²) without cancellation
        squash = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        return torch.tanh(raw), (density - squash).sum(dim=1)


class Sampler(nn.Module):
    """Module whose `forward`, which tracing and compiling need, draws actions."""

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Actor.sample`."""
        return self.actor.sample(observations)


class Critics(nn.Module):
    """Two estimates of the value of an action; the smaller one is used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _network(OBSERVATIONS + ACTIONS, 1)
        self.second = _network(OBSERVATIONS + ACTIONS, 1)

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both values, (batch,) each."""
        both = torch.cat([observations, actions], dim=1)
        return self.first(both).squeeze(1), self.second(both).squeeze(1)


class Agent(nn.Module):
    """Trained parameters: the actor, the critics and the log temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = Actor()
        self.critics = Critics()
        self.log_alpha = nn.Parameter(torch.zeros(()))


@dataclass(kw_only=True)
class Pendulum:
    """Environment: swing a pendulum up, in plain Python on the host."""

    random: np.random.Generator  # source of the start of an episode
    angle: float = 0.0  # from upright, in radians
    speed: float = 0.0  # radians per second
    left: int = 0  # steps left in the episode

    def observe(self) -> tuple[float, float, float]:
        """Return cosine and sine of the angle, and the speed; starts an episode if none is running."""
        if self.left == 0:
            self.angle = self.random.uniform(-math.pi, math.pi)
            self.speed = self.random.uniform(-1.0, 1.0)
            self.left = EPISODE
        return math.cos(self.angle), math.sin(self.angle), self.speed

    def step(self, action: float) -> tuple[tuple[float, float, float], float]:
        """Apply an action in [-1, 1] for 50 ms; returns the next observation and the reward."""
        torque = TORQUE * max(-1.0, min(1.0, action))
        wrapped = (self.angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(wrapped**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        speed = self.speed + (1.5 * _GRAVITY * math.sin(self.angle) + 3.0 * torque) * _STEP_SECONDS
        self.speed = max(-_MAX_SPEED, min(_MAX_SPEED, speed))
        self.angle += self.speed * _STEP_SECONDS
        self.left -= 1
        return (math.cos(self.angle), math.sin(self.angle), self.speed), reward
