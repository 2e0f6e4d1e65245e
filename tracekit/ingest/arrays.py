"""Arrow arrays and NumPy's over the same memory: nothing is copied.

Arrow's own conversions load pandas, which takes longer than importing most traces does.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    held = values_of(array)
    if not array.null_count:
        return held
    there = np.frombuffer(array.buffers()[0], np.uint8)
    bits = np.unpackbits(there, count=array.offset + len(array), bitorder="little")[array.offset :]
    return np.where(bits.view(np.bool_), held, held.dtype.type(missing))


def strings(values: Iterable[str]) -> pa.StringArray:
    """An array of strings, none of them null.

    Example:
        >>> strings(["a", "", "bc"]).to_pylist()
        ['a', '', 'bc']
    """
    encoded = [value.encode() for value in values]
    ends = np.array(list(accumulate(map(len, encoded), initial=0)), np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers, null_count=0)


NO_STRINGS = strings([])
"""No strings."""
