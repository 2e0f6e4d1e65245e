"""Columns of one chunk: lists of decoded values become arrays, whatever was in the file."""

from __future__ import annotations

import re
import zlib
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.ingest.rows import NONE, Column

if TYPE_CHECKING:
    from collections.abc import Sequence

Words: TypeAlias = "tuple[npt.NDArray[np.int64], Sequence[bytes] | npt.NDArray[np.object_]]"
"""Texts: each row's code, -1 where it has none, and what the codes stand for in UTF-8."""

_DIGITS = re.compile(r"-?\d+")
_INT64 = 1 << 63


def integers(values: Sequence[Any]) -> Column:
    """int64; text is read as a number, an unsigned 64-bit value keeps its bits, what is none is missing.

    Example:
        >>> integers([1, None, "7", 2**64 - 1, "x"])
        Column(values=array([ 1, -1,  7, -1, -1]), missing=array([False,  True, False, False,  True]))
    """
    missing = _absent(values)
    there = [NONE if value is None else value for value in values] if missing.any() else values
    try:
        return Column(np.fromiter(there, np.int64, len(values)), missing)
    except (TypeError, ValueError, OverflowError):
        return integers([_integer(value) for value in values])


def _absent(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if -_INT64 <= number < _INT64:
        return number
    return number - 2 * _INT64 if _INT64 <= number < 2 * _INT64 else None


def lanes(values: Sequence[Any]) -> Column:
    """Process and thread ids as int64, never missing: words become their digits, or a number of their own.

    Example:
        >>> lanes([12, "stream 7", None]).values
        array([12,  7,  0])
    """
    try:
        return Column(np.fromiter(values, np.int64, len(values)))
    except (TypeError, ValueError, OverflowError):
        return Column(np.array([_lane(value) for value in values], np.int64))


def _lane(value: Any) -> int:
    number = _integer(value)
    if number is not None:
        return number
    text = str(value or "")
    digits = _DIGITS.search(text)
    return int(digits.group()[-18:]) if digits else zlib.crc32(text.encode())


def devices(values: Sequence[Any]) -> Column:
    """Device indices as int64 that fit 32 bits; an impossible one is -1.

    Example:
        >>> devices([0, "3", 2**32 - 1]).values
        array([ 0,  3, -1])
    """
    return Column(fitting_devices(lanes(values).values))


def fitting_devices(found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Device indices that fit 32 bits; an impossible one is -1."""
    return np.where((found >= -1) & (found < 1 << 31), found, -1)


def floats(values: Sequence[Any]) -> Column:
    """float64; what is no number is missing.

    Example:
        >>> floats([1, 0.5, "x"])
        Column(values=array([ 1. ,  0.5, -1. ]), missing=array([False, False,  True]))
    """
    found = [_float(value) for value in values]
    there = [NONE if value is None else value for value in found]
    return Column(np.array(there, np.float64), _absent(found))


def _float(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


_NO_TRIPLE = (None, None, None)


def triples(values: Sequence[Any]) -> list[Column]:
    """x, y and z of grids or blocks, missing where there is none.

    Example:
        >>> [axis.values for axis in triples([[1, 2, 3], None])]
        [array([ 1, -1]), array([ 2, -1]), array([ 3, -1])]
    """
    whole = [value if type(value) is list and len(value) == 3 else _NO_TRIPLE for value in values]
    return [integers([each[axis] for each in whole]) for axis in range(3)]


class _Codes(dict[Any, int]):
    """Numbers distinct keys as they come."""

    def __init__(self, absent: Any) -> None:
        super().__init__({absent: NONE})

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self) - 1
        return code


def texts(values: Sequence[Any]) -> Words:
    """Strings; None stays none, anything else becomes its text.

    Example:
        >>> texts(["a", "b", "a", None])
        (array([ 0,  1,  0, -1]), [b'a', b'b'])
    """
    codes = _Codes(absent=None)
    try:
        found = [codes[value] for value in values]
    except TypeError:  # a list or an object where a name should be
        return texts([None if value is None else str(value) for value in values])
    return np.array(found), [str(value).encode() for value in codes if value is not None]


def json_texts(values: Sequence[msgspec.Raw]) -> Words:
    """JSON fragments, written compactly so that a file's white space does not matter."""
    codes = _Codes(absent=b"")
    found = [codes[bytes(value)] for value in values]
    return np.array(found), [compact_json(text) for text in codes if text]


def compact_json(text: bytes) -> bytes:
    """JSON without white space; as it is where it cannot be read."""
    try:
        return _utf8(msgspec.json.format(text, indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return _utf8(text)


def _utf8(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()
