"""Whether the host paces a run, so that shorter kernels only lengthen the idle time between them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis.savings import Budget
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.schema import C

from .common import max_per_rank, spans
from .groups import rows_by_device
from .host_rows import blocking_calls

MAX_BUSY_SHARE, MAX_WAIT_SHARE = 0.5, 0.1
"""Shares of the steps below which kernels run, and below which the host waits for the device."""


def is_paced_by_host(run: Run, kernels: pd.DataFrame, budget: Budget) -> bool:
    """Whether the device is idle for most of the steps and the host hardly waits for it in them.

    Args:
        run: The run.
        kernels: Its kernels.
        budget: Time of its steps.
    """
    if budget.marked:
        kernels = kernels[kernels[C.STEP].notna()]
    start, end = spans(kernels)
    devices = rows_by_device(kernels)
    lengths = [intervals.length(intervals.union(start[rows], end[rows])) for rows in devices.values()]
    places = pd.DataFrame(list(devices), columns=[C.RANK, C.DEVICE])
    if not lengths or budget.share(max_per_rank(places, np.array(lengths))) >= MAX_BUSY_SHARE:
        return False
    waits = blocking_calls(run, marked=budget.marked)
    by_thread = waits.groupby([C.RANK, C.PID, C.TID])[C.DUR_NS].sum()
    return budget.share(int(by_thread.groupby(C.RANK).max().sum())) < MAX_WAIT_SHARE
