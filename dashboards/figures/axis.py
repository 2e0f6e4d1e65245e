"""Axes in readable units: one scale per axis, and exact text for every point."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.render.cells import SIZES, TIMES, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SCALES = {"ns": (TIMES, "ns"), "bytes": (SIZES, "B")}
LABEL = 48
"""Maximum characters of an axis label; the hover text has the full name."""


def scaled(values: Sequence[float | None], unit: str) -> tuple[list[float | None], str]:
    """Scale values by the unit that fits the largest; also return the unit.

    Example:
        >>> scaled([1_500_000, None, 250_000], "ns")
        ([1.5, None, 0.25], 'ms')
        >>> scaled([0.25, 1.0], "share")
        ([25.0, 100.0], '%')
    """
    if unit == "share":
        return [None if value is None else 100 * value for value in values], "%"
    scales, base = _SCALES.get(unit, ((), unit))
    largest = max((abs(value) for value in values if value is not None), default=0)
    size, name = next(((size, name) for size, name in scales if largest >= size), (1, base))
    return [None if value is None else value / size for value in values], name


def texts(values: Iterable[Any], unit: str) -> list[str]:
    """Format each value."""
    return [human(value, unit) for value in values]


def label(text: str, width: int = LABEL) -> str:
    """Return an escaped name for an axis or legend; long names are cut in the middle."""
    return escape(brief(clean(text), width))


def whole(text: str, width: int = 90) -> str:
    """Return an escaped name for hover text, wrapped into at most six lines."""
    text = clean(text)
    cut = text if len(text) <= 6 * width else text[: 6 * width] + "…"
    return "<br>".join(escape(cut[at : at + width]) for at in range(0, max(len(cut), 1), width))


def titled(title: str, scale: str) -> str:
    """Return an axis title with its unit.

    Example:
        >>> titled("sum", "ms"), titled("", "ms"), titled("step", "")
        ('sum (ms)', 'ms', 'step')
        >>> titled("launches", "count")
        'launches'
    """
    name = label(title)
    return f"{name} ({scale})" if name and scale and scale != "count" else name or scale
