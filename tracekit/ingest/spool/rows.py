"""Rows of a table in memory: columns of numbers and of codes of texts; conversions to Arrow, and sorting.

Arrow's own conversions load pandas, and its compute functions their documentation; both take longer than
importing most traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.ingest.spool.text_columns import Strings
from tracekit.schema import C, HostKind

Ints: TypeAlias = npt.NDArray[np.int64]
AnyInts: TypeAlias = npt.NDArray[np.integer[Any]]
Bools: TypeAlias = npt.NDArray[np.bool_]

NONE = -1
"""Placeholder of a missing number, and code of a missing text."""


class Column(NamedTuple):
    """One column."""

    values: npt.NDArray[Any]  # int64 or float64; texts are int64 codes
    missing: Bools | None = None  # mask of missing numbers; None if there are none, and for codes

    def take(self, chosen: AnyInts) -> Column:
        """Return the values at positions, in their order."""
        missing = None if self.missing is None else self.missing.take(chosen)
        return Column(self.values.take(chosen), missing)


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table: their number, and the columns with any value; others are null."""

    count: int
    columns: dict[str, Column]

    def integers(self, column: str) -> Ints:
        """Return a column of integers, or the codes of a text column; -1 for null."""
        values = self.columns.get(column)
        return np.full(self.count, NONE, np.int64) if values is None else values.values

    def take(self, chosen: AnyInts) -> Rows:
        """Return the rows at positions, in their order."""
        columns = {name: column.take(chosen) for name, column in self.columns.items()}
        return Rows(count=len(chosen), columns=columns)


class Batch(msgspec.Struct, frozen=True):
    """Decoded rows of one table, with their own texts."""

    rows: Rows  # the rows, in any order
    # for each text column the text of each code, in UTF-8; may contain duplicates
    texts: dict[str, list[bytes]] = msgspec.field(default_factory=dict)


Words: TypeAlias = "tuple[AnyInts, Sequence[bytes] | npt.NDArray[np.object_]]"
"""Codes of the rows, -1 for null, and the text of each code in UTF-8."""


class BatchBuilder:
    """Builder of a batch; columns without any value are left out.

    Attributes:
        count: Number of rows.

    Example:
        >>> built = BatchBuilder(2)
        >>> built.numbers("a", Column(np.array([7, 8]), np.array([False, True])))
        >>> built.texts("b", (np.array([-1, -1]), []))
        >>> built.build().rows.columns
        {'a': Column(values=array([ 7, -1]), missing=array([False,  True]))}
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._columns: dict[str, Column] = {}
        self._texts: dict[str, list[bytes]] = {}

    def numbers(self, name: str, column: Column) -> None:
        """Add a column of numbers."""
        values, missing = column
        if missing is None or not missing.any():
            self._columns[name] = Column(values)
        elif not missing.all():
            self._columns[name] = Column(np.where(missing, values.dtype.type(NONE), values), missing)

    def durations(self, values: Ints, unfinished: Bools) -> int:
        """Add durations, 0 for unfinished intervals, which are marked; returns how many there are."""
        count = int(unfinished.sum())
        self.numbers(C.DUR_NS, Column(np.where(unfinished, 0, values) if count else values))
        if count:
            self.numbers(C.UNFINISHED, Column(np.ones(self.count, np.int64), ~unfinished))
        return count

    def texts(self, name: str, words: Words) -> None:
        """Add a column of texts."""
        codes, encoded = words
        if len(encoded):
            self._columns[name] = Column(codes)
            self._texts[name] = list(encoded)

    def constant(self, name: str, text: str) -> None:
        """Add a column with the same text in all rows."""
        self.texts(name, (np.zeros(self.count, np.int64), [text.encode()]))

    def build(self) -> Batch:
        """Return the batch."""
        return Batch(Rows(count=self.count, columns=self._columns), self._texts)


def concatenate_rows(pieces: Sequence[Rows]) -> Rows:
    """Concatenate one or more pieces that share their codes.

    Example:
        >>> one, other = (Rows(count=1, columns={"a": Column(np.array([n]))}) for n in (1, 2))
        >>> concatenate_rows([one, other]).integers("a")
        array([1, 2])
    """
    if len(pieces) == 1:
        return pieces[0]
    names = dict.fromkeys(name for piece in pieces for name in piece.columns)
    return Rows(
        count=sum(piece.count for piece in pieces),
        columns={name: _concatenate([_column(piece, name) for piece in pieces]) for name in names},
    )


def _column(rows: Rows, name: str) -> Column:
    """Return a column, of missing values if the rows have none."""
    return rows.columns.get(name) or Column(rows.integers(name), np.ones(rows.count, np.bool_))


def _concatenate(columns: Sequence[Column]) -> Column:
    values = np.concatenate([column.values for column in columns])
    if all(column.missing is None for column in columns):
        return Column(values)
    masks = [np.zeros(len(part), np.bool_) if missing is None else missing for part, missing in columns]
    return Column(values, np.concatenate(masks))


def concatenate_batches(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches of one table, and their texts."""
    if len(batches) == 1:
        return batches[0]
    texts: dict[str, list[bytes]] = {}
    pieces = []
    for batch in batches:
        columns = dict(batch.rows.columns)
        for name, part_texts in batch.texts.items():
            all_texts = texts.setdefault(name, [])
            codes = columns[name].values
            columns[name] = Column(np.where(codes < 0, NONE, codes + len(all_texts)))
            all_texts.extend(part_texts)
        pieces.append(Rows(count=batch.rows.count, columns=columns))
    return Batch(concatenate_rows(pieces), texts)


