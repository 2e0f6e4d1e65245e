"""Comparison of the launch configurations of two runs, by op, kernel family and input shapes."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, Result, TableSpec
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import absent_device_note, setting
from ..shared.tensor_shapes import numel, parse_shapes
from .configs import BLOCK, FAMILY, GRID, OP, UNKNOWN, group_kernels, read_kernels
from .findings import DIFFERENT_WORK, SAME_WORK, comparison_findings
from .launches import grid_of

UNDECIDED = "unknown"
SAME_RATIO = "the grid changed by the same ratio as the {}"
CHANGES = TableSpec(
    "changes",
    "Launch configurations that differ",
    (
        Column(OP, "", "innermost op that launched it"),
        Column("verdict", "", "different work; same work (with another configuration); or unknown"),
        Column("base_launch", "id", "grid and block in base"),
        Column("head_launch", "id", "grid and block in head"),
        Column("time_ratio", "×", "median duration of head over base"),
        Column("base_median_ns", "ns", "lower median of the durations in base"),
        Column("head_median_ns", "ns", "lower median of the durations in head"),
        Column("work_ratio", "×", "elements of head over base, missing if unknown"),
        Column("grid_ratio", "×", "blocks of head over base"),
        *(
            Column(f"{which}_{name}", "count", f"{name.replace('_', ' in ')} in {which}")
            for which in ("base", "head")
            for name in (*GRID, *BLOCK)
        ),
        Column(FAMILY, "", "canonical name of the kernel"),
        Column("base_launches", "count", "launches in base"),
        Column("head_launches", "count", "launches in head"),
        Column("base_total_ns", "ns", "Σ of durations in base"),
        Column("head_total_ns", "ns", "Σ of durations in head"),
        Column("reason", "", "reason of the verdict"),
        Column("base_shapes", "", "input shapes in base; empty if not recorded"),
        Column("head_shapes", "", "input shapes in head; empty if not recorded"),
        Column("base_first", "", "row of the first launch in base's device_intervals"),
        Column("head_first", "", "row of the first launch in head's device_intervals"),
    ),
)


_CONFIG = [*GRID, *BLOCK]
_KEYS = [OP, FAMILY, C.INPUT_SHAPES, *_CONFIG]
_MATCH = [OP, FAMILY, C.INPUT_SHAPES]


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
    pairs = _with_verdicts(pairs, _ratio(*(_batch(run) for run in (head, base))))
    differ = _other_devices(base, head)
    if differ:
        notes = (f"the runs used different devices ({differ}), which may explain different configurations",)
    findings = tuple(comparison_findings(base, head, pairs, differ))
    return Result({"changes": pairs[[column.name for column in CHANGES.columns]]}, findings, notes)


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
    order = ["undecided", "weight", *_MATCH[:2], "base_first", "head_first"]
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
    """Pair differing configurations by shapes, else by the order of first launch."""
    same = base[_KEYS].merge(head[_KEYS])
    left, right = (_without(side, same) for side in (base, head))
    found = []
    for keys in (_MATCH, _MATCH[:2]):
        pair = _number_rows(left, keys).merge(
            _number_rows(right, keys), on=[*keys, "number"], suffixes=("_base", "_head")
        )
        found.append(_pair_columns(pair, keys))
        left = left[~left["first_row"].isin(pair["first_row_base"])]
        right = right[~right["first_row"].isin(pair["first_row_head"])]
    for side, suffix in ((left, "_base"), (right, "_head")):
        unpaired = side.rename(columns={name: f"{name}{suffix}" for name in side if name not in _MATCH[:2]})
        found.append(_pair_columns(unpaired, _MATCH[:2]))
    tables = [one for one in found if len(one)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _without(side: pd.DataFrame, same: pd.DataFrame) -> pd.DataFrame:
    same_configs = pd.MultiIndex.from_frame(same[_KEYS])
    return side[~pd.MultiIndex.from_frame(side[_KEYS]).isin(same_configs)]


def _number_rows(side: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return side.assign(number=side.groupby(keys).cumcount())


def _pair_columns(pair: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Columns of the result; missing for a side without the configuration."""
    columns: dict[str, Any] = {OP: pair[OP], FAMILY: pair[FAMILY]}
    for which in ("base", "head"):
        suffix = f"_{which}"
        shapes = C.INPUT_SHAPES if C.INPUT_SHAPES in keys else f"{C.INPUT_SHAPES}{suffix}"
        columns[f"{which}_shapes"] = pair.get(shapes, "")
        for name in _CONFIG:
            columns[f"{which}_{name}"] = _of(pair, f"{name}{suffix}")
        for name in ("launches", "total_ns", "median_ns", "counted", "counted_ns"):
            columns[f"{which}_{name}"] = _of(pair, f"{name}{suffix}")
        columns[f"{which}_first"] = _of(pair, f"first_row{suffix}")
    return pd.DataFrame(columns)


def _of(pair: pd.DataFrame, name: str) -> pd.Series:
    if name in pair:
        return pair[name].astype("Int64")
    return pd.Series(pd.NA, index=pair.index, dtype="Int64")


def _batch(run: Run) -> int:
    value = setting(run, "batch_size")
    return value if isinstance(value, int) else 0


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
