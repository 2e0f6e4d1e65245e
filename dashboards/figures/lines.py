"""Line charts, log-log scatter plots, heatmaps, and step times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from tracekit.render.cells import plain
from tracekit.schema import C

from . import axis

Numbers = Sequence[float | None]

_MAX_EXACT_HOVER = 2_000
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
    points: bool = False,
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
        points: Whether to draw points without lines.

    Example:
        >>> lines([1, 2], {"host": [1_500_000, 2_000_000]}, "ns", title="step")["data"][0]["y"]
        [1.5, 2.0]
    """
    heights, name = axis.scale_rows(list(series.values()), unit)
    positions, x_name = axis.scale_values(x, x_unit)
    count = len(x)
    traces = [
        {
            "type": "scattergl" if count > _MAX_EXACT_HOVER else "scatter",
            "mode": "markers" if points else "lines" if count > axis.MAX_LIST else "lines+markers",
            "name": axis.shorten_label(line_name, 40),
            "x": axis.pack(positions),
            "y": axis.pack(line_heights),
            "line": {"shape": "hv" if stepped else "linear", "width": 2},
        }
        | _hover(line_name, x, values, unit, x_title=x_title, x_unit=x_unit, scale=name)
        for (line_name, values), line_heights in zip(series.items(), heights, strict=True)
    ]
    # a tick at each value of a short axis of integers, such as steps
    is_short = not x_unit and 1 < count <= 20 and all(isinstance(value, int) for value in x)
    ticks = {"tickvals": list(x)} if is_short else {}
    layout = {
        "xaxis": {"title": {"text": axis.add_unit(x_title, x_name)}} | ticks,
        "yaxis": {"title": {"text": axis.add_unit(title, name)}, "rangemode": "tozero"},
        "showlegend": len(series) > 1,
    }
    return {"data": traces, "layout": layout}


def with_colors(figure: dict[str, Any], colors: Sequence[str]) -> dict[str, Any]:
    """Give each line of a figure a color, and its points a shape of their own."""
    traces = [
        trace
        | {
            "line": trace["line"] | {"color": color},
            "marker": {"color": color, "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8},
        }
        for place, (trace, color) in enumerate(zip(figure["data"], colors, strict=True))
    ]
    return figure | {"data": traces}


def _hover(
    line_name: str, x: Numbers, values: Numbers, unit: str, *, x_title: str, x_unit: str, scale: str
) -> dict[str, Any]:
    """Return exact hover text per point, or a template if there are many points."""
    if len(x) > _MAX_EXACT_HOVER:
        return {"hovertemplate": f"{axis.shorten_label(line_name)}: %{{y:.4~g}} {scale}<extra></extra>"}
    lead = f"{axis.shorten_label(x_title)} " if x_title else ""
    pairs = zip(axis.format_values(x, x_unit), axis.format_values(values, unit), strict=True)
    return axis.hover([line_name] * len(x), [f"{lead}{x_text}: {text}" for x_text, text in pairs])


SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
"""Series differ in shape as well as in color."""
_SMALL, _LARGE = 7.0, 26.0
_GOLDEN = 0.618034  # multiples of it, without their whole part, are spread evenly however many there are


def strips(
    names: Sequence[str], rows: Sequence[Sequence[float]], unit: str, colors: Sequence[str], *, title: str
) -> dict[str, Any]:
    """Draw the values of each series in a row of its own, the first at the top, with their median.

    Args:
        names: Names of the series, of which the first word is the label of the row.
        rows: Values of each.
        unit: Unit of the values.
        colors: Color of each.
        title: What the values are, for the axis.

    Example:
        >>> figure = strips(["A · before"], [[1_000_000, 3_000_000]], "ns", ["#3b82c4"], title="step")
        >>> [trace["x"] for trace in figure["data"]]
        [[1.0, 3.0], [2.0]]
    """
    medians = [float(np.median(row)) if len(row) else None for row in rows]
    (*scaled, middle), scale = axis.scale_rows([*rows, medians], unit)
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": axis.shorten_label(name),
            "x": axis.pack(values),
            # negative rows, since a picture has no reversed axis; apart, so that equal values can be told
            "y": axis.pack([-place + 0.5 * ((_GOLDEN * at) % 1 - 0.5) for at in range(len(values))]),
            "marker": {"symbol": SYMBOLS[place % len(SYMBOLS)], "color": color, "size": 7},
            **axis.hover([name] * len(values), axis.format_values(row, unit)),
        }
        for place, (name, row, values, color) in enumerate(zip(names, rows, scaled, colors, strict=True))
    ]
    known = [place for place, value in enumerate(middle) if value is not None]
    texts = [f"median {text}" for text in axis.format_values([medians[place] for place in known], unit)]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "median",
            "x": [middle[place] for place in known],
            "y": [-place for place in known],
            "marker": {"symbol": "diamond", "color": axis.TOTAL, "size": 14},
            **axis.hover([names[place] for place in known], texts),
        }
    )
    layout = {
        "height": 120 + 34 * len(names),
        "showlegend": True,
        "hovermode": "closest",
        "xaxis": {"title": {"text": axis.add_unit(title, scale)}, "rangemode": "tozero"},
        "yaxis": {
            "tickvals": [-place for place in range(len(names))],
            "ticktext": [axis.shorten_label(name.split(" ")[0]) for name in names],
            "range": [0.6 - len(names), 0.6],
            "zeroline": False,
        },
    }
    return {"data": traces, "layout": layout}


