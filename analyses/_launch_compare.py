"""How the launch configurations of two runs differ: other work, another configuration, or unknown."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Result, Severity
from tracekit.render import human
from tracekit.savings import LEAST_SHARE, budget
from tracekit.schema import C

from ._activations import FUSED, kind_of
from ._common import absent_device_note
from ._launch_changes import CHANGES
from ._launch_configs import BLOCK, FAMILY, GRID, OP, UNKNOWN, grouped, kernels
from ._tensors import numel, parse_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run
    from tracekit.savings import Budget

DIFFERENT_WORK, ANOTHER, UNTOLD = "different work", "another configuration", "unknown"
INFERRED = 0.7
_CONFIG = [*GRID, *BLOCK]
_KEYS = [OP, FAMILY, C.INPUT_SHAPES, *_CONFIG]
_MATCH = [OP, FAMILY, C.INPUT_SHAPES]


def compare(base: Run, head: Run) -> Result:
    """Every configuration that one run has and the other has not, with a verdict."""
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
    pairs = _judged(pairs, _ratio(*(_batch(run) for run in (head, base))))
    differ = _other_devices(base, head)
    found = tuple(_findings(base, head, pairs, differ))
    return Result({"changes": pairs[[column.name for column in CHANGES.columns]]}, found, _notes(differ))


def _notes(differ: str) -> tuple[str, ...]:
    """What is said of runs of different devices."""
    return (f"the runs are of different devices ({differ}): configurations may differ by that",) * bool(
        differ
    )


def _other_devices(base: Run, head: Run) -> str:
    """The devices of both runs, empty where they are the same or not known."""
    names = [
        ", ".join(
            sorted({str(gpu["name"]) for gpu in run.meta.environment.get("gpus") or [] if gpu.get("name")})
        )
        for run in (base, head)
    ]
    return " against ".join(names) if all(names) and names[0] != names[1] else ""


def _judged(pairs: pd.DataFrame, batches: Fraction | None) -> pd.DataFrame:
    """The pairs with their verdicts: those that are told before the unknown, then the costliest first."""
    told = [_told(pair, batches) for pair in pairs.to_dict("records")]
    pairs[["verdict", "work_ratio", "grid_ratio", "reason"]] = pd.DataFrame(told, index=pairs.index)
    pairs["time_ratio"] = (pairs["head_median_ns"] / pairs["base_median_ns"]).astype("Float64")
    weight = pairs[["base_total_ns", "head_total_ns"]].fillna(0).max(axis=1).astype(np.int64)
    order = ["untold", "weight", *_MATCH[:2], "base_first", "head_first"]
    ranked = pairs.assign(weight=weight, untold=pairs["verdict"] == UNTOLD)
    return ranked.sort_values(order, ascending=[True, False, True, True, True, True], ignore_index=True)


def _configs(run: Run) -> pd.DataFrame:
    """Distinct configurations in the order of first launch, ranks and devices together."""
    rows = kernels(run)
    rows = rows[rows[C.GRID_X] != UNKNOWN].reset_index(drop=True)
    if rows.empty:
        return rows
    return grouped(rows, _KEYS).sort_values(["first_ns", "first_row"], ignore_index=True)


def _paired(base: pd.DataFrame, head: pd.DataFrame) -> pd.DataFrame:
    """Configurations that differ, paired by shapes and else by the order of first launch."""
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
        lone = side.rename(columns={name: f"{name}{suffix}" for name in side if name not in _MATCH[:2]})
        found.append(_named(lone, _MATCH[:2]))
    whole = [one for one in found if len(one)]
    return pd.concat(whole, ignore_index=True) if whole else pd.DataFrame()


def _without(side: pd.DataFrame, same: pd.DataFrame) -> pd.DataFrame:
    known = pd.MultiIndex.from_frame(same[_KEYS])
    return side[~pd.MultiIndex.from_frame(side[_KEYS]).isin(known)]


def _numbered(side: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return side.assign(number=side.groupby(keys).cumcount())


def _named(pair: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The columns of the result; what a side has not is missing."""
    columns: dict[str, Any] = {OP: pair[OP], FAMILY: pair[FAMILY]}
    for which in ("base", "head"):
        suffix = f"_{which}"
        shapes = C.INPUT_SHAPES if C.INPUT_SHAPES in keys else f"{C.INPUT_SHAPES}{suffix}"
        columns[f"{which}_shapes"] = pair.get(shapes, "")
        for name in _CONFIG:
            columns[f"{which}_{name}"] = _of(pair, f"{name}{suffix}")
        for name in ("launches", "total_ns", "median_ns"):
            columns[f"{which}_{name}"] = _of(pair, f"{name}{suffix}")
        columns[f"{which}_first"] = _of(pair, f"first_row{suffix}")
    return pd.DataFrame(columns)


