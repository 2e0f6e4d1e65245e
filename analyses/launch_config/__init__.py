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
    >>> tracekit.analyze(run, "launch_config").tables["configs"]  # doctest: +SKIP
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run
from tracekit.runs.step_windows import after_warm_up
from tracekit.schema import C

from ..shared.common import PLACE_COLUMNS, absent_device_note, nothing_note, select
from ..shared.host_rows import NO_OP
from ..shared.intervals_by_class import find_overruns, find_searches, note_overruns
from ..shared.run_pairs import setting, sides
from ..shared.tensor_shapes import numel, parse_shapes
from . import configs, findings
from .configs import (
    BLOCK,
    FAMILY,
    GRID,
    NUMEL,
    OP,
    UNKNOWN,
    group_by_configuration,
    group_kernels,
    read_kernels,
)
from .findings import DIFFERENT_WORK, SAME_WORK, comparison_findings
from .launches import Launches, grid_of

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
        return Result(notes=(nothing_note(run, NO_KERNELS),))
    rows = all_kernels[all_kernels[C.GRID_X] != UNKNOWN].reset_index(drop=True)
    without = len(all_kernels) - len(rows)
    notes: list[str] = [*note_overruns(run)]
    if without:
        notes.append(
            f"{without:,} of {len(all_kernels):,} kernels have no grid and are ignored: older ROCm profilers "
            "and some graph replays do not record it"
        )
    relu = configs.relu_table(all_kernels)
    tables = {"relu": select(relu, _RELU)} if len(relu) else {}
    if rows.empty:
        return Result(tables, notes=tuple(notes))
    launched = group_by_configuration(run, rows)
    notes += [NO_LIMITS] if launched["resident_blocks"].isna().all() else []
    notes += [NO_SHAPES] if launched[NUMEL].isna().all() and (launched[OP] != NO_OP).any() else []
    tables = {"configs": select(launched, _CONFIGS), **tables}
    search = np.isin(rows[C.ROW_ID], find_searches(run))
    if search.any():
        notes.append(SEARCHES.format(count=int(search.sum())))
    judged = after_warm_up(run, rows[~search])
    if len(judged) < len(rows):
        rows = judged.reset_index(drop=True)
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
    *PLACE_COLUMNS,
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
    *PLACE_COLUMNS,
    _FIRST,
)

UNDECIDED = "unknown"
SAME_RATIO = "the grid changed by the same ratio as the {}"
_CHANGES = (
    Column(OP, "", "innermost op that launched it"),
    Column("verdict", "", "different work; same work (with another configuration); or unknown"),
    *sides("launch", "id", "grid and block in {}"),
    Column("time_ratio", "×", "median duration of head over base"),
    *sides("median_ns", "ns", "lower median of the durations in {}"),
    Column("work_ratio", "×", "elements of head over base, missing if unknown"),
    Column("grid_ratio", "×", "blocks of head over base"),
    *(
        Column(f"{which}_{name}", "count", f"{name.replace('_', ' in ')} in {which}")
        for which in ("base", "head")
        for name in (*GRID, *BLOCK)
    ),
    Column(FAMILY, "", "canonical name of the kernel"),
    *sides("launches", "count", "launches in {}"),
    *sides("total_ns", "ns", "Σ of durations in {}"),
    Column("reason", "", "reason of the verdict"),
    *sides("shapes", "", "input shapes in {}; empty if not recorded"),
    *sides("first", "", "row of the first launch in {}'s device_intervals"),
)
CHANGES = TableSpec("changes", "Launch configurations that differ", _CHANGES)

_CONFIG = [*GRID, *BLOCK]
_KEYS = [OP, FAMILY, C.INPUT_SHAPES, *_CONFIG]


def compare(base: Run, head: Run) -> Result:
    """Compare configurations that only one run has, with a verdict each."""
    sides = [_configs(run) for run in (base, head)]
    notes = tuple(
        f"{which}: {absent_device_note(run)}"
        for which, run, side in zip(("base", "head"), (base, head), sides, strict=True)
        if side.empty
    )
    if notes:
        return Result(notes=notes)
    pairs = _pair_configs(*sides)
    if pairs.empty:
        return Result(notes=("every op, kernel family, shape and launch configuration is in both runs",))
    batches = [setting(run, "batch_size") for run in (head, base)]
    known = all(isinstance(batch, int) for batch in batches)
    pairs = _with_verdicts(pairs, _ratio(*batches) if known else None)
    differ = _other_devices(base, head)
    if differ:
        notes = (f"the runs used different devices ({differ}), which may explain different configurations",)
    changed = tuple(comparison_findings(base, head, pairs, differ))
    return Result({"changes": select(pairs, CHANGES.columns)}, changed, notes)


def _other_devices(base: Run, head: Run) -> str:
    """The devices of both runs, empty if they are equal or unknown."""
    names = [
        ", ".join(
            sorted({str(gpu["name"]) for gpu in run.meta.environment.get("gpus") or [] if gpu.get("name")})
        )
        for run in (base, head)
    ]
    return " against ".join(names) if all(names) and names[0] != names[1] else ""


