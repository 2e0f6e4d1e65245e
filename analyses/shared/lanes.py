"""Unions of one device's intervals for overlap, and kinds of collectives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis import kernel_names
from tracekit.analysis.kernel_names import COLLECTIVES, COMMUNICATION, matches
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, covered
from tracekit.runs.rank_view import END_NS, step_windows
from tracekit.runs.run import Run, busy
from tracekit.schema import C, CopyKind, DeviceKind, HostKind, Memory

from .common import NO_PARENT, ints, spans
from .host_lines import HostLines
from .hosts import host_rows, texts

if TYPE_CHECKING:
    Flags = npt.NDArray[np.bool_]

ALL_GATHER = "all_gather"
ALL_REDUCE = "all_reduce"
ALL_TO_ALL, SEND_RECV = kernel_names.ALL_TO_ALL, kernel_names.SEND_RECV
BROADCAST = "broadcast"
REDUCE = "reduce"
REDUCE_SCATTER = "reduce_scatter"
OTHER = "other"


@dataclass(frozen=True)
class Lanes:
    """Unions of one device's intervals.

    Attributes:
        kernels: K, all kernels.
        communication: N, the communication kernels.
        computation: Union of the other kernels.
        occupied: All intervals that occupy the device.
    """

    kernels: Union
    communication: Union
    computation: Union
    occupied: Union


def communicates(rows: pd.DataFrame) -> Flags:
    """Whether each row is a communication kernel."""
    found: Flags = ((rows[C.KIND] == DeviceKind.KERNEL) & matches(rows[C.NAME], COMMUNICATION)).to_numpy(bool)
    return found


def lanes(rows: pd.DataFrame) -> Lanes:
    """The unions of the rows of one device."""
    kernel = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    communication = communicates(rows)
    start, end = spans(rows)

    def union(selected: Flags) -> Union:
        return intervals.union(start[selected], end[selected])

    return Lanes(
        union(kernel), union(communication), union(kernel & ~communication), union(np.ones(len(rows), bool))
    )


def measured_in(rows: pd.DataFrame, windows: pd.DataFrame) -> Union:
    """Measured windows of one device: the profiled steps, else from first start to last end.

    Args:
        rows: Its intervals, at least one.
        windows: The profiled steps of its rank; empty if none are marked.
    """
    if len(windows):
        return intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    start, end = spans(rows)
    return intervals.union(start.min(keepdims=True), end.max(keepdims=True))


def collective_kinds(run: Run, rows: pd.DataFrame) -> pd.Series:
    """Kind of collective of each communication kernel.

    NCCL implements all-to-all with send/receive kernels; these are identified by the launching op.

    Args:
        run: The run.
        rows: Communication kernels with name and launching op; also the copies of `collective_copies`.
    """
    kinds = kinds_of(rows[C.NAME])
    if C.COPY_KIND in rows:
        copied = collective_copies(run, rows)
        kinds = kinds.where(copied == "", copied)
    sends = (kinds == SEND_RECV).to_numpy(bool)
    if sends.any():
        kinds[sends & _launched_by(run, rows, sends)] = ALL_TO_ALL
    return kinds


def collective_copies(run: Run, rows: pd.DataFrame) -> pd.Series:
    """Kind of collective whose op launched each P2P copy, empty for other rows.

    Collectives by the copy engines move data without a kernel: symmetric memory, NCCL's all-gather within a
    node.

    Args:
        run: The run.
        rows: Device intervals with kind, direction of copies and launching op.
    """
    found = pd.Series("", index=rows.index, dtype=object)
    ops = rows.loc[(rows[C.KIND] == DeviceKind.MEMCPY) & (rows[C.COPY_KIND] == CopyKind.P2P), C.OP_ROW]
    for _ in range(_LEVELS if len(ops) else 0):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        kinds = kinds_of(pd.Series(texts(host[C.NAME], ""), index=ops.index))
        unknown = found[ops.index] == ""
        found[ops.index] = found[ops.index].mask(unknown & (kinds != OTHER), kinds)
        ops = host[C.PARENT_ROW]
    return found


_LEVELS = 3
"""Ops around a copy that are examined: the copy, its implementation, the collective."""


def kinds_of(names: pd.Series) -> pd.Series:
    """Kind of collective of each name."""
    plain = names.astype(object)
    return plain.map({name: _kind(str(name)) for name in plain.unique()}).astype(object)


def _kind(name: str) -> str:
    series = pd.Series([name], dtype="category")
    return next((kind for kind, pattern in COLLECTIVES.items() if matches(series, pattern).iloc[0]), OTHER)


def _launched_by(run: Run, rows: pd.DataFrame, selected: Flags) -> Flags:
    """Whether an all-to-all op, or its parent op, launched each of the selected rows."""
    found = np.zeros(len(rows), bool)
    ops = rows.loc[selected, C.OP_ROW]
    for _ in range(2):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        names = pd.Series(texts(host[C.NAME], ""), index=ops.index).astype("category")
        found[selected] |= matches(names, COLLECTIVES[ALL_TO_ALL]).to_numpy(bool)
        ops = host[C.PARENT_ROW].fillna(NO_PARENT)
    return found


THREAD = (C.RANK, C.PID, C.TID)
_NEVER = np.iinfo(np.int64).min


def named(run: Run, pattern: re.Pattern[str], kinds: tuple[str, ...]) -> pd.DataFrame:
    """Host rows of these kinds whose name contains the pattern, matching each distinct name once.

    Args:
        run: The run.
        pattern: Pattern of names.
        kinds: Values of `kind`.

    Returns:
        Row id, kind, name, thread, start, duration, step and depth.
    """
    names = run.arrow("host_intervals", columns=[C.NAME])[C.NAME].unique().to_pylist()
    wanted = [name for name in names if pattern.search(name)]
    where = pc.field(C.NAME).isin(pa.array(wanted, pa.string())) & pc.field(C.KIND).isin(
        [str(kind) for kind in kinds]
    )
    columns = [C.ROW_ID, C.KIND, C.NAME, *THREAD, C.START_NS, C.DUR_NS, C.STEP, C.DEPTH]
    return run.table("host_intervals", columns=columns, where=where)


def outermost(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that no other of them encloses on its thread, sorted by rank, thread and start."""
    lane = rows.groupby([*THREAD]).ngroup()
    table = rows.assign(lane=lane, end=spans(rows)[1])
    keys = ["lane", C.START_NS, "end", C.DEPTH, C.ROW_ID]
    table = table.sort_values(keys, ascending=[True, True, False, True, True], ignore_index=True)
    reach = table.groupby("lane")["end"].cummax().groupby(table["lane"]).shift(fill_value=_NEVER)
    outer = table[C.START_NS].to_numpy() >= reach.to_numpy()
    return table[outer].drop(columns=["lane", "end"]).reset_index(drop=True)