@dataclass(frozen=True)
class Dots:
    """Points of one series."""

    name: str  # legend entry
    x: Sequence[float]  # horizontal positions, above zero
    y: Sequence[float]  # vertical positions, above zero
    hover: Sequence[str]  # hover text, in Plotly's markup
    weight: Sequence[float] = ()  # relative areas, from 0 to 1; empty for equal areas


@dataclass(frozen=True)
class Limit:
    """An upper limit: its legend entry, and the positions of the corners of its line."""

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
    traces = [_dots(place, kind) for place, kind in enumerate(kinds)]
    traces += [
        {
            "type": "scatter",
            "mode": "lines",
            "name": axis.shorten_label(limit.name, 40),
            "x": list(limit.x),
            "y": list(limit.y),
            "hoverinfo": "name",
            "line": {"dash": dash, "width": 1.5, "color": axis.TOTAL},
        }
        for dash, limit in zip(cycle(("dash", "dot", "dashdot", "longdash")), limits, strict=False)
    ]
    drawn: list[Dots | Limit] = [*kinds, *limits]
    across, up = [x for line in drawn for x in line.x], [y for line in drawn for y in line.y]
    ticks = {"tickvals": list(x_ticks[0]), "ticktext": list(x_ticks[1])} if x_ticks else decades(across)
    layout = {
        "height": 380,
        "xaxis": {"type": "log", "title": {"text": axis.shorten_label(x_title)}} | ticks,
        "yaxis": {"type": "log", "title": {"text": axis.shorten_label(y_title)}, "automargin": True}
        | decades(up),
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
    }
    return {"data": traces, "layout": layout}


