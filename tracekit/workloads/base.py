"""What a workload is: metadata, the options it takes, and how to build one; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MODES = ("train", "infer")
DTYPES = ("float32", "float64", "bfloat16", "float16")
ZERO_GRADS = ("default", "zero", "foreach")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to build a workload; every value is decided.

    Attributes:
        mode: `train` or `infer`.
        device: `cpu` or `cuda`.
        batch_size: Samples in a step.
        resolution: Height and width of an image.
        dtype: Element type of parameters and inputs, by its torch name.
        zero_grad: `default` drops the gradients, `zero` fills each with zeros by itself, `foreach` fills
            them all in one call.
        pin_memory: Batches come in page-locked host memory and are copied without waiting.
        seed: Seeds parameters and data.
    """

    mode: str
    device: str
    batch_size: int
    resolution: int
    dtype: str = "float32"
    zero_grad: str = "default"
    pin_memory: bool = False
    seed: int = 0


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
        domain: Field it comes from, such as `vision`.
        summary: What it is, in one line.
        parameters: Number of trainable parameters with the defaults.
        modes: What it can do: `train`, `infer`.
        levels: Ways to run it: `eager`, ...
        dtypes: Element types it can compute in.
        defaults: Options by name where the user names none.
        smallest_resolution: The smallest image its layers can take.
        build: Makes the program; the first thing to import torch.
        check: Refuses what only this workload cannot do.
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

    def validate(self, options: Options, *, level: str = "eager") -> None:
        """Refuse options this workload cannot run with, before anything is built.

        Raises:
            UnusableInputError: An option is unknown or impossible; the hint names what is possible.
        """
        _one_of("level", level, self.levels, self.name)
        _one_of("mode", options.mode, self.modes, self.name)
        _one_of("dtype", options.dtype, self.dtypes, self.name)
        _one_of("zero-grad", options.zero_grad, ZERO_GRADS, self.name)
        _at_least("batch-size", options.batch_size, 1, self.name)
        _at_least("resolution", options.resolution, self.smallest_resolution, self.name)
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
