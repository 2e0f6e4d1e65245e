"""Columns of a large table as arrays, released after reading, and orders of its rows by thread."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .common import NO_PARENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc

    from tracekit.intervals import Ints
    from tracekit.run import Run

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Objects: TypeAlias = npt.NDArray[np.object_]
    Small: TypeAlias = npt.NDArray[np.integer[Any]]
    AnyArray: TypeAlias = npt.NDArray[Any]

_BLOCK = 1 << 17
"""Rows per block, so that intermediate arrays fit the CPU cache."""


@dataclass(frozen=True)
class Coded:
    """A dictionary-encoded text column.

    Attributes:
        codes: Index of each row's text, -1 if missing, in the smallest integer type.
        texts: Distinct texts.
    """

    codes: Small
    texts: Objects

    def __getitem__(self, rows: Ints) -> Coded:
        """Select rows."""
        return Coded(self.codes[rows], self.texts)

    def among(self, *values: str) -> Bools:
        """Whether each row has one of these texts."""
        wanted = {str(value) for value in values}
        return self.selected([str(text) in wanted for text in self.texts])

    def matching(self, pattern: str) -> Bools:
        """Whether each row's text contains the pattern, matching each distinct text once.

        Example:
            >>> names = Coded(np.array([1, 0, -1]), np.array(["cudaFree", "cudaLaunchKernel"], object))
            >>> names.matching("(?i)launch").tolist()
            [True, False, False]
        """
        regex = re.compile(pattern)
        return self.selected([bool(regex.search(str(text))) for text in self.texts])

    def selected(self, chosen: list[bool]) -> Bools:
        """Whether the text of each row is chosen."""
        return picked(
            np.array([*chosen, False], np.bool_), self.codes
        )  # index -1 is the last: missing texts are not chosen


def picked(values: AnyArray, places: Small) -> AnyArray:
    """Values at positions, in blocks: NumPy converts smaller indices to 8 bytes each.

    Example:
        >>> picked(np.array([5, 7, 9]), np.array([2, 0, -1], np.int8))
        array([9, 5, 9])
    """
    found = np.empty(len(places), values.dtype)
    for first in range(0, len(places), _BLOCK):
        part = slice(first, first + _BLOCK)
        found[part] = values[places[part]]
    return found


def moved(order: Ints, columns: Sequence[Ints]) -> list[Ints]:
    """Reorder columns, each into the memory of the previous one to avoid allocations.

    Args:
        order: Positions of rows.
        columns: Overwritten, except those owned by Arrow.

    Example:
        >>> moved(np.array([1, 0]), [np.array([5, 7]), np.array([3, 2])])
        [array([7, 5]), array([2, 3])]
    """
    found, buffer = [], np.empty(len(order), np.int64)
    for column in columns:
        found.append(np.take(column, order, out=buffer, mode="clip"))  # other modes copy first
        buffer = column if column.flags.writeable else np.empty_like(column)
    return found


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
        self._read = partial(run.arrow, table, where=where)
        self._whole = self._read(columns=columns) if run.in_parts(table) else None

    def table(self, *names: str) -> pa.Table:
        """Read columns as an Arrow table."""
        if self._whole is None:
            return self._read(columns=names)
        found = self._whole.select(names)
        self._whole = self._whole.drop_columns(list(names))
        return found

    def numbers(self, name: str, kind: type[np.integer[Any]] = np.int64) -> Any:
        """Read a column of integers, -1 for missing."""
        column = self.table(name)[name]
        plain = column.fill_null(NO_PARENT) if column.null_count else column
        return plain.to_numpy().astype(kind, copy=False)

    def coded(self, name: str) -> Coded:
        """Read a text column."""
        column = self.table(name)[name].unify_dictionaries()
        if not column.num_chunks:
            return Coded(np.empty(0, np.int32), np.empty(0, object))
        texts = np.array(column.chunk(0).dictionary.to_pylist(), dtype=object)
        small = np.min_scalar_type(-1 - len(texts))
        codes = [one.indices.fill_null(NO_PARENT).to_numpy(zero_copy_only=False) for one in column.chunks]
        return Coded(np.concatenate(codes, dtype=small, casting="same_kind"), texts)


def per_run(number: Callable[..., Small], table: pa.Table) -> Small:
    """Map integer columns to numbers, evaluated once per run of equal rows.

    Args:
        number: Function of the key arrays that returns one number per row.
        table: Key columns, in which neighboring rows are mostly equal.

    Example:
        >>> import pyarrow as pa
        >>> per_run(lambda key: key * 2, pa.table({"key": [3, 3, 3, 1]}))
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


def by_thread(thread: Small, *keys: Callable[[Ints | slice], Small]) -> Ints:
    """Order of rows by thread and then by keys.

    Rows of a table are sorted by start, so a stable sort by thread often suffices.

    Args:
        thread: Number of each row's thread.
        keys: Functions that return a further sort key of some rows, most significant first.

    Example:
        >>> start = np.array([5, 7, 3])
        >>> by_thread(np.array([1, 0, 1]), lambda rows: start[rows])
        array([1, 2, 0])
    """
    small = len(thread) and int(thread.max()) <= np.iinfo(np.int16).max
    lane = thread.astype(np.int16) if small else thread  # 16-bit integers use radix sort
    order = np.argsort(lane, kind="stable")
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
