"""Number formats for grids in the browser; the same rules as `tracekit.render.cells`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.render import human
from tracekit.render.cells import PROSE, SCALES, clean
from tracekit.render.data import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

EXACT = 1 << 53
"""Larger integers are sent as text, since JavaScript would round them."""


def number_format(unit: str, *, decimals: bool) -> dict[str, Any]:
    """Return the format that `tracekit.human` in `assets/grid_human.js` expects.

    Args:
        unit: Unit of the column.
        decimals: Whether its numbers are floats; JSON does not distinguish 5.0 from 5.

    Example:
        >>> number_format("count", decimals=False)
        {'kind': 'count', 'decimals': False}
    """
    if unit in SCALES:
        scales, base = SCALES[unit]
        return {"kind": "scaled", "scales": [list(scale) for scale in scales], "base": base}
    if unit in {"share", "count"}:
        return {"kind": unit, "decimals": decimals}
    return {"kind": "plain", "decimals": decimals, "suffix": "" if unit in {"", PROSE} else unit}


def cell(value: Any, unit: str) -> Any:
    """Convert a value for JSON; integers too large for JavaScript become formatted text.

    Example:
        >>> cell(7, "ns"), cell(2**60, ""), cell(["a"], "")
        (7, '1152921504606846976', "['a']")
    """
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT else human(value, unit)
    return clean(str(value))


def column(series: pd.Series[Any]) -> list[Any]:
    """Convert a column to plain values, like `tracekit.render.data.records`.

    Example:
        >>> import pandas as pd
        >>> column(pd.Series([1.5, float("nan")])), column(pd.Series([1, None], dtype="Int64"))
        ([1.5, None], [1, None])
    """
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
        return series.tolist()
    if pd.api.types.is_integer_dtype(series.dtype):
        return series.astype(object).where(series.notna(), None).tolist()
    return [plain(value) for value in series.astype(object).tolist()]


def cells(values: list[Any], unit: str) -> list[Any]:
    """Convert a column's values for JSON; each distinct text is cleaned once."""
    kinds = {type(value) for value in values}
    if kinds <= {float, bool, type(None)}:
        return values
    if kinds <= {int, type(None)} and max((abs(value) for value in values if value), default=0) <= EXACT:
        return values
    if kinds <= {str, type(None)}:
        known = {value: cell(value, unit) for value in set(values)}
        return [known[value] for value in values]
    return [cell(value, unit) for value in values]


def has_floats(values: Iterable[Any]) -> bool:
    """Return whether a column contains floats."""
    return any(isinstance(value, float) for value in values)
