"""With which grids and blocks kernels were launched, and how well these fill the device.

One row per op, kernel family, grid, block, elements, registers and shared memory on one device. Times are
exact integer nanoseconds: total = Σ of durations, median = the lower median. The share's denominator is Σ of
the durations of all kernels with a grid, of all ranks and devices.

* blocks and threads are those of one launch; blocks per SM = blocks over the SMs (compute units) of the
  device.
* resident blocks = how many blocks fit on an SM at once: the smallest of the limits by threads, registers,
  shared memory and the architecture (see `_residency`). waves = blocks over SMs × resident blocks; tail =
  1 − waves / ⌈waves⌉, the share of block slots that stay empty if all blocks take equally long.
* elements = those of the largest tensor among the op's inputs; threads per element = threads over these.
* occupancy is the profiler's own estimate, missing where that is 0: a kernel that ran had some.
* A value is missing where the trace does not say what it is made of: registers and shared memory of AMD's
  GPUs, shapes without `record_shapes=True`.

`relu` has, with a grid or not, the kernels with relu, threshold or clamp_min in their name and those of ReLU
ops, by what they really are: a convolution whose name has relu is no ReLU (see `_activations`).

Two runs are compared by op and family, and within them by input shapes, else by the order of first launch;
ranks and devices together. `different work`: the grids differ by exactly the ratio by which an input's
elements, or the batch sizes of the workloads, differ. `another configuration`: the same shapes, another grid
or block. Else `unknown`. Only what differs is listed.

Sources: Levental & Orlova, the grids of ReLU; CUDA C++ Programming Guide, technical specifications per
compute capability; `cuda_occupancy.h`.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "launch_config")  # doctest: +SKIP
    >>> result.tables["configs"][["op", "grid_x", "block_x", "waves"]]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.run import busy
from tracekit.savings import budget
from tracekit.schema import C

from . import _activations, _launch_changes, _launch_compare, _launch_rules, _launch_thresholds
from ._common import DEVICE, RANK, absent_device_note
from ._hosts import NO_OP
from ._launch_configs import FAMILY, NUMEL, OP, UNKNOWN, configurations, kernels
from ._launch_findings import Launches

if TYPE_CHECKING:
    from tracekit.run import Run

NO_KERNELS = "no kernels in this capture, so nothing was launched with a grid"
NO_LIMITS = (
    "the limits of the device are not recorded or not known, so resident blocks and waves are missing: "
    "traces of torch.profiler on NVIDIA GPUs carry them, those of AMD GPUs lack registers and shared memory"
)
NO_SHAPES = (
    "no input shapes were recorded, so elements are missing: record with `record_shapes=True` to get threads "
    "per element"
)


def compute(run: Run) -> Result:
    """Group the kernels by launch configuration."""
    every = kernels(run)
    if every.empty:
        nothing = busy(run, [C.KIND]).empty
        return Result(notes=(absent_device_note(run) if nothing else NO_KERNELS,))
    rows = every[every[C.GRID_X] != UNKNOWN].reset_index(drop=True)
    without = len(every) - len(rows)
    notes = [_without_grid(without, len(every))] if without else []
    relu = _activations.table(every)
    tables = {"relu": relu[[column.name for column in _RELU]]} if len(relu) else {}
    if rows.empty:
        return Result(tables, notes=tuple(notes))
    configs = configurations(run, rows)
    notes += [NO_LIMITS] if configs["resident_blocks"].isna().all() else []
    notes += [NO_SHAPES] if configs[NUMEL].isna().all() and (configs[OP] != NO_OP).any() else []
    tables = {"configs": configs[[column.name for column in _CONFIGS]], **tables}
    launches = Launches(run, rows, configs, budget(run))
    return Result(tables, _launch_rules.findings(launches), tuple(notes))


def _without_grid(count: int, total: int) -> str:
    return (
        f"{count:,} of {total:,} kernels have no grid and are left out: older ROCm profilers and some graph "
        "replays do not record it"
    )


def compare(base: Run, head: Run) -> Result:
    """Say of each configuration that changed whether the work changed or the configuration alone."""
    return _launch_compare.compare(base, head)


_OP = Column(OP, "", "innermost op that launched it")
_FAMILY = Column(FAMILY, "", "canonical name: no parameters, numbers or hashes; template types kept")
_SHAPE = (
    Column(C.GRID_X, "count", "blocks in x"),
    Column(C.GRID_Y, "count", "blocks in y"),
    Column(C.GRID_Z, "count", "blocks in z"),
    Column(C.BLOCK_X, "count", "threads of a block in x"),
    Column(C.BLOCK_Y, "count", "threads of a block in y"),
    Column(C.BLOCK_Z, "count", "threads of a block in z"),
)
_TIMES = (
    Column("launches", "count", "number of launches"),
    Column("total_ns", "ns", "Σ of durations"),
    Column("median_ns", "ns", "median; the lower of the two middle ones"),
)
_FIRST = Column("first_row", "", "row of the first launch in device_intervals")
_PART = Column("share", "share", "total over Σ of the durations of all kernels with a grid")
_CONFIGS = (
    _OP,
    _FAMILY,
    *_SHAPE,
    *_TIMES,
    Column(NUMEL, "count", "elements of the largest tensor among the op's inputs"),
    Column("waves", "", "blocks over SMs × resident blocks"),
    Column("tail_share", "share", "1 − waves / ⌈waves⌉: block slots empty if blocks take equally long"),
    _PART,
    Column("blocks", "count", "blocks of a launch"),
    Column("threads", "count", "threads of a launch"),
    Column("blocks_per_sm", "", "blocks over the SMs of the device"),
    Column("resident_blocks", "count", "blocks that fit on an SM at once"),
    Column("threads_per_element", "×", "threads over elements"),
    Column(C.REGISTERS, "count", "registers per thread"),
    Column("shared_bytes", "bytes", "shared memory of a block, static and dynamic"),
    Column("occupancy", "share", "the profiler's estimate of the achieved occupancy, median"),
    RANK,
    DEVICE,
    _FIRST,
)
_RELU = (
    Column("kind", "", "relu; fused (a convolution or matrix product); compiled; other"),
    Column("direction", "", "forward or backward; empty where no op is known"),
    _OP,
    *_SHAPE,
    *_TIMES,
    _FAMILY,
    Column("share", "share", "total over Σ of the durations of all kernels"),
    Column("told_by", "", "whether the kernel's name, its op or both say ReLU"),
    RANK,
    DEVICE,
    _FIRST,
)

ANALYSIS = Analysis(
    name="launch_config",
    title="Launch configurations",
    question="With which grids and blocks are kernels launched, and do these fill the device?",
    definition=(
        "waves = blocks / (SMs × resident blocks per SM), resident blocks by the limits of threads, "
        "registers, shared memory and compute capability; tail = 1 − waves / ⌈waves⌉; threads per element "
        "over the op's largest input. A kernel is a ReLU by its name and its op together, never by a word "
        "in its name."
    ),
    tables=(
        TableSpec("configs", "By op, family and configuration", _CONFIGS),
        TableSpec("relu", "What has ReLU in its name or is one", _RELU),
    ),
    sources=(
        "Levental & Orlova, the grids of ReLU",
        "CUDA C++ Programming Guide, technical specifications per compute capability",
        "cuda_occupancy.h",
    ),
    order=55,
    compute=compute,
    rules=(*_launch_thresholds.RULES, *_launch_changes.RULES),
    compare=compare,
    comparison=(_launch_changes.CHANGES,),
)
