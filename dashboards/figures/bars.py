"""Horizontal bar charts, plain and stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import label, scaled, texts, titled, whole
from .palette import TOTAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def bars(
    names: Sequence[str], values: Sequence[float | None], unit: str, *, title: str = ""
) -> dict[str, Any]:
    """Draw horizontal bars, the first at the top.

    Args:
        names: One label per bar; any text.
        values: One value per bar.
        unit: Unit of the values, as in `tracekit.analysis.Column`.
        title: What the values are, for the axis.

    Example:
        >>> bars(["gemm"], [1_500_000], "ns")["data"][0]["x"]
        [1.5]
    """
    x, name = scaled(values, unit)
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": x,
        "y": list(range(len(names))),
        "text": texts(values, unit),
        "textposition": "auto",
        "hovertext": [
            f"{whole(each)}<br>{text}" for each, text in zip(names, texts(values, unit), strict=True)
        ],
        "hoverinfo": "text",
    }
    return {"data": [trace], "layout": _rows(names, titled(title, name))}


def stacked(
    names: Sequence[str], parts: Mapping[str, Sequence[float | None]], unit: str, *, title: str = ""
) -> dict[str, Any]:
    """Draw stacked horizontal bars.

    Args:
        names: One label per bar.
        parts: Values per bar, by name of the part, in stacking order.
        unit: Unit of all values.
        title: What the values are, for the axis.
    """
    flat = [value for values in parts.values() for value in values]
    _, name = scaled(flat, unit)
    count = len(names)
    every, _ = scaled(flat, unit)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(part),
            "x": every[at * count : (at + 1) * count],
            "y": list(range(count)),
            "hovertext": [
                f"{whole(each)}<br>{whole(part)}: {text}"
                for each, text in zip(names, texts(values, unit), strict=True)
            ],
            "hoverinfo": "text",
        }
        for at, (part, values) in enumerate(parts.items())
    ]
    layout = _rows(names, titled(title, name))
    return {"data": traces, "layout": layout | {"barmode": "stack", "showlegend": True}}


def upright(at: float) -> dict[str, Any]:
    """Return a dotted line across all bars at an axis position."""
    place = {"xref": "x", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", **place, "line": {"dash": "dot", "width": 1.5, "color": TOTAL}}


def _rows(names: Sequence[str], title: str) -> dict[str, Any]:
    return {
        "height": 78 + 26 * len(names),
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": [label(each) for each in names],
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
        },
    }
