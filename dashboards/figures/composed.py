"""Stacked bars with any number of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bars import stacked
from .palette import COLORWAY, TOTAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FEW = 5
"""Maximum parts with a horizontal legend above the bars; with more it is a column at the right."""


def composed(
    names: Sequence[str], parts: Mapping[str, Sequence[float | None]], unit: str, *, title: str = ""
) -> dict[str, Any]:
    """Draw stacked horizontal bars; parts beyond the palette's size are hatched. `idle` is grey.

    Args:
        names: One label per bar.
        parts: Values per bar, by the name of the part, in the order of the bars.
        unit: Unit of all values.
        title: Axis title.

    Example:
        >>> composed(["rank 0"], {"idle": [5], "busy": [7]}, "ns")["layout"]["height"]
        150
    """
    figure = stacked(names, parts, unit, title=title)
    for at, trace in enumerate(figure["data"]):
        idle = trace["name"] == "idle" and len(parts) < len(COLORWAY)
        trace["marker"] = {"color": TOTAL if idle else COLORWAY[at % len(COLORWAY)]}
        if at >= len(COLORWAY):
            trace["marker"]["pattern"] = {"shape": "/", "size": 6, "fgopacity": 0.6}
    column_legend = len(parts) > FEW
    legend = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
    least = 100 + 19 * len(parts) if column_legend else 150
    height = max(least, 110 + 26 * len(names))
    figure["layout"] |= {
        "height": height,
        "bargap": max(0.25, 1 - 30 * len(names) / (height - 90)),
        "legend": (legend if column_legend else {}) | {"traceorder": "normal"},
    }
    return figure
