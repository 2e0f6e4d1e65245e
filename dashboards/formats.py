"""How the grids in the browser write a number: the rules of `tracekit.render.cells`, handed over as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human
from tracekit.render.cells import PROSE, SCALES, clean

if TYPE_CHECKING:
    from collections.abc import Iterable

EXACT = 1 << 53
"""Whole numbers beyond this lose digits in a browser, so they travel as text."""


def number_format(unit: str, *, decimals: bool) -> dict[str, Any]:
    """What `tracekit.human` of the assets needs to know to write a column's numbers.

    Args:
        unit: Unit of the column.
        decimals: Whether its numbers are floats: JSON does not tell 5.0 from 5.

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
    """A plain value as it travels to the browser: numbers that are exact there, else the text of people.

    Example:
        >>> cell(7, "ns"), cell(2**60, ""), cell(["a"], "")
        (7, '1152921504606846976', "['a']")
    """
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT else human(value, unit)
    return clean(str(value))


def has_floats(values: Iterable[Any]) -> bool:
    """Whether a column's numbers are written with decimals."""
    return any(isinstance(value, float) for value in values)
