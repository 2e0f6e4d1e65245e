"""What DuckDB gives as what programs read: integers exact, everything else as text where JSON has no word."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

from tracekit.render.cells import MISSING, clean


def plain(value: Any) -> Any:
    """A value as JSON knows it.

    Example:
        >>> plain(2**62), plain(Decimal("1.10")), plain(float("nan")), plain(b"a"), plain([1, None])
        (4611686018427387904, 1.1, None, '61', [1, None])
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return _as_text(value)


def _decimal(value: Decimal) -> int | float | str:
    """The number, as text where a float would change it."""
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def cell(value: Any) -> str:
    r"""A value for people: integers whole, other numbers to six digits, what is missing a dash.

    Example:
        >>> [cell(one) for one in (1234567, 0.1234567, 12345678.9, None, True, "a\x1b", {"a": 1})]
        ['1234567', '0.123457', '12345678.9', '–', 'true', 'a\\x1b', '{"a": 1}']
    """
    told = plain(value)
    if told is None:
        return MISSING if value is None else str(value)
    if isinstance(told, float):
        return f"{told:.6g}" if abs(told) < 1e6 else f"{told:.1f}"
    if isinstance(told, str):
        return clean(told)
    return str(told) if type(told) is int else json.dumps(told)
