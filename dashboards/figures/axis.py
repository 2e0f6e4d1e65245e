"""Axes in human units: one scale for a whole axis, and exact human text for every point."""

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
"""Characters of a label on an axis; the hover text holds all of it."""


def scaled(values: Sequence[float | None], unit: str) -> tuple[list[float | None], str]:
    """Values on the scale that suits their largest, and the name of that scale.

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
    """Each value as people read it."""
    return [human(value, unit) for value in values]


def label(text: str, width: int = LABEL) -> str:
    """A name for an axis or legend: its middle cut where it is long, safe in a figure."""
    return escape(brief(clean(text), width))


def whole(text: str, width: int = 90) -> str:
    """A name for hover text: all of it in lines, as far as a hover box bears it."""
    text = clean(text)
    cut = text if len(text) <= 6 * width else text[: 6 * width] + "…"
    return "<br>".join(escape(cut[at : at + width]) for at in range(0, max(len(cut), 1), width))


def titled(title: str, scale: str) -> str:
    """What an axis shows, with its scale.

    Example:
        >>> titled("sum", "ms"), titled("", "ms"), titled("step", "")
        ('sum (ms)', 'ms', 'step')
        >>> titled("launches", "count")  # what is counted says so
        'launches'
    """
    name = label(title)
    return f"{name} ({scale})" if name and scale and scale != "count" else name or scale
