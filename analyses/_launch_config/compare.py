"""Comparison of the launch configurations of two runs: different work, same work, or unknown."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import Result
from tracekit.schema import C

from .._copies.settings import setting
from .._shared.common import absent_device_note
from .._shared.tensors import numel, parse_shapes
from .change_findings import findings, grid_of
from .changes import ANOTHER, CHANGES, DIFFERENT_WORK, UNDECIDED
from .configs import BLOCK, FAMILY, GRID, OP, UNKNOWN, grouped, kernels

if TYPE_CHECKING:
    from tracekit.run import Run

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
    pairs = _paired(*sides)
    if pairs.empty:
        return Result(notes=("every op, kernel family, shape and launch configuration is in both runs",))
    pairs = _with_verdicts(pairs, _ratio(*(_batch(run) for run in (head, base))))
    differ = _other_devices(base, head)
    found = tuple(findings(base, head, pairs, differ))
    return Result({"changes": pairs[[column.name for column in CHANGES.columns]]}, found, _notes(differ))


def _notes(differ: str) -> tuple[str, ...]:
    """Note on runs of different devices."""
    return (
        f"the runs used different devices ({differ}), which may explain different configurations",
    ) * bool(differ)


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
        pairs[f"{which}_launch"] = [_shown(pair, which) for pair in pairs.to_dict("records")]
    weight = pairs[["base_total_ns", "head_total_ns"]].fillna(0).max(axis=1).astype(np.int64)
    order = ["undecided", "weight", *_MATCH[:2], "base_first", "head_first"]
    ranked = pairs.assign(weight=weight, undecided=pairs["verdict"] == UNDECIDED)
    return ranked.sort_values(order, ascending=[True, False, True, True, True, True], ignore_index=True)


def _configs(run: Run) -> pd.DataFrame:
    """Distinct configurations of all ranks and devices, in the order of first launch."""
    rows = kernels(run)
    rows = rows[rows[C.GRID_X] != UNKNOWN].reset_index(drop=True)
    if rows.empty:
        return rows
    return grouped(rows, _KEYS).sort_values(["first_ns", "first_row"], ignore_index=True)


def _paired(base: pd.DataFrame, head: pd.DataFrame) -> pd.DataFrame:
    """Pair differing configurations by shapes, else by the order of first launch."""
    same = base[_KEYS].merge(head[_KEYS])
    left, right = (_without(side, same) for side in (base, head))
    found = []
    for keys in (_MATCH, _MATCH[:2]):
        pair = _numbered(left, keys).merge(
            _numbered(right, keys), on=[*keys, "number"], suffixes=("_base", "_head")
        )
        found.append(_named(pair, keys))
        left = left[~left["first_row"].isin(pair["first_row_base"])]
        right = right[~right["first_row"].isin(pair["first_row_head"])]
    for side, suffix in ((left, "_base"), (right, "_head")):
        unpaired = side.rename(columns={name: f"{name}{suffix}" for name in side if name not in _MATCH[:2]})
        found.append(_named(unpaired, _MATCH[:2]))
    tables = [one for one in found if len(one)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _without(side: pd.DataFrame, same: pd.DataFrame) -> pd.DataFrame:
    known = pd.MultiIndex.from_frame(same[_KEYS])
    return side[~pd.MultiIndex.from_frame(side[_KEYS]).isin(known)]


def _numbered(side: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return side.assign(number=side.groupby(keys).cumcount())


def _named(pair: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
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
    grid = Fraction(_product(pair, "head", GRID), _product(pair, "base", GRID))
    shapes = pair["base_shapes"], pair["head_shapes"]
    if shapes[0] and shapes[0] == shapes[1]:
        return ANOTHER, 1.0, float(grid), "same input shapes, another grid or block"
    works = _work_ratios(*shapes)
    if grid in works and grid != 1:
        return (
            DIFFERENT_WORK,
            float(grid),
            float(grid),
            "the grid changed by the same ratio as the elements of an input",
        )
    if not all(shapes):
        if batches is not None and batches != 1 and grid == batches:
            return (
                DIFFERENT_WORK,
                float(grid),
                float(grid),
                "the grid changed by the same ratio as the batch size",
            )
        return UNDECIDED, None, float(grid), "no input shapes were recorded"
    work = float(works[0]) if works else None
    return UNDECIDED, work, float(grid), "the input shapes differ, but the grid does not by the same ratio"


def _work_ratios(base: str, head: str) -> list[Fraction]:
    """Ratios other than 1 by which the elements of an input changed."""
    entries = zip(parse_shapes(base), parse_shapes(head), strict=False)
    pairs = [(one, two) for one, two in entries if isinstance(one, tuple) and isinstance(two, tuple)]
    found = (_ratio(numel(two), numel(one)) for one, two in pairs if one and two)
    return [ratio for ratio in found if ratio is not None and ratio != 1]


def _product(pair: dict[Any, Any], which: str, names: list[str]) -> int:
    result = 1
    for name in names:
        result *= max(int(pair[f"{which}_{name}"]), 1)
    return result


def _shown(pair: dict[Any, Any], which: str) -> str:
    """Grid and block as text, empty if the run has none."""
    if pd.isna(pair[f"{which}_first"]):
        return ""
    return f"{grid_of(pair, which)} {grid_of(pair, which, BLOCK)}"
