"""What the findings about launch configurations share: which kernels matter, and how they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Severity
from tracekit.render import human
from tracekit.schema import C

from ._hosts import source_lines
from ._launch_configs import BLOCK, FAMILY, GRID, OP, UNKNOWN
from ._ranges import weightiest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run
    from tracekit.savings import Budget

MOST = 5
"""Findings of one rule at most: the costliest kernels."""
INFERRED, BOUND = 0.7, 0.5
"""Confidence where a number shows the state but not what it costs, and where it is an upper bound."""


@dataclass(frozen=True)
class Launches:
    """What the rules look at.

    Attributes:
        run: The run.
        rows: Every kernel with a grid.
        configs: The same by configuration.
        spent: The steps.
    """

    run: Run
    rows: pd.DataFrame
    configs: pd.DataFrame
    spent: Budget

    @property
    def time(self) -> str:
        """The column of the time that counts against the steps."""
        return "counted_ns" if self.spent.marked else "total_ns"


def weighty(launches: Launches, chosen: pd.DataFrame, *, least: float) -> Iterator[tuple[pd.DataFrame, int]]:
    """The configurations of each op and family that matter, costliest first, with their time."""
    totals = chosen.groupby([OP, FAMILY], sort=True)[launches.time].sum()
    ordered = totals.sort_values(ascending=False, kind="stable").head(MOST)
    for op, name in ordered.index:
        rows = chosen[(chosen[OP] == op) & (chosen[FAMILY] == name)]
        total = int(rows[launches.time].sum())
        if launches.spent.matters(total, least=least):
            yield rows.sort_values([launches.time, "first_row"], ascending=[False, True]), total


def bounded(launches: Launches, rows: pd.DataFrame, part: pd.Series) -> int:
    return int((rows[launches.time] * part).astype(np.float64).sum())


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
    spent = launches.spent
    evidence = weightiest(
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
    name = str(row[FAMILY]).rpartition("::")[2] if "<" not in str(row[FAMILY]) else str(row[FAMILY])
    return name if len(name) <= 60 else f"{name[:57]}..."


def configuration(row: dict[Any, Any]) -> str:
    sides = [",".join(str(row[name]) for name in names) for names in (GRID, BLOCK)]
    return f"grid ({sides[0]}) block ({sides[1]})"


def time_of(launches: Launches, total: int) -> str:
    return f"{human(launches.spent.per_step(total), 'ns')} {launches.spent.per}"


def op_of(launches: Launches, rows: pd.DataFrame) -> str:
    """The op to change and, where a stack was recorded, the user's line."""
    firsts = rows["first_row"].head(EVIDENCE_ROWS)
    known = launches.rows.set_index(C.ROW_ID).loc[firsts, C.OP_ROW]
    ops = pd.Series(known.to_numpy(), dtype="Int64")
    lines = [line for line in source_lines(launches.run, ops.mask(ops == UNKNOWN)) if line]
    return f"{rows.iloc[0][OP]}{f' at {lines[0]}' if lines else ''}"
