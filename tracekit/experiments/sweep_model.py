"""Data model of sweeps: settings, cells, plan and records; search for the best batch size.

Source: TorchBench (Hao et al., 2023), which doubles the batch size of inference for the best use of the
device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
from statistics import fmean, median
from typing import Any

import msgspec

from tracekit.workloads.base import DEFAULT_SIZE, OWN_SHAPE

SWEEP, SUITE = "sweep", "suite"


class Outcome(StrEnum):
    """Outcome of the measurement of a cell."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a cell; None for threads is torch's default."""

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
    size: str = DEFAULT_SIZE  # name in the workload's `sizes`, or `default`
    # data set whose channels and classes an image workload uses; `none` for its own
    dataset_shape: str = OWN_SHAPE
    offload: str = "none"  # what is offloaded to host memory between uses
    backend: str | None = None  # backend at level `compile`; None at other levels

    @property
    def key(self) -> str:
        """Identifier of the settings.

        Example:
            >>> Settings(workload="w", resolution=8, batch_size=1).key
            'e8f448f2ad209ee7'
        """
        return _key(self)

    @property
    def line(self) -> tuple[Any, ...]:
        """All settings but batch size and resolution, which vary within a series."""
        return tuple(
            value for name, value in asdict(self).items() if name not in {"resolution", "batch_size"}
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A point of a sweep; `part` is the part of a suite it belongs to."""

    settings: Settings
    part: str = ""

    @property
    def key(self) -> str:
        """Key of its records; cells of several parts with the same settings are measured once."""
        return self.settings.key


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a sweep."""

    name: str  # name, part of the id
    kind: str = SWEEP  # `sweep` or `suite`
    cells: tuple[Cell, ...]  # cells in the order of measurement; in a search, the first of each series
    repeats: int = 1  # measurements per cell, each in a new process
    steps: int = 5
    warmup: int = 2
    seed: int = 0
    collector: str = "auto"
    search: bool = False  # whether to search the best throughput from each cell by doubling the batch size
    most: int = 1 << 20  # largest batch size of a search
    size: str = ""
    profile: bool = True  # whether to profile the steps


@dataclass(frozen=True, kw_only=True)
class Values:
    """Values of a run, most by the names of `sweep_table.COLUMNS`; None if not measured."""

    run_id: str
    device: str  # `cpu` or `cuda`
    threads: int | None  # intra-op threads
    step_ns: tuple[int, ...]  # unprofiled step times
    gpu: str | None = None
    host_peak_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    used_peak_bytes: int | None = None
    utilization: float | None = None
    window_ns: int | None = None  # length of the profiled steps on the busiest device
    active_ns: int | None = None  # time in it with a kernel running
    movement_ns: int | None = None  # time in it with a copy but no kernel running
    idle_ns: int | None = None  # time in it with nothing running
    compile_ns: int | None = None
    guards: int | None = None
    graph_breaks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record of a measurement of a cell."""

    key: str
    repeat: int  # number of the repeat, from 0
    outcome: Outcome
    reason: str = ""  # why there are no values, in one line
    values: Values | None = None
    seconds: float = 0.0  # duration of the measurement


@lru_cache(maxsize=1 << 16)
def _key(settings: Settings) -> str:
    content = asdict(settings)
    if settings.backend is None:  # keeps keys of settings without a backend compatible
        del content["backend"]
    return digest(content, 16)


def digest(value: Any, length: int) -> str:
    """Return a short hash of a JSON-serializable value.

    Example:
        >>> digest({"a": 1}, 8)
        '015abd7f'
    """
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:length]


Done = Mapping[tuple[str, int], Record]
"""Records by cell key and repeat."""
MIN_RISE = 0.05
"""Smallest relative rise of throughput for which the search continues."""
DOUBT = "; its fastest step did rise by that, so this may be noise: increase --steps and --repeat"
"""Appended if the step times of the last batch size vary by more than the required rise."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best batch size of a search, if any was measured, and why it ended; empty until then."""

    best: int | None
    samples_per_second: float | None
    why: str


@dataclass(frozen=True)
class BatchSearch:
    """Search of the batch size with the best throughput, by doubling that of a first cell."""

    first: Cell
    plan: Plan
    done: Done

    def next_cells(self) -> Iterator[Cell]:
        """Yield cells with doubled batch sizes; checks the result of each before the next."""
        while not self.result().why:
            cells = self.measured_cells()
            yield _double(cells[-1]) if cells else self.first

    def measured_cells(self) -> list[Cell]:
        """Return the cells with complete measurements."""
        cells, cell = [], self.first
        while all((cell.key, repeat) in self.done for repeat in range(self.plan.repeats)):
            cells.append(cell)
            cell = _double(cell)
        return cells

    def result(self) -> SearchResult:
        """Return the result so far."""
        rates: list[tuple[float, int]] = []
        why = ""
        for cell in self.measured_cells():
            batch = cell.settings.batch_size
            values = [self.done[cell.key, repeat].values for repeat in range(self.plan.repeats)]
            steps = [run.step_ns for run in values if run and run.step_ns]
            if not steps:
                record = self.done[cell.key, 0]
                out_of_memory = record.outcome is Outcome.OUT_OF_MEMORY
                what = "ran out of memory" if out_of_memory else f"could not be measured: {record.reason}"
                why = f"batch size {batch} {what}"
                break
            rate = batch * 1e9 / median(map(fmean, steps))
            least = rates[-1][0] * (1 + MIN_RISE) if rates else 0.0
            if rate < least:
                change, required = f"{100 * (rate / rates[-1][0] - 1):+.1f}%", f"{100 * MIN_RISE:g}%"
                why = f"throughput changed by {change} at batch size {batch}, below the required {required}"
                why += DOUBT if least <= batch * 1e9 / min(map(min, steps)) else ""
            elif batch * 2 > self.plan.most:
                why = f"batch size {batch} is the largest allowed"
            rates.append((rate, batch))
            if why:
                break
        rate_and_batch = max(rates, default=(None, None))
        return SearchResult(best=rate_and_batch[1], samples_per_second=rate_and_batch[0], why=why)


def _double(cell: Cell) -> Cell:
    return replace(cell, settings=replace(cell.settings, batch_size=2 * cell.settings.batch_size))
