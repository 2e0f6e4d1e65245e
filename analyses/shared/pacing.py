"""Waits of the host after which a device works, and whether the host paces a run.

A host that paces a run leaves devices idle, so that shorter kernels only lengthen the idle time between them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.analysis.savings import Budget
from tracekit.runs import intervals
from tracekit.runs.run import Run, busy
from tracekit.schema import C, HostKind

from .common import in_steps, ints, is_kind, max_per_rank, spans
from .groups import rows_by_device
from .host_rows import blocking_calls
from .intervals_by_class import find_searches

MAX_BUSY_SHARE, MAX_WAIT_SHARE = 0.5, 0.1
"""Shares of the steps below which kernels run, and below which the host waits for the device."""

_WAITING_COPY = r"^(?:cuda|hip)Memcpy(?!.*Async)"
"""Calls that return when the copy is done, also where the memory of its host side is unknown."""


def is_paced_by_host(run: Run, kernels: pd.DataFrame, budget: Budget) -> bool:
    """Whether the device is idle for most of the steps and the host hardly waits for it in them."""
    kernels = in_steps(kernels, marked=budget.marked)
    start, end = spans(kernels)
    devices = rows_by_device(kernels)
    lengths = [intervals.length(intervals.union(start[rows], end[rows])) for rows in devices.values()]
    places = pd.DataFrame(list(devices), columns=[C.RANK, C.DEVICE])
    if not lengths or budget.share(max_per_rank(places, np.array(lengths))) >= MAX_BUSY_SHARE:
        return False
    waits = blocking_calls(run, marked=budget.marked)
    columns = [C.ROW_ID, C.NAME, C.RANK, C.PID, C.TID, C.STEP, C.DUR_NS]
    calls = run.table("host_intervals", columns=columns, where=is_kind(HostKind.RUNTIME))
    calls = calls[matches(calls[C.NAME], _WAITING_COPY) & ~calls[C.ROW_ID].isin(waits[C.ROW_ID])]
    calls = in_steps(calls, marked=budget.marked)
    waits = pd.concat([waits[columns], calls]) if len(calls) else waits
    by_thread = waits.groupby([C.RANK, C.PID, C.TID])[C.DUR_NS].sum()
    return budget.share(int(by_thread.groupby(C.RANK).max().sum())) < MAX_WAIT_SHARE


def delaying_waits(run: Run, *, marked: bool) -> pd.DataFrame:
    """Return the calls of `blocking_calls` that may delay later work, without those of a search.

    A wait at the end, after which nothing starts on a device of its rank, delays nothing. A search for the
    fastest algorithm of a convolution measures kernels once.
    """
    waits = blocking_calls(run, marked=marked)
    device = busy(run, [C.ROW_ID, C.RANK, C.START_NS, C.OP_ROW])
    last = waits[C.RANK].map(device.groupby(C.RANK)[C.START_NS].max()).fillna(-1)
    searches = device.loc[np.isin(ints(device, C.ROW_ID), find_searches(run)), C.OP_ROW]
    followed = waits[C.START_NS] + waits[C.DUR_NS] <= last
    return waits[followed & ~waits[C.PARENT_ROW].isin(searches)]


def waited_ns(waits: pd.DataFrame) -> int:
    """Return for how long any thread of a process waits, in the process of each rank that waits most."""
    lengths = {
        place: intervals.length(intervals.union(*spans(rows)))
        for place, rows in waits.groupby([C.RANK, C.PID])
    }
    return int(pd.Series(lengths, dtype="int64").groupby(level=0).max().sum()) if lengths else 0
