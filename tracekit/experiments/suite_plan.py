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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tracekit import registry
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments.sweep_model import SUITE, Cell, Plan, Settings
from tracekit.runs import environment
from tracekit.workloads.base import COMPILE, DOMAINS, EAGER, INDUCTOR, Workload

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.experiments.sweep_table import Row


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
    """Size of a suite.

    Attributes:
        steps: Steps to time, and to profile.
        warmup: Warm-up steps.
        sides: Resolutions of the curves.
        batches: Batch sizes of the curves.
        compiled: Workloads to compile with Inductor; None for all.
    """

    steps: int
    warmup: int
    sides: tuple[int, ...]
    batches: tuple[int, ...]
    compiled: tuple[str, ...] | None = None


TEST = "test"
SOON = ("bert", "dlrm", "lennard_jones", "mnist_cnn", "sac")
"""Workloads that Inductor compiles within half a minute on two cores."""
_DOUBLING = (8, 16, 32, 64, 128, 256, 512, 1024)
SIZES = {
    TEST: Size(steps=3, warmup=1, sides=(32, 64), batches=(2, 4), compiled=SOON),
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
    known = workloads(only=only, domains=domains)
    if not known:
        raise UnusableInputError("no workload matches", hint="see `tracekit workloads`")
    decided, gpu = SIZES[size], bool(environment.nvml_gpus())
    cells = [
        *_characterization(known, size, _ways(levels, backends)),
        *_zero_grad(known, size),
        *(_offload(known, size) if gpu else ()),
        *_curves(known, size, levels),
        *_threads(known, size, gpu=gpu),
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
    found: list[Workload] = (
        [registry.load(registry.WORKLOADS, name) for name in only]
        if only
        else registry.load_all(registry.WORKLOADS)[0]
    )
    return [one for one in found if not domains or one.domain in domains]


def _ways(levels: Sequence[str], backends: Sequence[str]) -> list[tuple[str, str | None]]:
    return [(level, backend) for level in levels for backend in (backends if level == COMPILE else (None,))]


def _characterization(
    known: Iterable[Workload], size: str, ways: Sequence[tuple[str, str | None]]
) -> list[Cell]:
    return [
        Cell(
            settings=replace(_settings(one, size), mode=mode, level=level, backend=backend),
            part=CHARACTERIZATION,
        )
        for one in known
        for level, backend in ways
        if level in one.levels and _is_compiled(one, size, backend)
        for mode in one.modes
    ]


def _is_compiled(one: Workload, size: str, backend: str | None) -> bool:
    """Tell whether a cell is measured at this size; Inductor compiles only some workloads."""
    compiled = SIZES[size].compiled
    return backend != INDUCTOR or compiled is None or one.name in compiled


def _zero_grad(known: Iterable[Workload], size: str) -> list[Cell]:
    """Return the workloads that train; at size `test` only the first of each domain, to limit the time."""
    training = [one for one in known if "train" in one.modes]
    if size == TEST:
        training = list({one.domain: one for one in reversed(training)}.values())[::-1]
    return [
        Cell(settings=replace(_settings(one, size), zero_grad=way), part=ZERO_GRAD)
        for one in training
        for way in ("zero", "foreach")
    ]


def _offload(known: Iterable[Workload], size: str) -> list[Cell]:
    return [
        Cell(settings=replace(_settings(one, size), mode="infer", offload="parameters"), part=OFFLOAD)
        for one in known
        if one.name == OFFLOADED and "parameters" in one.offloads
    ]


def _curves(known: Iterable[Workload], size: str, levels: Sequence[str]) -> list[Cell]:
    of = next((one for one in known if one.name == CURVE and SHAPE in one.dataset_shapes), None)
    if of is None:
        return []
    base = replace(_settings(of, size), dataset_shape=SHAPE)
    return [
        Cell(settings=replace(base, mode=mode, level=level, resolution=side, batch_size=batch), part=CURVES)
        for level in levels
        if level in of.levels and level != COMPILE
        for mode in of.modes
        for side in SIZES[size].sides
        if side >= of.smallest_resolution
        for batch in SIZES[size].batches
    ]


def _threads(known: Iterable[Workload], size: str, *, gpu: bool) -> list[Cell]:
    of = next((one for one in known if one.name == EPOCH), None)
    if of is None:
        return []
    base = _settings(of, size)
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    return [
        Cell(settings=replace(base, device=device, threads=count), part=THREADS)
        for device in devices
        for count in (None, 1)
    ]


def _settings(of: Workload, size: str) -> Settings:
    """Return a workload at the size of a suite, or at its default size."""
    known = size if size in of.sizes else "default"
    sizes = of.defaults_for(size=known)
    resolution, batch = sizes["resolution"], sizes["batch_size"]
    return Settings(workload=of.name, size=known, resolution=resolution, batch_size=batch)


GEOMEAN, OVERALL = "geomean", "overall"
REASONS = "reasons"
RATIOS = "ratios"
"""Reason for missing times in rows of geometric means."""
MODES = ("train", "infer")
FEWEST = 4
"""With 4 runs per side, 2 of 70 orders separate the sides by chance: 3%."""
FEW = f"few runs: fewer than {FEWEST} per side may differ by chance; use --repeat {FEWEST}"
UNMEASURED = "not in the suite"
LEFT_OUT = "skipped: at this size only workloads that Inductor compiles quickly are compiled"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the report.

    Attributes:
        definition: Definitions of its values.
        source: Reference for its layout.
        rows: Values by column name; `reasons` holds why values are missing, by column.
    """

    name: str
    title: str
    definition: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]

    def values(self) -> list[dict[str, Any]]:
        """Return the rows for output to people, with short reasons in place of missing values."""
        return [
            {**row, **{name: reason.partition(":")[0] for name, reason in row[REASONS].items()}}
            for row in self.rows
        ]

    @property
    def filled(self) -> tuple[Column, ...]:
        """Columns with any value."""
        return tuple(one for one in self.columns if any(row[one.name] is not None for row in self.rows))

    def empty(self) -> dict[str, list[Column]]:
        """Return the columns without values, by reason."""
        found: dict[str, list[Column]] = {}
        for one in self.columns if self.rows else ():
            if one not in self.filled:
                every = (row[REASONS][one.name] for row in self.rows)
                known = dict.fromkeys(why.partition(": ")[2] or why for why in every if why != RATIOS)
                found.setdefault("; ".join(known) or RATIOS, []).append(one)
        return found

    def shortened(self) -> list[str]:
        """Return the distinct full reasons that cells shorten."""
        names = {one.name for one in self.filled}
        every = [why for row in self.rows for name, why in row[REASONS].items() if name in names]
        return list(dict.fromkeys(why for why in every if ":" in why))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Rows of a suite's sweep by part, and the domains of workloads."""

    parts: Mapping[str, Sequence[Row]]
    domains: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Iterable[Row]) -> Kind:
        """Sort rows by part."""
        parts: dict[str, list[Row]] = {}
        for row in found:
            parts.setdefault(row.part, []).append(row)
        names = dict.fromkeys(row.settings.workload for own in parts.values() for row in own)
        return cls(parts=parts, domains={name: _domain(name) for name in names})

    def part(self, name: str) -> Sequence[Row]:
        """Return the rows of a part, in the order of the plan."""
        return self.parts.get(name, ())

    def eager(self) -> list[Row]:
        """Return the eager rows of the characterization, by domain."""
        own = [row for row in self.part(CHARACTERIZATION) if row.settings.level == "eager"]
        return sorted(own, key=lambda row: _place(self.domains[row.settings.workload]))

    def ways(self) -> list[str]:
        """Return the execution modes of the characterization other than eager; compile if there are none."""
        own = (row.settings for row in self.part(CHARACTERIZATION))
        return list(dict.fromkeys(way(one) for one in own if one.level != EAGER)) or [COMPILE]

    def at(self, row: Row, name: str) -> Row | None:
        """Return the row of the same settings in another execution mode."""
        own = (one for one in self.part(CHARACTERIZATION) if way(one.settings) == name)
        return next(
            (one for one in own if replace(one.settings, level=EAGER, backend=None) == row.settings), None
        )

    def like(self, row: Row, **changes: Any) -> Row | None:
        """Return the row whose settings differ only by the given changes."""
        wanted = replace(row.settings, **changes)
        every = (one for own in self.parts.values() for one in own)
        return next((one for one in every if one.settings == wanted), None)


def way(settings: Settings) -> str:
    """Describe an execution mode: the level, and the backend unless it is Inductor.

    Example:
        >>> from tracekit.experiments.sweep_model import Settings
        >>> way(Settings(workload="w", resolution=8, batch_size=1, level="compile", backend="aot_eager"))
        'compile (aot_eager)'
    """
    known = settings.backend in {None, INDUCTOR}
    return settings.level if known else f"{settings.level} ({settings.backend})"


def left_out(workload: str, name: str, *, measured: bool) -> str:
    """Return why a suite lacks a row of a workload in an execution mode."""
    if not measured:
        return UNMEASURED
    level = name.partition(" ")[0]
    try:
        known = level in registry.load(registry.WORKLOADS, workload).levels
    except TracekitError:  # no longer installed
        return UNMEASURED
    return LEFT_OUT if known else f"no level {level}"


def filled(row: dict[str, Any], columns: Iterable[Column], why: str | Mapping[str, str]) -> dict[str, Any]:
    """Return a row with a reason for each missing value.

    Args:
        row: Values by column.
        columns: Columns of the table.
        why: The reason, or the reason by column.

    Example:
        >>> from tracekit.analysis import Column
        >>> filled({"a": 1}, [Column("a", "", ""), Column("b", "", "")], "no GPU")
        {'a': 1, 'b': None, 'reasons': {'b': 'no GPU'}}
    """
    values = {column.name: row.get(column.name) for column in columns}
    missing = [name for name, value in values.items() if value is None]
    reasons = {name: why if isinstance(why, str) else why.get(name, UNMEASURED) for name in missing}
    return {**values, REASONS: reasons}


def why(row: Row | None, *, device: bool = False) -> str:
    """Return why a row lacks a value."""
    if row is None:
        return UNMEASURED
    if row.n and device:
        return row.device_reason or "no device recorded"
    return f"{row.outcome}: {row.reason}" if row.reason else "not recorded"


def apart(a: Row, b: Row) -> bool | None:
    """Tell whether the runs of two rows do not overlap; None if there are too few runs."""
    one, other = a.run_step_ns, b.run_step_ns
    if min(len(one), len(other)) < FEWEST:
        return None
    return max(one) < min(other) or max(other) < min(one)


def geomean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known positive values; None if there are none.

    Example:
        >>> geomean([1.0, 4.0, None])
        2.0
    """
    known = [value for value in values if value]
    return math.exp(fmean(math.log(value) for value in known)) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def ratio(above: float | None, below: float | None) -> float | None:
    """Return the ratio if both values are known."""
    return above / below if above is not None and below else None


def _domain(name: str) -> str:
    try:
        return str(registry.load(registry.WORKLOADS, name).domain)
    except TracekitError:  # no longer installed
        return "other"


def _place(domain: str) -> int:
    return DOMAINS.index(domain) if domain in DOMAINS else len(DOMAINS)


TORCHBENCH = "TorchBench (Hao et al., 2023)"
REPORT = "a student report on PyTorch's CUDA performance"
PUBLISHED_CURVES = "Levental and Orlova, When they go high we go low"


PUBLISHED_DOMAINS = {
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
}
"""Shares of active, data movement and idle time in Table 2 of TorchBench, on an A100."""
OVERALL_ACTIVE = {"train": 0.568, "infer": 0.554}
"""Share of GPU active time over all its models."""
COMPILED_SPEEDUP = {"train": 1.30, "infer": 1.46}
"""Geometric mean of eager over compiled time, Fig. 3 and 4."""
COMPILED_HOST = {"train": 0.29, "infer": 0.29}
"""Compiled over eager memory of the host: 71% less."""
COMPILED_DEVICE = {"train": 1.31, "infer": 1.51}
"""Compiled over eager memory of the device: 31% and 51% more."""
FIXES = {"offload": 10.1, "scalar copy": 27.0}
"""Speedups of single fixes: of a model (pig2), and of one function (hf_Reformer)."""
EPOCH_S = {("cpu", "all"): 14.78, ("cpu", "1"): 24.08, ("cuda", "all"): 8.78, ("cuda", "1"): 9.53}
"""One epoch of MNIST by device and threads, seconds, of the report's Table 2."""