def decades(values: Sequence[float]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis: powers of ten, with 2 and 5 for a short axis."""
    if not values:
        return {}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    power_step = max(1, (high - low) // 8)
    narrow = max(values) < 10 * min(values)
    steps = range(1, 10) if narrow else (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1, power_step) for step in steps]
    inside = [tick for tick in ticks if min(values) / 3 <= tick <= max(values) * 3]
    texts = [f"{tick:,.0f}" if tick >= 1 else f"{tick:.15f}".rstrip("0") for tick in inside]
    return {"tickvals": inside, "ticktext": texts}


def _dots(place: int, kind: Dots) -> dict[str, Any]:
    weight = np.asarray(kind.weight or [0.1] * len(kind.x), float)
    size = _SMALL + (_LARGE - _SMALL) * np.sqrt(np.clip(weight, 0, 1))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": axis.shorten_label(kind.name, 30),
        "x": axis.pack(list(kind.x)),
        "y": axis.pack(list(kind.y)),
        "hovertext": list(kind.hover),
        "hoverinfo": "text",
        "marker": {
            "symbol": SYMBOLS[place % len(SYMBOLS)],
            "color": axis.COLORWAY[place % len(axis.COLORWAY)],
            "size": axis.pack(size.tolist()),
            "opacity": 0.75,
            "line": {"width": 1, "color": "rgba(128,128,128,0.6)"},
        },
    }


def heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Numbers],
    unit: str,
    *,
    title: str = "",
    row_title: str = "",
    column_title: str = "",
) -> dict[str, Any]:
    """Draw a heatmap, the first row at the top; small ones show values in the cells.

    Args:
        rows: Names of the rows; any text.
        columns: Names of the columns.
        values: One list per row; None leaves a cell empty.
        unit: Unit of the values.
        title: Title of the color scale.
        row_title: Title of the row axis.
        column_title: Title of the column axis.

    Example:
        >>> heatmap(["rank 0"], ["step 1"], [[2_000_000]], "ns")["data"][0]["z"]
        [[2.0]]
    """
    cells, name = axis.scale_rows(values, unit)
    written = [axis.format_values(row, unit) for row in values]
    trace = {
        "type": "heatmap",
        "x": list(range(len(columns))),
        "y": list(range(len(rows))),
        "z": cells,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"title": {"text": axis.add_unit(title, name)}, "thickness": 12},
        "hovertext": [
            [
                f"{axis.hover_name(row)}<br>{axis.hover_name(column)}: {text}"
                for column, text in zip(columns, line, strict=True)
            ]
            for row, line in zip(rows, written, strict=True)
        ],
        "hoverinfo": "text",
        "colorscale": [
            [place / (len(axis.SEQUENTIAL) - 1), color] for place, color in enumerate(axis.SEQUENTIAL)
        ],
    }
    if len(columns) <= 12 and len(rows) <= 30:
        trace |= {"text": written, "texttemplate": "%{text}"}
    layout = {
        "height": max(210, 90 + 26 * min(len(rows), 40)),
        "xaxis": _name_ticks(columns, column_title, most=_count_across(columns)),
        "yaxis": _name_ticks(rows, row_title, most=40) | {"autorange": "reversed"},
    }
    return {"data": [trace], "layout": layout}


_MAX_ACROSS_CHARS = 130  # characters for which there is room below a heatmap


def _count_across(names: Sequence[str]) -> int:
    """Return how many names fit below a heatmap beside each other."""
    return max(
        2, _MAX_ACROSS_CHARS // (2 + max((len(axis.shorten_label(name, 32)) for name in names), default=0))
    )


def _name_ticks(names: Sequence[str], title: str, *, most: int) -> dict[str, Any]:
    step = max(1, math.ceil(len(names) / most))
    return {
        "tickangle": 0,
        "title": {"text": axis.shorten_label(title)},
        "tickvals": list(range(0, len(names), step)),
        "ticktext": [axis.shorten_label(name, 32) for name in names[::step]],
        "automargin": True,
        "showgrid": False,
    }


OWN = "own_ns"
MEASURES = {
    "after earlier steps": OWN,
    "on the host": "host_ns",
    "device busy": "device_busy_ns",
}
"""Lines of a single rank: name and column of `steps.steps`."""
OUTLIER = "warmup_outlier"


def durations(frame: pd.DataFrame) -> dict[str, Any]:
    """Draw step times, from `steps.steps` of one rank or several; a cross marks warm-up outliers."""
    ranks = sorted(frame[C.RANK].unique().tolist())
    steps = sorted(frame[C.STEP].unique().tolist())
    if len(ranks) == 1:
        series = _merge_equal({name: _values(frame, column, steps) for name, column in MEASURES.items()})
    else:
        series = {f"rank {rank}": _values(frame[frame[C.RANK] == rank], OWN, steps) for rank in ranks}
    figure = lines(steps, series, "ns", title="step time", x_title="step")
    figure["data"] += _outlier_marks(frame, [value for values in series.values() for value in values])
    figure["layout"]["showlegend"] = True
    return figure


def _merge_equal(series: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    """Drop empty measures; draw equal ones once under both names."""
    distinct: dict[str, list[float | None]] = {}
    for name, values in series.items():
        same = next((name_drawn for name_drawn, others in distinct.items() if others == values), None)
        if same is not None:
            distinct = {f"{old} and {name}" if old == same else old: line for old, line in distinct.items()}
        elif any(values):
            distinct[name] = values
    return distinct


def _values(frame: pd.DataFrame, column: str, steps: list[int]) -> list[float | None]:
    value_of_step = dict(zip(frame[C.STEP].tolist(), map(plain, frame[column].astype(object)), strict=True))
    return [value_of_step.get(step) for step in steps]


def _outlier_marks(frame: pd.DataFrame, line_values: list[float | None]) -> list[dict[str, Any]]:
    """Draw the warm-up outliers on the scale of the lines."""
    outliers = frame[frame[OUTLIER].astype(bool)]
    if outliers.empty:
        return []
    values = outliers[OWN].tolist()
    heights, _ = axis.scale_values([*line_values, *values], "ns")
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "warm-up outlier",
            "x": outliers[C.STEP].tolist(),
            "y": heights[len(line_values) :],
            "marker": {"symbol": "x", "size": 11, "color": "#d55e00"},
            "hoverinfo": "skip",
        }
    ]
