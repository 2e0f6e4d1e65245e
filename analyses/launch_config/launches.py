"""Kernels with a grid, selected and described for the rules of `launch_config`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Rule
from tracekit.analysis.kernel_names import TITLE_WIDTH, brief
from tracekit.analysis.savings import Budget
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import max_per_rank
from ..shared.host_rows import source_lines
from .configs import BLOCK, FAMILY, GRID, OP, UNKNOWN

MAX_FINDINGS = 5
"""Maximum number of findings per rule, for the kernels with most time."""
MIN_ALONE_SHARE = 0.5
"""Share of the time of a kernel in which no other one runs; those below mostly run beside others."""


@dataclass(frozen=True)
class Launches:
    """Input of the rules."""

    run: Run
    rows: pd.DataFrame  # kernels with a grid
    configs: pd.DataFrame  # kernels grouped by configuration
    budget: Budget  # time of the steps

    @property
    def time(self) -> str:
        """Column of the time compared with the steps."""
        return "counted_ns" if self.budget.marked else "total_ns"

    @property
    def alone(self) -> str:
        """Column of the part of that time in which no other kernel ran on the device."""
        return "counted_alone_ns" if self.budget.marked else "alone_ns"

    @property
    def exposed(self) -> str:
        """Column of the part of that time in which nothing else ran on the device."""
        return "counted_exposed_ns" if self.budget.marked else "exposed_ns"


def significant(launches: Launches, rule: Rule, chosen: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, int]]:
    """Significant configurations of each op and family with their time, most time first.

    Only the time in which no other kernel runs counts; kernels that mostly run beside others are left out.
    """
    chosen = chosen[chosen[launches.alone] >= rule["min_alone_share"] * chosen[launches.time]]
    if not launches.budget.matters(int(chosen[launches.alone].sum()), least=rule["min_saving_share"]):
        return
    by_device = chosen.groupby([OP, FAMILY, C.RANK, C.DEVICE], sort=True)[launches.alone].sum()
    totals = by_device.groupby([OP, FAMILY, C.RANK], sort=True).max().groupby([OP, FAMILY], sort=True).sum()
    ordered = totals.sort_values(ascending=False, kind="stable").head(MAX_FINDINGS)
    for op, name in ordered.index:
        rows = chosen[(chosen[OP] == op) & (chosen[FAMILY] == name)]
        total = int(totals[op, name])
        if launches.budget.matters(total, least=rule["min_saving_share"]):
            yield rows.sort_values([launches.time, "first_row"], ascending=[False, True]), total


def bound_saving(launches: Launches, rows: pd.DataFrame, part: pd.Series) -> int:
    """Upper bound of a saving: the part of the time in which nothing else runs.

    Returns:
        Its sum over ranks, of each on the device with most of it, ns.
    """
    return max_per_rank(rows, (rows[launches.exposed] * part).to_numpy(np.float64).astype(np.int64))


def kernel(row: pd.Series) -> str:
    """Return the short name of a kernel."""
    name = str(row[FAMILY])
    return brief(name if "<" in name else name.rpartition("::")[2], TITLE_WIDTH)


def configuration(row: dict[Any, Any], side: str = "") -> str:
    """Describe the grid and the block of a launch, of one side of a comparison if it is given."""
    return f"grid {grid_of(row, side)} block {grid_of(row, side, BLOCK)}"


def grid_of(row: dict[Any, Any], side: str = "", names: list[str] = GRID) -> str:
    """Format the grid of a launch, or its block.

    `row` is a configuration, or a pair of a comparison, with the prefix of one side.
    """
    return f"({','.join(str(row[f'{side}{name}']) for name in names)})"


def op_of(launches: Launches, rows: pd.DataFrame) -> str:
    """The op to change and, with a recorded stack, the source line."""
    first_rows = rows["first_row"].head(EVIDENCE_ROWS)
    op_rows = launches.rows.set_index(C.ROW_ID).loc[first_rows, C.OP_ROW]
    ops = pd.Series(op_rows.to_numpy(), dtype="Int64")
    lines = [line for line in source_lines(launches.run, ops.mask(ops == UNKNOWN)) if line]
    return f"{brief(str(rows.iloc[0][OP]))}{f' at {brief(lines[0])}' if lines else ''}"
