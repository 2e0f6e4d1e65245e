"""Intervals of one thread or stream that cross: viewers nest what shares a track, so these get further ones.

An interval crosses another where it begins inside of it and ends after it. The shorter of the two goes, with
what it encloses.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.ingest.nesting import nearest, parents
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tracekit.export.reading import Source

    Ints = npt.NDArray[np.integer[Any]]
    Track = tuple[int, int]
    Placed = Callable[[pa.RecordBatch], tuple[Ints, Ints]]

_FIRST = 1_500_000_000
"""Number of the first further track: above those of streams and threads that are met."""


@dataclass(frozen=True)
class Lanes:
    """The tracks of a table.

    Attributes:
        tracks: Process and thread of every track that rows are recorded on.
        further: Process, thread and further thread of each track that was added, with its place among them.
        rows: Ids of the rows that go to another track, sorted.
        threads: Threads that they go to.
    """

    tracks: tuple[Track, ...]
    further: tuple[tuple[int, int, int, int], ...]
    rows: Ints
    threads: Ints

    def moved(self, rows: Ints, threads: Ints) -> Ints:
        """The thread of each row, given its id and the thread that it was recorded on."""
        if not len(self.rows):
            return threads
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[place] == rows, self.threads[place], threads)


def lanes(source: Source, table: str, columns: list[str], placed: Placed, *, then: str) -> Lanes:
    """Find the tracks that a table needs.

    Args:
        source: The run.
        table: A table of intervals.
        columns: What `placed` needs.
        placed: Process and thread of each row of a batch.
        then: Orders rows of one start and duration.
    """
    needed = list(dict.fromkeys([C.ROW_ID, C.START_NS, C.DUR_NS, then, *columns]))
    pieces: dict[Track, list[list[Ints]]] = defaultdict(lambda: [[], [], []])
    for batch in source.nested(table, needed, then):
        start = batch[C.START_NS].to_numpy()
        rows = [start, start + batch[C.DUR_NS].to_numpy(), batch[C.ROW_ID].to_numpy()]
        for track, members in _by_track(*placed(batch)):
            for column, values in zip(pieces[track], rows, strict=True):
                column.append(values[members])
    tracks = tuple(pieces)
    further: list[tuple[int, int, int, int]] = []
    moved: list[Ints] = [np.empty(0, np.int64)]
    threads: list[Ints] = [np.empty(0, np.int64)]
    for track in tracks:
        ids, lane = crossing(_joined(pieces.pop(track)))
        first = _FIRST + len(further)
        further += [(*track, first + one, one + 1) for one in range(int(lane.max(initial=-1)) + 1)]
        moved.append(ids)
        threads.append(first + lane)
    ids = np.concatenate(moved)
    order = np.argsort(ids)
    return Lanes(tracks, tuple(further), ids[order], np.concatenate(threads)[order])


def _by_track(processes: Ints, threads: Ints) -> Iterator[tuple[Track, Ints]]:
    """Each track of a batch, and which of its rows lie on it."""
    pairs, which = np.unique(np.stack([processes, threads]), axis=1, return_inverse=True)
    for number, (process, thread) in enumerate(pairs.T.tolist()):
        yield (process, thread), np.flatnonzero(which.ravel() == number)


def _joined(pieces: list[list[Ints]]) -> list[Ints]:
    """Each column as one array; its pieces are let go before the next is made."""
    joined = []
    for column in pieces:
        joined.append(np.concatenate(column))
        column.clear()
    return joined


def crossing(rows: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Rows of one track that cannot stay on it, and the further track of each, from 0.

    Args:
        rows: Starts, ends and ids, by start and of one start the longest first.

    Example:
        >>> ids, lane = crossing([np.array(one) for one in ([0, 5, 6], [10, 15, 7], [7, 8, 9])])
        >>> ids.tolist(), lane.tolist()
        ([8, 9], [0, 0])
    """
    start, end, ids = rows
    if (start[1:] < start[:-1]).any():  # a track whose rows come from several files
        order = np.lexsort((-end, start))
        start, end, ids = start[order], end[order], ids[order]
    parent = parents(np.zeros(len(start), np.int8), start, end)
    marked = _leaving(start, end, parent)
    if marked is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    above = nearest(parent, marked)
    gone = np.flatnonzero(above >= 0)
    heads = np.flatnonzero(above == np.arange(len(above)))
    lane = _spread(start[heads].tolist(), end[heads].tolist())
    return ids[gone], lane[np.searchsorted(heads, above[gone])]


def _leaving(start: Ints, end: Ints, parent: Ints) -> npt.NDArray[np.bool_] | None:
    """The shorter of every two rows that cross inside the same row; None where none do."""
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


def _spread(starts: list[int], ends: list[int]) -> Ints:
    """The first track that is free at each start; there are few such rows."""
    free: list[int] = []
    lanes = np.empty(len(starts), np.int64)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        lane = next((place for place, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes[number] = lane
    return lanes
