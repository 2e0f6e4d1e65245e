"""Grouped bars and cumulative shares."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .axis import scaled, texts, whole
from .bars import bars
from .packed import packed
from .palette import COLORWAY

if TYPE_CHECKING:
    from collections.abc import Sequence


THICK = 0.75
"""Bar thickness as a fraction of its row."""


def grouped(
    names: Sequence[str],
    values: Sequence[float | None],
    unit: str,
    *,
    groups: Sequence[str],
    title: str = "",
) -> dict[str, Any]:
    """Draw horizontal bars with a colour and pattern per group, the first at the top.

    Args:
        names: One label per bar; any text.
        values: One value per bar.
        unit: Unit of the values.
        groups: Group of each bar.
        title: Axis title.

    Example:
        >>> [trace["name"] for trace in grouped(["a", "b"], [1, 2], "ns", groups=["p", "q"])["data"]]
        ['p', 'q']
    """
    x, _ = scaled(values, unit)
    written = texts(values, unit)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": group,
            "x": [x[at] for at in members],
            "y": members,
            "text": [written[at] for at in members],
            "textposition": "auto",
            "hovertext": [f"{whole(names[at])}<br>{written[at]}<br>{group}" for at in members],
            "hoverinfo": "text",
            # fixed width: Plotly would otherwise compute one per trace
            "width": THICK,
            "marker": {"color": COLORWAY[place % len(COLORWAY)], "pattern": _pattern(place)},
        }
        for place, group in enumerate(dict.fromkeys(groups))
        for members in [[at for at, each in enumerate(groups) if each == group]]
    ]
    layout = bars(names, values, unit, title=title)["layout"]
    return {"data": traces, "layout": layout | {"barmode": "overlay", "showlegend": len(traces) > 1}}


def _pattern(place: int) -> dict[str, Any]:
    """Return the hatch pattern of a group."""
    shape = ("", "/", "x", ".")[place % 4]
    return {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": "rgba(0,0,0,0.35)",
        "size": 8,
        "solidity": 0.15,
    }


def cumulative(shares: Sequence[float], names: Sequence[str], *, what: str) -> dict[str, Any]:
    """Draw the cumulative share, largest first.

    Args:
        shares: Share of each, from 0 to 1, descending.
        names: Name of each.
        what: Name of the items, in the plural.

    Example:
        >>> cumulative([0.75, 0.25], ["a", "b"], what="kernels")["data"][0]["y"]
        [75.0, 100.0]
    """
    upward = [100 * value for value in accumulate(shares)]
    hover = [
        f"first {count} of {len(shares)} {what}: {value:.1f}%<br>with {whole(name)}"
        for count, (value, name) in enumerate(zip(upward, names, strict=True), start=1)
    ]
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(shares) <= 60 else "lines",
        "x": packed([float(count) for count in range(1, len(shares) + 1)]),
        "y": packed(upward),
        "hovertext": hover,
        "hoverinfo": "text",
        "line": {"shape": "linear", "width": 2},
    }
    layout = {
        "xaxis": {"title": {"text": f"number of {what}, largest first"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "cumulative share (%)"}, "range": [0, 103]},
    }
    return {"data": [trace], "layout": layout}
