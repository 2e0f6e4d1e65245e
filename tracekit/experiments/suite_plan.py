"""Plan of a suite: a sweep of several parts.

* `characterization`: every workload, mode and level, at the sizes of the suite; at size `test` Inductor
  compiles only the workloads that compile fast.
* `zero_grad`: training with the two other ways of clearing gradients; at size `test` one workload per domain.
* `offload`: parameters that are moved to host memory and back in each step, on a GPU.
* `curves`: ResNet-50 over resolution and batch size, not compiled, as each size would be compiled anew.
* `threads`: the MNIST network with all threads and with one, and on the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from operator import attrgetter
from statistics import fmean
from typing import Any

from tracekit import registry
from tracekit.analysis import Column
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments.sweep_model import SUITE, Cell, Plan, Settings
from tracekit.experiments.sweep_table import Row
from tracekit.runs import environment
from tracekit.workloads.base import COMPILE, DOMAINS, EAGER, INDUCTOR, Workload

CHARACTERIZATION, ZERO_GRAD, OFFLOAD = "characterization", "zero_grad", "offload"
CURVES, THREADS = "curves", "threads"
CURVE, SHAPE, EPOCH = "resnet50", "pascal", "mnist_cnn"
EPOCH_SAMPLES = 60_000
OFFLOADED = "vgg16"
FIXED = "_fixed"
"""Suffix of workloads that are fixed variants of another one."""
LEVELS = (EAGER, COMPILE)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a suite: steps, sizes of the curves, and workloads that Inductor compiles; None for all."""

    steps: int
    warmup: int
    sides: tuple[int, ...]
    batches: tuple[int, ...]
    compiled: tuple[str, ...] | None = None


TEST = "test"
FAST_TO_COMPILE = ("bert", "dlrm", "lennard_jones", "mnist_cnn", "sac")
"""Workloads that Inductor compiles within half a minute on two cores."""
_DOUBLING = (8, 16, 32, 64, 128, 256, 512, 1024)
SIZES = {
    TEST: Size(steps=3, warmup=1, sides=(32, 64), batches=(2, 4), compiled=FAST_TO_COMPILE),
    "gpu": Size(steps=10, warmup=3, sides=_DOUBLING, batches=_DOUBLING),
}


def plan(
    *,
    size: str = "test",
    only: Collection[str] = (),
    domains: Collection[str] = (),
    levels: Sequence[str] = LEVELS,
    backends: Sequence[str] = (INDUCTOR,),
    repeats: int = 1,
) -> Plan:
    """Create the plan of a suite.

    Args:
        size: A name in `SIZES`.
        only: Workloads; by default all.
        domains: Domains; by default all.
        levels: Levels to measure, if a workload supports them.
        backends: Backends of level `compile`.
        repeats: Measurements per cell.

    Raises:
        PluginError: A workload of `only` is unknown.
        UnusableInputError: No workload is left.
    """
    chosen = workloads(only=only, domains=domains)
    if not chosen:
        raise UnusableInputError("no workload matches", hint="see `tracekit workloads`")
    decided, gpu = SIZES[size], bool(environment.nvml_gpus())
    movable = [workload for workload in chosen if gpu and "parameters" in workload.offloads]
    offloaded = [workload for workload in movable if workload.name == OFFLOADED]
    timed = [workload for workload in chosen if workload.name == EPOCH]
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    cells = [
        *_characterization(chosen, size, levels, backends),
        *_grid(ZERO_GRAD, _training(chosen, size), size, zero_grad=("zero", "foreach")),
        *_grid(OFFLOAD, offloaded, size, mode=("infer",), offload=("parameters",)),
        *_curves(chosen, size, levels),
        *_grid(THREADS, timed, size, device=devices, threads=(None, 1)),
    ]
    return Plan(
        name=f"suite-{size}",
        kind=SUITE,
        cells=tuple(cells),
        repeats=repeats,
        steps=decided.steps,
        warmup=decided.warmup,
        size=size,
    )


def workloads(*, only: Collection[str] = (), domains: Collection[str] = ()) -> list[Workload]:
    """Return the loadable workloads by name.

    Raises:
        PluginError: One that is named is unknown.
    """
    named = [registry.load(registry.WORKLOADS, name) for name in only]
    loaded: list[Workload] = named if only else registry.load_all(registry.WORKLOADS)[0]
    return [workload for workload in loaded if not domains or workload.domain in domains]


def _grid(part: str, workloads: Iterable[Workload], size: str, **axes: Sequence[Any]) -> Iterator[Cell]:
    """Yield the cells of a part: each workload with all combinations of settings, the last varying fastest.

    Workloads without that size have their default size.
    """
    for workload in workloads:
        preset = size if size in workload.sizes else "default"
        sizes = {name: workload.defaults_for(size=preset)[name] for name in ("resolution", "batch_size")}
        for values in product(*axes.values()):
            settings = {**sizes, **dict(zip(axes, values, strict=True))}
            yield Cell(settings=Settings(workload=workload.name, size=preset, **settings), part=part)


