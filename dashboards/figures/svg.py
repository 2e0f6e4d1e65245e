"""Static SVG of bar and line figures for reports, and the data of the flame graph."""

from __future__ import annotations

from html import escape, unescape
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.errors import clean
from tracekit.schema import C

from .axis import COLORWAY, unpack

Ints = npt.NDArray[np.int64]


_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 960, 330, 110, 10, 24
_PLOT_HEIGHT, _AXIS, _SIDE = 240, 60, 70
_MAX_POINTS = 2_000
"""Maximum points of a line at this width."""


def svg(figure: dict[str, Any], *, label: str) -> str:
    """Draw a figure as an SVG element; empty for unsupported types.

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
    room = (_WIDTH - _SIDE) / len(traces)
    for place, trace in enumerate(traces if len(traces) > 1 else ()):  # the legend
        left, name = _SIDE + place * room, str(trace.get("name", ""))
        parts += [_rect(left, height + 4, 12, 12, _color(trace, place)), _text(left + 18, height + 14, name)]
    body = "".join(parts)
    tall = height + (24 if len(traces) > 1 else 0)
    return f'<svg viewBox="0 0 {_WIDTH} {tall}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(unescape(text))}</text>'


def _rect(x: float, y: float, width: float, height: float, color: str) -> str:
    size = f'width="{max(width, 0):.2f}" height="{max(height, 0):.2f}"'
    return f'<rect x="{x:.2f}" y="{y:.2f}" {size} fill="{color}"/>'


def _color(trace: dict[str, Any], place: int) -> str:
    color = trace.get("marker", {}).get("color")
    return color if isinstance(color, str) else COLORWAY[place % len(COLORWAY)]


def _title(axis: dict[str, Any]) -> str:
    return str(axis.get("title", {}).get("text", ""))


def _bars(traces: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[float, list[str]]:
    names = layout["yaxis"]["ticktext"]
    columns = [unpack(trace["x"]) for trace in traces]
    totals = [sum(column[row] or 0 for column in columns) for row in range(len(names))]
    scale = (_WIDTH - _LEFT - _RIGHT) / (max(totals, default=0) or 1)
    parts = []
    for row, name in enumerate(names):
        top, x = _TOP + row * _ROW, float(_LEFT)
        parts.append(_text(_LEFT - 8, top + 15, name, "end"))
        for place, (trace, column) in enumerate(zip(traces, columns, strict=True)):
            width = (column[row] or 0) * scale
            parts.append(_rect(x, top + 3, width, _ROW - 6, _color(trace, place)))
            if len(traces) > 1 and "text" in trace and (text := trace["text"][row]):
                position = f'x="{x + width / 2:.1f}" y="{top + 16:.1f}" text-anchor="middle"'
                parts.append(f'<text {position} class="inside">{escape(unescape(text))}</text>')
            x += width
        if len(traces) == 1:
            parts.append(_text(x + 6, top + 15, traces[0]["text"][row]))
    height = _TOP + _ROW * len(names) + 24
    return height, [*parts, _text(_LEFT, height - 6, _title(layout["xaxis"]))]


def _columns(traces: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[float, list[str]]:
    columns = [[value or 0 for value in unpack(trace["y"])] for trace in traces]
    count = max(len(columns[0]), 1)
    stacked = layout.get("barmode") == "stack"
    tops = [sum(values) if stacked else max(values) for values in zip(*columns, strict=True)]
    largest = max(tops, default=0) or 1
    room = (_WIDTH - _SIDE - 20) / count
    bar_width = room * 0.9 / (1 if stacked else len(columns))
    parts = _frame(largest, 0, _title(layout["yaxis"]))
    base = [0.0] * count
    for place, (trace, column) in enumerate(zip(traces, columns, strict=True)):
        for number, value in enumerate(column):
            tall = _PLOT_HEIGHT * value / largest
            left = _SIDE + number * room + (0 if stacked else place * bar_width)
            top = _TOP + _PLOT_HEIGHT - tall - base[number]
            parts.append(_rect(left, top, bar_width, tall, _color(trace, place)))
            base[number] += tall if stacked else 0
    return _TOP + _PLOT_HEIGHT + _AXIS, [*parts, *_ticks(layout["xaxis"], room)]


def _ticks(axis: dict[str, Any], room: float) -> list[str]:
    """Draw column names, at most nine."""
    names = axis["ticktext"]
    places = axis.get("tickvals") or range(len(names))
    step = max(1, len(names) // 8)
    return [
        _text(_SIDE + (place + 0.5) * room, _TOP + _PLOT_HEIGHT + 18, name, "middle")
        for place, name in list(zip(places, names, strict=True))[::step]
    ]


def _lines(traces: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[float, list[str]]:
    xs = [value for value in unpack(traces[0]["x"]) if value is not None]
    ys = [value for trace in traces for value in unpack(trace["y"]) if value is not None]
    if not xs or not ys:
        return _TOP, []
    low, high = min(xs), max(xs)
    bottom, top = min(0.0, *ys), max(0.0, *ys) or 1.0
    wide, tall = (_WIDTH - _SIDE - 20) / ((high - low) or 1), _PLOT_HEIGHT / ((top - bottom) or 1)
    parts = _frame(top, bottom, _title(layout["yaxis"]))
    for place, trace in enumerate(traces):
        points = [
            (_SIDE + (x - low) * wide, _TOP + (top - y) * tall)
            for x, y in zip(unpack(trace["x"]), unpack(trace["y"]), strict=True)
            if x is not None and y is not None
        ]
        drawn = points[:: max(1, len(points) // _MAX_POINTS)]
        path, color = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn), _color(trace, place)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
    ends = ((low, _SIDE, "start"), (high, _WIDTH - 20, "end"))
    parts += [_text(x, _TOP + _PLOT_HEIGHT + 18, f"{value:,.6g}", anchor) for value, x, anchor in ends]
    parts.append(_text(_WIDTH / 2, _TOP + _PLOT_HEIGHT + 36, _title(layout["xaxis"]), "middle"))
    return _TOP + _PLOT_HEIGHT + _AXIS, parts


def _frame(top: float, bottom: float, title: str) -> list[str]:
    """Draw the vertical axis: title, bounds, and lines at both bounds."""
    parts = [_text(_SIDE + 6, _TOP + 12, title)]
    for value, y in ((top, _TOP), (bottom, _TOP + _PLOT_HEIGHT)):
        parts.append(_text(_SIDE - 6, y + 8, f"{value:,.4g}", "end"))
        parts.append(f'<line x1="{_SIDE}" x2="{_WIDTH - 20}" y1="{y}" y2="{y}" class="axis"/>')
    return parts


MAX_DIVISIONS = 20_000
"""Nodes shorter than the total divided by this are dropped; they would be narrower than a pixel."""
SIDES = {"host": ("host_total_ns", "host_self_ns"), "device": ("device_total_ns", "device_self_ns")}
_MAX_NAME_CHARS = 300
"""Maximum characters of a name."""


def flame_data(nodes: pd.DataFrame, side: str, *, finest: int = MAX_DIVISIONS) -> dict[str, Any]:
    """Return the visible nodes below a root node and, with several ranks, a node per rank.

    Args:
        nodes: The table of the call tree, parents before children.
        side: Time that sets the width: `host` or `device`.
        finest: Nodes shorter than the total divided by this are dropped.

    Returns:
        Columns with one value per node, the names, and the number of dropped nodes. Parents are indices into
        the columns; the first node is the root.
    """
    total, self_ns = (nodes[name].fillna(0).to_numpy(np.int64) for name in SIDES[side])
    roots = nodes["parent"].isna().to_numpy()
    grand_total = int(total[roots].sum())
    drawn = np.flatnonzero((total > 0) & (total * finest >= grand_total))
    ranks = sorted(int(rank) for rank in nodes[C.RANK].unique())
    tops = [None, *ranks] if len(ranks) > 1 else [None]
    place = np.full(len(nodes), -1, np.int64)
    place[drawn] = len(tops) + np.arange(len(drawn))
    labels = [clean(str(name))[:_MAX_NAME_CHARS] for name in nodes[C.NAME].to_numpy()[drawn]]
    names = list(dict.fromkeys([*(_top(rank) for rank in tops), *labels]))
    code = {name: number for number, name in enumerate(names)}
    rank_of = nodes[C.RANK].to_numpy(np.int64)
    sums = [int(total[roots & (True if rank is None else rank_of == rank)].sum()) for rank in tops]
    above = [-1, *[0] * (len(tops) - 1)]
    return {
        "side": side,
        "names": names,
        "name": [*(code[_top(rank)] for rank in tops), *(code[name] for name in labels)],
        "parent": [*above, *_parents(nodes, drawn, place, ranks)],
        "total": [*sums, *total[drawn].tolist()],
        "self": [*[0] * len(tops), *self_ns[drawn].tolist()],
        "calls": [*[0] * len(tops), *nodes["calls"].to_numpy(np.int64)[drawn].tolist()],
        "left": len(nodes) - len(drawn),
    }


def _top(rank: int | None) -> str:
    return "all" if rank is None else f"rank {rank}"


def _parents(nodes: pd.DataFrame, drawn: Ints, place: Ints, ranks: list[int]) -> list[int]:
    """Return the index of each drawn node's parent: a drawn node, or the root of its rank."""
    position = {int(node): index for index, node in enumerate(nodes["node"])}
    over = nodes["parent"].fillna(-1).to_numpy(np.int64)[drawn]
    rank_of = nodes[C.RANK].to_numpy(np.int64)[drawn]
    alone = len(ranks) == 1
    return [
        int(place[position[int(parent)]]) if parent >= 0 else 0 if alone else 1 + ranks.index(int(rank))
        for parent, rank in zip(over, rank_of, strict=True)
    ]
