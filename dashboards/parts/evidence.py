"""Where on the timeline the rows are that show a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.analysis import Finding
    from tracekit.run import Run

    from ..view import View

TIMELINE = "timeline"
_ROUND = 2
"""Lengths of a row that are shown on either side of it."""
_LEAST_NS = 20_000
"""Shown on either side at least: a few kernels and their launches."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One row of evidence.

    Attributes:
        table: Table of the run.
        row: Its id in that table.
        name: What it is called.
        start_ns: Its start since the run's t0.
        dur_ns: Its length.
        rank: The rank it is of.
        device: The device it is on; None for what is on the host.
    """

    table: str
    row: int
    name: str
    start_ns: int
    dur_ns: int
    rank: int
    device: int | None

    def href(self, view: View) -> str:
        """Address of the timeline with the row selected, and what is around it in sight.

        A choice of another rank or device would hide it and is left out.
        """
        start, end = around(self.start_ns, self.dur_ns)
        return view.elsewhere(
            TIMELINE,
            row=f"{self.table}:{self.row}",
            start_ns=start,
            end_ns=end,
            rank=view.rank if view.rank == self.rank else None,
            device=view.device if self.device in {None, view.device} else None,
        )


def around(start_ns: int, dur_ns: int) -> tuple[int, int]:
    """The time to show around an interval.

    Example:
        >>> around(1_000_000, 100_000)
        (800000, 1300000)
    """
    margin = max(_ROUND * dur_ns, _LEAST_NS)
    return max(0, start_ns - margin), start_ns + dur_ns + margin


def spots(run: Run, findings: Iterable[Finding]) -> dict[tuple[str, int], Spot]:
    """Every row of evidence of some findings, by table and id; each table is read once."""
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        for table, rows in finding.evidence.items():
            if table in TABLES:
                wanted.setdefault(table, set()).update(rows)
    return {
        (table, spot.row): spot for table, rows in wanted.items() if rows for spot in _read(run, table, rows)
    }


def _read(run: Run, table: str, rows: set[int]) -> list[Spot]:
    columns = [C.ROW_ID, C.NAME, C.START_NS, C.DUR_NS, C.RANK, C.DEVICE]
    present = [column for column in columns if column in TABLES[table].arrow.names]
    found = run.arrow(table, columns=present, where=pc.field(C.ROW_ID).isin(sorted(rows)))
    return [
        Spot(
            table=table,
            row=one[C.ROW_ID],
            name=one[C.NAME],
            start_ns=one[C.START_NS],
            dur_ns=one[C.DUR_NS],
            rank=one[C.RANK],
            device=one.get(C.DEVICE),
        )
        for one in found.to_pylist()
    ]


def ordered(evidence: Mapping[str, list[int]], known: Mapping[tuple[str, int], Spot]) -> list[Spot]:
    """The rows of a finding that were found, the weightiest of each table first, devices before the host."""
    return [
        known[table, row]
        for table in sorted(evidence, key=lambda table: table != "device_intervals")
        for row in evidence[table]
        if (table, row) in known
    ]