def _characterization(
    workloads: Iterable[Workload], size: str, levels: Sequence[str], backends: Sequence[str]
) -> Iterator[Cell]:
    compiled = SIZES[size].compiled
    for workload in workloads:
        for level in (level for level in levels if level in workload.levels):
            for backend in backends if level == COMPILE else (None,):
                if backend != INDUCTOR or compiled is None or workload.name in compiled:
                    axes = {"level": (level,), "backend": (backend,), "mode": workload.modes}
                    yield from _grid(CHARACTERIZATION, [workload], size, **axes)


def _training(workloads: Iterable[Workload], size: str) -> list[Workload]:
    """Return the workloads that train; at size `test` only the first of each domain, to limit the time."""
    training = [workload for workload in workloads if "train" in workload.modes]
    if size == TEST:
        training = list({workload.domain: workload for workload in reversed(training)}.values())[::-1]
    return training


def _curves(workloads: Iterable[Workload], size: str, levels: Sequence[str]) -> Iterator[Cell]:
    for workload in workloads:
        if workload.name == CURVE and SHAPE in workload.dataset_shapes:
            yield from _grid(
                CURVES,
                [workload],
                size,
                dataset_shape=(SHAPE,),
                level=[level for level in levels if level in workload.levels and level != COMPILE],
                mode=workload.modes,
                resolution=[side for side in SIZES[size].sides if side >= workload.smallest_resolution],
                batch_size=SIZES[size].batches,
            )


GEOMEAN, OVERALL = "geomean", "overall"
REASONS = "reasons"
RATIOS = "ratios"
"""Reason for missing times in rows of geometric means."""
MODES = ("train", "infer")
MIN_RUNS = 4
"""With 4 runs per side, 2 of 70 orders separate the sides by chance: 3%."""
FEW = f"few runs: fewer than {MIN_RUNS} per side may differ by chance; use --repeat {MIN_RUNS}"
UNMEASURED = "not in the suite"
LEFT_OUT = "skipped: at this size only workloads that Inductor compiles quickly are compiled"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the report."""

    name: str
    title: str
    definition: str
    source: str  # reference for its layout
    columns: tuple[Column, ...]
    # values by column name; `reasons` holds why values are missing, by column
    rows: tuple[dict[str, Any], ...]

    def values(self) -> list[dict[str, Any]]:
        """Return the rows for output to people, with short reasons in place of missing values."""
        return [
            {**row, **{name: reason.partition(":")[0] for name, reason in row[REASONS].items()}}
            for row in self.rows
        ]

    @property
    def layout(self) -> str:
        """The reference for its layout."""
        return f"Layout follows {self.source}."

    @property
    def filled(self) -> tuple[Column, ...]:
        """Columns with any value."""
        return tuple(
            column for column in self.columns if any(row[column.name] is not None for row in self.rows)
        )

    def empty(self) -> dict[str, list[Column]]:
        """Return the columns without values, by reason."""
        by_reason: dict[str, list[Column]] = {}
        for column in self.columns if self.rows else ():
            if column not in self.filled:
                reasons = [row[REASONS][column.name] for row in self.rows]
                texts = dict.fromkeys(why.partition(": ")[2] or why for why in reasons if why != RATIOS)
                by_reason.setdefault("; ".join(texts) or RATIOS, []).append(column)
        return by_reason

    def full_reasons(self) -> list[str]:
        """Return the distinct full reasons that cells shorten."""
        names = {column.name for column in self.filled}
        reasons = [why for row in self.rows for name, why in row[REASONS].items() if name in names]
        return list(dict.fromkeys(why for why in reasons if ":" in why))


@dataclass(frozen=True, kw_only=True)
class SuiteRows:
    """Rows of a suite's sweep by part, in the order of the plan, and the domains of workloads."""

    parts: Mapping[str, Sequence[Row]]
    domains: Mapping[str, str]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> SuiteRows:
        """Sort rows by part."""
        names = dict.fromkeys(row.settings.workload for row in rows)
        parts = {part: list(group) for part, group in groupby(rows, key=attrgetter("part"))}
        return cls(parts=parts, domains={name: _domain(name) for name in names})

    def part(self, name: str) -> Sequence[Row]:
        """Return the rows of a part."""
        return self.parts.get(name, ())

    def eager(self) -> list[Row]:
        """Return the eager rows of the characterization, by domain."""
        eager = [row for row in self.part(CHARACTERIZATION) if row.settings.level == EAGER]
        order = {domain: number for number, domain in enumerate(DOMAINS)}
        return sorted(eager, key=lambda row: order.get(self.domains[row.settings.workload], len(order)))

    def ways(self) -> list[str]:
        """Return the execution modes of the characterization other than eager; compile if there are none."""
        others = (row.settings for row in self.part(CHARACTERIZATION) if row.settings.level != EAGER)
        return list(dict.fromkeys(map(way, others))) or [COMPILE]

    def at(self, row: Row, name: str) -> Row | None:
        """Return the row of the same settings in another execution mode."""
        others = (other for other in self.part(CHARACTERIZATION) if way(other.settings) == name)
        return next(
            (other for other in others if replace(other.settings, level=EAGER, backend=None) == row.settings),
            None,
        )

    def like(self, row: Row, **changes: Any) -> Row | None:
        """Return the row whose settings differ only by the given changes."""
        wanted = replace(row.settings, **changes)
        rows = (other for part in self.parts.values() for other in part)
        return next((other for other in rows if other.settings == wanted), None)


