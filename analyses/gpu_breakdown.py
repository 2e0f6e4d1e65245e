"""How much of the time a device computed, moved data, or sat idle.

K, C, S and G are the kernel, memcpy, memset and opaque-graph intervals of one device inside a window; |X| is
the length of the union of X. All times are exact integer nanoseconds.

* active = |K|, movement = |(C∪S)∖K| (copies nothing hid), graph = |G∖(K∪C∪S)| (zero unless a profiler shows a
  graph replay as one block), idle = window − |K∪C∪S∪G|. The four sum to the window exactly.
* `whole`: the window runs from the first start to the last end on that device.
* `per_step`: the window runs from the step's start to the later of its end on the host and the end of the
  last interval launched in it on any device of its rank. Every interval counts by the part of it inside the
  window, whichever step launched it, so the windows of steps that overlap on the device may share time.
* `profiled_steps`: the window is the union of the step windows, so that shared time counts once.

Sources: TorchBench (Hao et al., 2023), figures 1 and 2, table 2; HTA's temporal breakdown without its
rounding.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "gpu_breakdown")  # doctest: +SKIP
    >>> result.tables["whole"][["active_ns", "movement_ns", "idle_ns"]]  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.analysis import Analysis, ByRank, Column, Result, TableSpec
from tracekit.intervals import covered
from tracekit.kernel_names import COMMUNICATION, matches
from tracekit.run import busy
from tracekit.schema import C, DeviceKind
from tracekit.windows import step_windows

from ._shared import host_time
from ._shared.common import DEVICE, NO_STEPS, RANK, STEP, absent_device_note, share, spans
from ._shared.stacking import stacked, stacked_by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

OPAQUE_GRAPHS = (
    "some CUDA graphs were recorded as opaque blocks: their time is graph_ns, neither active nor idle; "
    "record graph nodes to see the kernels inside (nsys: --cuda-graph-trace=node)"
)

MEASURES = (
    Column("window_ns", "ns", "length of the window"),
    Column("active_ns", "ns", "|K|: at least one kernel runs"),
    Column("movement_ns", "ns", "|(C∪S)∖K|: a copy or memset runs and no kernel does"),
    Column("idle_ns", "ns", "window − |K∪C∪S∪G|: nothing runs"),
    Column("copies_union_ns", "ns", "|C∪S|: at least one copy or memset runs, hidden or not"),
    Column("kernels", "count", "kernels that start in the window"),
    Column("memcpys", "count", "memcpys that start in the window"),
    Column("memsets", "count", "memsets that start in the window"),
    Column("kernel_sum_ns", "ns", "Σ of the kernels' durations inside the window, overlaps counted twice"),
    Column("active_share", "share", "active over window"),
    Column("movement_share", "share", "movement over window"),
    Column("idle_share", "share", "idle over window"),
    Column("memcpy_sum_ns", "ns", "Σ of the memcpys' durations inside the window"),
    Column("memset_sum_ns", "ns", "Σ of the memsets' durations inside the window"),
    Column("memcpy_union_ns", "ns", "|C|: at least one memcpy runs"),
    Column("overlapped_ns", "ns", "|(C∪S)∩K|: copies and memsets hidden behind kernels"),
    Column("communication_ns", "ns", "|N|: a communication kernel (told by its name) runs"),
    Column("communication_exposed_ns", "ns", "|N∖(K∖N)|: communication no other kernel hides"),
    Column("communication_overlapped_ns", "ns", "communication hidden behind other kernels"),
    Column("graph_ns", "ns", "|G∖(K∪C∪S)|: an opaque graph runs and nothing else is seen"),
)
_KEYS = (C.RANK, C.DEVICE)
_TABLES = ("whole", "per_step", "profiled_steps")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of some ranks.

    Attributes:
        tables: Their rows of `whole`, `per_step` and `profiled_steps`; empty where they have no device.
        opaque: Whether a graph was recorded as one block.
    """

    tables: dict[str, pd.DataFrame]
    opaque: bool


