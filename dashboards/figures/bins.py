"""Histograms of binned counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human

from .axis import label, texts, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Numbers = Sequence[float | None]

UNKNOWN = "unknown"
FEW = 6
"""Maximum bins whose ticks show both bounds; with more, ticks show the lower bound."""


def histogram(
    lower: Numbers,
    upper: Numbers,
    counts: Mapping[str, Numbers],
    *,
    bin_unit: str,
    unit: str = "count",
    title: str = "",
    x_title: str = "",
) -> dict[str, Any]:
    """Draw a histogram with columns of equal width, one group per bin.

    Args:
        lower: Lower bound of each bin; None for unknown sizes.
        upper: Upper bound of each bin.
        counts: Count in each bin, by series name.
        bin_unit: Unit of the bounds.
        unit: Unit of the counts.
        title: Title of the vertical axis.
        x_title: Title of the horizontal axis.

    Example:
        >>> histogram([0], [1024], {"copies": [3]}, bin_unit="bytes")["layout"]["xaxis"]["ticktext"]
        ['0 B to 1.00 KiB']
    """
    names = [_bounds(low, high, bin_unit) for low, high in zip(lower, upper, strict=True)]
    many = len(names) > FEW
    ticks = [_from(low, high, bin_unit) for low, high in zip(lower, upper, strict=True)] if many else names
    traces = [
        {
            "type": "bar",
            "name": label(each, 30),
            "x": list(range(len(names))),
            "y": list(values),
            "hovertext": [
                f"{name}<br>{whole(each)}: {text}"
                for name, text in zip(names, texts(values, unit), strict=True)
            ],
            "hoverinfo": "text",
        }
        for each, values in counts.items()
    ]
    layout = {
        "xaxis": {
            "title": {"text": label(f"{x_title} (lower bound)" if many and x_title else x_title)},
            "tickvals": list(range(len(names))),
            "ticktext": ticks,
            "automargin": True,
        },
        "yaxis": {"title": {"text": label(title)}, "rangemode": "tozero"},
        "bargap": 0.08,
        "barmode": "group",
        "showlegend": len(counts) > 1,
    }
    return {"data": traces, "layout": layout}


def _from(low: float | None, high: float | None, unit: str) -> str:
    return UNKNOWN if low is None and high is None else human(low or 0, unit).replace(".00", "")


def _bounds(low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return UNKNOWN
    if high is None:
        return f"≥ {human(low, unit)}"
    return f"{human(low or 0, unit)} to {human(high, unit)}"