def way(settings: Settings) -> str:
    """Describe an execution mode: the level, and the backend unless it is Inductor.

    Example:
        >>> from tracekit.experiments.sweep_model import Settings
        >>> way(Settings(workload="w", resolution=8, batch_size=1, level="compile", backend="aot_eager"))
        'compile (aot_eager)'
    """
    usual = settings.backend in {None, INDUCTOR}
    return settings.level if usual else f"{settings.level} ({settings.backend})"


def why_left_out(workload: str, name: str, *, measured: bool) -> str:
    """Return why a suite lacks a row of a workload in an execution mode.

    Args:
        workload: Name of the workload.
        name: The execution mode.
        measured: Whether the suite has any row in this mode.
    """
    if not measured:
        return UNMEASURED
    level = name.partition(" ")[0]
    try:
        has_level = level in registry.load(registry.WORKLOADS, workload).levels
    except TracekitError:  # no longer installed
        return UNMEASURED
    return LEFT_OUT if has_level else f"no level {level}"


def with_reasons(
    row: dict[str, Any], columns: Iterable[Column], why: str, by_column: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a row with a reason for each missing value.

    Args:
        row: Values by column.
        columns: Columns of the table.
        why: The reason.
        by_column: Reasons of single columns instead.
    """
    values = {column.name: row.get(column.name) for column in columns}
    return {
        **values,
        REASONS: {name: (by_column or {}).get(name, why) for name in values if values[name] is None},
    }


def why(row: Row | None, *, device: bool = False) -> str:
    """Return why a row lacks a value."""
    if row is None:
        return UNMEASURED
    if row.n and device:
        return row.device_reason or "no device recorded"
    return f"{row.outcome}: {row.reason}" if row.reason else "not recorded"


def runs_are_apart(a: Row, b: Row) -> bool | None:
    """Tell whether the runs of two rows do not overlap; None if there are too few runs."""
    times_a, times_b = a.run_step_ns, b.run_step_ns
    if min(len(times_a), len(times_b)) < MIN_RUNS:
        return None
    return max(times_a) < min(times_b) or max(times_b) < min(times_a)


def geomean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known positive values; None if there are none."""
    positive = [value for value in values if value]
    return math.exp(fmean(map(math.log, positive))) if positive else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    measured = [value for value in values if value is not None]
    return fmean(measured) if measured else None


def ratio(above: float | None, below: float | None) -> float | None:
    """Return the ratio if both values are known."""
    return above / below if above is not None and below else None


def _domain(name: str) -> str:
    try:
        return str(registry.load(registry.WORKLOADS, name).domain)
    except TracekitError:  # no longer installed
        return "other"


TORCHBENCH = "TorchBench (Hao et al., 2023)"
REPORT = "a student report on PyTorch's CUDA performance"
PUBLISHED_CURVES = "Levental and Orlova, When they go high we go low"


PUBLISHED_DOMAINS: dict[tuple[str, str], tuple[float, ...]] = {
    ("vision", "train"): (0.531, 0.021, 0.448),
    ("language", "train"): (0.849, 0.013, 0.138),
    ("recommendation", "train"): (0.754, 0.004, 0.242),
    ("rl", "train"): (0.102, 0.050, 0.848),
    ("speech", "train"): (0.288, 0.003, 0.709),
    ("vision", "infer"): (0.628, 0.014, 0.357),
    ("language", "infer"): (0.647, 0.008, 0.345),
    ("recommendation", "infer"): (0.514, 0.001, 0.485),
    ("rl", "infer"): (0.193, 0.084, 0.723),
    ("speech", "infer"): (0.503, 0.003, 0.494),
    (OVERALL, "train"): (0.568,),
    (OVERALL, "infer"): (0.554,),
}
"""Shares of active, data movement and idle time in Table 2 of TorchBench, on an A100."""
COMPILED = {"train": (1.30, 0.29, 1.31), "infer": (1.46, 0.29, 1.51)}
"""Geometric means, Fig. 3 and 4: eager over compiled time, compiled over eager host and device memory."""
FIXES = {"offload": 10.1, "scalar copy": 27.0}
"""Speedups of single fixes: of a model (pig2), and of one function (hf_Reformer)."""
EPOCH_S = {("cpu", "all"): 14.78, ("cpu", "1"): 24.08, ("cuda", "all"): 8.78, ("cuda", "1"): 9.53}
"""One epoch of MNIST by device and threads, seconds, of the report's Table 2."""
