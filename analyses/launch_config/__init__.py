"""Launch configurations: grids and blocks of kernels, and how well they fill the device.

One row per op, kernel family, grid, block, elements, registers and shared memory on one device. The
denominator of the share is Σ of the durations of all kernels with a grid, over all ranks and devices.

`configs` defines resident blocks and the kinds of ReLU kernels. An occupancy of 0 is missing. So is a value
whose inputs the trace lacks: registers and shared memory of AMD GPUs, shapes without `record_shapes=True`.

Two runs are compared by op and family, and within them by input shapes, else by the order of first launch;
ranks and devices together. Only differences are listed.

Sources: Levental & Orlova, the grids of ReLU; CUDA C++ Programming Guide, technical specifications per
compute capability; `cuda_occupancy.h`.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "launch_config")  # doctest: +SKIP
    >>> result.tables["configs"][["op", "grid_x", "block_x", "waves"]]  # doctest: +SKIP
"""

from __future__ import annotations

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run, busy
from tracekit.schema import C

from ..shared.common import DEVICE, RANK, absent_device_note
from ..shared.host_rows import NO_OP
from . import compare, configs, findings
from .configs import BLOCK, FAMILY, GRID, NUMEL, OP, UNKNOWN, group_by_configuration, read_kernels
from .launches import Launches

NO_KERNELS = "no kernels in this capture"
NO_LIMITS = (
    "the limits of the device are unknown, so resident blocks and waves are missing: torch.profiler records "
    "them on NVIDIA GPUs; traces of AMD GPUs lack registers and shared memory"
)
NO_SHAPES = (
    "no input shapes were recorded, so elements and threads per element are missing: record with "
    "`record_shapes=True`"
)
SEARCHES = Remark(
    "{count:,} kernels are the search for the fastest algorithm of a convolution (`torch.backends.cudnn."
    "benchmark`), which runs once for a shape: their grids are listed, and not advised on"
)


def compute(run: Run) -> Result:
    """Group the kernels by launch configuration."""
    all_kernels = read_kernels(run)
    if all_kernels.empty:
        nothing = busy(run, [C.KIND]).empty
        return Result(notes=(absent_device_note(run) if nothing else NO_KERNELS,))
    rows = all_kernels[all_kernels[C.GRID_X] != UNKNOWN].reset_index(drop=True)
    without = len(all_kernels) - len(rows)
    notes: list[str] = []
    if without:
        notes.append(
            f"{without:,} of {len(all_kernels):,} kernels have no grid and are ignored: older ROCm profilers "
            "and some graph replays do not record it"
        )
    relu = configs.relu_table(all_kernels)
    tables = {"relu": relu[[column.name for column in _RELU]]} if len(relu) else {}
    if rows.empty:
        return Result(tables, notes=tuple(notes))
    launched = group_by_configuration(run, rows)
    notes += [NO_LIMITS] if launched["resident_blocks"].isna().all() else []
    notes += [NO_SHAPES] if launched[NUMEL].isna().all() and (launched[OP] != NO_OP).any() else []
    tables = {"configs": launched[[column.name for column in _CONFIGS]], **tables}
    search = configs.is_algorithm_search(rows)
    if search.any():
        notes.append(SEARCHES.format(count=int(search.sum())))
        rows = rows[~search].reset_index(drop=True)
        launched = group_by_configuration(run, rows)
    launches = Launches(run, rows, launched, budget(run))
    return Result(tables, findings.findings(launches), tuple(notes))


_OP = Column(OP, "", "innermost op that launched it")
_FAMILY = Column(FAMILY, "", "canonical name: template types kept; parameters, numbers and hashes removed")
_SHAPE = (
    *(Column(name, "count", f"blocks in {name[-1]}") for name in GRID),
    *(Column(name, "count", f"threads of a block in {name[-1]}") for name in BLOCK),
)
_TIMES = (
    Column("launches", "count", "number of launches"),
    Column("total_ns", "ns", "Σ of durations"),
    Column("median_ns", "ns", "lower median of the durations"),
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
    Column("tail_share", "share", "1 − waves / ⌈waves⌉: empty block slots if blocks take equally long"),
    _PART,
    Column("blocks", "count", "blocks of a launch"),
    Column("threads", "count", "threads of a launch"),
    Column("blocks_per_sm", "", "blocks over the SMs of the device"),
    Column("resident_blocks", "count", "blocks that fit on an SM at once"),
    Column("threads_per_element", "×", "threads over elements"),
    Column(C.REGISTERS, "count", "registers per thread"),
    Column("shared_bytes", "bytes", "shared memory of a block, static and dynamic"),
    Column("occupancy", "share", "median of the profiler's estimate of achieved occupancy"),
    RANK,
    DEVICE,
    _FIRST,
)
_RELU = (
    Column("kind", "", "relu; fused (a convolution or matrix product); compiled; other"),
    Column("direction", "", "forward or backward; empty if no op is known"),
    _OP,
    *_SHAPE,
    *_TIMES,
    _FAMILY,
    Column("share", "share", "total over Σ of the durations of all kernels"),
    Column("told_by", "", "identified as ReLU by: name, op, or name and op"),
    RANK,
    DEVICE,
    _FIRST,
)

ANALYSIS = Analysis(
    name="launch_config",
    title="Launch configurations",
    question="Which grids and blocks are kernels launched with, and do they fill the device?",
    definition=(
        "waves = blocks / (SMs × resident blocks per SM); resident blocks by the limits of threads, "
        "registers, shared memory and compute capability; tail = 1 − waves / ⌈waves⌉; threads per element: "
        "over the elements of the op's largest input. ReLU kernels are identified by kernel name and op, not "
        "by a word in the name alone."
    ),
    tables=(
        TableSpec("configs", "By op, family and configuration", _CONFIGS),
        TableSpec("relu", "ReLU kernels, and kernels with ReLU in their name", _RELU),
    ),
    sources=(
        "Levental & Orlova, the grids of ReLU",
        "CUDA C++ Programming Guide, technical specifications per compute capability",
        "cuda_occupancy.h",
    ),
    order=55,
    compute=compute,
    rules=findings.RULES,
    compare=compare.compare,
    comparison=(compare.CHANGES,),
)
