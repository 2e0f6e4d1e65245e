"""Intervals of one thread or stream that cross: viewers nest what shares a track, so these get further ones.

An interval crosses another where it begins inside of it and ends after it. What it encloses goes with it.
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
    pieces: dict[Track, list[list[Ints]]] = defaultdict(lambda: [[], [], [], []])
    for batch in source.batches(table, needed):
        rows = [batch[name].to_numpy() for name in (C.START_NS, C.DUR_NS, then, C.ROW_ID)]
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
        rows: Starts, durations, what orders rows of one start and duration, and ids.

    Example:
        >>> ids, lane = crossing([np.array(one) for one in ([0, 5, 6], [10, 10, 1], [0, 0, 0], [7, 8, 9])])
        >>> ids.tolist(), lane.tolist()
        ([8, 9], [0, 0])
    """
    start, duration, then, ids = rows
    end = start + duration
    order = np.lexsort((then, -end, start))
    start, end, ids = start[order], end[order], ids[order]
    del order
    parent = parents(np.zeros(len(start), np.int8), start, end)
    marked = _crosses(start, end, parent)
    if marked is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    above = _outermost(parent, nearest(parent, marked))
    gone = np.flatnonzero(above >= 0)
    heads = np.flatnonzero(above == np.arange(len(above)))
    lane = _spread(start[heads].tolist(), end[heads].tolist())
    return ids[gone], lane[np.searchsorted(heads, above[gone])]


def _outermost(parent: Ints, marked: Ints) -> Ints:
    """The outermost marked row among a row and those that enclose it, given the innermost; -1 is none."""
    found = marked.copy()
    while True:
        inside = np.flatnonzero(found >= 0)
        outer = parent[found[inside]]
        higher = np.where(outer >= 0, marked[outer], -1)
        if not (higher >= 0).any():
            return found
        found[inside] = np.where(higher >= 0, higher, found[inside])


def _crosses(start: Ints, end: Ints, parent: Ints) -> npt.NDArray[np.bool_] | None:
    """Which rows begin before an earlier row inside the same one has ended; None where none does."""
    order = np.argsort(parent, kind="stable")
    begins = np.concatenate(([True], parent[order][1:] != parent[order][:-1]))
    end, start = end[order], start[order]
    if not (~begins[1:] & (end[:-1] > start[1:])).any():  # the first that does crosses the one before it
        return None
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[by_end] = np.arange(len(order))
    rank += (np.cumsum(begins) - 1) * len(order)  # so that the largest so far is never of another group
    reach = end[by_end][np.maximum.accumulate(rank) % len(order)]
    found = np.zeros(len(order), np.bool_)
    found[order[1:]] = ~begins[1:] & (reach[:-1] > start[1:])
    return found


def _spread(starts: list[int], ends: list[int]) -> Ints:
    """The first track that is free at each start; there are few such rows."""
    free: list[int] = []
    lanes = np.empty(len(starts), np.int64)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        lane = next((place for place, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes[number] = lane
    return lanes
