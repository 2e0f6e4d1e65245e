"""Soft actor-critic on a pendulum: the host steps the environment between updates, so a GPU is mostly idle.

The 201,989 trainable parameters are those of Haarnoja et al. 2018 (two hidden layers of 256) for 3
observations and 1 action: 67,330 of the actor, 67,329 of each critic, and the temperature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import COMPILE, EAGER, TORCHSCRIPT, Workload

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.sac_model import build

    return build(options)


SAC = Workload(
    name="sac",
    domain="rl",
    summary="Soft actor-critic learning to swing a pendulum up that the host simulates between updates",
    parameters=201_989,
    levels=(EAGER, TORCHSCRIPT, COMPILE),
    dtypes=("float32", "float64", "bfloat16"),
    defaults={"batch_size": 256, "resolution": 1},
    sizes={"test": {"batch_size": 64, "resolution": 1}, "gpu": {"batch_size": 256, "resolution": 1}},
    smallest_resolution=1,
    resolution_means="Environment steps between updates",
    offloads=("none",),
    build=_build,
)
