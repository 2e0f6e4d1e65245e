"""Launch-bound MLP that learns energies and, by autograd, forces of the Lennard-Jones potential."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.workloads.base import COMPILE, EAGER, Workload

if TYPE_CHECKING:
    from tracekit.workloads.base import Options, Program


def _build(options: Options) -> Program:
    from tracekit.workloads.lennard_jones_model import build

    return build(options)


LENNARD_JONES = Workload(
    name="lennard_jones",
    domain="other",
    summary="An MLP learning energies and forces of the Lennard-Jones potential, forces by autograd",
    parameters=865,
    # torch.jit.trace would make constants of the weights that the inner autograd reads
    levels=(EAGER, COMPILE),
    dtypes=("float32", "float64", "bfloat16"),
    defaults={"batch_size": 1000, "resolution": 1},
    sizes={"test": {"batch_size": 100, "resolution": 1}, "gpu": {"batch_size": 1000, "resolution": 64}},
    smallest_resolution=1,
    resolution_means="Pairs of points in a sample",
    build=_build,
)
"""`parameters` is the number of PyTorch's functorch example, which TorchBench runs."""
