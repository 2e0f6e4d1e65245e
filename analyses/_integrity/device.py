"""Integrity of the links between launches and device intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.kernel_names import matches
from tracekit.run import busy
from tracekit.schema import C, HostKind, Memory

from .._shared.common import NO_PARENT, NOT_RECORDED, ints, launches, positions
from .checks import ERROR, INFO, OK, Check, counted

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

GRAPH_PATTERN = r"(?i)graphlaunch"
KERNEL_PATTERN = r"(?i)launch"
CAPTURE_BEGIN_PATTERN = r"(?i)stream_?begin_?capture"
CAPTURE_END_PATTERN = r"(?i)stream_?end_?capture"
"""Calls of a thread between these are captured into a graph and not executed."""
_COLUMNS = [
    *(C.ROW_ID, C.START_NS, C.DUR_NS, C.STEP, C.RANK),
    *(C.LAUNCH_ROW, C.CORRELATION_ID, C.SRC_MEMORY),
]
_GRAPH, _KERNEL, _COPY = "graph", "kernel", "copy"


def device_checks(run: Run) -> list[Check]:
    """Checks of device rows against the host rows that launched them."""
    device = busy(
        run, [C.ROW_ID, C.START_NS, C.DUR_NS, C.STEP, C.RANK, C.LAUNCH_ROW, C.SRC_MEMORY, C.CORRELATION_ID]
    )
    calls = _launch_calls(run)
    if device.empty:
        return [_without_device(run, int((~calls["captured"]).sum()))]
    return [
        Check("device_events", OK, len(device), None, f"{len(device):,} device intervals were recorded"),
        _unlinked(device),
        *_without_interval(calls, device),
        _before_launch(calls, device),
        _coarse(device),
        _empty_steps(run, device),
    ]


def _launch_calls(run: Run) -> pd.DataFrame:
    """Calls that launch device work, with the kind of work and whether they are captured into a graph."""
    where = pc.field(C.KIND).isin([str(HostKind.RUNTIME), str(HostKind.SYNC)])
    thread = [C.RANK, C.PID, C.TID]
    calls = run.table("host_intervals", columns=[C.ROW_ID, C.NAME, C.START_NS, *thread], where=where)
    names = calls[C.NAME]
    kinds = np.select(
        [matches(names, GRAPH_PATTERN), matches(names, KERNEL_PATTERN)],
        [_GRAPH, _KERNEL],
        _COPY,
    )
    captures = matches(names, CAPTURE_BEGIN_PATTERN).astype(np.int64) - matches(names, CAPTURE_END_PATTERN)
    captured = np.zeros(len(calls), bool)
    for at in calls.groupby(thread).indices.values() if captures.any() else ():
        ordered = at[np.argsort(ints(calls, C.START_NS)[at], kind="stable")]
        captured[ordered] = _inside(captures.to_numpy(np.int64)[ordered])
    return calls.assign(call=kinds, captured=captured)[launches(names)].reset_index(drop=True)


def _inside(turns: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each position is between a begin (1) and its end (-1); unmatched ones are ignored.

    Example:
        >>> _inside(np.array([-1, 0, 1, 0, -1, 0, 1, 0]))[[1, 3, 5, 7]].tolist()
        [False, True, False, False]
    """
    return (_open(turns) > 0) & (_open(-turns[::-1])[::-1] > 0)


def _open(turns: Ints) -> Ints:
    """Number of open begins at each position, at least 0."""
    level = np.cumsum(turns)
    return level - np.minimum(np.minimum.accumulate(level), 0)


def _without_device(run: Run, launches: int) -> Check:
    gpus = len(run.meta.environment.get("gpus") or [])
    if launches:
        return Check("device_events", ERROR, 0, None, f"{launches:,} launches: {NOT_RECORDED}")
    on_cpu = (run.meta.workload or {}).get("device") == "cpu"
    if gpus and not on_cpu:
        detail = (
            f"the machine has {gpus} GPU{'s' * (gpus != 1)} and nothing was recorded on "
            f"{'them' if gpus > 1 else 'it'}: the program did not use a GPU, or its activity was not recorded"
        )
        return Check("device_events", ERROR, 0, None, detail)
    return Check("device_events", OK, 0, None, "no GPU and no launch: a CPU-only run")


def _unlinked(device: pd.DataFrame) -> Check:
    migrated = (device[C.SRC_MEMORY] == Memory.UNIFIED) & device[
        C.CORRELATION_ID
    ].isna()  # by the driver itself
    launched = device[~migrated]
    missing = int(launched[C.LAUNCH_ROW].isna().sum())
    what = "device intervals have no launching call; their time can't be attributed to ops"
    return counted("device_without_launch", missing, len(launched), what, warn=0.05)


def _without_interval(calls: pd.DataFrame, device: pd.DataFrame) -> list[Check]:
    launched = device[C.LAUNCH_ROW].dropna().unique()
    calls = calls[~calls["captured"]]
    missing = ~calls[C.ROW_ID].isin(launched)
    found = []
    for name, call, what, warn, error in _WITHOUT_INTERVAL:
        mine = calls["call"] == call
        count, total = int((missing & mine).sum()), int(mine.sum())
        if total and not len(launched):
            found.append(Check(name, INFO, detail=f"{total:,} {call} calls: {_UNKNOWN}"))
        else:
            found.append(counted(name, count, total, what, warn=warn, error=error))
    return found


_UNKNOWN = "unknown how many have a device interval, since no launch is linked to one"


_KERNELS_LOST = "kernel launches have no device interval; that GPU time is missing"
_GRAPHS_LOST = "graph replays have no device interval; the kernels inside are missing"
_COPIES_LOST = "copy and memset calls have no device interval; calls of 0 bytes launch no device work"
_WITHOUT_INTERVAL = (
    ("launch_without_device", _KERNEL, _KERNELS_LOST, 0.01, 0.2),
    ("graph_without_device", _GRAPH, _GRAPHS_LOST, 0.0, 0.1),
    ("copy_without_device", _COPY, _COPIES_LOST, 1.0, None),
)


def _before_launch(calls: pd.DataFrame, device: pd.DataFrame) -> Check:
    at = positions(calls[C.ROW_ID], device[C.LAUNCH_ROW])
    linked = at != NO_PARENT
    early = ints(device, C.START_NS)[linked] < ints(calls, C.START_NS)[at[linked]]
    what = "linked device intervals start before their launch; host and device clocks disagree"
    return counted("device_before_launch", int(early.sum()), int(linked.sum()), what, warn=0.01)


def _coarse(device: pd.DataFrame) -> Check:
    empty = int((ints(device, C.DUR_NS) == 0).sum())
    what = "device intervals have no duration; shares of short kernels are inexact"
    return counted("zero_duration", empty, len(device), what, warn=0.1)


def _empty_steps(run: Run, device: pd.DataFrame) -> Check:
    steps = run.table("steps", columns=[C.RANK, C.STEP])
    launched = device.loc[device[C.STEP].notna(), [C.RANK, C.STEP]].drop_duplicates()
    filled = pd.MultiIndex.from_frame(launched.astype(np.int64))
    empty = ~pd.MultiIndex.from_frame(steps.astype(np.int64)).isin(filled)
    return counted("empty_steps", int(empty.sum()), len(steps), "steps launched no device work", warn=0.0)
