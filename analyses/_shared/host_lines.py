"""Host rows by thread: which row covers an instant, or most of a window, and what encloses it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tracekit import intervals, step_names
from tracekit.ingest import nesting
from tracekit.schema import C, HostKind, Phase

from .common import NO_PARENT

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Objects: TypeAlias = npt.NDArray[np.object_]

STEP_MARKER = step_names.MARKER
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_COLUMNS = (
    *(C.ROW_ID, C.KIND, C.NAME, C.RANK, C.PID, C.TID),
    *(C.START_NS, C.DUR_NS, C.PARENT_ROW, C.DEPTH, C.PHASE),
)


@dataclass(frozen=True)
class HostLines:
    """Host rows ordered by thread, start and depth; a position counts rows in that order, -1 is none.

    Attributes:
        row_id: Id of each row.
        kind: Kind of each row, as an index into `kinds`.
        kinds: The distinct kinds.
        name: Name of each row, as an index into `names`.
        names: The distinct names.
        rank: Rank of each row.
        thread: Number of each row's thread, which tells ranks and processes apart.
        start: Starts.
        end: Ends.
        parent: Position of the innermost enclosing row.
        depth: Number of enclosing rows.
        loading: Whether the row belongs to the phase of data loading.
    """

    row_id: Ints
    kind: Ints
    kinds: Objects
    name: Ints
    names: Objects
    rank: Ints
    thread: Ints
    start: Ints
    end: Ints
    parent: Ints
    depth: Ints
    loading: Bools

    @cached_property
    def index(self) -> pd.Index[int]:
        """Positions by row id."""
        return pd.Index(self.row_id)

    @cached_property
    def lanes(self) -> dict[int, slice]:
        """The positions of each thread."""
        edges = np.flatnonzero(np.concatenate(([True], self.thread[1:] != self.thread[:-1], [True])))
        if not len(self.thread):
            return {}
        return {int(self.thread[low]): slice(int(low), int(high)) for low, high in pairwise(edges)}

    def at(self, row_ids: pd.Series) -> Ints:
        """Positions of host rows by id, -1 where an id is null or not there."""
        asked = row_ids.fillna(NO_PARENT).to_numpy(dtype=np.int64)
        found: Ints = self.index.get_indexer(pd.Index(asked)).astype(np.int64)
        return found

    def of_kind(self, *kinds: HostKind) -> Bools:
        """Which rows are of these kinds."""
        return np.isin(
            self.kind, np.flatnonzero(np.isin(self.kinds.astype(str), [str(one) for one in kinds]))
        )

    def named(self, pattern: str) -> Bools:
        """Which rows have a name that contains the pattern; each distinct name is looked at once."""
        regex = re.compile(pattern)
        chosen = np.array([bool(regex.search(str(name))) for name in self.names], np.bool_)
        return chosen[self.name] if len(chosen) else np.zeros(len(self.name), np.bool_)

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """The innermost row that covers each instant on its thread."""
        found = np.full(len(times), NO_PARENT, np.int64)
        for lane in np.unique(thread):
            rows = self.lanes.get(int(lane))
            if rows is None:
                continue
            asked = thread == lane
            parent = np.where(self.parent[rows] >= 0, self.parent[rows] - rows.start, NO_PARENT)
            inner = nesting.innermost(self.start[rows], self.end[rows], parent, times[asked])
            found[asked] = np.where(inner >= 0, inner + rows.start, NO_PARENT)
        return found

    def filling(self, thread: Ints, low: Ints, high: Ints) -> Ints:
        """The innermost row that covers more than half of each window; it must cover the middle."""
        found = self.innermost(thread, low + (high - low) // 2)
        while (found >= 0).any():
            inside = np.minimum(self.end[found], high) - np.maximum(self.start[found], low)
            small = (found >= 0) & (2 * inside <= high - low) & (high > low)
            if not small.any():
                break
            found[small] = self.parent[found[small]]
        return found

    def up_to(self, rows: Ints, wanted: Bools) -> Ints:
        """The innermost wanted row among each row and those that enclose it."""
        found = rows.copy()
        active = np.flatnonzero(found >= 0)
        while len(active):
            active = active[~wanted[found[active]]]
            found[active] = self.parent[found[active]]
            active = active[found[active] >= 0]
        return found

    def common(self, one: Ints, other: Ints) -> Ints:
        """The innermost row that encloses, or is, both rows."""
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

    def labels(self, rows: Ints, absent: str) -> Objects:
        """Names of rows without addresses of objects, one word where there is none."""
        texts = np.array([*(_ADDRESS.sub("", str(name)) for name in self.names), absent], object)
        codes = np.append(self.name, len(self.names))
        found: Objects = texts[codes[rows]]
        return found

    def ids(self, rows: Ints) -> pd.Series:
        """Ids of rows, missing where there is none."""
        return pd.Series(np.append(self.row_id, NO_PARENT)[rows], dtype="Int64").where(pd.Series(rows >= 0))

    def unions(self, marked: Bools) -> dict[int, Union]:
        """The union of the marked rows of each thread that has any."""
        rows = np.flatnonzero(marked)
        lanes = self.thread[rows]
        return {
            int(lane): intervals.union(self.start[rows[lanes == lane]], self.end[rows[lanes == lane]])
            for lane in np.unique(lanes)
        }


def read(run: Run) -> HostLines:
    """The host rows of a run, ordered by thread."""
    table = run.arrow("host_intervals", columns=_COLUMNS).unify_dictionaries()
    kind, kinds = _coded(table[C.KIND])
    name, names = _coded(table[C.NAME])
    phase, phases = _coded(table[C.PHASE])
    rank, start = _integers(table[C.RANK]), _integers(table[C.START_NS])
    row_id, depth = _integers(table[C.ROW_ID]), _integers(table[C.DEPTH])
    thread = _threads(rank, _integers(table[C.PID]), _integers(table[C.TID]))
    order = _order(thread, start, depth, row_id)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    parent = pd.Index(row_id).get_indexer(pd.Index(_integers(table[C.PARENT_ROW])))
    loading = np.isin(phase, np.flatnonzero(phases.astype(str) == str(Phase.DATALOAD)))
    return HostLines(
        row_id=row_id[order],
        kind=kind[order],
        kinds=kinds,
        name=name[order],
        names=names,
        rank=rank[order],
        thread=thread[order],
        start=start[order],
        end=(start + _integers(table[C.DUR_NS]))[order],
        parent=np.where(parent >= 0, place[parent], NO_PARENT)[order] if len(order) else row_id,
        depth=depth[order],
        loading=loading[order],
    )


def _coded(column: pa.ChunkedArray) -> tuple[Ints, Objects]:
    """A text column as numbers, -1 where missing, and the texts they stand for."""
    if not column.num_chunks:
        return np.empty(0, np.int64), np.empty(0, object)
    whole = pa.concat_arrays(column.chunks)
    codes = whole.indices.fill_null(NO_PARENT).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, np.array(whole.dictionary.to_pylist(), dtype=object)


def _integers(column: pa.ChunkedArray) -> Ints:
    found: Ints = column.fill_null(NO_PARENT).to_numpy().astype(np.int64)
    return found


def _threads(rank: Ints, pid: Ints, tid: Ints) -> Ints:
    """A small number for each thread of each process of each rank."""
    codes = np.zeros(len(rank), np.int64)
    for key in (rank, pid, tid):
        place, distinct = pd.factorize(key, sort=True)
        codes = codes * max(1, len(distinct)) + place
    found, _ = pd.factorize(codes, sort=True)
    return found.astype(np.int64)


def _order(thread: Ints, start: Ints, depth: Ints, row_id: Ints) -> Ints:
    """By thread, start, depth and id; rows come by start, so that often one stable sort is enough."""
    order = np.argsort(thread, kind="stable")
    lane, begin, deep, row = thread[order], start[order], depth[order], row_id[order]
    same = lane[1:] == lane[:-1]
    tie = same & (begin[1:] == begin[:-1])
    wrong = (same & (begin[1:] < begin[:-1])) | (tie & (deep[1:] < deep[:-1]))
    wrong |= tie & (deep[1:] == deep[:-1]) & (row[1:] < row[:-1])
    return np.lexsort((row_id, depth, start, thread)) if wrong.any() else order
