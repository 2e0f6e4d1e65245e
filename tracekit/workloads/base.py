"""Declare a workload: its metadata, the options it takes, and how to build it; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tracekit.errors import UnusableInputError
from tracekit.workloads.options import WorkloadOptions

DOMAINS = ("vision", "language", "recommendation", "rl", "speech", "other")
MODES = ("train", "infer")
DTYPES = ("float32", "float64", "bfloat16", "float16")
ZERO_GRADS = ("default", "zero", "foreach")
OFFLOADS = ("none", "parameters", "activations")
EAGER, TORCHSCRIPT, COMPILE, LIBTORCH = "eager", "torchscript", "compile", "libtorch"
LEVELS = (EAGER, TORCHSCRIPT, COMPILE, LIBTORCH)
"""Execution modes: op by op from Python, as a TorchScript trace, through `torch.compile`, or from C++."""
INDUCTOR = "inductor"
DEFAULT_SIZE = WorkloadOptions.size
OWN_SHAPE = WorkloadOptions.dataset_shape
BUILT_IN = "tracekit"


@dataclass(frozen=True, kw_only=True)
class Options(WorkloadOptions):
    """Options of `tracekit collect` to build a workload with, all defaults resolved.

    Attributes:
        device: `cpu` or `cuda`.
        resolution: Pixels of a side, tokens or points; see `Workload.resolution_means`.
        pin_memory: Load batches into page-locked host memory and copy them without waiting.
        size: `default`, or a name in `Workload.sizes`, which may select a smaller model.
        backend: Backend of level `compile`.
    """

    workload: str = ""
    mode: str = field()
    device: str = field()
    batch_size: int = field()
    resolution: int = field()
    backend: str = INDUCTOR


GPU = "gpu"
"""Size that keeps a GPU busy."""
CONTEXT_BYTES = 1 << 30
"""Device memory of the CUDA context, its libraries and their workspaces."""
MARGIN = 1.25
"""Memory that the allocator takes over that of the tensors: workspaces of convolutions, and fragmentation."""
_ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of the tensors of a step in float32, in bytes.

    Attributes:
        fixed: Parameters, gradients, and state of the optimizer.
        sample: Each sample of a batch at the resolution of the size.
    """

    fixed: int
    sample: int

    def required_bytes(self, batch_size: int, dtype: str) -> int:
        """Return the device memory that a step needs, in bytes, with context and margin."""
        tensors = (self.fixed + batch_size * self.sample) * _ITEM_BYTES[dtype] / _ITEM_BYTES["float32"]
        return CONTEXT_BYTES + round(MARGIN * tensors)

    def fit_batch(self, batch_size: int, dtype: str, free: int) -> int:
        """Return the largest batch that fits: a multiple of 8 if possible, at least 1.

        Args:
            batch_size: Largest batch.
            dtype: One of `DTYPES`.
            free: Free device memory, bytes.
        """
        sizes = range(batch_size, 1, -1)
        fits = next((size for size in sizes if self.required_bytes(size, dtype) <= free), 1)
        return fits if fits == batch_size or fits < 8 else fits // 8 * 8


@dataclass(frozen=True, kw_only=True)
class DatasetShape:
    """Shape of the data sets of published studies; the data itself is always random.

    Attributes:
        channels: Channels of an image.
        classes: Number of classes.
        batch_size: Default images per step.
        side: Default height and width of an image; None if a study varies it.
    """

    channels: int
    classes: int
    batch_size: int
    side: int | None = None

    @property
    def defaults(self) -> dict[str, int]:
        """Default batch size, and resolution if the data set has one."""
        sizes = {"batch_size": self.batch_size}
        return sizes if self.side is None else {**sizes, "resolution": self.side}


DATASET_SHAPES = {
    "mnist": DatasetShape(channels=1, side=28, classes=10, batch_size=128),
    "cifar10": DatasetShape(channels=3, side=32, classes=10, batch_size=128),
    "stl10": DatasetShape(channels=3, side=96, classes=10, batch_size=128),
    "pascal": DatasetShape(channels=3, classes=20, batch_size=16),
}


