"""Steps of soft actor-critic: the host plays, then the device learns from what was seen."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import record_function

from tracekit.workloads.batches import LOAD_RANGE
from tracekit.workloads.gradients import zeroing
from tracekit.workloads.levels import runnable
from tracekit.workloads.pendulum import ACTIONS, OBSERVED, Pendulum
from tracekit.workloads.sac_model import Agent, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracekit.workloads.base import Options, Program

    Pair = tuple[torch.Tensor, torch.Tensor]

ENVIRONMENT_RANGE = "environment"
DISCOUNT = 0.99
TARGET_RATE = 0.005
LEARNING_RATE = 3e-4
_CAPACITY = 10_000
_SEEN_FIRST = 1000


@dataclass(kw_only=True)
class Replay:
    """Transitions in host memory, the oldest overwritten first.

    Attributes:
        rows: One transition a row: seen, action, reward, seen next.
        count: Transitions ever added.
        pinned: Draw into page-locked memory.
    """

    rows: torch.Tensor
    pinned: bool
    count: int = 0

    def add(self, transition: Sequence[float]) -> None:
        """Keep one transition."""
        self.rows[self.count % len(self.rows)] = torch.tensor(transition, dtype=self.rows.dtype)
        self.count += 1

    def draw(self, batch: int) -> torch.Tensor:
        """Random transitions, in page-locked memory when asked for."""
        with record_function(LOAD_RANGE):
            rows = self.rows[torch.randint(min(self.count, len(self.rows)), (batch,))]
            return rows.pin_memory() if self.pinned else rows


@dataclass(frozen=True, kw_only=True)
class Optimizers:
    """One for each part that learns."""

    critics: torch.optim.Optimizer
    actor: torch.optim.Optimizer
    alpha: torch.optim.Optimizer


@dataclass(frozen=True, kw_only=True)
class Forwards:
    """What runs in place of the networks at a level; see `tracekit.workloads.levels`.

    Attributes:
        sample: Draws actions, with the logarithm of their density.
        critics: Judges them.
        targets: Judges them as the critics of some time before.
    """

    sample: Callable[[torch.Tensor], Pair]
    critics: Callable[[torch.Tensor, torch.Tensor], Pair]
    targets: Callable[[torch.Tensor, torch.Tensor], Pair]


@dataclass(frozen=True, kw_only=True)
class Training:
    """One step: play in the environment, draw a batch, update the critics, the actor and the temperature."""

    model: Agent
    forwards: Forwards
    targets: torch.nn.Module
    optimizers: Optimizers
    replay: Replay
    environment: Pendulum
    options: Options
    zero_grad: Callable[[torch.optim.Optimizer], None]

    def step(self) -> torch.Tensor:
        """Run one step; returns the critics' loss."""
        for _ in range(self.options.resolution):
            self._play()
        drawn = self.replay.draw(self.options.batch_size)
        rows = drawn.to(self.options.device, non_blocking=self.options.pin_memory)
        seen, actions, rewards, following = torch.split(rows, [OBSERVED, ACTIONS, 1, OBSERVED], dim=1)
        loss = self._update_critics(seen, actions, rewards.squeeze(1), following)
        self._update_actor(seen)
        self._follow()
        return loss

    def _play(self) -> None:
        seen = self.environment.observe()
        with torch.no_grad():
            action, _ = self.forwards.sample(_moved([seen], self.replay.rows.dtype, self.options.device))
        played = action.item()  # the host cannot play before the device has answered
        with record_function(ENVIRONMENT_RANGE):
            following, reward = self.environment.step(played)
            self.replay.add((*seen, played, reward, *following))

    def _update_critics(
        self, seen: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, following: torch.Tensor
    ) -> torch.Tensor:
        with torch.no_grad():
            then, density = self.forwards.sample(following)
            believed = torch.minimum(*self.forwards.targets(following, then))
            target = rewards + DISCOUNT * (believed - self.model.log_alpha.exp() * density)
        self.zero_grad(self.optimizers.critics)
        first, second = self.forwards.critics(seen, actions)
        loss = functional.mse_loss(first, target) + functional.mse_loss(second, target)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.optimizers.critics.step()
        return loss.detach()

    def _update_actor(self, seen: torch.Tensor) -> None:
        actions, density = self.forwards.sample(seen)
        believed = torch.minimum(*self.forwards.critics(seen, actions))
        alpha = self.model.log_alpha.exp().detach()
        self._descend(self.optimizers.actor, (alpha * density - believed).mean())
        surplus = (density.detach() - ACTIONS).mean()
        self._descend(self.optimizers.alpha, -self.model.log_alpha * surplus)

    def _descend(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        self.zero_grad(optimizer)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()

    def _follow(self) -> None:
        """Move the target critics a little towards the critics, one tensor after another."""
        with torch.no_grad():
            pairs = zip(self.targets.parameters(), self.model.critics.parameters(), strict=True)
            for target, parameter in pairs:
                target.lerp_(parameter, TARGET_RATE)


@dataclass(frozen=True, kw_only=True)
class Inference:
    """One step: `resolution` rounds in which the policy answers all environments, and each is stepped."""

    model: Agent
    actor: Callable[[torch.Tensor], torch.Tensor]
    environments: tuple[Pendulum, ...]
    options: Options
    dtype: torch.dtype

    def step(self) -> torch.Tensor:
        """Run one step; returns the last actions (environments, actions)."""
        with torch.inference_mode():
            for _ in range(self.options.resolution):
                seen = [environment.observe() for environment in self.environments]
                actions: torch.Tensor = self.actor(_moved(seen, self.dtype, self.options.device))
                played = actions[:, 0].tolist()
                with record_function(ENVIRONMENT_RANGE):
                    for environment, action in zip(self.environments, played, strict=True):
                        environment.step(action)
            return actions


def build(options: Options) -> Program:
    """Build the program; parameters, then what was seen first, both from the seed."""
    torch.manual_seed(options.seed)
    dtype: torch.dtype = getattr(torch, options.dtype)
    model = Agent().to(device=options.device, dtype=dtype)
    random = np.random.default_rng(options.seed)
    if options.mode == "infer":
        environments = tuple(Pendulum(random=random) for _ in range(options.batch_size))
        actor = _runnable(model.eval().actor, options, OBSERVED)
        return Inference(model=model, actor=actor, environments=environments, options=options, dtype=dtype)
    environment = Pendulum(random=random)
    targets = copy.deepcopy(model.critics).requires_grad_(requires_grad=False)
    return Training(
        model=model,
        forwards=_forwards(model, targets, options),
        targets=targets,
        optimizers=Optimizers(
            critics=_adam(model.critics.parameters()),
            actor=_adam(model.actor.parameters()),
            alpha=_adam([model.log_alpha]),
        ),
        replay=_seen_first(environment, random, dtype, pinned=options.pin_memory),
        environment=environment,
        options=options,
        zero_grad=zeroing(options.zero_grad),
    )


def _forwards(model: Agent, targets: torch.nn.Module, options: Options) -> Forwards:
    return Forwards(
        sample=_runnable(Sampler(model.actor), options, OBSERVED),
        critics=_runnable(model.critics, options, OBSERVED, ACTIONS),
        targets=_runnable(targets, options, OBSERVED, ACTIONS),
    )


def _runnable(module: torch.nn.Module, options: Options, *widths: int) -> Callable[..., Any]:
    """What runs in place of a network whose inputs are rows of these widths."""

    def example() -> tuple[torch.Tensor, ...]:
        dtype, device = getattr(torch, options.dtype), options.device
        return tuple(torch.zeros(options.batch_size, one, dtype=dtype, device=device) for one in widths)

    return runnable(module, example, options)


def _seen_first(
    environment: Pendulum, random: np.random.Generator, dtype: torch.dtype, *, pinned: bool
) -> Replay:
    """Transitions of a policy that acts at random."""
    rows = torch.zeros(_CAPACITY, 2 * OBSERVED + ACTIONS + 1, dtype=dtype)
    replay = Replay(rows=rows, pinned=pinned)
    for _ in range(_SEEN_FIRST):
        seen, action = environment.observe(), random.uniform(-1.0, 1.0)
        following, reward = environment.step(action)
        replay.add((*seen, action, reward, *following))
    return replay


def _adam(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=LEARNING_RATE)


def _moved(seen: list[tuple[float, float, float]], dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.tensor(seen, dtype=dtype).to(device)
