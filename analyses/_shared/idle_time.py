"""Device idle time per rank, an upper bound of what a change on the host can save."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.compute as pc

from tracekit import intervals
from tracekit.run import busy
from tracekit.schema import C
from tracekit.windows import step_windows

from .common import spans
from .lanes import measured_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.run import Run


def idle_by_rank(run: Run, ranks: Iterable[int]) -> pd.Series:
    """Idle time of each rank's busiest device, in its profiled steps, or the capture if none are marked.

    For a rank without device intervals all of its time counts.
    """
    windows, rows = step_windows(run), busy(run, [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
    idle = {
        int(rank): _idle(run, int(rank), rows[rows[C.RANK] == rank], windows[windows[C.RANK] == rank])
        for rank in ranks
    }
    return pd.Series(idle, dtype="int64")


def _idle(run: Run, rank: int, rows: pd.DataFrame, windows: pd.DataFrame) -> int:
    inside = measured_in(rows if len(rows) else _on_host(run, rank), windows)
    worked = [
        intervals.length(intervals.intersect(intervals.union(*spans(own)), inside))
        for _, own in rows.groupby(C.DEVICE, sort=True)
    ]
    return intervals.length(inside) - max(worked, default=0)


def _on_host(run: Run, rank: int) -> pd.DataFrame:
    where = pc.field(C.RANK) == rank
    return run.table("host_intervals", columns=[C.START_NS, C.DUR_NS], where=where)
