"""A pendulum to swing up, in plain Python on the host: the equations and limits of Gym's `Pendulum-v1`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

OBSERVED = 3
ACTIONS = 1
TORQUE = 2.0
EPISODE = 200
_GRAVITY = 10.0
_FASTEST = 8.0
_SECONDS = 0.05


@dataclass(kw_only=True)
class Pendulum:
    """One environment; its state moves with each step.

    Attributes:
        random: Draws where an episode starts.
        angle: From upright, in radians.
        speed: Radians a second.
        left: Steps left of the episode.
    """

    random: np.random.Generator
    angle: float = 0.0
    speed: float = 0.0
    left: int = 0

    def observe(self) -> tuple[float, float, float]:
        """Cosine and sine of the angle, and the speed; starts an episode where none runs."""
        if self.left == 0:
            self.angle = self.random.uniform(-math.pi, math.pi)
            self.speed = self.random.uniform(-1.0, 1.0)
            self.left = EPISODE
        return math.cos(self.angle), math.sin(self.angle), self.speed

    def step(self, action: float) -> tuple[tuple[float, float, float], float]:
        """Turn for 50 ms with an action in [-1, 1]; returns what is seen then, and the reward."""
        torque = TORQUE * max(-1.0, min(1.0, action))
        turned = (self.angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(turned**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        pushed = self.speed + (1.5 * _GRAVITY * math.sin(self.angle) + 3.0 * torque) * _SECONDS
        self.speed = max(-_FASTEST, min(_FASTEST, pushed))
        self.angle += self.speed * _SECONDS
        self.left -= 1
        return (math.cos(self.angle), math.sin(self.angle), self.speed), reward
