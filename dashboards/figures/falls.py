"""Waterfall charts: changes from one total to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human

from .axis import label, scaled, titled, whole
from .palette import DOWN, TOTAL, UP

if TYPE_CHECKING:
    from collections.abc import Sequence


def waterfall(
    names: Sequence[str],
    changes: Sequence[float],
    unit: str,
    *,
    start: tuple[str, float],
    end: tuple[str, float],
    title: str = "",
) -> dict[str, Any]:
    """Draw a waterfall from one total through its changes to another.

    Both totals are given rather than summed here, so a remainder stays visible.

    Args:
        names: One label per change; any text.
        changes: Signed changes.
        unit: Unit of all values.
        start: Name and value of the first total.
        end: Name and value of the last total.
        title: Axis title.

    Example:
        >>> figure = waterfall(["idle"], [-2], "count", start=("base", 5), end=("head", 3))
        >>> figure["data"][0]["measure"]
        ['absolute', 'relative', 'absolute']
    """
    labels = [start[0], *names, end[0]]
    exact = [start[1], *changes, end[1]]
    x, name = scaled(exact, unit)
    written = [human(start[1], unit), *(signed(one, unit) for one in changes), human(end[1], unit)]
    trace = {
        "type": "waterfall",
        "orientation": "h",
        "measure": ["absolute", *("relative" for _ in changes), "absolute"],
        "x": x,
        "y": list(range(len(labels))),
        "text": written,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"{whole(each)}<br>{text}" for each, text in zip(labels, written, strict=True)],
        "hoverinfo": "text",
        "increasing": {"marker": {"color": UP}},
        "decreasing": {"marker": {"color": DOWN}},
        "totals": {"marker": {"color": TOTAL}},
        "connector": {"line": {"width": 1, "color": TOTAL, "dash": "dot"}},
    }
    layout = {
        "height": 70 + 28 * len(labels),
        "showlegend": False,
        "xaxis": {"title": {"text": titled(title, name)}},
        "yaxis": {
            "tickvals": list(range(len(labels))),
            "ticktext": [label(each) for each in labels],
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
        },
    }
    return {"data": [trace], "layout": layout}


def signed(value: float, unit: str) -> str:
    """Format a change with its sign.

    Example:
        >>> signed(1_500_000, "ns"), signed(-3, "count")
        ('+1.50 ms', '−3')
    """
    text = human(abs(value), unit)
    return text if not value else f"{'+' if value > 0 else '−'}{text}"
