"""Causes of idle time, as the analysis `idle_gaps` gives them, cut to what a ledger shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals, registry
from tracekit.analysis import analyze
from tracekit.errors import TracekitError
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.intervals import Union
    from tracekit.run import Run

ANALYSIS = "idle_gaps"
_TABLE, _CAUSE = "gaps", "cause"
LAUNCH_BOUND, SYNC, DATALOAD = "launch-bound idle", "sync idle", "data loading idle"
LINES = {LAUNCH_BOUND: ("launch_bound",), SYNC: ("sync",), DATALOAD: ("dataload",)}
"""Line of the ledger to the causes it sums; every other cause is in the line of the rest."""


@dataclass(frozen=True)
class IdleCauses:
    """The gaps of a run with their causes."""

    gaps: pd.DataFrame

    def of(self, rank: int, device: int) -> dict[str, Union]:
        """Line of the ledger to the idle intervals of one device that belong to it."""
        own = self.gaps[(self.gaps[C.RANK] == rank) & (self.gaps[C.DEVICE] == device)]
        return {line: _union(own[own[_CAUSE].isin(causes)]) for line, causes in LINES.items()}


def _union(gaps: pd.DataFrame) -> Union:
    start = gaps[C.START_NS].to_numpy(np.int64)
    return intervals.union(start, start + gaps[C.DUR_NS].to_numpy(np.int64))


def causes(base: Run, head: Run) -> tuple[tuple[IdleCauses, IdleCauses] | None, str]:
    """The causes of both runs, or None and why they are not known."""
    if ANALYSIS not in registry.names(registry.ANALYSES):
        return None, f"idle time is one line: the analysis {ANALYSIS!r} is not installed"
    try:
        tables = [analyze(run, ANALYSIS).tables for run in (base, head)]
    except TracekitError as error:
        return None, f"idle time is one line: {error.message}"
    found = [_gaps(table.get(_TABLE)) for table in tables]
    return (found[0], found[1]), ""


def _gaps(table: pd.DataFrame | None) -> IdleCauses:
    import pandas as pd

    columns = [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS]
    if table is None:  # a device that is never idle has no gaps
        empty = pd.DataFrame({name: np.empty(0, np.int64) for name in columns})
        return IdleCauses(empty.assign(**{_CAUSE: ""}))
    return IdleCauses(table[[*columns, _CAUSE]])