def _with_verdicts(pairs: pd.DataFrame, batches: Fraction | None) -> pd.DataFrame:
    """Add verdicts to the pairs; sort known verdicts first, then by time."""
    verdicts = [_verdict(pair, batches) for pair in pairs.to_dict("records")]
    pairs[["verdict", "work_ratio", "grid_ratio", "reason"]] = pd.DataFrame(verdicts, index=pairs.index)
    pairs["time_ratio"] = (pairs["head_median_ns"] / pairs["base_median_ns"]).astype("Float64")
    for which in ("base", "head"):
        pairs[f"{which}_launch"] = [_launch_text(pair, which) for pair in pairs.to_dict("records")]
    weight = pairs[["base_total_ns", "head_total_ns"]].fillna(0).max(axis=1).astype(np.int64)
    order = ["undecided", "weight", OP, FAMILY, "base_first", "head_first"]
    ranked = pairs.assign(weight=weight, undecided=pairs["verdict"] == UNDECIDED)
    return ranked.sort_values(order, ascending=[True, False, True, True, True, True], ignore_index=True)


def _configs(run: Run) -> pd.DataFrame:
    """Distinct configurations of all ranks and devices, in the order of first launch."""
    rows = read_kernels(run)
    rows = rows[rows[C.GRID_X] != UNKNOWN].reset_index(drop=True)
    if rows.empty:
        return rows
    return group_kernels(rows, _KEYS).sort_values(["first_ns", "first_row"], ignore_index=True)


def _pair_configs(base: pd.DataFrame, head: pd.DataFrame) -> pd.DataFrame:
    """Pair differing configurations by shapes, else by order of first launch; the others have one side."""
    keys = [pd.MultiIndex.from_frame(side[_KEYS]) for side in (base, head)]
    left = _name_columns(base[~keys[0].isin(keys[1])], "base")
    right = _name_columns(head[~keys[1].isin(keys[0])], "head")
    matches = []
    for matched in (["shapes"], []):
        by_base, by_head = (
            [OP, FAMILY, *(f"{which}_{name}" for name in matched)] for which in ("base", "head")
        )
        pair = left.assign(number=left.groupby(by_base).cumcount()).merge(
            right.assign(number=right.groupby(by_head).cumcount()),
            left_on=[*by_base, "number"],
            right_on=[*by_head, "number"],
        )
        matches.append(pair.drop(columns="number"))
        left = left[~left["base_first"].isin(pair["base_first"])]
        right = right[~right["head_first"].isin(pair["head_first"])]
    table = pd.concat([*matches, left, right], ignore_index=True)
    return table.fillna({"base_shapes": "", "head_shapes": ""})


def _name_columns(side: pd.DataFrame, which: str) -> pd.DataFrame:
    """The columns of one side of a pair, of nullable integers, since the other side may be missing."""
    numbers = [*_CONFIG, "launches", "total_ns", "median_ns", "counted", "counted_ns", "first_row"]
    renamed = {name: f"{which}_{name}" for name in numbers}
    renamed |= {C.INPUT_SHAPES: f"{which}_shapes", "first_row": f"{which}_first"}
    columns = [OP, FAMILY, C.INPUT_SHAPES, *numbers]
    return side[columns].astype(dict.fromkeys(numbers, "Int64")).rename(columns=renamed)


def _ratio(head: int, base: int) -> Fraction | None:
    return Fraction(head, base) if head > 0 and base > 0 else None


def _verdict(pair: dict[Any, Any], batches: Fraction | None) -> tuple[str, float | None, float | None, str]:
    """Verdict, ratio of the work, ratio of the blocks, and reason."""
    if pd.isna(pair["base_first"]) or pd.isna(pair["head_first"]):
        only = "head" if pd.isna(pair["base_first"]) else "base"
        return UNDECIDED, None, None, f"only {only} has this configuration"
    grid = Fraction(_blocks(pair, "head"), _blocks(pair, "base"))
    shapes = pair["base_shapes"], pair["head_shapes"]
    if shapes[0] and shapes[0] == shapes[1]:
        return SAME_WORK, 1.0, float(grid), "same input shapes, another grid or block"
    works = _work_ratios(*shapes)
    if grid in works and grid != 1:
        return DIFFERENT_WORK, float(grid), float(grid), SAME_RATIO.format("elements of an input")
    if not all(shapes):
        if batches is not None and batches != 1 and grid == batches:
            return DIFFERENT_WORK, float(grid), float(grid), SAME_RATIO.format("batch size")
        return UNDECIDED, None, float(grid), "no input shapes were recorded"
    work = float(works[0]) if works else None
    return UNDECIDED, work, float(grid), "the input shapes differ, but the grid does not by the same ratio"


def _work_ratios(base: str, head: str) -> list[Fraction]:
    """Ratios other than 1 by which the elements of an input changed."""
    entries = zip(parse_shapes(base), parse_shapes(head), strict=False)
    pairs = [
        (shape, other) for shape, other in entries if isinstance(shape, tuple) and isinstance(other, tuple)
    ]
    ratios = (_ratio(numel(other), numel(shape)) for shape, other in pairs if shape and other)
    return [ratio for ratio in ratios if ratio is not None and ratio != 1]


def _blocks(pair: dict[Any, Any], which: str) -> int:
    return prod(max(int(pair[f"{which}_{name}"]), 1) for name in GRID)


def _launch_text(pair: dict[Any, Any], which: str) -> str:
    """Grid and block as text, empty if the run has none."""
    if pd.isna(pair[f"{which}_first"]):
        return ""
    return f"{grid_of(pair, f'{which}_')} {grid_of(pair, f'{which}_', BLOCK)}"


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
    reads=("device_intervals",),
    shares=(find_overruns, find_searches),
    compute=compute,
    rules=findings.RULES,
    compare=compare,
    comparison=(CHANGES,),
)