def numbers(values: npt.NDArray[np.number[Any]], missing: Bools | None = None) -> pa.Array:
    """Return an Arrow array of numbers, without a copy; null where they are missing.

    Example:
        >>> numbers(np.array([5, 6, 7]), np.array([False, True, False])).to_pylist()
        [5, None, 7]
    """
    kind = pa.from_numpy_dtype(values.dtype)
    nulls = 0 if missing is None else int(np.count_nonzero(missing))
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing is not None and nulls else None
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers, null_count=nulls)


def values_of(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an Arrow array, without a copy; undefined where it is null.

    Example:
        >>> values_of(numbers(np.array([5, 6, 7])).slice(1))
        array([6, 7])
    """
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def fill_nulls(array: pa.Array, missing: int) -> npt.NDArray[Any]:
    """Return the numbers of an Arrow array, with a default for null.

    Example:
        >>> fill_nulls(numbers(np.array([5, 6]), np.array([True, False])), -1)
        array([-1,  6])
    """
    values, nulls = values_of(array), nulls_of(array)
    return values if nulls is None else np.where(nulls, values.dtype.type(missing), values)


def nulls_of(array: pa.Array) -> Bools | None:
    """Return the mask of nulls of an Arrow array; None if there are none."""
    if not array.null_count:
        return None
    first, skipped = divmod(array.offset, 8)
    valid = np.frombuffer(array.buffers()[0], np.uint8)[first:]
    bits = np.unpackbits(valid, count=skipped + len(array), bitorder="little")[skipped:]
    return ~bits.view(np.bool_)


def cast_integers(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast integers to another width.

    Raises:
        pa.ArrowInvalid: A value does not fit.
    """
    if array.type == kind:
        return array
    if not (pa.types.is_integer(array.type) and pa.types.is_integer(kind)):
        return array.cast(kind)
    values, nulls = values_of(array), nulls_of(array)
    narrow = values.astype(kind.to_pandas_dtype())
    fits = narrow == values
    return numbers(narrow, nulls) if (fits if nulls is None else fits | nulls).all() else array.cast(kind)


def strings(encoded: Sequence[bytes]) -> pa.StringArray:
    """Return an Arrow array of strings in UTF-8, without nulls.

    Example:
        >>> strings([b"a", b"", b"bc"]).to_pylist()
        ['a', '', 'bc']
    """
    ends = np.array(list(accumulate(map(len, encoded), initial=0)), np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers, null_count=0)


def compact(codes: npt.NDArray[Any], values: Sequence[bytes]) -> pa.DictionaryArray:
    """Return a dictionary array with only the values that occur, since a file stores the whole dictionary.

    Args:
        codes: A code per row, -1 for null.
        values: The text of each code, in UTF-8.

    Example:
        >>> compact(np.array([2, -1, 2]), [b"a", b"b", b"c"]).to_pylist()
        ['c', None, 'c']
    """
    old = codes.astype(np.intp, copy=False)  # the index type that NumPy takes fastest
    used = np.zeros(len(values) + 1, np.bool_)
    used[old] = True  # -1 marks the place after the last value
    has_nulls, used[-1] = bool(used[-1]), False
    new = np.cumsum(used, dtype=np.int32) - 1  # by old code
    indices = numbers(new.take(old), codes < 0 if has_nulls else None)
    texts = [values[code] for code in np.flatnonzero(used).tolist()]
    return pa.DictionaryArray.from_arrays(indices, strings(texts))


_OUTER_FIRST = (
    HostKind.PYTHON,
    HostKind.ANNOTATION,
    HostKind.OP,
    HostKind.RUNTIME,
    HostKind.SYNC,
    HostKind.OVERHEAD,
)


def sorted_positions(start: AnyInts, *ties: Callable[[], AnyInts]) -> AnyInts:
    """Return the positions that sort by `start`, then by further keys, which are computed only for ties."""
    order = np.argsort(start, kind="stable")
    equal = np.diff(start.take(order)) == 0
    if not equal.any():
        return order
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    rows = order[tied]
    keys = [start[rows], *(key()[rows] for key in ties)]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order


def host_order(rows: Rows, kinds: Strings) -> AnyInts:
    """Return the order of host rows: by start, the outer row first."""
    outer = np.array([_OUTER_FIRST.index(HostKind(value)) for value in kinds.values], np.int8)
    return sorted_positions(
        rows.integers(C.START_NS),
        lambda: -rows.integers(C.DUR_NS),
        lambda: outer[rows.integers(C.KIND)],
        lambda: rows.integers(C.EXTERNAL_ID),
        lambda: rows.integers(C.NAME),
        lambda: rows.integers(C.CORRELATION_ID),
    )


def _order_by(first: str, *ties: str) -> Callable[[Rows], AnyInts]:
    """Return the function that orders rows by a column, and equal ones by further columns."""

    def order(rows: Rows) -> AnyInts:
        return sorted_positions(rows.integers(first), *(partial(rows.integers, name) for name in ties))

    return order


device_order = _order_by(C.START_NS, C.DUR_NS, C.DEVICE, C.STREAM, C.CORRELATION_ID, C.NAME, C.BYTES)
allocation_order = _order_by(C.T_NS, C.TOTAL_ALLOCATED, C.ADDRESS, C.BYTES)
counter_order = _order_by(C.T_NS)
"""Samples of one instant keep the order of the file."""


def distinct(values: Ints) -> Ints:
    """Return sorted distinct integers; `np.unique` would load NumPy's masked arrays.

    Example:
        >>> distinct(np.array([7, 5, 7]))
        array([5, 7])
    """
    ordered: Ints = np.sort(values)
    return ordered.compress(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
