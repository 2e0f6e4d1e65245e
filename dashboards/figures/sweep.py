"""Figures of sweeps: a quantity over one setting as lines, or over two as a heatmap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .axis import label, scaled, texts, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Dot:
    """A point of a series: median, minimum and maximum of its runs, their number, and an address."""

    x: Any
    median: float
    low: float
    high: float
    runs: int
    href: str = ""


@dataclass(frozen=True)
class Line:
    """A named series."""

    name: str
    dots: tuple[Dot, ...]


def lines(series: Sequence[Line], unit: str, *, x: str, y: str, log: bool = True) -> dict[str, Any]:
    """Draw a quantity over a setting; whiskers span the repeats.

    Args:
        series: Lines, at least one of them with a point.
        unit: Unit of the quantity.
        x: Title of the axis of the setting.
        y: Title of the quantity.
        log: Whether to use a logarithmic axis for positive numbers.
    """
    flat = [value for line in series for dot in line.dots for value in (dot.median, dot.low, dot.high)]
    _, scale = scaled(flat, unit)
    factor = _factor(flat, unit)
    traces = [_line(line, unit, factor, at) for at, line in enumerate(series)]
    values = list({repr(dot.x): dot.x for line in series for dot in line.dots}.values())
    return {
        "data": traces,
        "layout": {
            "height": 420,
            "showlegend": len(series) > 1,
            "hovermode": "closest",
            "xaxis": {"title": {"text": label(x)}, **_ticks(values, log=log)},
            "yaxis": {"title": {"text": f"{label(y)} ({scale})"}, "rangemode": "tozero", "automargin": True},
        },
    }


def _factor(flat: Sequence[float], unit: str) -> float:
    """Return the factor that scales values to the unit of the largest."""
    largest = max((abs(value) for value in flat), default=0.0)
    shown = scaled([largest], unit)[0][0] or 0.0
    return shown / largest if largest else 1.0


def _line(line: Line, unit: str, factor: float, at: int) -> dict[str, Any]:
    medians = [dot.median for dot in line.dots]
    ranges = [
        f"{low_text} to {high_text}, {dot.runs} run{'s' * (dot.runs != 1)}"
        for dot, low_text, high_text in zip(
            line.dots,
            texts((dot.low for dot in line.dots), unit),
            texts((dot.high for dot in line.dots), unit),
            strict=True,
        )
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(line.name, 64),
        "x": [dot.x if _number(dot.x) else label(str(dot.x)) for dot in line.dots],
        "y": [median * factor for median in medians],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(dot.high - dot.median) * factor for dot in line.dots],
            "arrayminus": [(dot.median - dot.low) * factor for dot in line.dots],
            "thickness": 1,
            "width": 4,
        },
        "marker": {"symbol": _MARKS[at % len(_MARKS)], "size": 8},
        "line": {"dash": _DASHES[at // len(_MARKS) % len(_DASHES)]},
        "customdata": [dot.href for dot in line.dots],
        "hovertext": [
            f"{whole(line.name)}<br>{whole(str(dot.x))}: {text}<br>{spread}"
            for dot, text, spread in zip(line.dots, texts(medians, unit), ranges, strict=True)
        ],
        "hoverinfo": "text",
    }


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ticks(values: Sequence[Any], *, log: bool) -> dict[str, Any]:
    if not all(_number(value) for value in values):
        return {"type": "category"}
    ticks = sorted(values)
    logarithmic = log and ticks[0] > 0
    return {
        "type": "log" if logarithmic else "linear",
        **({"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]} if len(ticks) <= 24 else {}),
    }


def heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    unit: str,
    **titles: str,
) -> dict[str, Any]:
    """Draw a quantity over two settings; cells without runs stay empty.

    Args:
        rows: Labels from the bottom up.
        columns: Labels from the left.
        values: One list per row.
        unit: Unit of the quantity.
        titles: Titles `x`, `y` and `z` of the axes and the quantity.
    """
    flat = [value for row in values for value in row]
    z, scale = scaled(flat, unit)
    labels = [text if value is not None else "" for text, value in zip(texts(flat, unit), flat, strict=True)]
    wide = len(columns)
    label_rows = [labels[at * wide : (at + 1) * wide] for at in range(len(rows))]
    trace = {
        "type": "heatmap",
        "x": [label(each) for each in columns],
        "y": [label(each) for each in rows],
        "z": [z[at * wide : (at + 1) * wide] for at in range(len(rows))],
        "text": label_rows,
        "texttemplate": "%{text}",
        "hovertext": [
            [
                f"{whole(row)}<br>{whole(column)}<br>{text or 'not run'}"
                for column, text in zip(columns, line, strict=True)
            ]
            for row, line in zip(rows, label_rows, strict=True)
        ],
        "hoverinfo": "text",
        "colorscale": "Viridis",
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": f"{label(titles['z'])} ({scale})", "side": "right"}, "thickness": 12},
    }
    return {
        "data": [trace],
        "layout": {
            "height": 140 + 46 * len(rows),
            "xaxis": {"title": {"text": label(titles["x"])}, "type": "category"},
            "yaxis": {"title": {"text": label(titles["y"])}, "type": "category", "automargin": True},
        },
    }