class Program(Protocol):
    """A built workload."""

    def step(self) -> Any:
        """Run one step; returns its output (the loss when training) without waiting for the device."""
        ...


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A program that `tracekit collect --workload` can profile.

    Attributes:
        name: Registered name.
        domain: One of `DOMAINS`.
        summary: Description in one line.
        parameters: Number of trainable parameters with the defaults.
        defaults: Default batch size and resolution.
        smallest_resolution: Smallest input its layers can take.
        build: Makes the program; must be the first to import torch.
        modes: Supported modes: `train`, `infer`.
        levels: Supported execution modes, of `LEVELS`.
        dtypes: Supported element types.
        check: Refuses options that only this workload cannot run with.
        resolution_means: What `--resolution` counts.
        sizes: Batch size and resolution of each preset: a step of `test` takes at most about 0.3 s on one
            CPU thread, `gpu` keeps a GPU busy.
        dataset_shapes: Data sets whose shape it can take.
        offloads: Supported values of `--offload`.
        source: Package of the model, with its version if it is another library.
        memory: Memory of a step of size `gpu` by mode; empty if it is unknown.
    """

    name: str
    domain: str
    summary: str
    parameters: int
    defaults: Mapping[str, int]
    build: Callable[[Options], Program]
    smallest_resolution: int = 1
    modes: tuple[str, ...] = MODES
    levels: tuple[str, ...] = LEVELS
    dtypes: tuple[str, ...] = DTYPES
    check: Callable[[Options], None] = lambda _: None
    resolution_means: str = "Height and width of an image"
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    dataset_shapes: tuple[str, ...] = ()
    offloads: tuple[str, ...] = OFFLOADS
    source: str = BUILT_IN
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def gpu_memory(self) -> dict[str, int]:
        """Device memory that size `gpu` needs in float32, in bytes, by mode; empty if it is unknown."""
        batch = self.sizes[GPU]["batch_size"] if GPU in self.sizes else 0
        return {mode: memory.required_bytes(batch, "float32") for mode, memory in self.memory.items()}

    def defaults_for(self, *, size: str = DEFAULT_SIZE, dataset_shape: str = OWN_SHAPE) -> dict[str, int]:
        """Return default batch size and resolution: of the data set, else of the size, else `defaults`.

        Raises:
            UnusableInputError: The workload has no such size or cannot take that shape.
        """
        _one_of("size", size, (DEFAULT_SIZE, *self.sizes), self.name)
        defaults = {**self.defaults, **self.sizes.get(size, {})}
        if dataset_shape == OWN_SHAPE:
            return defaults
        if not self.dataset_shapes:
            message = f"--dataset-shape does not apply to {self.name}, which has no images"
            raise UnusableInputError(message, hint="remove --dataset-shape")
        _one_of("dataset-shape", dataset_shape, self.dataset_shapes, self.name)
        return {**defaults, **DATASET_SHAPES[dataset_shape].defaults}

    def validate(self, options: Options) -> None:
        """Refuse options that this workload cannot run with.

        Raises:
            UnusableInputError: A value is not supported; the hint names those that are.
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
            message = f"{self.name} has no activations to offload in inference"
            raise UnusableInputError(message, hint="use --mode train or --offload parameters")
        if options.level == LIBTORCH and options.offload != "none":
            message = f"--level libtorch does not support --offload for {self.name}"
            raise UnusableInputError(message, hint="use --offload none or --level eager")
        self.check(options)


def _one_of(option: str, value: str, allowed: tuple[str, ...], workload: str) -> None:
    if value not in allowed:
        message = f"{workload} has no {option} {value!r}"
        raise UnusableInputError(message, hint=f"use --{option} {' or '.join(allowed)}")


def _at_least(option: str, value: int, least: int, workload: str) -> None:
    if value < least:
        message = f"{workload} cannot run with --{option} {value}"
        raise UnusableInputError(message, hint=f"use --{option} {least} or more")


def batch_norm_check(name: str, *, side: int) -> Callable[[Options], None]:
    """Return a check that refuses to train on one image whose deepest layers see a single pixel.

    Args:
        name: Name of the workload.
        side: Largest resolution that leaves a single pixel.
    """

    def check(options: Options) -> None:
        if options.mode == "train" and options.batch_size == 1 and options.resolution <= side:
            raise UnusableInputError(
                f"{name} cannot train on one image of {options.resolution} pixels: "
                "batch normalization needs more than one value per channel",
                hint=f"use --batch-size 2 or --resolution {side + 1} or more",
            )

    return check


def positions_check(name: str, positions: int, *, chunk: int = 1) -> Callable[[Options], None]:
    """Return a check that refuses more tokens than a model has positions, or an incomplete last chunk.

    Args:
        name: Name of the workload.
        positions: Largest number of tokens.
        chunk: Tokens that the model reads together.
    """

    def check(options: Options) -> None:
        tokens = options.resolution
        if tokens > positions:
            message = f"{name} has {positions} positions and cannot take --resolution {tokens}"
            raise UnusableInputError(message, hint=f"use --resolution {positions} or less")
        if tokens % chunk:
            message = f"{name} reads chunks of {chunk} tokens and cannot take --resolution {tokens}"
            raise UnusableInputError(message, hint=f"use --resolution {(tokens // chunk + 1) * chunk}")

    return check
