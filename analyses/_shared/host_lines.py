"""Host rows by thread: lookup of the rows that cover an instant or most of a window, and their parents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import intervals, step_names
from tracekit.ingest import nesting
from tracekit.schema import C, HostKind, Phase

from .columns import LazyColumns, by_thread, moved, per_run, picked
from .common import NO_PARENT, Places, coded, known, values_at

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Objects: TypeAlias = npt.NDArray[np.object_]
    Small: TypeAlias = npt.NDArray[np.integer[Any]]

STEP_MARKER = step_names.MARKER
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_COLUMNS = (
    *(C.ROW_ID, C.KIND, C.NAME, C.RANK, C.PID, C.TID),
    *(C.START_NS, C.DUR_NS, C.PARENT_ROW, C.DEPTH, C.PHASE),
)


@dataclass(frozen=True)
class HostLines:
    """Host rows ordered by thread, start and depth; positions refer to that order, -1 is none.

    Small integer types save memory, since there can be millions of rows.

    Attributes:
        row_id: Id of each row.
        kind: Kind of each row, as an index into `kinds`.
        kinds: The distinct kinds.
        name: Name of each row, as an index into `names`.
        names: The distinct names.
        rank: Rank of each row.
        thread: Number of each row's thread, unique across ranks and processes.
        start: Starts.
        end: Ends.
        parent: Position of the innermost enclosing row.
        depth: Number of enclosing rows.
        loading: Whether the row belongs to the phase of data loading.
    """

    row_id: Ints
    kind: Small
    kinds: Objects
    name: Small
    names: Objects
    rank: Small
    thread: Small
    start: Ints
    end: Ints
    parent: Small
    depth: Small
    loading: Bools

    @cached_property
    def _places(self) -> Places:
        return Places(self.row_id)

    @cached_property
    def lanes(self) -> dict[int, slice]:
        """The positions of each thread."""
        edges = np.flatnonzero(np.concatenate(([True], self.thread[1:] != self.thread[:-1], [True])))
        if not len(self.thread):
            return {}
        return {int(self.thread[low]): slice(int(low), int(high)) for low, high in pairwise(edges)}

    def at(self, row_ids: pd.Series) -> Ints:
        """Positions of host rows by id, -1 for null and absent ids."""
        return self._places.of(known(row_ids))

    def of_kind(self, *kinds: HostKind) -> Bools:
        """Whether each row is of one of these kinds."""
        return np.isin(
            self.kind, np.flatnonzero(np.isin(self.kinds.astype(str), [str(one) for one in kinds]))
        )

    def named(self, pattern: str) -> Bools:
        """Whether each row's name contains the pattern, matching each distinct name once."""
        regex = re.compile(pattern)
        chosen = np.array([bool(regex.search(str(name))) for name in self.names], np.bool_)
        return chosen[self.name] if len(chosen) else np.zeros(len(self.name), np.bool_)

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """Innermost row that covers each instant on its thread."""
        latest = np.full(len(times), NO_PARENT, np.int64)
        for lane in np.unique(thread):
            rows = self.lanes.get(int(lane))
            if rows is not None:
                on_lane = thread == lane
                started = np.searchsorted(self.start[rows], times[on_lane], side="right")
                latest[on_lane] = np.where(started > 0, rows.start + started - 1, NO_PARENT)
        found = nesting.covering(self.end, self.parent, latest, times)
        return found.astype(np.int64, copy=False)

    def filling(self, thread: Ints, low: Ints, high: Ints) -> Ints:
        """Innermost row that covers the middle and more than half of each window."""
        found = self.innermost(thread, low + (high - low) // 2)
        while (found >= 0).any():
            inside = np.minimum(self.end[found], high) - np.maximum(self.start[found], low)
            small = (found >= 0) & (2 * inside <= high - low) & (high > low)
            if not small.any():
                break
            found[small] = self.parent[found[small]]
        return found

    def up_to(self, rows: Ints, wanted: Bools) -> Ints:
        """Innermost wanted row among each row and its ancestors."""
        found = rows.copy()
        active = np.flatnonzero(found >= 0)
        while len(active):
            active = active[~wanted[found[active]]]
            found[active] = self.parent[found[active]]
            active = active[found[active] >= 0]
        return found

    def common(self, one: Ints, other: Ints) -> Ints:
        """Lowest common ancestor of both rows, which may be one of them."""
        a, b = one.copy(), other.copy()
        none = (a < 0) | (b < 0)
        a[none], b[none] = NO_PARENT, NO_PARENT
        depth, parent = np.append(self.depth, NO_PARENT), np.append(self.parent, NO_PARENT)
        active = np.flatnonzero(a != b)
        while len(active):
            left, right = a[active], b[active]
            a[active] = np.where(depth[left] >= depth[right], parent[left], left)
            b[active] = np.where(depth[right] >= depth[left], parent[right], right)
            active = active[a[active] != b[active]]
        return a

    @cached_property
    def shown_names(self) -> Objects:
        """Distinct names without object addresses."""
        return np.array([_ADDRESS.sub("", str(name)) for name in self.names], object)

    def labels(self, rows: Ints, absent: str) -> Objects:
        """Names of rows without object addresses, `absent` for no row."""
        found: Objects = np.array([*self.shown_names, absent], object)[self.name_codes(rows)]
        return found

    def categories(self, rows: Ints, absent: str) -> pd.Categorical:
        """Like `labels`, as sorted categories."""
        return coded([*self.shown_names, absent], self.name_codes(rows))

    def name_codes(self, rows: Ints) -> Small:
        """Index of each row's name, `len(names)` for no row."""
        return values_at(self.name, rows, len(self.names))

    def ids(self, rows: Ints) -> pd.Series:
        """Ids of rows, missing for no row."""
        return pd.Series(pd.arrays.IntegerArray(values_at(self.row_id, rows, NO_PARENT), rows < 0))

    def unions(self, marked: Bools) -> dict[int, Union]:
        """Union of the marked rows of each thread that has any."""
        rows = np.flatnonzero(marked)
        lanes = self.thread[rows]
        return {
            int(lane): intervals.union(self.start[rows[lanes == lane]], self.end[rows[lanes == lane]])
            for lane in np.unique(lanes)
        }


def read(run: Run) -> HostLines:
    """Read the host rows of a run, ordered by thread."""
    columns = LazyColumns(run, "host_intervals", _COLUMNS)
    threads = columns.table(C.RANK, C.PID, C.TID)
    thread, rank = per_run(_threads, threads), per_run(_ranks, threads)
    del threads
    start, row_id = columns.numbers(C.START_NS), columns.numbers(C.ROW_ID)
    depth = columns.numbers(C.DEPTH, np.int32)
    order = _order(thread, start, depth, row_id)
    parent = _parents(order, row_id, columns.numbers(C.PARENT_ROW))
    depth, thread, rank = depth[order], thread[order], rank[order]
    start, row_id, end = moved(order, [start, row_id, columns.numbers(C.DUR_NS)])
    end += start
    kinds, names = columns.coded(C.KIND)[order], columns.coded(C.NAME)[order]
    return HostLines(
        row_id=row_id,
        kind=kinds.codes,
        kinds=kinds.texts,
        name=names.codes,
        names=names.texts,
        rank=rank,
        thread=thread,
        start=start,
        end=end,
        parent=parent,
        depth=depth,
        loading=columns.coded(C.PHASE).among(Phase.DATALOAD)[order],
    )


def _parents(order: Ints, row_id: Ints, parent: Ints) -> Small:
    """Position of each row's parent in this order; parents that are not earlier are dropped as damaged."""
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    place[-1] = NO_PARENT  # position of absent rows
    found = picked(place, Places(row_id).of_every(parent)[order])
    found[found >= np.arange(len(found), dtype=np.int32)] = NO_PARENT
    return found


def _threads(rank: Small, pid: Ints, tid: Ints) -> Small:
    """A small number for each thread of each process of each rank."""
    codes = np.zeros(len(rank), np.int64)
    for key in (rank, pid, tid):
        place, distinct = pd.factorize(key, sort=True)
        codes = codes * max(1, len(distinct)) + place
    found, _ = pd.factorize(codes, sort=True)
    return found.astype(np.int32)


def _ranks(rank: Small, _pid: Ints, _tid: Ints) -> Small:
    return rank.astype(np.int32)


def _order(thread: Small, start: Ints, depth: Small, row_id: Ints) -> Ints:
    """Order by thread, start, depth and id."""
    return by_thread(thread, lambda rows: start[rows], lambda rows: depth[rows], lambda rows: row_id[rows])