def _of(pair: pd.DataFrame, name: str) -> pd.Series:
    if name in pair:
        return pair[name].astype("Int64")
    return pd.Series(pd.NA, index=pair.index, dtype="Int64")


def _batch(run: Run) -> int:
    value = (run.meta.workload or {}).get("batch_size")
    return value if isinstance(value, int) else 0


def _ratio(head: int, base: int) -> Fraction | None:
    return Fraction(head, base) if head > 0 and base > 0 else None


def _told(pair: dict[Any, Any], batches: Fraction | None) -> tuple[str, float | None, float | None, str]:
    """Verdict, ratio of the work, ratio of the blocks, and why."""
    if pd.isna(pair["base_first"]) or pd.isna(pair["head_first"]):
        only = "head" if pd.isna(pair["base_first"]) else "base"
        return UNTOLD, None, None, f"only {only} has this configuration"
    grid = Fraction(_product(pair, "head", GRID), _product(pair, "base", GRID))
    shapes = pair["base_shapes"], pair["head_shapes"]
    if shapes[0] and shapes[0] == shapes[1]:
        return ANOTHER, 1.0, float(grid), "same input shapes, another grid or block"
    works = _work_ratios(*shapes)
    if grid in works and grid != 1:
        return DIFFERENT_WORK, float(grid), float(grid), "the grid changed as the elements of an input did"
    if not all(shapes):
        if batches is not None and batches != 1 and grid == batches:
            return DIFFERENT_WORK, float(grid), float(grid), "the grid changed as the batch size did"
        return UNTOLD, None, float(grid), "no input shapes were recorded"
    work = float(works[0]) if works else None
    return UNTOLD, work, float(grid), "the input shapes differ, and the grid not by the same ratio"


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


def _findings(base: Run, head: Run, pairs: pd.DataFrame, differ: str) -> Iterator[Finding]:
    budgets = {"base": budget(base), "head": budget(head)}
    worth = np.zeros(len(pairs), bool)
    for which, spent in budgets.items():
        totals = pairs[f"{which}_total_ns"].fillna(0).to_numpy(dtype=np.int64)
        whole = spent.steps * spent.step_ns
        worth |= (totals > 0) & (totals >= LEAST_SHARE * whole)
    for verdict in (DIFFERENT_WORK, ANOTHER):
        chosen = pairs[worth & (pairs["verdict"] == verdict).to_numpy()]
        for pair in chosen.head(EVIDENCE_ROWS).to_dict("records"):
            yield (
                _work_finding(pair)
                if verdict == DIFFERENT_WORK
                else _config_finding(pair, budgets["head"], differ)
            )


def _work_finding(pair: dict[Any, Any]) -> Finding:
    return Finding(
        code="launch_work_differs",
        severity=Severity.INFO,
        title=(
            f"{pair[OP]} did different work: {pair['work_ratio']:.3g}× the elements, grid "
            f"{_grid(pair, 'base')} against {_grid(pair, 'head')}, {_times(pair)} a launch"
        ),
        advice=(
            f"compare runs of the same shapes and batch size before judging the speed of {pair[OP]}"
            f"{_what(pair)}"
        ),
        confidence=0.9,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _config_finding(pair: dict[Any, Any], spent: Budget, differ: str) -> Finding:
    slower = (int(pair["head_median_ns"]) - int(pair["base_median_ns"])) * int(pair["head_launches"])
    chosen = (
        f"the devices differ ({differ})"
        if differ
        else "look for what chose it anew: another version of PyTorch or a library, autotuning, strides or "
        "alignment of the inputs"
    )
    return Finding(
        code="launch_config_changed",
        severity=spent.severity(slower),
        title=(
            f"{pair[OP]} runs the same shapes with another configuration: {_full(pair, 'base')} against "
            f"{_full(pair, 'head')}, {_times(pair)} a launch"
        ),
        advice=f"{pair[OP]} is launched otherwise for the same shapes: {chosen}{_what(pair)}",
        saving_ns_per_step=spent.per_step(slower) if slower > 0 and not differ else None,
        basis=Basis.ESTIMATED if slower > 0 and not differ else None,
        how="(median of head − median of base) × launches of head" if slower > 0 else "",
        confidence=INFERRED,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _what(pair: dict[Any, Any]) -> str:
    fused = kind_of(str(pair[FAMILY]), str(pair[OP])) == FUSED
    return "; the kernel is a convolution or matrix product, not a ReLU" if fused else ""


def _grid(pair: dict[Any, Any], which: str, names: list[str] = GRID) -> str:
    return f"({','.join(str(pair[f'{which}_{name}']) for name in names)})"


def _full(pair: dict[Any, Any], which: str) -> str:
    return f"grid {_grid(pair, which)} block {_grid(pair, which, BLOCK)}"


def _times(pair: dict[Any, Any]) -> str:
    return " against ".join(human(int(pair[f"{which}_median_ns"]), "ns") for which in ("base", "head"))