def keep(run: Run) -> Kept:
    """Break down each device's time."""
    frame = busy(run, [C.RANK, C.DEVICE, C.KIND, C.NAME, C.START_NS, C.DUR_NS, C.STEP])
    if frame.empty:
        return Kept(tables={}, opaque=False)
    windows = step_windows(run)
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in _TABLES}
    for (rank, device), rows in frame.groupby(list(_KEYS), sort=True):
        lanes = _Lanes(rows)
        key = {C.RANK: rank, C.DEVICE: device}
        start, end = spans(rows)
        parts["whole"].append(_measured(lanes, start.min(keepdims=True), end.max(keepdims=True), key, last=1))
        own = windows[windows[C.RANK] == rank]
        if len(own):
            start, end = own[C.START_NS].to_numpy(np.int64), own["end_ns"].to_numpy(np.int64)
            parts["per_step"].append(_measured(lanes, start, end, {**key, C.STEP: own[C.STEP].to_numpy()}))
            parts["profiled_steps"].append(_merged(lanes, intervals.union(start, end), key))
    opaque = bool((frame[C.KIND] == DeviceKind.GRAPH).any())
    return Kept(tables={name: stacked(rows) for name, rows in parts.items() if rows}, opaque=opaque)


def combine(run: Run, kept: Sequence[Kept]) -> Result:
    """Every device's time; without device intervals, the host's."""
    tables = stacked_by_name([one.tables for one in kept], _TABLES)
    if not tables:
        return Result({"host": host_time.by_op(run)}, notes=(absent_device_note(run),))
    notes = [] if "per_step" in tables else [NO_STEPS]
    opaque = any(one.opaque for one in kept)
    return Result(tables, notes=(*notes, *((OPAQUE_GRAPHS,) if opaque else ())))


class _Lanes:
    """The intervals of one device by kind, and the unions the measures are made of."""

    def __init__(self, rows: pd.DataFrame) -> None:
        kinds = (DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.MEMSET, DeviceKind.GRAPH)
        self.spans = {kind: spans(rows[rows[C.KIND] == kind]) for kind in kinds}
        kernels = rows[rows[C.KIND] == DeviceKind.KERNEL]
        talks = matches(kernels[C.NAME], COMMUNICATION)
        self.kernels = intervals.union(*self.spans[DeviceKind.KERNEL])
        self.copies = intervals.union(*self.spans[DeviceKind.MEMCPY])
        self.movement = _join(self.copies, intervals.union(*self.spans[DeviceKind.MEMSET]))
        self.seen = _join(self.kernels, self.movement)
        self.busy = _join(self.seen, intervals.union(*self.spans[DeviceKind.GRAPH]))
        self.communication = intervals.union(*spans(kernels[talks]))
        self.computation = intervals.union(*spans(kernels[~talks]))


def _join(a: Union, b: Union) -> Union:
    return intervals.union(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1])))


def _measured(
    lanes: _Lanes, start: Ints, end: Ints, key: dict[str, object], *, last: int = 0
) -> pd.DataFrame:
    """One row per window; `last` widens the windows in which starts are counted."""
    amounts = _amounts(lanes, start, end)
    for kind, column in _COUNTS.items():
        amounts[column] = _starting(lanes.spans[kind][0], start, end + last)
    return _finished(amounts, key)


def _merged(lanes: _Lanes, windows: Union, key: dict[str, object]) -> pd.DataFrame:
    """One row for all the windows together."""
    amounts = _amounts(lanes, *windows)
    for kind, column in _COUNTS.items():
        amounts[column] = _starting(lanes.spans[kind][0], *windows)
    return _finished({name: values.sum(keepdims=True) for name, values in amounts.items()}, key)


