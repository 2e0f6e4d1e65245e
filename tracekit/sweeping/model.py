"""What a sweep is made of: settings, cells, the plan of them, and records of what happened."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from tracekit.collecting import Request
from tracekit.workloads.base import DEFAULT_SIZE, OWN_SHAPE

SWEEP, SUITE = "sweep", "suite"


class Outcome(StrEnum):
    """How the measurement of a cell ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one cell runs with; None leaves the threads to torch.

    Attributes:
        size: Name in the workload's `sizes`, or `default`: what it is where nothing else is said.
        dataset_shape: Data set whose channels and classes a workload on images takes; `none` leaves its own.
        offload: What lies in host memory between uses.
        backend: What compiles at level `compile`; None elsewhere.
    """

    workload: str
    mode: str = "train"
    level: str = "eager"
    dtype: str = "float32"
    threads: int | None = None
    pin_memory: bool = False
    zero_grad: str = "default"
    resolution: int
    batch_size: int
    device: str = "auto"
    size: str = DEFAULT_SIZE
    dataset_shape: str = OWN_SHAPE
    offload: str = "none"
    backend: str | None = None

    @property
    def key(self) -> str:
        """Names the settings among all others.

        Example:
            >>> Settings(workload="w", resolution=8, batch_size=1).key
            'e8f448f2ad209ee7'
        """
        return _key(self)

    @property
    def line(self) -> tuple[Any, ...]:
        """All but the sizes: settings of one line grow only in batch size and resolution."""
        return tuple(
            value for name, value in asdict(self).items() if name not in {"resolution", "batch_size"}
        )

    def request(self, *, steps: int, warmup: int, seed: int, profile: bool = True) -> Request:
        """What to collect.

        Args:
            steps: Steps to time, and as many to profile.
            warmup: Steps before them.
            seed: Of parameters and data.
            profile: Whether to profile them at all.
        """
        return Request(**asdict(self), steps=steps, warmup=warmup, seed=seed, no_profile=not profile)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of a sweep; `part` says what a suite measures it for."""

    settings: Settings
    part: str = ""

    @property
    def key(self) -> str:
        """Name of its records; cells of several parts with the same settings are measured once."""
        return self.settings.key


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides what a sweep measures.

    Attributes:
        name: What it is called; part of its id.
        kind: `sweep` or `suite`.
        cells: In the order in which they are measured; of a search, the first of each line.
        repeats: Measurements of each cell, each in a fresh process.
        search: Whether the batch is doubled from each cell to the best throughput.
        most: Largest batch of a search.
        size: Sizes of a suite.
        profile: Whether the steps are profiled, too.
    """

    name: str
    kind: str = SWEEP
    cells: tuple[Cell, ...]
    repeats: int = 1
    steps: int = 5
    warmup: int = 2
    seed: int = 0
    collector: str = "auto"
    search: bool = False
    most: int = 1 << 20
    size: str = ""
    profile: bool = True


@dataclass(frozen=True, kw_only=True)
class Values:
    """What one run measured; None where nothing was.

    Attributes:
        run_id: The run in the store.
        device: `cpu` or `cuda`.
        threads: Threads an operation could use.
        step_ns: Un-profiled step times.
        host_peak_bytes: Peak resident memory of the process.
        allocated_peak_bytes: Peak of what torch's allocator handed out, of the device with most.
        reserved_peak_bytes: Peak of what it held.
        used_peak_bytes: Most memory in use on the whole device, by NVML.
        utilization: Mean of NVML's GPU utilization, 0 to 1.
        window_ns: Length of the profiled steps on the busiest device.
        active_ns: Of it, time in which a kernel ran.
        movement_ns: Of it, time in which a copy ran and no kernel did.
        idle_ns: Of it, time in which nothing ran.
        compile_ns: Time that torch took to compile, before the timed steps as a rule.
        guards: Conditions that compiled code checks before it runs.
        graph_breaks: Frames whose graph ended early.
    """

    run_id: str
    device: str
    threads: int | None
    step_ns: tuple[int, ...]
    gpu: str | None = None
    host_peak_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    used_peak_bytes: int | None = None
    utilization: float | None = None
    window_ns: int | None = None
    active_ns: int | None = None
    movement_ns: int | None = None
    idle_ns: int | None = None
    compile_ns: int | None = None
    guards: int | None = None
    graph_breaks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """What became of one measurement of a cell.

    Attributes:
        key: Of the cell.
        repeat: Which of its measurements, from 0.
        reason: Why there are no values, in one line.
        seconds: Time it took.
    """

    key: str
    repeat: int
    outcome: Outcome
    reason: str = ""
    values: Values | None = None
    seconds: float = 0.0


@lru_cache(maxsize=1 << 16)
def _key(settings: Settings) -> str:
    content = asdict(settings)
    if settings.backend is None:  # where nothing is compiled, keys are as before there were backends
        del content["backend"]
    return digest(content, 16)


def digest(value: Any, length: int) -> str:
    """A short hash of a value that JSON can hold.

    Example:
        >>> digest({"a": 1}, 8)
        '015abd7f'
    """
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:length]
