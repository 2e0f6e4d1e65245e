"""Host rows by thread: which row covers an instant, or most of a window, and what encloses it."""

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

from .common import NO_PARENT, Places, coded, known

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Host rows ordered by thread, start and depth; a position counts rows in that order, -1 is none.

    What is small is held in small numbers: there are millions of rows.

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
        """Positions of host rows by id, -1 where an id is null or not there."""
        return self._places.of(known(row_ids))

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

    @cached_property
    def shown_names(self) -> Objects:
        """The distinct names without addresses of objects."""
        return np.array([_ADDRESS.sub("", str(name)) for name in self.names], object)

    def labels(self, rows: Ints, absent: str) -> Objects:
        """Names of rows without addresses of objects, one word where there is none."""
        found: Objects = np.array([*self.shown_names, absent], object)[self.name_codes(rows)]
        return found

    def categories(self, rows: Ints, absent: str) -> pd.Categorical:
        """The same as categories, in the order of their texts."""
        return coded([*self.shown_names, absent], self.name_codes(rows))

    def name_codes(self, rows: Ints) -> Small:
        """Places of rows' names among the names and, behind these, one for rows that are not there."""
        codes: Small = np.append(self.name, np.int32(len(self.names)))[rows]
        return codes

    def ids(self, rows: Ints) -> pd.Series:
        """Ids of rows, missing where there is none."""
        return pd.Series(pd.arrays.IntegerArray(np.append(self.row_id, NO_PARENT)[rows], rows < 0))

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
    held = _Held(run.arrow("host_intervals", columns=_COLUMNS))
    row_id, start = held.numbers(C.ROW_ID), held.numbers(C.START_NS)
    rank, depth = held.numbers(C.RANK, np.int32), held.numbers(C.DEPTH, np.int32)
    thread = _threads(rank, held.numbers(C.PID), held.numbers(C.TID))
    order = _order(thread, start, depth, row_id)
    parent = _parents(order, row_id, held.numbers(C.PARENT_ROW))
    kind, kinds = held.coded(C.KIND)
    name, names = held.coded(C.NAME)
    phase, phases = held.coded(C.PHASE)
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
        end=(start + held.numbers(C.DUR_NS))[order],
        parent=parent,
        depth=depth[order],
        loading=loading[order],
    )


class _Held:
    """Columns that are let go once they are asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._columns = dict(zip(table.column_names, table.columns, strict=True))

    def numbers(self, name: str, kind: type[np.integer[Any]] = np.int64) -> Any:
        """A column of integers, -1 where missing."""
        column = self._columns.pop(name)
        plain = column.fill_null(NO_PARENT) if column.null_count else column
        return plain.to_numpy().astype(kind, copy=False)

    def coded(self, name: str) -> tuple[Small, Objects]:
        """A text column as numbers, -1 where missing, and the texts they stand for."""
        column = self._columns.pop(name).unify_dictionaries()
        if not column.num_chunks:
            return np.empty(0, np.int32), np.empty(0, object)
        texts = np.array(column.chunk(0).dictionary.to_pylist(), dtype=object)
        codes = [one.indices.fill_null(NO_PARENT).to_numpy(zero_copy_only=False) for one in column.chunks]
        return np.concatenate(codes), texts


def _parents(order: Ints, row_id: Ints, parent: Ints) -> Small:
    """In this order, the position of each row's parent, which is before it; damage may go in circles."""
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    place[-1] = NO_PARENT  # the place of what is nowhere
    found = place[Places(row_id).of(parent)[order]]
    return np.where(found < np.arange(len(found)), found, NO_PARENT).astype(np.int32)


def _threads(rank: Small, pid: Ints, tid: Ints) -> Small:
    """A small number for each thread of each process of each rank."""
    codes = np.zeros(len(rank), np.int64)
    for key in (rank, pid, tid):
        place, distinct = pd.factorize(key, sort=True)
        codes = codes * max(1, len(distinct)) + place
    found, _ = pd.factorize(codes, sort=True)
    return found.astype(np.int32)


def _order(thread: Small, start: Ints, depth: Small, row_id: Ints) -> Ints:
    """By thread, start, depth and id; rows come by start, so that often one stable sort is enough."""
    order = np.argsort(thread, kind="stable")
    lane, begin, deep, row = thread[order], start[order], depth[order], row_id[order]
    same = lane[1:] == lane[:-1]
    tie = same & (begin[1:] == begin[:-1])
    wrong = (same & (begin[1:] < begin[:-1])) | (tie & (deep[1:] < deep[:-1]))
    wrong |= tie & (deep[1:] == deep[:-1]) & (row[1:] < row[:-1])
    return np.lexsort((row_id, depth, start, thread)) if wrong.any() else order
