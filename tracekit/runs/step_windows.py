"""Windows of the profiled steps: the time that each step adds after all earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.runs.rank_view import split_by_rank
from tracekit.runs.run import Run, busy
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

HOST_NS, HOST_START_NS = "host_ns", "host_start_ns"
_NEVER = np.iinfo(np.int64).min
END_NS = "end_ns"
_KEYS = [C.RANK, C.STEP]


def step_windows(run: Run) -> pd.DataFrame:
    """Return the profiled steps in order: rank, step, window, and start and duration on the host.

    A window begins at the latest of the step's start on the host, the ends of the windows of all earlier
    steps, and the end of the device work that was launched before the capture. It ends at the later of the
    step's end on the host and the end of the last device interval launched in it, on any device of the rank.
    So windows do not overlap where the host runs ahead of the device: each is the time that its step adds,
    and no device work counts in two of them. A step that ends no later than an earlier one has an empty one.

    Most analyses need them, so they are computed once per `Run`.
    """
    return run.compute_once(_step_windows).copy()


def _step_windows(run: Run) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([_windows(view) for view in split_by_rank(run)], ignore_index=True)


def _windows(run: Run) -> pd.DataFrame:
    steps = run.table("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    work = busy(run, [C.RANK, C.STEP, C.START_NS, C.DUR_NS, C.LAUNCH_ROW, C.CORRELATION_ID])
    launched = work[work[C.STEP].notna()]
    ends = launched.assign(**{END_NS: launched[C.START_NS] + launched[C.DUR_NS]})
    last = ends.groupby(_KEYS, as_index=False)[END_NS].max()
    last[C.STEP] = last[C.STEP].astype(np.int64)
    last[END_NS] = last[END_NS].astype("Int64")  # a left merge converts plain integers to floats
    table = steps.merge(last, how="left", on=_KEYS)
    host_end = table[C.START_NS] + table[C.DUR_NS]
    table[END_NS] = table[END_NS].fillna(host_end).to_numpy(dtype=np.int64)
    table[END_NS] = np.maximum(table[END_NS], host_end)  # a step without device work ends on the host
    table = table.rename(columns={C.DUR_NS: HOST_NS}).assign(**{HOST_START_NS: table[C.START_NS]})
    return _disjoint(table, backlog(work)).sort_values(_KEYS, ignore_index=True)


def _disjoint(table: pd.DataFrame, earlier: pd.DataFrame) -> pd.DataFrame:
    """Let each window begin after all earlier ones of its rank, and after the backlog."""
    table = table.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)
    before = (earlier[C.START_NS] + earlier[C.DUR_NS]).groupby(earlier[C.RANK]).max()
    ranks = table[C.RANK]
    reached = table.groupby(C.RANK)[END_NS].cummax().groupby(ranks).shift(fill_value=_NEVER)
    after = np.maximum(reached.to_numpy(np.int64), ranks.map(before).fillna(_NEVER).to_numpy(dtype=np.int64))
    # The maximum of all earlier ends, not only the last: a step may end before an earlier one does.
    start = np.maximum(table[C.START_NS].to_numpy(np.int64), after)
    return table.assign(**{C.START_NS: start, END_NS: np.maximum(table[END_NS], start)})


def backlog(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the device work that was launched before the capture.

    It has no launching call, and a correlation id below those of all launched work of its rank.

    Args:
        rows: Intervals that occupy devices, with rank, launching row and correlation id.
    """
    unlinked = rows[C.LAUNCH_ROW].isna() & (rows[C.CORRELATION_ID] > 0)  # 0 is no id
    first = rows.loc[rows[C.LAUNCH_ROW].notna(), C.CORRELATION_ID].groupby(rows[C.RANK]).min()
    earlier = rows[C.CORRELATION_ID] < rows[C.RANK].map(first)
    return rows[unlinked & earlier.fillna(value=False).astype(bool)]
