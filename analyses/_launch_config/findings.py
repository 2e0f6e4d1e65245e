"""Shared parts of the findings on launch configurations: selection of kernels, and texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Severity
from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.schema import C

from .._copies.reading import per
from .._shared.common import worst_devices
from .._shared.hosts import source_lines
from .._shared.ranges import largest
from .configs import BLOCK, FAMILY, GRID, OP, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run
    from tracekit.savings import Budget

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


def significant(
    launches: Launches, chosen: pd.DataFrame, *, least: float
) -> Iterator[tuple[pd.DataFrame, int]]:
    """Significant configurations of each op and family with their time, most time first."""
    by_device = chosen.groupby([OP, FAMILY, C.RANK, C.DEVICE], sort=True)[launches.time].sum()
    totals = by_device.groupby([OP, FAMILY, C.RANK], sort=True).max().groupby([OP, FAMILY], sort=True).sum()
    ordered = totals.sort_values(ascending=False, kind="stable").head(MOST)
    for op, name in ordered.index:
        rows = chosen[(chosen[OP] == op) & (chosen[FAMILY] == name)]
        total = int(totals[op, name])
        if launches.spent.matters(total, least=least):
            yield rows.sort_values([launches.time, "first_row"], ascending=[False, True]), total


def bounded(launches: Launches, rows: pd.DataFrame, part: pd.Series) -> int:
    """Sum of a part of the time of each configuration, on the device of each rank with most of it."""
    return worst_devices(rows, (rows[launches.time] * part).to_numpy(np.float64).astype(np.int64))


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
    evidence = largest(
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
    name = str(row[FAMILY])
    return brief(name if "<" in name else name.rpartition("::")[2])


def configuration(row: dict[Any, Any]) -> str:
    sides = [",".join(str(row[name]) for name in names) for names in (GRID, BLOCK)]
    return f"grid ({sides[0]}) block ({sides[1]})"


def time_of(launches: Launches, total: int) -> str:
    return f"{human(launches.spent.per_step(total), 'ns')} {per(launches.spent)}"


def op_of(launches: Launches, rows: pd.DataFrame) -> str:
    """The op to change and, with a recorded stack, the source line."""
    first_rows = rows["first_row"].head(EVIDENCE_ROWS)
    known = launches.rows.set_index(C.ROW_ID).loc[first_rows, C.OP_ROW]
    ops = pd.Series(known.to_numpy(), dtype="Int64")
    lines = [line for line in source_lines(launches.run, ops.mask(ops == UNKNOWN)) if line]
    return f"{brief(str(rows.iloc[0][OP]))}{f' at {brief(lines[0])}' if lines else ''}"
