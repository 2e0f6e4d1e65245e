"""Calls of the runtime or driver that allocate or free device memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Column
from tracekit.analysis.kernel_names import matches
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from ..shared.common import RANK, ints
from .events import Flags

PATTERN = (
    r"^(?:cuda|hip)(?:Malloc|Free)(?:_v\d+)?$"
    r"|^(?:cu|hip)Mem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess)(?:_v\d+)?$"
)
"""Calls of the allocator for device memory, without pinned memory and stream-ordered pools."""
FREES = r"Free|Release|Unmap"
AFTER_WARMUP = "later"
COLUMNS = (
    RANK,
    Column("call", "", "call of the runtime or the driver"),
    Column("later_ns", "ns", "its time in steps after the first; in the second half if none are marked"),
    Column("later_count", "count", "its calls in the same part"),
    Column("later_steps", "count", "steps after the first with such calls"),
    Column("sum_ns", "ns", "Σ of durations on the host, whole capture"),
    Column("count", "count", "calls, whole capture"),
)


def read_driver_calls(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Read the calls, with a flag for those after warm-up: in a step after its rank's first.

    If no steps are marked, in the second half of the capture.
    """
    columns = [C.ROW_ID, C.NAME, C.RANK, C.TID, C.START_NS, C.DUR_NS, C.STEP, C.PARENT_ROW]
    kinds = pc.field(C.KIND).isin([str(HostKind.RUNTIME), str(HostKind.SYNC)])
    rows = run.table("host_intervals", columns=columns, where=kinds)
    edges = ints(rows, C.START_NS)
    middle = (int(edges.min()) + int(edges.max())) / 2 if len(edges) else 0
    rows = rows[matches(rows[C.NAME], PATTERN)].reset_index(drop=True)
    return rows.assign(**{AFTER_WARMUP: _is_after_warmup(rows, steps, middle)})


def _is_after_warmup(rows: pd.DataFrame, steps: pd.DataFrame, middle: float) -> Flags:
    """Whether each call is after warm-up."""
    if steps.empty:
        return ints(rows, C.START_NS) >= middle
    first_steps = steps.drop_duplicates(C.RANK).set_index(C.RANK)[C.STEP]
    first = rows[C.RANK].map(first_steps)
    return (rows[C.STEP].notna() & (rows[C.STEP] != first).fillna(value=False)).to_numpy(bool)


def driver_call_table(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls by rank and name, sorted by time in later steps."""
    durations = ints(calls, C.DUR_NS)
    later = calls[AFTER_WARMUP].to_numpy(bool)
    frame = pd.DataFrame(
        {
            C.RANK: calls[C.RANK],
            "call": calls[C.NAME].astype(object),
            "later_ns": np.where(later, durations, 0),
            "later_count": later.astype(np.int64),
            "sum_ns": durations,
            "count": 1,
        }
    )
    sums = frame.groupby([C.RANK, "call"], sort=True, as_index=False).sum()
    distinct = frame.assign(step=calls[C.STEP])[later].groupby([C.RANK, "call"])["step"].nunique()
    places = pd.MultiIndex.from_frame(sums[[C.RANK, "call"]])
    sums["later_steps"] = distinct.reindex(places, fill_value=0).to_numpy(np.int64)
    order = ["later_ns", "sum_ns", C.RANK, "call"]
    sums = sums.sort_values(order, ascending=[False, False, True, True], ignore_index=True)
    return sums[[column.name for column in COLUMNS]]
