"""Bar charts (plain, stacked, by group) and histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from ..components.text import human
from . import axis

Numbers = Sequence[float | None]


def bars(names: Sequence[str], values: Numbers, unit: str, *, title: str = "") -> dict[str, Any]:
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
    x, name = axis.scale_values(values, unit)
    texts = axis.format_values(values, unit)
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": x,
        "y": list(range(len(names))),
        "text": texts,
        "textposition": "auto",
        **axis.hover(names, texts),
    }
    return {"data": [trace], "layout": _rows(names, axis.add_unit(title, name))}


def stack_bars(
    names: Sequence[str], parts: Mapping[str, Numbers], unit: str, *, title: str = ""
) -> dict[str, Any]:
    """Draw stacked horizontal bars.

    Args:
        names: One label per bar.
        parts: Values per bar, by name of the part, in stacking order.
        unit: Unit of all values.
        title: What the values are, for the axis.
    """
    lengths, name = axis.scale_rows(list(parts.values()), unit)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": axis.shorten_label(part),
            "x": part_lengths,
            "y": list(range(len(names))),
            **_hover(names, part, values, unit),
        }
        for (part, values), part_lengths in zip(parts.items(), lengths, strict=True)
    ]
    layout = _rows(names, axis.add_unit(title, name))
    return {"data": traces, "layout": layout | {"barmode": "stack", "showlegend": True}}


def compare_bars(
    names: Sequence[str], series: Mapping[str, Numbers], unit: str, colors: Sequence[str], *, title: str = ""
) -> dict[str, Any]:
    """Draw horizontal bars below each other, one per series in each row, with the first word of its name.

    Args:
        names: One label per row.
        series: Values per row, by name of the series; missing ones have no bar.
        unit: Unit of all values.
        colors: Color of each series.
        title: What the values are, for the axis.

    Example:
        >>> compare_bars(["gemm"], {"B · after": [-0.5]}, "share", ["#e69f00"])["data"][0]["text"]
        ['B −50.0%']
    """
    lengths, scale = axis.scale_rows(list(series.values()), unit)
    traces = []
    for (name, values), bar_lengths, color in zip(series.items(), lengths, colors, strict=True):
        texts = [text if (value or 0) <= 0 else f"+{text}" for value, text in
                 zip(values, axis.format_values(values, unit), strict=True)]  # fmt: skip
        known = [place for place, value in enumerate(values) if value is not None]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": axis.shorten_label(name),
                "x": [bar_lengths[place] for place in known],
                "y": known,
                "text": [f"{axis.shorten_label(name.split(' ')[0])} {texts[place]}" for place in known],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": color},
                **axis.hover(
                    [names[place] for place in known],
                    [f"{axis.hover_name(name)}: {texts[place]}" for place in known],
                ),
            }
        )
    drawn = [length for row in lengths for length in row if length is not None]
    low, high = min([0.0, *drawn]), max([0.0, *drawn])
    room = 0.25 * ((high - low) or 1.0)  # for the text at the end of a bar
    layout = _rows(names, axis.add_unit(title, scale))
    layout["height"] = 110 + len(names) * (12 + 17 * len(series))
    layout["xaxis"] |= {"range": [low - room * (low < 0), high + room], "zeroline": True}
    return {
        "data": traces,
        "layout": layout | {"barmode": "group", "showlegend": True, "legend": axis.LEGEND},
    }


def _hover(names: Sequence[str], part: str, values: Numbers, unit: str) -> dict[str, Any]:
    texts = axis.format_values(values, unit)
    return axis.hover(names, [f"{axis.hover_name(part)}: {text}" for text in texts])


def vertical_line(x: float) -> dict[str, Any]:
    """Return a dotted vertical line across the plot at an axis position."""
    ends = {"xref": "x", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", **ends, "line": {"dash": "dot", "width": 1.5, "color": axis.TOTAL}}


def _rows(names: Sequence[str], title: str) -> dict[str, Any]:
    return {
        "height": 78 + 26 * len(names),
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": axis.row_axis(names) | {"showgrid": False},
    }


UNKNOWN = "unknown"
MAX_UNIT_TICKS = 5
"""Counts up to this have a tick each: ticks between them would be halves."""
MAX_BINS_WITH_BOUNDS = 6
"""Maximum bins whose ticks show both bounds; with more, ticks show the lower bound."""


def histogram(
    lower: Numbers,
    upper: Numbers,
    counts: Mapping[str, Numbers],
    *,
    bin_unit: str,
    title: str = "",
    x_title: str = "",
) -> dict[str, Any]:
    """Draw a histogram with columns of equal width, one group per bin.

    Args:
        lower: Lower bound of each bin; None for unknown sizes.
        upper: Upper bound of each bin.
        counts: Count in each bin, by series name.
        bin_unit: Unit of the bounds.
        title: Title of the vertical axis.
        x_title: Title of the horizontal axis.

    Example:
        >>> histogram([0], [1024], {"copies": [3]}, bin_unit="bytes")["layout"]["xaxis"]["ticktext"]
        ['0 B to 1.00 KiB']
    """
    names = []
    for low, high in zip(lower, upper, strict=True):
        least = human(low or 0, bin_unit)
        bounds = f"≥ {least}" if high is None else f"{least} to {human(high, bin_unit)}"
        names.append(UNKNOWN if low is None and high is None else bounds)
    many = len(names) > MAX_BINS_WITH_BOUNDS
    ticks = names
    if many:
        lows = [human(low or 0, bin_unit).replace(".00", "") for low in lower]
        ticks = [UNKNOWN if name == UNKNOWN else low for low, name in zip(lows, names, strict=True)]
    traces = [
        {
            "type": "bar",
            "name": axis.shorten_label(series, 30),
            "x": list(range(len(names))),
            "y": list(values),
            **_hover(names, series, values, "count"),
        }
        for series, values in counts.items()
    ]
    largest = max((value for values in counts.values() for value in values if value), default=0)
    whole = {"dtick": 1} if largest <= MAX_UNIT_TICKS else {}
    layout = {
        "xaxis": {
            "title": {"text": axis.shorten_label(x_title + " (lower bound)" * bool(many and x_title))},
            "tickvals": list(range(len(names))),
            "ticktext": ticks,
            "automargin": True,
        },
        "yaxis": {"title": {"text": axis.shorten_label(title)}, "rangemode": "tozero", **whole},
        "bargap": 0.08,
        "barmode": "group",
        "showlegend": len(counts) > 1,
    }
    return {"data": traces, "layout": layout}


def compose_bars(
    names: Sequence[str],
    parts: Mapping[str, Numbers],
    unit: str,
    *,
    title: str = "",
    colors: Sequence[str] = axis.COLORWAY,
) -> dict[str, Any]:
    """Draw stacked horizontal bars; parts in the color of one before them are hatched. `idle` is gray.

    Args:
        names: One label per bar.
        parts: Values per bar, by the name of the part, in the order of the bars.
        unit: Unit of all values.
        title: Axis title.
        colors: Colors of the parts; if there are fewer, they repeat.

    Example:
        >>> compose_bars(["rank 0"], {"idle": [5], "busy": [7]}, "ns")["layout"]["height"]
        157
    """
    figure = stack_bars(names, parts, unit, title=title)
    used: set[str] = set()
    for trace, color in zip(figure["data"], cycle(colors), strict=False):
        idle = trace["name"] == "idle" and len(parts) < len(colors)
        trace["marker"] = {"color": axis.TOTAL if idle else color}
        if color in used:
            trace["marker"]["pattern"] = {"shape": "/", "size": 6, "fgopacity": 0.6}
        used.add(color)
    height = 112 + 26 * len(names) + 19 * -(-len(parts) // 2)  # a phone has two parts per row of the legend
    bargap = max(0.25, 1 - 30 * len(names) / (height - 90))
    figure["layout"] |= {"height": height, "bargap": bargap, "legend": axis.LEGEND}
    return figure
