"""What a workload is: metadata, the options it takes, and how to build one; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tracekit.errors import UnusableInputError
from tracekit.workloads.datasets import DATASET_SHAPES
from tracekit.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOMAINS = ("vision", "language", "recommendation", "rl", "speech", "other")
MODES = ("train", "infer")
DTYPES = ("float32", "float64", "bfloat16", "float16")
ZERO_GRADS = ("default", "zero", "foreach")
OFFLOADS = ("none", "parameters", "activations")
EAGER, TORCHSCRIPT, COMPILE, LIBTORCH = "eager", "torchscript", "compile", "libtorch"
LEVELS = (EAGER, TORCHSCRIPT, COMPILE, LIBTORCH)
"""Ways to run a model: op by op from Python, as a TorchScript trace, through `torch.compile`, and its trace
from a C++ program."""
INDUCTOR = "inductor"
DEFAULT_SIZE = WorkloadOptions.size
OWN_SHAPE = WorkloadOptions.dataset_shape
BUILT_IN = "tracekit"


@dataclass(frozen=True, kw_only=True)
class Options(WorkloadOptions):
    """How to build a workload: the options of `tracekit collect`, every value decided.

    Attributes:
        device: `cpu` or `cuda`.
        resolution: What `Workload.resolution_means` says: pixels of a side, tokens, points.
        pin_memory: Batches come in page-locked host memory and are copied without waiting.
        size: `default`, or a name in `Workload.sizes`; a workload whose reference model is too large for a
            purpose builds a smaller one of the same kind for it.
        backend: What compiles at level `compile`.
    """

    workload: str = ""
    mode: str = field()
    device: str = field()
    batch_size: int = field()
    resolution: int = field()
    backend: str = INDUCTOR


class Program(Protocol):
    """A built workload, ready to run."""

    def step(self) -> Any:
        """Run one step; returns the tensor it computed (the loss when training), without waiting for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One program that `tracekit collect` can profile.

    Attributes:
        name: Registered name.
        domain: Field it comes from, one of `DOMAINS`.
        summary: What it is, in one line.
        parameters: Number of trainable parameters with the defaults.
        modes: What it can do: `train`, `infer`.
        levels: Ways to run it, of `LEVELS`.
        dtypes: Element types it can compute in.
        defaults: Options by name where the user names none.
        smallest_resolution: The smallest input its layers can take.
        build: Makes the program; the first thing to import torch.
        check: Refuses what only this workload cannot do.
        resolution_means: What `--resolution` counts.
        sizes: Options by name for a purpose: `test` takes at most about 0.3 s a step on one thread of a
            CPU, `gpu` gives a GPU enough to do.
        dataset_shapes: Data sets whose shape it can take.
        offloads: What it can keep in host memory between uses.
        source: The package it comes from, with its version where another library brings the model.
    """

    name: str
    domain: str
    summary: str
    parameters: int
    modes: tuple[str, ...]
    levels: tuple[str, ...]
    dtypes: tuple[str, ...]
    defaults: Mapping[str, int]
    smallest_resolution: int
    build: Callable[[Options], Program]
    check: Callable[[Options], None] = lambda _: None
    resolution_means: str = "Height and width of an image"
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    dataset_shapes: tuple[str, ...] = ()
    offloads: tuple[str, ...] = OFFLOADS
    source: str = BUILT_IN

    def defaults_for(self, *, size: str = DEFAULT_SIZE, dataset_shape: str = OWN_SHAPE) -> dict[str, int]:
        """Options where the user names none: those of the data set, then of the size, then `defaults`.

        Raises:
            UnusableInputError: The workload has no such size or cannot take that shape.
        """
        _one_of("size", size, (DEFAULT_SIZE, *self.sizes), self.name)
        found = {**self.defaults, **self.sizes.get(size, {})}
        if dataset_shape == OWN_SHAPE:
            return found
        if not self.dataset_shapes:
            raise UnusableInputError(
                f"--dataset-shape does not apply to {self.name}, which has no images",
                hint="remove --dataset-shape",
            )
        _one_of("dataset-shape", dataset_shape, self.dataset_shapes, self.name)
        return {**found, **DATASET_SHAPES[dataset_shape].defaults}

    def validate(self, options: Options) -> None:
        """Refuse options this workload cannot run with, before anything is built.

        Raises:
            UnusableInputError: An option is unknown or impossible; the hint names what is possible.
        """
        _one_of("level", options.level, self.levels, self.name)
        _one_of("mode", options.mode, self.modes, self.name)
        _one_of("dtype", options.dtype, self.dtypes, self.name)
        _one_of("zero-grad", options.zero_grad, ZERO_GRADS, self.name)
        _one_of("offload", options.offload, self.offloads, self.name)
        _at_least("batch-size", options.batch_size, 1, self.name)
        _at_least("resolution", options.resolution, self.smallest_resolution, self.name)
        self.defaults_for(size=options.size, dataset_shape=options.dataset_shape)
        if options.offload == "activations" and options.mode == "infer":
            raise UnusableInputError(
                f"{self.name} has no activations to offload in inference",
                hint="use --mode train or --offload parameters",
            )
        if options.level == LIBTORCH and options.offload != "none":
            raise UnusableInputError(
                f"--level libtorch does not support --offload for {self.name}",
                hint="use --offload none or --level eager",
            )
        self.check(options)


def _one_of(option: str, value: str, allowed: tuple[str, ...], workload: str) -> None:
    if value not in allowed:
        raise UnusableInputError(
            f"{workload} has no {option} {value!r}", hint=f"use --{option} {' or '.join(allowed)}"
        )


def _at_least(option: str, value: int, least: int, workload: str) -> None:
    if value < least:
        raise UnusableInputError(
            f"{workload} cannot run with --{option} {value}", hint=f"use --{option} {least} or more"
        )
