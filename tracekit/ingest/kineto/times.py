"""Microsecond decimal text to integer nanoseconds, exactly: no timestamp passes through a float."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.ingest.limits import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_MICROSECONDS = pa.decimal128(38, 3)  # three digits after the point are nanoseconds
_DIGITS = 19


def nanoseconds(texts: Sequence[memoryview | bytes]) -> tuple[Ints, Bools]:
    """Parse JSON numbers of microseconds.

    Args:
        texts: Buffers of JSON text, one number each; empty where the event has none.

    Returns:
        int64 nanoseconds (0 where unusable), and a mask that is True where the text is a usable number.
        Digits below a nanosecond are rounded half to even.

    Example:
        >>> nanoseconds([b"1712191111.123", b"", b'"12.5"'])
        (array([1712191111123,             0,         12500]), array([ True, False,  True]))
    """
    try:
        return _all_plain(texts), np.ones(len(texts), np.bool_)
    except pa.ArrowInvalid:
        return _one_by_one(texts)


def _all_plain(texts: Sequence[memoryview | bytes]) -> Ints:
    count = len(texts)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, count), out=offsets[1:])
    strings = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    )
    words = np.frombuffer(strings.cast(_MICROSECONDS).buffers()[1], np.int64)[: 2 * count]
    low, high = words[::2], words[1::2]
    if ((high != low >> 63) | (low >= LATEST_NS) | (low <= -LATEST_NS)).any():
        raise pa.ArrowInvalid("beyond 64 bits of nanoseconds")
    return np.ascontiguousarray(low)


def _one_by_one(texts: Sequence[memoryview | bytes]) -> tuple[Ints, Bools]:
    values = [_exact(bytes(text)) for text in texts]
    return (
        np.array([value or 0 for value in values], np.int64),
        np.array([value is not None for value in values], np.bool_),
    )


def _exact(text: bytes) -> int | None:
    try:
        scaled = Decimal(text.decode("ascii").strip('" \t\r\n')).scaleb(3)
        if not scaled.is_finite() or scaled.adjusted() > _DIGITS:
            return None  # before a number of a million digits is made
        value = int(scaled.to_integral_value(ROUND_HALF_EVEN))
    except (ArithmeticError, UnicodeDecodeError, ValueError):
        return None
    return value if abs(value) < LATEST_NS else None
