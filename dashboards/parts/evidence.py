"""Timeline locations of the evidence of findings."""

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
"""Margin on either side of a row, in multiples of its duration."""
_LEAST_NS = 20_000
"""Minimum margin on either side."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A row of evidence.

    Attributes:
        table: Table of the run.
        row: Row id.
        name: Name of the interval.
        start_ns: Start relative to the run's t0.
        dur_ns: Duration.
        rank: Rank.
        device: Device; None on the host.
    """

    table: str
    row: int
    name: str
    start_ns: int
    dur_ns: int
    rank: int
    device: int | None

    def href(self, view: View) -> str:
        """Return the timeline address with the row selected and its surroundings in view.

        Rank and device filters that would hide the row are dropped.
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
    """Return the range to show around an interval.

    Example:
        >>> around(1_000_000, 100_000)
        (800000, 1300000)
    """
    margin = max(_ROUND * dur_ns, _LEAST_NS)
    return max(0, start_ns - margin), start_ns + dur_ns + margin


def spots(run: Run, findings: Iterable[Finding]) -> dict[tuple[str, int], Spot]:
    """Return all rows of evidence by table and id; each table is read once."""
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
    """Return the known rows of a finding, device rows before host rows."""
    return [
        known[table, row]
        for table in sorted(evidence, key=lambda table: table != "device_intervals")
        for row in evidence[table]
        if (table, row) in known
    ]