def covering(ranges: pd.DataFrame, instants: pd.DataFrame) -> Ints:
    """Position of the range that covers each instant on its thread, `NO_PARENT` for none and for null.

    Args:
        ranges: Disjoint ranges, as returned by `outermost`.
        instants: Thread and start; no range covers a row without a start.
    """
    found = np.full(len(instants), NO_PARENT, np.int64)
    known = instants[C.START_NS].notna().to_numpy()
    for key, own in ranges.groupby([*THREAD], sort=True):
        same = known.copy()
        for column, value in zip(THREAD, key, strict=True):
            same &= (instants[column] == value).fillna(value=False).to_numpy(dtype=bool)
        start, end = spans(own)
        at = instants.loc[same, C.START_NS].to_numpy(dtype=np.int64)
        place = np.searchsorted(start, at, side="right") - 1
        inside = (place >= 0) & (at < end[np.maximum(place, 0)])
        found[same] = np.where(inside, own.index.to_numpy()[np.maximum(place, 0)], NO_PARENT)
    return found


def launching(run: Run, device_rows: pd.DataFrame) -> pd.DataFrame:
    """Thread, start and duration of the launch call of each device row, else of its op.

    Missing if neither is known.
    """
    by_call, by_op = device_rows[C.LAUNCH_ROW], device_rows[C.OP_ROW]
    return host_rows(run, by_call.fillna(by_op), [*THREAD, C.START_NS, C.DUR_NS])


