"""Launch calls with their first device interval, and the launch queue of each device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.schema import C, DeviceKind

from .._shared.common import ints, share, spans

if TYPE_CHECKING:
    from tracekit.intervals import Ints

    from .._shared.host_lines import HostLines

PLACE = [C.RANK, C.DEVICE]
CALL, KIND, API_NS, DELAY_NS, REACH_NS = "call", "kind", "api_ns", "delay_ns", "reach_ns"
CALLED_NS, STARTED_NS, AT, DEPTH, IDLE_IN_CALL = (
    "called_ns",
    "begun_ns",
    "at",
    "queued",
    "idle_in_call_ns",
)
GRAPH_CALL = r"(?i)graphlaunch"


def launches(device: pd.DataFrame, host: HostLines) -> pd.DataFrame:
    """One row per launch call and device: its first interval, times, delay and the queue at its start."""
    at = host.at(device[C.LAUNCH_ROW])
    linked = device.assign(**{AT: at})[at >= 0].sort_values([C.START_NS, C.ROW_ID])
    first = linked.drop_duplicates([*PLACE, AT]).reset_index(drop=True)
    rows, started_at = first[AT].to_numpy(), ints(first, C.START_NS)
    called, returned = host.start[rows], host.end[rows]
    graphs = host.named(GRAPH_CALL)[rows] | (first[C.KIND].astype(str) == DeviceKind.GRAPH).to_numpy(bool)
    first[KIND] = np.where(graphs, str(DeviceKind.GRAPH), first[C.KIND].astype(str))
    first[CALL] = host.labels(rows, "")
    first[CALLED_NS], first[STARTED_NS], first[API_NS] = called, started_at, returned - called
    first[DELAY_NS] = np.maximum(started_at - returned, 0)
    first[REACH_NS] = started_at - called
    return _with_lane_measures(first.sort_values([*PLACE, CALLED_NS, C.ROW_ID], ignore_index=True), device)


def _with_lane_measures(table: pd.DataFrame, device: pd.DataFrame) -> pd.DataFrame:
    """Add the queue length at each call, and device idle time during it."""
    queued, idle = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    rows_of = device.groupby(PLACE, sort=True).indices
    for key, own in table.groupby(PLACE, sort=True).indices.items():
        mine = table.iloc[own]
        called, returned = ints(mine, CALLED_NS), ints(mine, CALLED_NS) + ints(mine, API_NS)
        started = np.sort(np.maximum(ints(mine, STARTED_NS), called))
        queued[own] = np.searchsorted(np.sort(called), called) - np.searchsorted(
            started, called, side="right"
        )
        start, end = spans(device.iloc[rows_of[key]])
        gaps = intervals.gaps(start, end)
        idle[own] = covered(gaps, called, returned)
    return table.assign(**{DEPTH: np.maximum(queued, 0), IDLE_IN_CALL: idle})


def queue(table: pd.DataFrame, device: pd.DataFrame) -> pd.DataFrame:
    """The queue of each device over its window: +1 at each call's start, −1 at its first interval's."""
    rows = []
    rows_of = device.groupby(PLACE, sort=True).indices
    for (rank, index), mine in table.groupby(PLACE, sort=True):
        start, end = spans(device.iloc[rows_of[(rank, index)]])
        rows.append({C.RANK: rank, C.DEVICE: index, **_queue_of(mine, start, end)})
    return pd.DataFrame(rows)


def _queue_of(mine: pd.DataFrame, start: Ints, end: Ints) -> dict[str, object]:
    first, last = int(start.min()), int(end.max())
    called = ints(mine, CALLED_NS)
    started_at = np.maximum(ints(mine, STARTED_NS), called)
    waiting = intervals.union(called, started_at)
    empty = intervals.complement(waiting, first, last)
    idle = intervals.complement(intervals.union(start, end), first, last)
    empty_idle = intervals.length(intervals.intersect(empty, idle))
    inside = np.maximum(np.minimum(started_at, last) - np.maximum(called, first), 0)
    window = last - first
    return {
        "launches": len(mine),
        "mean_depth": float(int(inside.sum()) / window) if window else float("nan"),
        "max_depth": _max_depth(called, started_at),
        "empty_ns": intervals.length(empty),
        "empty_idle_ns": empty_idle,
        "launch_bound_share": float(share(np.array([empty_idle]), window)[0]),
        "idle_ns": intervals.length(idle),
        "window_ns": window,
    }


def _max_depth(called: Ints, started_at: Ints) -> int:
    """Maximum of launches called but not started on the device; at equal times starts count first."""
    times = np.concatenate((called, started_at))
    change = np.repeat(np.array([1, -1]), [len(called), len(started_at)])
    queued = np.concatenate((started_at > called, started_at > called))
    order = np.lexsort((change[queued], times[queued]))
    return int(np.cumsum(change[queued][order]).max(initial=0))
