"""Windows of the profiled steps: the time that each step adds after all earlier ones."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.runs import intervals
from tracekit.runs.range_names import WARM_UP
from tracekit.runs.rank_view import split_by_rank
from tracekit.runs.run import Run, busy
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import pandas as pd

HOST_NS, HOST_START_NS = "host_ns", "host_start_ns"
Times: TypeAlias = "npt.NDArray[np.int64]"
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
    table = run.table("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    table = table.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)
    work = busy(run, [C.RANK, C.STEP, C.START_NS, C.DUR_NS, C.LAUNCH_ROW, C.CORRELATION_ID])
    host_start = table[C.START_NS].to_numpy(np.int64)
    host_end = host_start + table[C.DUR_NS].to_numpy(np.int64)
    end = np.maximum(host_end, _last_ends(table, work))  # a step without device work ends on the host
    start = np.maximum(host_start, _earlier_ends(table[C.RANK].to_numpy(), end, backlog(work)))
    table = table.rename(columns={C.DUR_NS: HOST_NS})
    table[C.START_NS], table[END_NS], table[HOST_START_NS] = start, np.maximum(end, start), host_start
    return table.sort_values(_KEYS, ignore_index=True)


def _last_ends(steps: pd.DataFrame, work: pd.DataFrame) -> Times:
    """Return the end of the last device interval launched in each step, the least integer without any."""
    launched = work[work[C.STEP].notna().to_numpy()]
    ranks, row = np.unique(steps[C.RANK].to_numpy(), return_inverse=True)
    numbers, column = np.unique(steps[C.STEP].to_numpy(np.int64), return_inverse=True)
    last = np.full(len(ranks) * len(numbers), _NEVER)  # by rank and step: ranks have about the same steps
    if len(launched) and len(steps):
        rank, number = launched[C.RANK].to_numpy(), launched[C.STEP].to_numpy(np.int64)
        rows = np.searchsorted(ranks, rank).clip(max=len(ranks) - 1)
        columns = np.searchsorted(numbers, number).clip(max=len(numbers) - 1)
        known = (ranks[rows] == rank) & (numbers[columns] == number)
        ends = launched[C.START_NS].to_numpy(np.int64) + launched[C.DUR_NS].to_numpy(np.int64)
        np.maximum.at(last, (rows * len(numbers) + columns)[known], ends[known])
    ends_of_steps: Times = last[row * len(numbers) + column]
    return ends_of_steps


def _earlier_ends(ranks: npt.NDArray[Any], ends: Times, earlier: pd.DataFrame) -> Times:
    """Return when all earlier windows of the rank, and its backlog, have ended.

    Args:
        ranks: Rank of each step; steps are ordered by rank, then by start.
        ends: End of each step's own work, in ns.
        earlier: The backlog.
    """
    reached = np.full(len(ends), _NEVER)
    before: dict[Hashable, int] = {}
    if len(earlier):
        before = (earlier[C.START_NS] + earlier[C.DUR_NS]).groupby(earlier[C.RANK]).max().to_dict()
    bounds = np.flatnonzero(np.diff(ranks, prepend=ranks[:1] - 1)).tolist()
    for first, stop in pairwise([*bounds, len(ends)]):
        # The maximum of all earlier ends, not only the last: a step may end before an earlier one does.
        reached[first + 1 : stop] = np.maximum.accumulate(ends[first : stop - 1])
        reached[first:stop] = np.maximum(reached[first:stop], before.get(int(ranks[first]), _NEVER))
    return reached


def with_device_work(windows: pd.DataFrame, device: pd.DataFrame) -> pd.DataFrame:
    """Drop the steps before the first and after the last work of the devices of their rank.

    Those of a rank without any other step are kept.

    Args:
        windows: Result of `step_windows`.
        device: Intervals that occupy devices, with rank, start and duration.
    """
    ranks, (first, last) = windows[C.RANK], first_and_last(device)
    outside = (windows[END_NS] <= ranks.map(first)) | (windows[C.START_NS] >= ranks.map(last))
    return windows[~outside | outside.groupby(ranks).transform("all")]


def first_and_last(rows: pd.DataFrame) -> tuple[pd.Series[int], pd.Series[int]]:
    """Return the first start and the last end of the intervals of each rank."""
    ends = (rows[C.START_NS] + rows[C.DUR_NS]).groupby(rows[C.RANK]).max()
    return rows.groupby(C.RANK)[C.START_NS].min(), ends


def after_warm_up(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Drop the intervals of devices before the end of the first marked warm-up, where no steps are marked.

    Further ranges named so belong to it until the device works between two.

    Args:
        run: The run.
        rows: Intervals of devices, with rank and start.
    """
    start = rows[C.RANK].map(measured_from(run))
    return rows if start.isna().all() else rows[~(rows[C.START_NS] < start)]


def measured_from(run: Run) -> dict[int, int]:
    """Return the first start on a device after marked warm-up, by rank; empty if steps are marked."""
    return run.compute_once(_measured_from)


def _measured_from(run: Run) -> dict[int, int]:
    import pyarrow.compute as pc

    if run.rows("steps"):
        return {}
    columns = [C.RANK, C.NAME, C.START_NS, C.DUR_NS]
    ranges = run.table("host_intervals", columns=columns, where=pc.field(C.KIND) == str(HostKind.ANNOTATION))
    ranges = ranges[ranges[C.NAME].astype(str).str.contains(WARM_UP)]
    if ranges.empty:
        return {}
    work, first = busy(run, [C.RANK, C.START_NS]), {}
    for rank, of_rank in ranges.groupby(C.RANK):
        starts = np.sort(work.loc[work[C.RANK] == rank, C.START_NS].to_numpy(np.int64))
        begun = of_rank[C.START_NS].to_numpy(np.int64)
        begun, ended = intervals.union(begun, begun + of_rank[C.DUR_NS].to_numpy(np.int64))
        between = np.searchsorted(starts, begun[1:]) > np.searchsorted(starts, ended[:-1])
        last = int(between.argmax()) if between.any() else len(ended) - 1
        after = int(np.searchsorted(starts, ended[last]))
        if 0 < after < len(starts):
            first[int(str(rank))] = int(starts[after])
    return first


def backlog(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the device work that was launched before the capture.

    It has no launching call, and a correlation id below those of all launched work of its rank.

    Args:
        rows: Intervals that occupy devices, with rank, launching row and correlation id.
    """
    unlinked = rows[C.LAUNCH_ROW].isna() & (rows[C.CORRELATION_ID] > 0)  # 0 is no id
    if not unlinked.any():
        return rows.iloc[:0]
    first = rows.loc[rows[C.LAUNCH_ROW].notna(), C.CORRELATION_ID].groupby(rows[C.RANK]).min()
    earlier = rows[C.CORRELATION_ID] < rows[C.RANK].map(first)
    return rows[unlinked & earlier.fillna(value=False).astype(bool)]
