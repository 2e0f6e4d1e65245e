"""Shared parts of the findings on launch configurations: selection of kernels, and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import (
    EVIDENCE_ROWS,
    Basis,
    Bottleneck,
    Column,
    Finding,
    Result,
    Rule,
    Severity,
    TableSpec,
)
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import LEAST_SHARE, Budget, budget
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C

from ..h2d_copies.compare import setting
from ..shared.common import absent_device_note, largest_rows, max_per_rank
from ..shared.host_rows import source_lines
from ..shared.tensor_shapes import numel, parse_shapes
from .configs import BLOCK, FAMILY, FUSED, GRID, OP, UNKNOWN, grouped, kernels, kind_of

MOST = 5
"""Maximum number of findings per rule, for the kernels with most time."""
INFERRED, BOUND = 0.7, 0.5
"""Confidence of measured states with unknown cost, and of upper bounds."""


@dataclass(frozen=True)
class Launches:
    """Input of the rules.

    Attributes:
        run: The run.
        rows: Kernels with a grid.
        configs: Kernels grouped by configuration.
        spent: Time of the steps.
    """

    run: Run
    rows: pd.DataFrame
    configs: pd.DataFrame
    spent: Budget

    @property
    def time(self) -> str:
        """Column of the time compared with the steps."""
        return "counted_ns" if self.spent.marked else "total_ns"

    @property
    def alone(self) -> str:
        """Column of the part of that time in which no other kernel ran on the device."""
        return "counted_alone_ns" if self.spent.marked else "alone_ns"

    @property
    def exposed(self) -> str:
        """Column of the part of that time in which nothing else ran on the device."""
        return "counted_exposed_ns" if self.spent.marked else "exposed_ns"


def significant(
    launches: Launches, chosen: pd.DataFrame, *, least: float
) -> Iterator[tuple[pd.DataFrame, int]]:
    """Significant configurations of each op and family with their time, most time first.

    Only the time in which no other kernel runs counts; kernels that mostly run beside others are left out.
    """
    chosen = chosen[2 * chosen[launches.alone] >= chosen[launches.time]]
    by_device = chosen.groupby([OP, FAMILY, C.RANK, C.DEVICE], sort=True)[launches.alone].sum()
    totals = by_device.groupby([OP, FAMILY, C.RANK], sort=True).max().groupby([OP, FAMILY], sort=True).sum()
    ordered = totals.sort_values(ascending=False, kind="stable").head(MOST)
    for op, name in ordered.index:
        rows = chosen[(chosen[OP] == op) & (chosen[FAMILY] == name)]
        total = int(totals[op, name])
        if launches.spent.matters(total, least=least):
            yield rows.sort_values([launches.time, "first_row"], ascending=[False, True]), total


def bounded(launches: Launches, rows: pd.DataFrame, part: pd.Series) -> tuple[int, Severity]:
    """Upper bound of a saving, and the severity of it as if copies beside the kernels did not matter.

    Args:
        launches: Input of the rules.
        rows: Configurations.
        part: Part of the time of each that could be saved.

    Returns:
        The part of the time in which nothing else runs, on the device of each rank with most of it; and the
        severity of the part of the time in which no other kernel runs.
    """
    exposed, alone = (
        max_per_rank(rows, (rows[column] * part).to_numpy(np.float64).astype(np.int64))
        for column in (launches.exposed, launches.alone)
    )
    return exposed, launches.spent.severity(alone)


def finding(
    launches: Launches,
    code: str,
    rows: pd.DataFrame,
    total: int,
    *,
    title: str,
    advice: str,
    confidence: float,
    saving: int | None = None,
    how: str = "",
    severity: Severity | None = None,
) -> Finding:
    """Return the finding of a rule about the rows of one configuration."""
    spent = launches.spent
    evidence = largest_rows(
        rows.rename(columns={"first_row": C.ROW_ID} if C.ROW_ID not in rows else {}),
        launches.time,
        EVIDENCE_ROWS,
    )
    return Finding(
        code=code,
        severity=severity or spent.severity(total if saving is None else saving),
        title=title,
        advice=advice,
        saving_ns_per_step=None if saving is None else spent.per_step(saving),
        basis=None if saving is None else Basis.ESTIMATED,
        how=how,
        confidence=confidence,
        evidence={"device_intervals": evidence},
    )


def kernel(row: pd.Series) -> str:
    """Return the short name of a kernel."""
    name = str(row[FAMILY])
    return brief(name if "<" in name else name.rpartition("::")[2])


def configuration(row: dict[Any, Any], side: str = "") -> str:
    """Describe the grid and the block of a launch, of one side of a comparison if it is given."""
    return f"grid {grid_of(row, side)} block {grid_of(row, side, BLOCK)}"


def grid_of(row: dict[Any, Any], side: str = "", names: list[str] = GRID) -> str:
    """Format the grid of a launch, or its block."""
    return f"({','.join(str(row[f'{side}{name}']) for name in names)})"


def time_of(launches: Launches, total: int) -> str:
    """Format a time per step or of the whole capture."""
    return f"{human(launches.spent.per_step(total), 'ns')} {launches.spent.per}"


def op_of(launches: Launches, rows: pd.DataFrame) -> str:
    """The op to change and, with a recorded stack, the source line."""
    first_rows = rows["first_row"].head(EVIDENCE_ROWS)
    known = launches.rows.set_index(C.ROW_ID).loc[first_rows, C.OP_ROW]
    ops = pd.Series(known.to_numpy(), dtype="Int64")
    lines = [line for line in source_lines(launches.run, ops.mask(ops == UNKNOWN)) if line]
    return f"{brief(str(rows.iloc[0][OP]))}{f' at {brief(lines[0])}' if lines else ''}"


DIFFERENT_WORK, ANOTHER, UNDECIDED = "different work", "same work", "unknown"
SAME_RATIO = "the grid changed by the same ratio as the {}"

RULES = (
    Rule(
        "launch_work_differs",
        states=(
            "two runs compared: the grids of one op and kernel family differ by exactly the ratio of an "
            f"input's elements or of the batch sizes, and the kernels take at least {LEAST_SHARE:.0%} of "
            "either run's steps"
        ),
        why="a grid that grows with the number of elements indicates more work, not a worse configuration",
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "launch_config_changed",
        states=(
            "two runs compared: one op and kernel family with the same input shapes has another grid or "
            f"block, and takes at least {LEAST_SHARE:.0%} of either run's steps"
        ),
        why="the work is the same, so a change in time is not caused by the amount of work",
        bound=Bottleneck.COMPUTE,
    ),
)

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


INFERRED_CHANGE = 0.7


def findings(base: Run, head: Run, pairs: pd.DataFrame, differ: str) -> Iterator[Finding]:
    """Yield findings about configurations that changed between two runs."""
    budgets = {"base": budget(base), "head": budget(head)}
    matters = np.zeros(len(pairs), bool)
    for which, spent in budgets.items():
        time = "counted_ns" if spent.marked else "total_ns"
        totals = pairs[f"{which}_{time}"].fillna(0).to_numpy(dtype=np.int64)
        whole = spent.steps * spent.step_ns
        matters |= (totals > 0) & (totals >= LEAST_SHARE * whole)
    for verdict in (DIFFERENT_WORK, ANOTHER):
        chosen = pairs[matters & (pairs["verdict"] == verdict).to_numpy()]
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
            f"{brief(pair[OP])} did different work: {pair['work_ratio']:.3g}× the elements, grid "
            f"{grid_of(pair, 'base_')} against {grid_of(pair, 'head_')}, {_times(pair)} a launch"
        ),
        advice=(
            f"Compare runs with the same shapes and batch size to compare the speed of {brief(pair[OP])}"
            f"{_what(pair)}"
        ),
        confidence=0.9,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _config_finding(pair: dict[Any, Any], spent: Budget, differ: str) -> Finding:
    launches = pair["head_counted"] if spent.marked else pair["head_launches"]
    slower = (int(pair["head_median_ns"]) - int(pair["base_median_ns"])) * int(launches)
    saves = slower > 0 and not differ
    chosen = (
        f"the devices differ ({differ})"
        if differ
        else "check for another version of PyTorch or a library, autotuning, and strides or alignment of the "
        "inputs"
    )
    return Finding(
        code="launch_config_changed",
        severity=spent.severity(slower),
        title=(
            f"{brief(pair[OP])} runs the same shapes with another configuration: "
            f"{configuration(pair, 'base_')} against {configuration(pair, 'head_')}, {_times(pair)} a launch"
        ),
        advice=(
            f"{brief(pair[OP])} is launched with another configuration for the same shapes: "
            f"{chosen}{_what(pair)}"
        ),
        saving_ns_per_step=spent.per_step(slower) if saves else None,
        basis=Basis.ESTIMATED if saves else None,
        how="(median of head − median of base) × launches of head, in steps if steps are marked"
        if saves
        else "",
        confidence=INFERRED_CHANGE,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _what(pair: dict[Any, Any]) -> str:
    fused = kind_of(str(pair[FAMILY]), str(pair[OP])) == FUSED
    return "; the kernel is a convolution or matrix product, not a ReLU" if fused else ""


def _times(pair: dict[Any, Any]) -> str:
    return " against ".join(human(int(pair[f"{which}_median_ns"]), "ns") for which in ("base", "head"))


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
    if differ:
        notes = (f"the runs used different devices ({differ}), which may explain different configurations",)
    found = tuple(findings(base, head, pairs, differ))
    return Result({"changes": pairs[[column.name for column in CHANGES.columns]]}, found, notes)


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
    grid = Fraction(_blocks(pair, "head"), _blocks(pair, "base"))
    shapes = pair["base_shapes"], pair["head_shapes"]
    if shapes[0] and shapes[0] == shapes[1]:
        return ANOTHER, 1.0, float(grid), "same input shapes, another grid or block"
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
    pairs = [(one, two) for one, two in entries if isinstance(one, tuple) and isinstance(two, tuple)]
    found = (_ratio(numel(two), numel(one)) for one, two in pairs if one and two)
    return [ratio for ratio in found if ratio is not None and ratio != 1]


def _blocks(pair: dict[Any, Any], which: str) -> int:
    return prod(max(int(pair[f"{which}_{name}"]), 1) for name in GRID)


def _shown(pair: dict[Any, Any], which: str) -> str:
    """Grid and block as text, empty if the run has none."""
    if pd.isna(pair[f"{which}_first"]):
        return ""
    return f"{grid_of(pair, f'{which}_')} {grid_of(pair, f'{which}_', BLOCK)}"
