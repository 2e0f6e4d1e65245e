"""Tracks of a Chrome trace: processes, threads and streams, and tracks for crossing intervals.

An interval crosses another if it starts inside and ends after it. Viewers nest the intervals of a track, so
the shorter of the two is moved to a further track, with the intervals inside of it.

Process numbers are below 2³¹; each rank has a range, as hosts of several ranks may have equal numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.export.tables import Source
from tracekit.ingest.link.nesting import nearest, parents
from tracekit.schema import TABLES, C, DeviceKind

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Track: TypeAlias = tuple[int, int]
Placed: TypeAlias = Callable[[pa.RecordBatch], tuple[Ints, Ints]]


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """How a table of intervals becomes events."""

    table: str
    placed: Placed  # returns the process and thread of each row of a batch
    placed_by: list[str]  # columns that this needs
    then: str  # orders rows of one start and duration
    categories: Mapping[Any, str]  # kinds with another name in torch.profiler
    arguments: Mapping[str, str]  # names of the arguments by column
    # columns of the arguments that are lists of three numbers, by name
    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)


_FIRST = 1_500_000_000  # number of the first further track: above those of streams and threads that are met


@dataclass(frozen=True)
class Tracks:
    """The tracks of a table."""

    tracks: tuple[Track, ...]  # process and thread of every track that rows are recorded on
    # process, thread and further thread of each track that was added, with its place among them
    further: tuple[tuple[int, int, int, int], ...]
    rows: Ints  # ids of the rows that go to another track, sorted
    threads: Ints  # threads that they go to

    def thread_of_rows(self, rows: Ints, threads: Ints) -> Ints:
        """Return the thread of each row, given its id and the thread that it was recorded on."""
        if not len(self.rows):
            return threads
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[place] == rows, self.threads[place], threads)


def find_tracks(source: Source, intervals: Intervals) -> Tracks:
    """Find the tracks that a table of intervals needs."""
    columns = [C.ROW_ID, C.START_NS, C.DUR_NS, intervals.then, *intervals.placed_by]
    pieces: dict[Track, list[list[Ints]]] = defaultdict(lambda: [[], [], []])
    for batch in source.nested(intervals.table, list(dict.fromkeys(columns)), intervals.then):
        start = batch[C.START_NS].to_numpy()
        rows = [start, start + batch[C.DUR_NS].to_numpy(), batch[C.ROW_ID].to_numpy()]
        for track, members in _by_track(*intervals.placed(batch)):
            for column, values in zip(pieces[track], rows, strict=True):
                column.append(values[members])
    tracks = tuple(pieces)
    further: list[tuple[int, int, int, int]] = []
    ids_moved: list[Ints] = [np.empty(0, np.int64)]
    new_threads: list[Ints] = [np.empty(0, np.int64)]
    for track in tracks:
        # Each column is popped, so that its chunks are freed before the next one is joined.
        columns_of_track = pieces.pop(track)[::-1]
        ids, added = find_crossing([np.concatenate(columns_of_track.pop()) for _ in range(3)])
        first = _FIRST + len(further)
        further += [(*track, first + number, number + 1) for number in range(int(added.max(initial=-1)) + 1)]
        ids_moved.append(ids)
        new_threads.append(first + added)
    ids = np.concatenate(ids_moved)
    order = np.argsort(ids)
    return Tracks(tracks, tuple(further), ids[order], np.concatenate(new_threads)[order])


def _by_track(processes: Ints, threads: Ints) -> Iterator[tuple[Track, Ints]]:
    """Yield each track of a batch with its rows."""
    pairs, which = np.unique(np.stack([processes, threads]), axis=1, return_inverse=True)
    for number, (process, thread) in enumerate(pairs.T.tolist()):
        yield (process, thread), np.flatnonzero(which.ravel() == number)


def find_crossing(rows: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the crossing rows of a track, and the number of the additional track of each, from 0.

    Args:
        rows: Starts, ends and ids, by start and of one start the longest first.
    """
    start, end, ids = rows
    if (start[1:] < start[:-1]).any():  # a track whose rows come from several files
        order = np.lexsort((-end, start))
        start, end, ids = start[order], end[order], ids[order]
    parent = parents(np.zeros(len(start), np.int8), start, end)
    shorter = _mark_shorter(start, end, parent)
    if shorter is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    above = nearest(parent, shorter)
    crossing_rows = np.flatnonzero(above >= 0)
    heads = np.flatnonzero(above == np.arange(len(above)))
    tracks = _assign_tracks(start[heads].tolist(), end[heads].tolist())
    return ids[crossing_rows], tracks[np.searchsorted(heads, above[crossing_rows])]


