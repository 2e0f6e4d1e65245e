"""Numbers as Plotly reads them fastest: short lists stay lists, long ones become typed arrays in base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORT = 200
"""Up to so many numbers a list costs nothing and can be read."""


def packed(values: Sequence[float | None]) -> Any:
    """The numbers for a trace; what is missing is null in a list and NaN, a gap, in a typed array.

    Example:
        >>> packed([1, None])
        [1, None]
        >>> packed([0.0] * 1000)["dtype"]
        'f8'
    """
    if len(values) <= SHORT:
        return list(values)
    array = np.array([np.nan if value is None else value for value in values], dtype="<f8")
    return {"dtype": "f8", "bdata": base64.b64encode(array.tobytes()).decode("ascii")}


def unpacked(value: Any) -> list[float | None]:
    """The numbers of `packed`, for those who draw a figure without Plotly.

    Example:
        >>> unpacked(packed([1.5, None] + [0.0] * 300))[:2]
        [1.5, None]
    """
    if not isinstance(value, dict):
        return list(value)
    array = np.frombuffer(base64.b64decode(value["bdata"]), dtype="<f8")
    return [None if np.isnan(one) else float(one) for one in array]
