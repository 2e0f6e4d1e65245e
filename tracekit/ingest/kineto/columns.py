"""Columns of one chunk: lists of decoded values become Arrow arrays, whatever was in the file."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.ingest.arrays import numbers, strings, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_DIGITS = re.compile(r"-?\d+")
_INT64 = 1 << 63


def integers(values: Sequence[Any]) -> pa.Array:
    """int64 with nulls; text is read as a number, an unsigned 64-bit value keeps its bits.

    Example:
        >>> integers([1, None, "7", 2**64 - 1, "x"]).to_pylist()
        [1, None, 7, -1, None]
    """
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([_integer(value) for value in values], pa.int64())


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if -_INT64 <= number < _INT64:
        return number
    return number - 2 * _INT64 if _INT64 <= number < 2 * _INT64 else None


def lanes(values: Sequence[Any]) -> pa.Array:
    """Process and thread ids as int64, never null: words become their digits, or a number of their own.

    Example:
        >>> lanes([12, "stream 7", None]).to_pylist()
        [12, 7, 0]
    """
    try:
        return numbers(np.array(values, np.int64))
    except (TypeError, ValueError, OverflowError):
        return pa.array([_lane(value) for value in values], pa.int64())


def _lane(value: Any) -> int:
    number = _integer(value)
    if number is not None:
        return number
    text = str(value or "")
    digits = _DIGITS.search(text)
    return int(digits.group()[-18:]) if digits else zlib.crc32(text.encode())


def devices(values: Sequence[Any]) -> pa.Array:
    """Device indices as int64 that fit 32 bits; an impossible one is -1.

    Example:
        >>> devices([0, "3", 2**32 - 1]).to_pylist()
        [0, 3, -1]
    """
    return numbers(fitting_devices(values_of(lanes(values))))


def fitting_devices(found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Device indices that fit 32 bits; an impossible one is -1."""
    return np.where((found >= -1) & (found < 1 << 31), found, -1)


def floats(values: Sequence[Any]) -> pa.Array:
    """float64 with nulls."""
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_float(value) for value in values], pa.float64())


def _float(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


_ABSENT = (None, None, None)


def triples(values: Sequence[Any]) -> list[pa.Array]:
    """x, y and z of grids or blocks, null where there is none.

    Example:
        >>> [axis.to_pylist() for axis in triples([[1, 2, 3], None])]
        [[1, None], [2, None], [3, None]]
    """
    whole = [value if type(value) is list and len(value) == 3 else _ABSENT for value in values]
    return [integers([each[axis] for each in whole]) for axis in range(3)]


class _Codes(dict[Any, int]):
    """Numbers distinct keys as they come; -1 is the code of what is absent."""

    def __init__(self, absent: Any) -> None:
        super().__init__({absent: -1})

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self) - 1
        return code


def texts(values: Sequence[Any]) -> pa.DictionaryArray:
    """Dictionary of strings; None stays null, anything else becomes its text.

    Example:
        >>> texts(["a", "b", "a", None]).indices.to_pylist()
        [0, 1, 0, None]
    """
    codes = _Codes(absent=None)
    try:
        found = [codes[value] for value in values]
    except TypeError:  # a list or an object where a name should be
        return texts([None if value is None else str(value) for value in values])
    return _dictionary(found, [str(value) for value in codes if value is not None])


def json_texts(values: Sequence[msgspec.Raw]) -> pa.DictionaryArray:
    """Dictionary of JSON fragments, written compactly so that a file's white space does not matter."""
    codes = _Codes(absent=b"")
    found = [codes[bytes(value)] for value in values]
    return _dictionary(found, [compact_json(text) for text in codes if text])


def compact_json(text: bytes) -> str:
    """JSON without white space; as it is where it cannot be read."""
    try:
        return msgspec.json.format(text, indent=-1).decode("utf-8", "replace")
    except (msgspec.DecodeError, RecursionError):
        return text.decode("utf-8", "replace")


def _dictionary(codes: list[int], values: list[str]) -> pa.DictionaryArray:
    indices = np.array(codes, np.int32)
    return pa.DictionaryArray.from_arrays(numbers(indices, indices < 0), strings(values))