def _mark_shorter(start: Ints, end: Ints, parent: Ints) -> npt.NDArray[np.bool_] | None:
    """Return the shorter of each two crossing rows within the same parent; None without any."""
    staying = np.argsort(parent, kind="stable")
    leaving: npt.NDArray[np.bool_] | None = None
    while True:
        same = parent[staying[1:]] == parent[staying[:-1]]
        crossing = np.flatnonzero(same & (end[staying[:-1]] > start[staying[1:]]))
        if not len(crossing):
            return leaving
        first, second = staying[crossing], staying[crossing + 1]
        shorter = np.where(end[first] - start[first] < end[second] - start[second], first, second)
        leaving = np.zeros(len(start), np.bool_) if leaving is None else leaving
        leaving[shorter] = True
        staying = staying[~leaving[staying]]


def _assign_tracks(starts: list[int], ends: list[int]) -> Ints:
    """Return the first free track at each start."""
    free: list[int] = []
    lanes = np.empty(len(starts), np.int64)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        lane = next((place for place, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes[number] = lane
    return lanes


_RANK_RANGE: Final = 10_000_000
_DEVICES: Final = 1_900_000_000
_PER_RANK: Final = 1_000
_STEPS: Final = 1_800_000_000
COUNTERS: Final = 1_799_999_999
IDLE_THREAD: Final = 2_000_000_000
_UNKNOWN_STREAM: Final = 1_999_999_999
_TID_RANGE: Final = 1 << 31


def on_host(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Return the process and thread of each host interval, reduced to the range of viewers."""
    rank, pid, tid = (batch[name].to_numpy().astype(np.int64) for name in (C.RANK, C.PID, C.TID))
    return _host_process(rank, pid), abs(tid) % _TID_RANGE


def on_device(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Return the process and thread of each device interval: a thread per stream, and one for idle time."""
    rank, device = (batch[name].to_numpy().astype(np.int64) for name in (C.RANK, C.DEVICE))
    idle = pc.equal(batch[C.KIND].cast("string"), str(DeviceKind.IDLE)).to_numpy(zero_copy_only=False)
    stream = pc.fill_null(batch[C.STREAM], _UNKNOWN_STREAM).to_numpy()
    return _device_process(rank, device), np.where(idle, IDLE_THREAD, stream)


def on_steps(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Return the process and thread of each step."""
    rank = batch[C.RANK].to_numpy().astype(np.int64)
    return rank + _STEPS, rank


def _host_process(rank: Any, pid: Any) -> Any:
    return rank * _RANK_RANGE + abs(pid) % _RANK_RANGE


def _device_process(rank: Any, device: Any) -> Any:
    return _DEVICES + rank * _PER_RANK + device


def origin(source: Source) -> int:
    """Return the origin of times: the run's t0, or an earlier first event."""
    starts = [0]
    for table in TABLES.values():
        if table.time is None:
            continue
        firsts = [pc.min(batch[table.time]).as_py() for batch in source.batches(table.name, [table.time])]
        starts += [first for first in firsts if first is not None]
    return min(starts)


def name_events(source: Source, host: Tracks, device: Tracks) -> Iterator[dict[str, Any]]:
    """Yield the events that name processes and threads.

    Args:
        source: The run.
        host: Tracks of host intervals.
        device: Tracks of device intervals.
    """
    yield _name("process_name", COUNTERS, "counters", sort=3)
    for rank in sorted({row[0] for row in _distinct_rows(source, "steps", C.RANK)}):
        yield _name("process_name", _STEPS + rank, f"rank {rank}: steps", sort=0)
    for rank, pid in _distinct_rows(source, "host_intervals", C.RANK, C.PID):
        yield _name("process_name", _host_process(rank, pid), f"rank {rank}: process {pid}", sort=1)
    for rank, number in _distinct_rows(source, "device_intervals", C.RANK, C.DEVICE):
        yield _name("process_name", _device_process(rank, number), f"rank {rank}: device {number}", sort=2)
    autograd = {
        (_host_process(rank, pid), abs(tid) % _TID_RANGE) for rank, pid, tid in find_autograd_threads(source)
    }
    for process, thread in host.tracks:
        name = f"thread {thread}" + " (autograd)" * ((process, thread) in autograd)
        yield _name("thread_name", process, name, tid=thread)
    for process, stream_ in device.tracks:
        yield _name("thread_name", process, _stream_name(stream_), tid=stream_)
    yield from _further_names(host, lambda thread_: f"thread {thread_}")
    yield from _further_names(device, _stream_name)


def _stream_name(number: int) -> str:
    return {IDLE_THREAD: "idle", _UNKNOWN_STREAM: "unknown stream"}.get(number, f"stream {number}")


def _further_names(lanes: Tracks, called: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    for process, thread, number, place in lanes.further:
        yield _name("thread_name", process, f"{called(thread)}, crossing {place}", tid=number)


def _distinct_rows(source: Source, table: str, *columns: str) -> list[tuple[int, ...]]:
    """Return the distinct rows of some columns, in order."""
    rows: set[tuple[int, ...]] = set()
    for batch in source.batches(table, columns):
        distinct = pa.Table.from_batches([batch]).group_by(list(columns)).aggregate([])
        rows.update(zip(*(distinct[column].to_pylist() for column in columns), strict=True))
    return sorted(rows)


def _name(what: str, pid: int, name: str, *, tid: int = 0, sort: int | None = None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"name": name} if sort is None else {"name": name, "sort_index": sort}
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": arguments}


FORWARD, BACKWARD = "forward", "backward"
_COLUMNS = [C.ROW_ID, C.RANK, C.PID, C.TID, C.START_NS, C.SEQUENCE, C.FWD_TID]
_JOB = [C.RANK, C.PID, C.SEQUENCE]
_LATER = "later_ns"


def find_links(source: Source) -> pd.DataFrame:
    """Return the rows of forward ops and of their backward ops, each a row id of `host_intervals`.

    torch numbers the ops that autograd will differentiate, and the backward op has the number of its forward
    op. Of several ops of a number, the innermost forward and the outermost backward op are linked, as torch
    does. Numbers count in each thread, so those of several forward threads are left out.
    """
    rows = _numbered_ops(source)
    is_backward = rows[C.FWD_TID].fillna(0) > 0
    ahead = rows[~is_backward].sort_values(C.START_NS)
    ahead = ahead[ahead.groupby(_JOB)[C.TID].transform("nunique") == 1].drop_duplicates(_JOB, keep="last")
    behind = rows[is_backward].sort_values(C.START_NS).drop_duplicates(_JOB)
    both = ahead.rename(columns={C.ROW_ID: FORWARD}).merge(
        behind.rename(columns={C.ROW_ID: BACKWARD, C.START_NS: _LATER})[[*_JOB, BACKWARD, _LATER]], on=_JOB
    )
    return both.loc[both[C.START_NS] < both[_LATER], [FORWARD, BACKWARD]]


def find_autograd_threads(source: Source) -> set[tuple[int, int, int]]:
    """Return rank, process and thread of the threads that run only backward ops of those with numbers."""
    rows = _numbered_ops(source)
    rows["is_backward"] = rows[C.FWD_TID].fillna(0) > 0
    by_thread = rows.groupby([C.RANK, C.PID, C.TID])["is_backward"].all()
    return set(by_thread[by_thread].index)


def _numbered_ops(source: Source) -> pd.DataFrame:
    where = pc.field(C.SEQUENCE) >= 0
    parts = [batch.to_pandas() for batch in source.batches("host_intervals", _COLUMNS, where=where)]
    return pd.concat(parts) if parts else pd.DataFrame({name: [] for name in _COLUMNS})