_COUNTS = {DeviceKind.KERNEL: "kernels", DeviceKind.MEMCPY: "memcpys", DeviceKind.MEMSET: "memsets"}
_SUMS = {
    DeviceKind.KERNEL: "kernel_sum_ns",
    DeviceKind.MEMCPY: "memcpy_sum_ns",
    DeviceKind.MEMSET: "memset_sum_ns",
}


def _amounts(lanes: _Lanes, start: Ints, end: Ints) -> dict[str, Ints]:
    def inside(union: Union) -> Ints:
        return covered(union, start, end)

    active, seen, movement = inside(lanes.kernels), inside(lanes.seen), inside(lanes.movement)
    occupied, talk = inside(lanes.busy), inside(lanes.communication)
    exposed_talk = active - inside(lanes.computation)
    return {
        "window_ns": end - start,
        "active_ns": active,
        "movement_ns": seen - active,
        "idle_ns": end - start - occupied,
        "copies_union_ns": movement,
        "memcpy_union_ns": inside(lanes.copies),
        "overlapped_ns": movement - (seen - active),
        "communication_ns": talk,
        "communication_exposed_ns": exposed_talk,
        "communication_overlapped_ns": talk - exposed_talk,
        "graph_ns": occupied - seen,
        **{column: _sum_inside(*lanes.spans[kind], start, end) for kind, column in _SUMS.items()},
    }


def _finished(amounts: dict[str, Ints], key: dict[str, object]) -> pd.DataFrame:
    for part in ("active", "movement", "idle"):
        amounts[f"{part}_share"] = share(amounts[f"{part}_ns"], amounts["window_ns"])  # type: ignore[assignment]
    return pd.DataFrame({**key, **{column.name: amounts[column.name] for column in MEASURES}})


def _starting(starts: Ints, low: Ints, high: Ints) -> Ints:
    """How many intervals start in each window."""
    ordered = np.sort(starts)
    return (np.searchsorted(ordered, high) - np.searchsorted(ordered, low)).astype(np.int64)


def _sum_inside(starts: Ints, ends: Ints, low: Ints, high: Ints) -> Ints:
    """Σ of the parts of possibly overlapping intervals inside each window."""
    return _passed(starts, high) - _passed(ends, high) - _passed(starts, low) + _passed(ends, low)


def _passed(points: Ints, moments: Ints) -> Ints:
    """Σ of the time from each point to each moment, for the points before the moment."""
    if not len(points):
        return np.zeros(len(moments), np.int64)
    origin = int(points.min())  # sums of small numbers cannot overflow
    ordered = np.sort(points) - origin
    before = np.searchsorted(ordered, moments - origin)
    return before * (moments - origin) - np.concatenate(([0], np.cumsum(ordered)))[before]


_BY_RANK = ByRank(map=keep, combine=combine)
ANALYSIS = Analysis(
    name="gpu_breakdown",
    title="GPU time breakdown",
    question="How much of the time was each device computing, moving data, or idle?",
    definition=(
        "active = |K|; movement = |(C∪S)∖K|; graph = |G∖(K∪C∪S)|; idle = window − |K∪C∪S∪G|, with K "
        "kernels, C memcpys, S memsets, G opaque graphs of one device and |X| the length of the union; "
        "the four sum to the window exactly. Windows: first start to last end on the device (whole); step "
        "start to the later of its end on the host and the end of the last interval launched in it on any "
        "device (per_step); the union of those (profiled_steps). Intervals count by their part inside the "
        "window."
    ),
    tables=(
        TableSpec("whole", "Whole capture, per device", (RANK, DEVICE, *MEASURES)),
        TableSpec("profiled_steps", "Union of the profiled steps, per device", (RANK, DEVICE, *MEASURES)),
        TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, STEP, *MEASURES)),
        TableSpec("host", "Host time by op (no device in this capture)", host_time.COLUMNS),
    ),
    sources=("TorchBench, Fig. 1, 2 and Table 2", "HTA temporal breakdown"),
    order=10,
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
)
