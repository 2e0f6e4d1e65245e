"""Microsecond decimal text to integer nanoseconds, exactly: no timestamp passes through a float."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.ingest.limits import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_DECIMALS = 3
"""Digits behind the point that are nanoseconds."""
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
    values = [_read(bytes(text)) for text in texts]
    return (
        np.array([value or 0 for value in values], np.int64),
        np.array([value is not None for value in values], np.bool_),
    )


def _read(text: bytes) -> int | None:
    whole, _, decimals = text.partition(b".")
    digits = whole + decimals.ljust(_DECIMALS, b"0")
    plain = whole and len(decimals) <= _DECIMALS and len(digits) <= _DIGITS and digits.isdigit()
    value = int(digits) if plain else _exact(text)
    return value if value is not None and abs(value) < LATEST_NS else None


def _exact(text: bytes) -> int | None:
    """The value of any other way to write a number."""
    try:
        scaled = Decimal(text.decode("ascii").strip('" \t\r\n')).scaleb(_DECIMALS)
        if not scaled.is_finite() or (scaled and scaled.adjusted() > _DIGITS):
            return None  # before a number of a million digits is made
        return int(scaled.to_integral_value(ROUND_HALF_EVEN))
    except (ArithmeticError, UnicodeDecodeError, ValueError):
        return None
