"""Plan of a suite: a sweep of several parts.

* `characterization`: every workload, mode and level, at the sizes of the suite; at size `test` Inductor
  compiles only the workloads it is soon done with.
* `zero_grad`: training with the two other ways of clearing gradients; at size `test` one of each domain.
* `offload`: parameters that go to host memory and come back in each step, on a GPU.
* `curves`: ResNet-50 on images of any side, over resolution and batch size; not compiled, since each size
  would be compiled anew.
* `threads`: the MNIST network with all threads and with one, and on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit import environment, registry
from tracekit.errors import UnusableInputError
from tracekit.sweeping.model import SUITE, Cell, Plan, Settings
from tracekit.workloads.base import COMPILE, EAGER, INDUCTOR

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tracekit.workloads.base import Workload

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
    """Return the levels with their backends."""
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
