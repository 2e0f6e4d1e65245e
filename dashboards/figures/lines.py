"""Line charts and scatter plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import label, scaled, texts, titled, whole
from .packed import SHORT, packed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Numbers = Sequence[float | None]

_MANY = 2_000
"""Maximum points with exact hover text; above this, hover text is computed from the axes."""


def lines(
    x: Numbers,
    series: Mapping[str, Numbers],
    unit: str,
    *,
    title: str = "",
    x_title: str = "",
    x_unit: str = "",
    stepped: bool = False,
) -> dict[str, Any]:
    """Draw lines over a common x; missing values are gaps.

    Args:
        x: Horizontal positions.
        series: Values by the name of the line.
        unit: Unit of the values, as in `tracekit.analysis.Column`.
        title: Title of the vertical axis.
        x_title: Title of the horizontal axis.
        x_unit: Unit of x; empty for numbers such as steps.
        stepped: Whether each value holds until the next, as for memory.

    Example:
        >>> lines([1, 2], {"host": [1_500_000, 2_000_000]}, "ns", title="step")["data"][0]["y"]
        [1.5, 2.0]
    """
    flat = [value for values in series.values() for value in values]
    every, name = scaled(flat, unit)
    place, x_name = scaled(x, x_unit)
    count = len(x)
    traces = [
        {
            "type": "scattergl" if count > _MANY else "scatter",
            "mode": "lines" if count > SHORT else "lines+markers",
            "name": label(each, 40),
            "x": packed(place),
            "y": packed(every[at * count : (at + 1) * count]),
            "line": {"shape": "hv" if stepped else "linear", "width": 2},
        }
        | _hover(each, x, values, unit, x_title=x_title, x_unit=x_unit, scale=name)
        for at, (each, values) in enumerate(series.items())
    ]
    layout = {
        "xaxis": {"title": {"text": titled(x_title, x_name)}} | _whole_ticks(x, x_unit),
        "yaxis": {"title": {"text": titled(title, name)}, "rangemode": "tozero"},
        "showlegend": len(series) > 1,
    }
    return {"data": traces, "layout": layout}


def scatter(
    names: Sequence[str],
    x: Numbers,
    y: Numbers,
    *,
    x_unit: str,
    y_unit: str,
    x_title: str = "",
    y_title: str = "",
    log: bool = False,
) -> dict[str, Any]:
    """Draw named points.

    Args:
        names: One name per point; any text.
        x: Horizontal positions.
        y: Vertical positions.
        x_unit: Unit of x.
        y_unit: Unit of y.
        x_title: Title of the horizontal axis.
        y_title: Title of the vertical axis.
        log: Whether both axes are logarithmic.

    Example:
        >>> scatter(["a"], [2_000], [0.5], x_unit="ns", y_unit="share")["data"][0]["x"]
        [2.0]
    """
    across, x_name = scaled(x, x_unit)
    up, y_name = scaled(y, y_unit)
    trace = {
        "type": "scattergl" if len(names) > _MANY else "scatter",
        "mode": "markers",
        "x": packed(across),
        "y": packed(up),
        "marker": {"size": 8, "opacity": 0.8},
        "hovertext": [
            f"{whole(name)}<br>{label(x_title)} {one}<br>{label(y_title)} {other}"
            for name, one, other in zip(names, texts(x, x_unit), texts(y, y_unit), strict=True)
        ],
        "hoverinfo": "text",
    }
    scale = {"type": "log"} if log else {"rangemode": "tozero"}
    layout = {
        "xaxis": {"title": {"text": titled(x_title, x_name)}} | scale,
        "yaxis": {"title": {"text": titled(y_title, y_name)}} | scale,
        "showlegend": False,
        "hovermode": "closest",
    }
    return {"data": [trace], "layout": layout}


def _hover(
    each: str, x: Numbers, values: Numbers, unit: str, *, x_title: str, x_unit: str, scale: str
) -> dict[str, Any]:
    """Return exact hover text per point, or a template if there are many points."""
    if len(x) > _MANY:
        return {"hovertemplate": f"{label(each)}: %{{y:.4~g}} {scale}<extra></extra>"}
    lead = f"{label(x_title)} " if x_title else ""
    return {
        "hovertext": [
            f"{whole(each)}<br>{lead}{at}: {text}"
            for at, text in zip(texts(x, x_unit), texts(values, unit), strict=True)
        ],
        "hoverinfo": "text",
    }


def _whole_ticks(x: Numbers, unit: str) -> dict[str, Any]:
    """Put a tick at each value of a short integer axis, such as steps."""
    few = not unit and 1 < len(x) <= 20 and all(isinstance(value, int) for value in x)
    return {"tickvals": list(x)} if few else {}
