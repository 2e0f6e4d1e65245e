"""Number arrays for Plotly: short ones as lists, long ones as base64 typed arrays."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORT = 200
"""Maximum length that is sent as a list."""


def packed(values: Sequence[float | None]) -> Any:
    """Encode numbers for a trace; missing values become null or NaN.

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
    """Decode the output of `packed`, for drawing without Plotly.

    Example:
        >>> unpacked(packed([1.5, None] + [0.0] * 300))[:2]
        [1.5, None]
    """
    if not isinstance(value, dict):
        return list(value)
    array = np.frombuffer(base64.b64decode(value["bdata"]), dtype="<f8")
    return [None if np.isnan(one) else float(one) for one in array]
