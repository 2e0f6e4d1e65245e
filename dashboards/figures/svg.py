"""Figures as still pictures, for pages that must do without Plotly: bars, columns and lines as SVG."""

from __future__ import annotations

from html import escape, unescape
from typing import TYPE_CHECKING, Any

from .packed import unpacked
from .palette import COLORWAY

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 960, 330, 110, 10, 24
_PLOT_HEIGHT, _AXIS, _SIDE = 240, 60, 70
_MOST = 2_000
"""Points of a line that a picture of this width can tell apart."""


def svg(figure: dict[str, Any], *, label: str) -> str:
    """A figure as an SVG element; empty for a kind that has no still picture.

    Args:
        figure: From a function of `figures`.
        label: What it shows, for assistive technology.

    Example:
        >>> svg({"data": [], "layout": {}}, label="nothing")
        ''
    """
    traces = figure["data"]
    if not traces:
        return ""
    layout = figure["layout"]
    kind = traces[0]["type"]
    if kind == "bar" and traces[0].get("orientation") == "h":
        height, parts = _bars(traces, layout)
    elif kind == "bar":
        height, parts = _columns(traces, layout)
    elif kind in {"scatter", "scattergl"} and "lines" in traces[0]["mode"]:
        height, parts = _lines(traces, layout)
    else:
        return ""
    body = "".join([*parts, *_legend(traces, height)])
    tall = height + (24 if len(traces) > 1 else 0)
    return f'<svg viewBox="0 0 {_WIDTH} {tall}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(unescape(text))}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f'width="{max(width, 0):.2f}" height="{max(height, 0):.2f}"'
    return f'<rect x="{x:.2f}" y="{y:.2f}" {size} fill="{colour}"/>'


def _colour(place: int) -> str:
    return COLORWAY[place % len(COLORWAY)]


def _title(axis: dict[str, Any]) -> str:
    return str(axis.get("title", {}).get("text", ""))


def _bars(traces: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[float, list[str]]:
    names = layout["yaxis"]["ticktext"]
    columns = [unpacked(trace["x"]) for trace in traces]
    totals = [sum(column[at] or 0 for column in columns) for at in range(len(names))]
    scale = (_WIDTH - _LEFT - _RIGHT) / (max(totals, default=0) or 1)
    parts = []
    for at, name in enumerate(names):
        top, x = _TOP + at * _ROW, float(_LEFT)
        parts.append(_text(_LEFT - 8, top + 15, name, "end"))
        for place, column in enumerate(columns):
            width = (column[at] or 0) * scale
            parts.append(_rect(x, top + 3, width, _ROW - 6, _colour(place)))
            x += width
        if len(traces) == 1:
            parts.append(_text(x + 6, top + 15, traces[0]["text"][at]))
    height = _TOP + _ROW * len(names) + 24
    return height, [*parts, _text(_LEFT, height - 6, _title(layout["xaxis"]))]


def _columns(traces: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[float, list[str]]:
    names = layout["xaxis"]["ticktext"]
    columns = [unpacked(trace["y"]) for trace in traces]
    largest = max((value or 0 for column in columns for value in column), default=0) or 1
    room = (_WIDTH - _SIDE - 20) / max(len(names), 1)
    each = room * 0.9 / len(columns)
    parts = _frame(largest, 0, _title(layout["yaxis"]))
    for place, column in enumerate(columns):
        for at, value in enumerate(column):
            tall = _PLOT_HEIGHT * (value or 0) / largest
            left = _SIDE + at * room + place * each
            parts.append(_rect(left, _TOP + _PLOT_HEIGHT - tall, each, tall, _colour(place)))
    every = max(1, len(names) // 8)
    for at in range(0, len(names), every):
        parts.append(_text(_SIDE + (at + 0.5) * room, _TOP + _PLOT_HEIGHT + 18, names[at], "middle"))
    return _TOP + _PLOT_HEIGHT + _AXIS, parts


def _lines(traces: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[float, list[str]]:
    xs = [value for value in unpacked(traces[0]["x"]) if value is not None]
    ys = [value for trace in traces for value in unpacked(trace["y"]) if value is not None]
    if not xs or not ys:
        return _TOP, []
    low, high = min(xs), max(xs)
    bottom, top = min(0.0, *ys), max(0.0, *ys) or 1.0
    wide, tall = (_WIDTH - _SIDE - 20) / ((high - low) or 1), _PLOT_HEIGHT / ((top - bottom) or 1)
    parts = _frame(top, bottom, _title(layout["yaxis"]))
    for place, trace in enumerate(traces):
        points = [
            (_SIDE + (x - low) * wide, _TOP + (top - y) * tall)
            for x, y in zip(unpacked(trace["x"]), unpacked(trace["y"]), strict=True)
            if x is not None and y is not None
        ]
        parts.append(_line(points[:: max(1, len(points) // _MOST)], _colour(place)))
    ends = ((low, _SIDE, "start"), (high, _WIDTH - 20, "end"))
    parts += [_text(x, _TOP + _PLOT_HEIGHT + 18, f"{value:,.6g}", anchor) for value, x, anchor in ends]
    parts.append(_text(_WIDTH / 2, _TOP + _PLOT_HEIGHT + 36, _title(layout["xaxis"]), "middle"))
    return _TOP + _PLOT_HEIGHT + _AXIS, parts


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _frame(top: float, bottom: float, title: str) -> list[str]:
    """The vertical axis: its ends, its title, and lines at both."""
    parts = [_text(_SIDE + 6, _TOP + 12, title)]
    for value, y in ((top, _TOP), (bottom, _TOP + _PLOT_HEIGHT)):
        parts.append(_text(_SIDE - 6, y + 8, f"{value:,.4g}", "end"))
        parts.append(f'<line x1="{_SIDE}" x2="{_WIDTH - 20}" y1="{y}" y2="{y}" class="axis"/>')
    return parts


def _legend(traces: list[dict[str, Any]], height: float) -> list[str]:
    if len(traces) < 2:
        return []
    room = (_WIDTH - _SIDE) / len(traces)
    return [
        _rect(_SIDE + at * room, height + 4, 12, 12, _colour(at))
        + _text(_SIDE + at * room + 18, height + 14, str(trace.get("name", "")))
        for at, trace in enumerate(traces)
    ]
