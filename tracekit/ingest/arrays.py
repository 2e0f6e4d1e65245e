"""Arrow arrays and NumPy's over the same memory: nothing is copied.

Arrow's own conversions load pandas, and its functions a documentation of each, which both take longer than
importing most traces does.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.ingest.rows import NONE, Batch, Column, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.number[Any]]
    Bools = npt.NDArray[np.bool_]


def numbers(values: Numbers, missing: Bools | None = None) -> pa.Array:
    """An array of numbers, which stay where they are; null where they are missing.

    Example:
        >>> numbers(np.array([5, 6, 7]), np.array([False, True, False])).to_pylist()
        [5, None, 7]
    """
    kind = pa.from_numpy_dtype(values.dtype)
    held = pa.py_buffer(np.ascontiguousarray(values))
    nulls = 0 if missing is None else int(np.count_nonzero(missing))
    if missing is None or nulls == 0:
        return pa.Array.from_buffers(kind, len(values), [None, held], null_count=0)
    there = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [there, held], null_count=nulls)


def values_of(array: pa.Array) -> npt.NDArray[Any]:
    """The numbers of an array, not copied; anything where it is null.

    Example:
        >>> values_of(numbers(np.array([5, 6, 7])).slice(1))
        array([6, 7])
    """
    held = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return held[array.offset : array.offset + len(array)]


def filled(array: pa.Array, missing: int) -> npt.NDArray[Any]:
    """The numbers of an array, with another one where it is null.

    Example:
        >>> filled(numbers(np.array([5, 6]), np.array([True, False])), -1)
        array([-1,  6])
    """
    held, nulls = values_of(array), nulls_of(array)
    return held if nulls is None else np.where(nulls, held.dtype.type(missing), held)


def nulls_of(array: pa.Array) -> Bools | None:
    """Where an array is null; None where it nowhere is.

    Example:
        >>> nulls_of(numbers(np.array([5, 6]), np.array([True, False])))
        array([ True, False])
    """
    if not array.null_count:
        return None
    there = np.frombuffer(array.buffers()[0], np.uint8)
    bits = np.unpackbits(there, count=array.offset + len(array), bitorder="little")[array.offset :]
    return ~bits.view(np.bool_)


def fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same integers in another width.

    Raises:
        pa.ArrowInvalid: One does not fit.

    Example:
        >>> fitted(numbers(np.array([5, 6])), pa.int32()).type
        DataType(int32)
    """
    if array.type == kind:
        return array
    if not (pa.types.is_integer(array.type) and pa.types.is_integer(kind)):
        return array.cast(kind)
    held, nulls = values_of(array), nulls_of(array)
    narrow = held.astype(kind.to_pandas_dtype())
    fits = narrow == held
    return numbers(narrow, nulls) if (fits if nulls is None else fits | nulls).all() else array.cast(kind)


def strings(encoded: Sequence[bytes]) -> pa.StringArray:
    """An array of strings that are in UTF-8 already, none of them null.

    Example:
        >>> strings([b"a", b"", b"bc"]).to_pylist()
        ['a', '', 'bc']
    """
    ends = np.array(list(accumulate(map(len, encoded), initial=0)), np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers, null_count=0)


def compact(codes: npt.NDArray[Any], values: Sequence[bytes]) -> pa.DictionaryArray:
    """A dictionary array that holds just the values these rows use, since a file stores all it is given.

    Args:
        codes: A code per row, -1 for null.
        values: What the codes stand for, in UTF-8.

    Example:
        >>> compact(np.array([2, -1, 2]), [b"a", b"b", b"c"]).to_pylist()
        ['c', None, 'c']
    """
    places = codes.astype(np.intp, copy=False)  # what NumPy picks fastest by
    used = np.zeros(len(values) + 1, np.bool_)
    used[places] = True  # null marks the place behind the last value
    missing, used[-1] = bool(used[-1]), False
    place = np.cumsum(used, dtype=np.int32) - 1
    indices = numbers(place.take(places), codes < 0 if missing else None)
    held = [values[number] for number in np.flatnonzero(used).tolist()]
    return pa.DictionaryArray.from_arrays(indices, strings(held))


def of_arrow(batch: pa.RecordBatch) -> Batch:
    """An Arrow batch of integers, reals and dictionaries of strings; columns without a value are left out.

    Example:
        >>> of_arrow(pa.RecordBatch.from_pydict({"a": [7, None], "b": pa.nulls(2)})).rows.columns
        {'a': Column(values=array([ 7, -1]), missing=array([False,  True]))}
    """
    columns: dict[str, Column] = {}
    texts: dict[str, list[bytes]] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count == batch.num_rows:
            continue
        if isinstance(array, pa.DictionaryArray):
            columns[name] = Column(filled(array.indices, NONE))
            texts[name] = [value.encode() for value in array.dictionary.to_pylist()]
        else:
            kind = np.float64 if pa.types.is_floating(array.type) else np.int64
            columns[name] = Column(filled(array, NONE).astype(kind, copy=False), nulls_of(array))
    return Batch(Rows(count=batch.num_rows, columns=columns), texts)