def medians(codes: Ints, groups: int, values: Ints) -> Ints:
    """Lower median of the values of each group; every group has at least one value.

    Example:
        >>> medians(np.array([1, 0, 0, 1]), 2, np.array([7, 3, 5, 9]))
        array([3, 7])
    """
    ordered = values[np.lexsort((values, codes))]
    count = np.bincount(codes, minlength=groups)
    first = np.cumsum(count) - count
    middle: Ints = ordered[first + (count - 1) // 2]
    return middle


def largest(rows: pd.DataFrame, by: str, most: int) -> list[int]:
    """Ids of the rows with the largest values of a column, ties by id."""
    order = np.lexsort((ints(rows, C.ROW_ID), -ints(rows, by)))[:most]
    return [int(row) for row in ints(rows, C.ROW_ID)[order]]


def stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables with the same columns; empty tables do not affect the types.

    Categories remain categories, sorted.

    Example:
        >>> stacked([pd.DataFrame({"n": [2, 1]}), pd.DataFrame({"n": [3]})])["n"].tolist()
        [2, 1, 3]
    """
    full = [part for part in parts if len(part)] or list(parts[:1])
    if len(full) == 1:
        return full[0].reset_index(drop=True)
    table = pd.concat(full, ignore_index=True)
    for name, kind in full[0].dtypes.items():
        if isinstance(kind, pd.CategoricalDtype):
            table[name] = pd.api.types.union_categoricals([part[name] for part in full], sort_categories=True)
    return table


def stacked_by_name(
    parts: Sequence[Mapping[str, pd.DataFrame]], names: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Concatenate tables by name, in the order of names; names without any table are omitted.

    Example:
        >>> one, other = {"a": pd.DataFrame({"n": [1]})}, {"a": pd.DataFrame({"n": [2]})}
        >>> stacked_by_name([one, {}, other], ["b", "a"])["a"]["n"].tolist()
        [1, 2]
    """
    found = {name: [part[name] for part in parts if name in part] for name in names}
    return {name: stacked(tables) for name, tables in found.items() if tables}


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


SYNCHRONOUS = r"(?i)^(?:cuda|hip|cu)_?memcpy(?!.*async)"
"""Copies that block by their name: `cudaMemcpy`, `hipMemcpyWithStream`, `cuMemcpyDtoH_v2`."""

NEEDED = (C.KIND, C.START_NS, C.DUR_NS, C.LAUNCH_ROW, C.SRC_MEMORY, C.DST_MEMORY)
"""Columns of `device_intervals` needed to decide whether a copy blocked."""


def waits(host: HostLines, device: pd.DataFrame) -> Ints:
    """Positions of the rows in which a thread waits for the device, by thread and start.

    These are the rows of kind `sync`, and copy calls that returned no earlier than the copy was done on the
    device, if they are synchronous by name or one end of the copy is pageable memory.

    Args:
        host: Host rows.
        device: The intervals that occupy a device, with the columns of `NEEDED`.
    """
    copies = device[device[C.KIND].astype(str) == DeviceKind.MEMCPY]
    call = host.at(copies[C.LAUNCH_ROW])
    _, done = spans(copies)
    known = call >= 0
    call, done = call[known], done[known]
    pageable = np.zeros(len(copies), np.bool_)
    for memory in (C.SRC_MEMORY, C.DST_MEMORY):
        pageable |= matches(copies[memory].astype("category"), f"^{Memory.PAGEABLE}$").to_numpy()
    blocked = host.end[call] >= done
    named = host.named(SYNCHRONOUS)
    found = call[blocked & (pageable[known] | named[call])]
    synchronized = np.flatnonzero(host.of_kind(HostKind.SYNC))
    return np.union1d(found, synchronized).astype(np.int64)


def first_ending_after(host: HostLines, rows: Ints, thread: Ints, times: Ints) -> Ints:
    """The first of these waits that ends after each instant on its thread, -1 if none does.

    Args:
        host: Host rows.
        rows: Positions of waits, ascending.
        thread: Thread of each query.
        times: Instant of each query.
    """
    found = np.full(len(times), -1, np.int64)
    lanes = host.thread[rows]
    for lane in np.intersect1d(lanes, thread):
        own = rows[lanes == lane]
        queries = thread == lane
        reach = np.maximum.accumulate(host.end[own])
        place = np.searchsorted(reach, times[queries], side="right")
        found[queries] = np.where(place < len(own), own[np.minimum(place, len(own) - 1)], -1)
    return found


NEAR_NS = 30_000
"""Maximum distance of the next linked interval whose launch is used for an unlinked one of its stream."""

_READ = dict.fromkeys((*NEEDED, C.ROW_ID, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.OP_ROW, C.STEP))
_PLACE = [C.RANK, C.DEVICE]
_LATE = np.iinfo(np.int64).max

AFTER, BEFORE, LAUNCH, EARLIER = "after", "before", "launch", "earlier"


def occupying(run: Run) -> pd.DataFrame:
    """Intervals that occupy a device, with the columns needed by the analyses of idle time."""
    return busy(run, [*_READ])


def read(run: Run, device: pd.DataFrame, host: HostLines) -> pd.DataFrame:
    """One row per idle interval, sorted by rank, device and start, with positions of its neighbors.

    `before` and `after` are positions in the table of intervals that occupy a device: those that end at the
    start of the gap and start at its end. `launch` is the host position of the call that launched the
    interval after, `earlier` of the one before; `replayed` means that an earlier interval has the same
    launch (a CUDA graph). The step is that of the work after the gap.

    Args:
        run: The run.
        device: Result of `occupying`.
        host: Host rows.
    """
    columns = [C.ROW_ID, *_PLACE, C.START_NS, C.DUR_NS, C.STEP]
    idle = run.table("device_intervals", columns=columns, where=pc.field(C.KIND) == str(DeviceKind.IDLE))
    idle = idle.sort_values([*_PLACE, C.START_NS], ignore_index=True)
    call = host.at(device[C.LAUNCH_ROW])
    found = {name: np.full(len(idle), NO_PARENT, np.int64) for name in (AFTER, BEFORE, LAUNCH, EARLIER)}
    replayed = np.zeros(len(idle), np.bool_)
    rows_of = device.groupby(_PLACE, sort=True).indices
    for key, gaps in idle.groupby(_PLACE, sort=True).indices.items():
        lane = _Lane(device, np.asarray(rows_of[key]), call, host)
        start, end = spans(idle.iloc[gaps])
        found[BEFORE][gaps] = lane.ending_at(start)
        found[AFTER][gaps], linked_row = lane.starting_at(end)
        found[LAUNCH][gaps] = np.where(linked_row >= 0, call[linked_row], NO_PARENT)
        replayed[gaps] = lane.replayed[linked_row] & (linked_row >= 0)
    found[EARLIER] = np.where(found[BEFORE] >= 0, call[found[BEFORE]], NO_PARENT) if len(call) else call
    idle[C.STEP] = _steps(idle, device, found[AFTER])
    return idle.assign(**found, replayed=replayed)


def inside_steps(gaps: pd.DataFrame, windows: pd.DataFrame) -> Ints:
    """Length of each gap inside the profiled steps of its rank; time between steps does not count.

    Args:
        gaps: Rows with rank, start and duration.
        windows: Result of `step_windows`.
    """
    found = np.zeros(len(gaps), np.int64)
    start, end = spans(gaps)
    for rank, own in windows.groupby(C.RANK):
        rows = (gaps[C.RANK] == rank).to_numpy(bool)
        steps = intervals.union(ints(own, C.START_NS), ints(own, END_NS))
        found[rows] = covered(steps, start[rows], end[rows])
    return found


def _steps(idle: pd.DataFrame, device: pd.DataFrame, after: Ints) -> pd.Series:
    """Step of the work delayed by each gap, else the step in which the gap begins."""
    step = device[C.STEP].astype("Int64").iloc[after].set_axis(idle.index)
    return step.fillna(idle[C.STEP].astype("Int64"))


class _Lane:
    """Intervals that occupy one device, in an order independent of the order of rows."""

    def __init__(self, device: pd.DataFrame, rows: Ints, call: Ints, host: HostLines) -> None:
        own = device.iloc[rows]
        start, end = spans(own)
        row_id = ints(own, C.ROW_ID)
        launched = np.where(call[rows] >= 0, np.append(host.start, _LATE)[call[rows]], _LATE)
        by_start = np.lexsort((row_id, launched, start))
        by_end = np.lexsort((row_id, -launched, start, end))
        self.rows, self.start, self.call = rows[by_start], start[by_start], call[rows][by_start]
        self.stream = own[C.STREAM].fillna(NO_PARENT).to_numpy(np.int64)[by_start]
        self.ends, self.by_end = end[by_end], rows[by_end]
        repeated = pd.Series(self.call).duplicated().to_numpy() & (self.call >= 0)
        self.replayed = np.zeros(len(device), np.bool_)
        self.replayed[self.rows[repeated]] = True

    def ending_at(self, times: Ints) -> Ints:
        """Interval that ends at each instant."""
        return self.by_end[np.maximum(np.searchsorted(self.ends, times, side="right") - 1, 0)]

    def starting_at(self, times: Ints) -> tuple[Ints, Ints]:
        """Interval that starts at each instant, and the linked one whose launch is used for it, or -1."""
        first = np.minimum(np.searchsorted(self.start, times), len(self.start) - 1)
        linked = np.where(self.call >= 0, np.arange(len(self.call)), len(self.call) - 1)
        linked_row = np.minimum.accumulate(linked[::-1])[::-1][first]
        near = (self.start[linked_row] - times <= NEAR_NS) & (self.stream[linked_row] == self.stream[first])
        known = (self.call[linked_row] >= 0) & ((linked_row == first) | near)
        return self.rows[first], np.where(known, self.rows[linked_row], NO_PARENT)
