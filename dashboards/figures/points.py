"""Log-log scatter plots of several series, with limit lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .axis import label
from .packed import packed
from .palette import COLORWAY

if TYPE_CHECKING:
    from collections.abc import Sequence

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
"""Series differ in shape as well as in colour."""
_SMALL, _LARGE = 7.0, 26.0


@dataclass(frozen=True)
class Dots:
    """Points of one series.

    Attributes:
        name: Legend entry.
        x: Horizontal positions, above zero.
        y: Vertical positions, above zero.
        hover: Hover text, in Plotly's markup.
        weight: Relative areas, from 0 to 1; empty for equal areas.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    hover: Sequence[str]
    weight: Sequence[float] = ()


@dataclass(frozen=True)
class Limit:
    """An upper limit, drawn as a line.

    Attributes:
        name: Legend entry.
        x: Horizontal positions of its corners.
        y: Vertical positions of its corners.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


def points(
    kinds: Sequence[Dots],
    limits: Sequence[Limit] = (),
    *,
    x_title: str,
    y_title: str,
    x_ticks: tuple[Sequence[float], Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Draw a log-log scatter plot.

    Args:
        kinds: The series.
        limits: The limit lines.
        x_title: Title of the horizontal axis, with its unit.
        y_title: Title of the vertical axis, with its unit.
        x_ticks: Positions and labels of the horizontal ticks; default: 1-2-5 or decades.

    Example:
        >>> points([Dots("a", [1], [2], ["a"])], x_title="x", y_title="y")["data"][0]["marker"]["symbol"]
        'circle'
    """
    traces = [_dots(at, kind) for at, kind in enumerate(kinds)]
    traces += [_limit(at, limit) for at, limit in enumerate(limits)]
    across = [value for kind in kinds for value in kind.x] + [value for line in limits for value in line.x]
    up = [value for kind in kinds for value in kind.y] + [value for line in limits for value in line.y]
    ticks = {"tickvals": list(x_ticks[0]), "ticktext": list(x_ticks[1])} if x_ticks else decades(across)
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "xaxis": {"type": "log", "title": {"text": label(x_title)}} | ticks,
            "yaxis": {"type": "log", "title": {"text": label(y_title)}, "automargin": True} | decades(up),
            "hovermode": "closest",
            "showlegend": len(traces) > 1,
        },
    }


def decades(values: Sequence[float]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis: powers of ten, with 2 and 5 for a short axis.

    Example:
        >>> decades([4, 60])["ticktext"]
        ['2', '5', '10', '20', '50', '100']
    """
    if not values:
        return {}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    every = max(1, (high - low) // 8)
    narrow = max(values) < 10 * min(values)
    steps = range(1, 10) if narrow else (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1, every) for step in steps]
    inside = [tick for tick in ticks if min(values) / 3 <= tick <= max(values) * 3]
    return {"tickvals": inside, "ticktext": [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in inside]}


def _dots(at: int, kind: Dots) -> dict[str, Any]:
    weight = np.asarray(kind.weight or [0.1] * len(kind.x), float)
    size = _SMALL + (_LARGE - _SMALL) * np.sqrt(np.clip(weight, 0, 1))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(kind.name, 30),
        "x": packed(list(kind.x)),
        "y": packed(list(kind.y)),
        "hovertext": list(kind.hover),
        "hoverinfo": "text",
        "marker": {
            "symbol": SYMBOLS[at % len(SYMBOLS)],
            "color": COLORWAY[at % len(COLORWAY)],
            "size": packed(size.tolist()),
            "opacity": 0.75,
            "line": {"width": 1, "color": "rgba(128,128,128,0.6)"},
        },
    }


def _limit(at: int, limit: Limit) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(limit.name, 40),
        "x": list(limit.x),
        "y": list(limit.y),
        "hoverinfo": "name",
        "line": {"dash": ("dash", "dot", "dashdot", "longdash")[at % 4], "width": 1.5, "color": "#868e96"},
    }
