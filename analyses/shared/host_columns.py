"""Columns of a large table as arrays, released after reading, and orders of its rows by thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import SearchedTexts
from tracekit.analysis.model import compute_shared
from tracekit.ingest.link import nesting
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run
from tracekit.runs.selection import RowIndex
from tracekit.runs.tables import to_codes, to_integers
from tracekit.schema import C, HostKind, Phase

from .common import NO_PARENT, Bools, Objects, Small, ids_or_absent, to_categorical, values_at
from .groups import order_by_number, search_by

AnyArray: TypeAlias = npt.NDArray[Any]

_BLOCK = 1 << 17  # rows per block, so that intermediate arrays fit the CPU cache

_FEW_TEXTS = 4
"""Distinct texts up to which comparing the codes of all rows takes less time than looking each row up."""

BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$"
_NODE = r"Backward\d*$"  # those of nodes with an op; the calling thread may accumulate gradients itself
_IN_BACKWARD = r"(?i)(?<![a-z])backward(?![a-z])"
"""Names of the ops that run the nodes of backward, with everything inside them."""


@dataclass(frozen=True)
class Coded:
    """A dictionary-encoded text column."""

    codes: Small  # index of each row's text, -1 if missing, in the smallest integer type
    texts: Objects  # distinct texts
    # the same texts with what was searched in them, which columns of the same texts share
    searched: SearchedTexts

    @classmethod
    def of(cls, codes: Small, texts: Objects) -> Coded:
        """Return a column of texts in which nothing was searched yet."""
        return cls(codes, texts, SearchedTexts(texts.tolist()))

    def __getitem__(self, rows: Ints) -> Coded:
        """Select rows."""
        return replace(self, codes=self.codes[rows])

    def is_any_of(self, *values: str) -> Bools:
        """Whether each row has one of these texts."""
        wanted = {str(value) for value in values}
        return self._select(np.array([str(text) in wanted for text in self.texts], np.bool_))

    def matches(self, pattern: str) -> Bools:
        """Whether each row's text contains the pattern, matching each distinct text once.

        Example:
            >>> names = Coded.of(np.array([1, 0, -1]), np.array(["cudaFree", "cudaLaunchKernel"], object))
            >>> names.matches("(?i)launch").tolist()
            [True, False, False]
        """
        return self._select(self.searched.containing(pattern))

    def _select(self, chosen: Bools) -> Bools:
        """Whether the text of each row is chosen."""
        places = np.flatnonzero(chosen)
        if len(places) > _FEW_TEXTS:
            # code -1 picks the last entry: missing texts are not chosen
            return take(np.append(chosen, False), self.codes)
        rows = np.zeros(len(self.codes), np.bool_)
        for place in places.astype(self.codes.dtype):  # most patterns are in no text of a run
            rows |= self.codes == place
        return rows


def take(values: AnyArray, places: Small) -> AnyArray:
    """Values at positions, in blocks: NumPy converts smaller indices to 8 bytes each.

    Example:
        >>> take(np.array([5, 7, 9]), np.array([2, 0, -1], np.int8))
        array([9, 5, 9])
    """
    taken_values = np.empty(len(places), values.dtype)
    for first in range(0, len(places), _BLOCK):
        part = slice(first, first + _BLOCK)
        taken_values[part] = values[places[part]]
    return taken_values


def reorder(order: Ints, columns: Sequence[Ints]) -> list[Ints]:
    """Reorder columns, each into the memory of the previous one to avoid allocations.

    Args:
        order: Positions of rows.
        columns: Overwritten, except those owned by Arrow.

    Example:
        >>> reorder(np.array([1, 0]), [np.array([5, 7]), np.array([3, 2])])
        [array([7, 5]), array([2, 3])]
    """
    reordered, buffer = [], np.empty(len(order), np.int64)
    for column in columns:
        reordered.append(np.take(column, order, out=buffer, mode="clip"))  # other modes copy first
        buffer = column if column.flags.writeable else np.empty_like(column)
    return reordered


class LazyColumns:
    """Columns of a run's table, each read on access to limit peak memory.

    A table stored in parts has to be sorted: its columns are read together, and each is released on access.

    Args:
        run: The run.
        table: Name of the table.
        columns: Columns that will be read, once each.
        where: Only rows that satisfy this.
    """

    def __init__(
        self, run: Run, table: str, columns: Sequence[str], where: pc.Expression | None = None
    ) -> None:
        self._searched = run.compute_once(_searched_texts)
        self._read = partial(run.arrow, table, where=where)
        self._whole = self._read(columns=columns) if run.in_parts(table) else None

    def table(self, *names: str) -> pa.Table:
        """Read columns as an Arrow table."""
        if self._whole is None:
            return self._read(columns=names)
        columns = self._whole.select(names)
        self._whole = self._whole.drop_columns(list(names))
        return columns

    def numbers(self, name: str, kind: type[np.integer[Any]] = np.int64) -> Any:
        """Read a column of integers, -1 for missing."""
        return to_integers(self.table(name)[name]).astype(kind, copy=False)

    def coded(self, name: str) -> Coded:
        """Read a text column."""
        codes, texts = to_codes(self.table(name)[name])
        # A large run's columns are read again by each analysis; searching its names takes longer than that.
        searched = self._searched.setdefault(hash(tuple(texts)), SearchedTexts(texts))
        return Coded(codes, np.array(texts, object), searched)


def _searched_texts(_run: Run) -> dict[int, SearchedTexts]:
    """What was searched of a run, by the hash of its texts."""
    return {}


def map_equal_runs(number: Callable[..., Small], table: pa.Table) -> Small:
    """Map integer columns to numbers, evaluated once per run of equal rows.

    Args:
        number: Function of the key arrays that returns one number per row.
        table: Key columns, in which neighboring rows are mostly equal.

    Example:
        >>> import pyarrow as pa
        >>> map_equal_runs(lambda key: key * 2, pa.table({"key": [3, 3, 3, 1]}))
        array([6, 6, 6, 2])
    """
    firsts, counts = [], []
    for batch in table.to_batches():
        keys = [column.to_numpy() for column in batch.columns]
        begins = np.zeros(len(batch), np.bool_)
        begins[:1] = True
        for key in keys:
            begins[1:] |= key[1:] != key[:-1]
        first = np.flatnonzero(begins)
        firsts.append([key[first] for key in keys])
        counts.append(np.diff(first, append=len(batch)))
    if not counts:
        return number(*(np.empty(0, np.int64) for _ in table.columns))
    return np.repeat(number(*map(np.concatenate, zip(*firsts, strict=True))), np.concatenate(counts))


def order_by_thread(thread: Small, *keys: Callable[[Ints | slice], Small]) -> Ints:
    """Order of rows by thread and then by keys.

    Rows of a table are sorted by start, so a stable sort by thread often suffices.

    Args:
        thread: Number of each row's thread.
        keys: Functions that return a further sort key of some rows, most significant first.

    Example:
        >>> start = np.array([5, 7, 3])
        >>> order_by_thread(np.array([1, 0, 1]), lambda rows: start[rows])
        array([1, 2, 0])
    """
    order = order_by_number(thread)
    for first in range(0, len(order), _BLOCK):
        rows = order[first : first + _BLOCK + 1]
        if not _in_order(thread[rows], rows, keys):
            return np.lexsort((*(key(slice(None)) for key in reversed(keys)), thread))
    return order


def _in_order(thread: Small, rows: Ints, keys: Sequence[Callable[[Ints | slice], Small]]) -> bool:
    tied = thread[1:] == thread[:-1]
    for key in keys:
        values = key(rows)
        if (tied & (values[1:] < values[:-1])).any():
            return False
        tied &= values[1:] == values[:-1]
        if not tied.any():
            break
    return True


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_COLUMNS = (
    *(C.ROW_ID, C.KIND, C.NAME, C.RANK, C.PID, C.TID),
    *(C.START_NS, C.DUR_NS, C.PARENT_ROW, C.DEPTH, C.PHASE),
)


@dataclass(frozen=True)
class HostColumns:
    """Host rows ordered by thread, start and depth; positions refer to that order, -1 is none.

    Small integer types save memory, since there can be millions of rows.
    """

    row_id: Ints  # id of each row
    kind: Coded  # kind of each row
    name: Coded  # name of each row
    rank: Small  # rank of each row
    thread: Small  # number of each row's thread, unique across ranks and processes
    start: Ints
    end: Ints
    parent: Small  # position of the innermost enclosing row
    depth: Small  # number of enclosing rows
    phase: Coded  # phase of the step that each row belongs to

    @cached_property
    def data_loading(self) -> Bools:
        """Whether each row belongs to the phase of data loading."""
        return self.phase.is_any_of(Phase.DATALOAD)

    @cached_property
    def _places(self) -> RowIndex:
        return RowIndex(self.row_id)

    @cached_property
    def rows_of_thread(self) -> dict[int, slice]:
        """The positions of each thread."""
        edges = np.flatnonzero(np.concatenate(([True], self.thread[1:] != self.thread[:-1], [True])))
        if not len(self.thread):
            return {}
        return {int(self.thread[low]): slice(int(low), int(high)) for low, high in pairwise(edges)}

    def positions(self, row_ids: pd.Series) -> Ints:
        """Positions of host rows by id, -1 for null and absent ids."""
        return self._places.of(ids_or_absent(row_ids))

    def of_kind(self, *kinds: HostKind) -> Bools:
        """Whether each row is of one of these kinds."""
        return self.kind.is_any_of(*kinds)

    def name_matches(self, pattern: str) -> Bools:
        """Whether each row's name contains the pattern, matching each distinct name once."""
        return self.name.matches(pattern)

    def names_match(self, pattern: str, rows: Ints) -> Bools:
        """Whether the names of some rows contain the pattern; no row's does."""
        found: Bools = np.append(self.name.searched.containing(pattern), values=False)[self.name_codes(rows)]
        return found

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """Innermost row that covers each instant on its thread."""
        latest = search_by(self.thread, self.start, thread, times)
        return nesting.find_covering(self.end, self.parent, latest, times).astype(np.int64, copy=False)

    def mostly_covering(self, thread: Ints, low: Ints, high: Ints) -> Ints:
        """Innermost row that covers the middle and more than half of each window.

        Args:
            thread: Number of each window's thread.
            low: Start of each window, ns.
            high: End of each window, ns.
        """
        row = self.innermost(thread, low + (high - low) // 2)
        while (row >= 0).any():
            inside = np.minimum(self.end[row], high) - np.maximum(self.start[row], low)
            too_small = (row >= 0) & (2 * inside <= high - low) & (high > low)
            if not too_small.any():
                break
            row[too_small] = self.parent[row[too_small]]
        return row

    def nearest_ancestor(self, rows: Ints, wanted: Bools) -> Ints:
        """Innermost wanted row among each row and its ancestors."""
        return nesting.climb_to(rows, self.parent, wanted)

    def are_inside(self, wanted: Bools) -> Bools:
        """Whether each row is wanted or inside a wanted row."""
        return nesting.nearest(self.parent, wanted) >= 0 if wanted.any() else wanted

    @cached_property
    def in_backward(self) -> Bools:
        """Whether each row is in an op that runs a node of backward."""
        return self.are_inside(self.of_kind(HostKind.OP) & self.name_matches(BACKWARD))

    def common_ancestor(self, row: Ints, other: Ints) -> Ints:
        """Lowest common ancestor of both rows, which may be one of them."""
        depth, parent = np.append(self.depth, NO_PARENT), np.append(self.parent, NO_PARENT)
        ancestor = np.where((row < 0) | (other < 0), NO_PARENT, row)
        active = np.flatnonzero((ancestor >= 0) & (row != other))
        left, right = (rows[active].astype(parent.dtype) for rows in (row, other))
        while len(active):
            depths = depth[left], depth[right]
            left = np.where(depths[0] >= depths[1], parent[left], left)
            right = np.where(depths[1] >= depths[0], parent[right], right)
            ancestor[active] = left
            active, left, right = (values[left != right] for values in (active, left, right))
        return ancestor

    @cached_property
    def shown_names(self) -> Objects:
        """Distinct names without object addresses."""
        return np.array([_ADDRESS.sub("", str(name)) for name in self.name.texts], object)

    def labels(self, rows: Ints, absent: str) -> Objects:
        """Names of rows without object addresses, `absent` for no row."""
        labels: Objects = np.array([*self.shown_names, absent], object)[self.name_codes(rows)]
        return labels

    def categories(self, rows: Ints, absent: str) -> pd.Categorical:
        """Like `labels`, as sorted categories."""
        return to_categorical([*self.shown_names, absent], self.name_codes(rows))

    def name_codes(self, rows: Ints) -> Small:
        """Index of each row's name in `shown_names`, their number for no row."""
        return values_at(self.name.codes, rows, len(self.name.texts))

    def ids(self, rows: Ints) -> pd.Series:
        """Ids of rows, missing for no row."""
        return pd.Series(pd.arrays.IntegerArray(values_at(self.row_id, rows, NO_PARENT), rows < 0))

    def spans(self, rows: Ints) -> Union:
        """Starts and ends of rows."""
        return self.start[rows], self.end[rows]


def read_host_columns(run: Run) -> HostColumns:
    """Read the host rows of a run, ordered by thread; several analyses share them."""
    return compute_shared(run, _read_host_columns)


@dataclass(frozen=True)
class Parents:
    """What encloses each host row, by positions in the order of the table."""

    index: RowIndex  # positions by row id
    parent: Small  # position of the innermost enclosing row, -1 without one


def read_parents(run: Run) -> Parents:
    """Read which host row encloses each other one; several analyses share them."""
    return compute_shared(run, _read_parents)


def _read_parents(run: Run) -> Parents:
    # Tables in parts are in order of time only if that is read.
    columns = LazyColumns(run, "host_intervals", (C.ROW_ID, C.PARENT_ROW, C.START_NS))
    index = RowIndex(columns.numbers(C.ROW_ID))
    return Parents(index, index.of_every(columns.numbers(C.PARENT_ROW)))


def read_host_names(run: Run) -> SearchedTexts:
    """Read the distinct names of the host rows of a run; several analyses search them."""
    return compute_shared(run, _read_host_names)


def _read_host_names(run: Run) -> SearchedTexts:
    return SearchedTexts(run.arrow("host_intervals", columns=[C.NAME])[C.NAME].unique().to_pylist())


def _read_host_columns(run: Run) -> HostColumns:
    columns = LazyColumns(run, "host_intervals", _COLUMNS)
    threads = columns.table(C.RANK, C.PID, C.TID)
    thread, rank = (
        map_equal_runs(_threads, threads),
        map_equal_runs(lambda rank, _pid, _tid: rank.astype(np.int32), threads),
    )
    del threads
    start, row_id = columns.numbers(C.START_NS), columns.numbers(C.ROW_ID)
    depth = np.maximum(columns.numbers(C.DEPTH, np.int32), 0)  # no row is above the outermost
    order = order_by_thread(
        thread, lambda rows: start[rows], lambda rows: depth[rows], lambda rows: row_id[rows]
    )
    parent = _parents(order, row_id, columns.numbers(C.PARENT_ROW))
    depth, thread, rank = depth[order], thread[order], rank[order]
    start, row_id, end = reorder(order, [start, row_id, columns.numbers(C.DUR_NS)])
    end += start
    kind, name = columns.coded(C.KIND)[order], columns.coded(C.NAME)[order]
    return HostColumns(
        row_id=row_id,
        kind=kind,
        name=name,
        rank=rank,
        thread=thread,
        start=start,
        end=end,
        parent=parent,
        depth=depth,
        phase=columns.coded(C.PHASE)[order],
    )


def _parents(order: Ints, row_id: Ints, parent: Ints) -> Small:
    """Position of each row's parent in this order; parents that are not earlier are dropped as damaged."""
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    place[-1] = NO_PARENT  # position of absent rows
    places = take(place, RowIndex(row_id).of_every(parent)[order])
    places[places >= np.arange(len(places), dtype=np.int32)] = NO_PARENT
    return places


def _threads(rank: Small, pid: Ints, tid: Ints) -> Small:
    """A small number for each thread of each process of each rank."""
    codes = np.zeros(len(rank), np.int64)
    for key in (rank, pid, tid):
        place, distinct = pd.factorize(key, sort=True)
        codes = codes * max(1, len(distinct)) + place
    threads, _ = pd.factorize(codes, sort=True)
    return threads.astype(np.int32)


def find_unrecorded_backward(host: HostColumns) -> Bools:
    """Whether each row is in a range or function of backward on a rank of one thread, without its nodes.

    The thread that calls backward waits there for that of autograd, of which nothing is recorded.
    """
    is_op = host.of_kind(HostKind.OP)
    threads = pd.unique(host.thread[is_op])
    ranks = host.rank[[host.rows_of_thread[int(thread)].start for thread in threads]]
    several = ranks[pd.Series(ranks).duplicated()]
    alone = threads[~np.isin(ranks, np.append(several, host.rank[is_op & host.name_matches(_NODE)]))]
    calls = host.of_kind(HostKind.ANNOTATION, HostKind.PYTHON) & host.name_matches(_IN_BACKWARD)
    found: Bools = calls & np.isin(host.thread, alone)
    return found
