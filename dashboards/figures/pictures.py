"""Pictures of figures: HTML that shows bars, columns, lines and points without a script.

Places and lengths are shares of the room, so that a picture fits any width while its text keeps its size;
`assets/picture.css` has the styles, also of those in reports. What only Plotly draws has no picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape, unescape
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from .axis import COLORWAY, unpack

Trace: TypeAlias = dict[str, Any]
Axis: TypeAlias = dict[str, Any]

HEIGHT = 320
"""Height of a figure that has none, in pixels."""
_AROUND_PX = 96
"""Part of a figure's height that its axes and its legend take."""
_MAX_TICKS = 5
_MAX_TICK_CHARS = 70
"""Maximum characters of all labels of a horizontal axis; of longer ones only some are shown."""
_MAX_POINTS = 4_000
"""Maximum points of a line, which is more than a line has pixels."""
_ONLY_PLOTLY = ("customdata", "error_x", "error_y")
_STACKED = {"stack", "relative"}
_PAD = 0.04
"""Part of an axis that is beyond the points at either end."""
_VIEW = 1_000
"""Width and height of the picture of lines, in its own units."""
_HATCHES = {"x": "crossed", ".": "dotted"}
_DASHES = {"dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "14 6"}


def draw_picture(figure: dict[str, Any], *, label: str) -> str:
    """Draw a figure as an HTML element; empty for what only Plotly draws.

    Args:
        figure: A figure, whose text is escaped, as Plotly reads it.
        label: Accessible name.

    Example:
        >>> draw_picture({"data": [], "layout": {}}, label="nothing")
        ''
    """
    traces, layout = figure["data"], figure["layout"]
    kinds = {_kind(trace) for trace in traces}
    if len(kinds) != 1 or layout.get("shapes") or layout.get("annotations"):
        return ""
    body = _DRAW[kinds.pop()](traces, layout)
    if not body:
        return ""
    legend = _legend(traces) if layout.get("showlegend", len(traces) > 1) else ""
    return f'<div class="tk-plot" role="group" aria-label="{escape(label)}">{legend}{body}</div>'


def _kind(trace: Trace) -> str:
    """Return how a trace is drawn; empty for by Plotly only."""
    if any(name in trace for name in _ONLY_PLOTLY):
        return ""
    if trace["type"] == "bar":
        return "rows" if trace.get("orientation") == "h" else "columns"
    if fill := trace.get("fill"):
        return "areas" if fill == "toself" else ""
    return "points" if trace["type"] in {"scatter", "scattergl"} else ""


def _text(text: str) -> str:
    """Return text for HTML that is escaped for Plotly."""
    return escape(unescape(text))


def _tip(text: str) -> str:
    return f' data-tip="{_text(text.replace("<br>", chr(10)))}"' if text else ""


def _title(axis: Axis, names: str = "") -> str:
    text = str(axis.get("title", {}).get("text", ""))
    return f'<div class="tk-plot-title{names}">{_text(text)}</div>' if text else ""


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def _fill(trace: Trace, place: int) -> str:
    """Return the attributes of what has the color and the pattern of a trace, after its class."""
    marker = trace.get("marker", {})
    color = trace.get("fillcolor") or marker.get("color") or trace.get("line", {}).get("color")
    hatch = trace.get("fillpattern", marker.get("pattern", {})).get("shape") or ""
    name = f" tk-plot-{_HATCHES.get(hatch, 'hatched')}" if hatch else ""
    shown = color if isinstance(color, str) else COLORWAY[place % len(COLORWAY)]
    return f'{name}" style="background-color:{shown}'


def _legend(traces: Sequence[Trace]) -> str:
    entries = []
    for place, trace in enumerate(traces):
        if not trace.get("showlegend", True):
            continue
        mark = f'<i class="{_symbol(trace)}{_fill(trace, place)}"></i>'
        entries.append(f"<li>{mark}{_text(str(trace.get('name', '')))}</li>")
    return f'<ul class="tk-plot-legend">{"".join(entries)}</ul>'


def _symbol(trace: Trace) -> str:
    symbol = trace.get("marker", {}).get("symbol", "")
    return f"tk-plot-{symbol}" if symbol else "tk-plot-square"


class _Bar(NamedTuple):
    """A bar: number of its trace, row or column, and start and length on the axis of values."""

    place: int
    position: int
    start: float
    length: float
    text: str
    tip: str


def _list_bars(traces: Sequence[Trace], across: str, along: str, *, stacked: bool) -> list[_Bar]:
    """Return the bars of all traces; if stacked, each begins where the one before it ends.

    Args:
        traces: Traces of bars.
        across: Key of the rows or columns.
        along: Key of the lengths.
        stacked: Whether the bars of a row or column are one behind the other.
    """
    ends: dict[int, float] = {}
    bars = []
    for place, trace in enumerate(traces):
        lengths, nothing = unpack(trace[along]), [""] * len(trace[across])
        texts, tips = trace.get("text") or nothing, trace.get("hovertext") or nothing
        for position, length, text, tip in zip(trace[across], lengths, texts, tips, strict=True):
            start = ends.get(position, 0.0) if stacked else 0.0
            ends[position] = start + (length or 0)
            bars.append(_Bar(place, position, start, length or 0, str(text or ""), str(tip)))
    return bars


def _draw_rows(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw horizontal bars: a grid of names and tracks, the first at the top."""
    names, axis = layout["yaxis"]["ticktext"], layout["xaxis"]
    mode = layout.get("barmode", "group")
    bars = _list_bars(traces, "y", "x", stacked=mode in _STACKED)
    if not bars or any(bar.length < 0 for bar in bars) or (mode == "group" and len(traces) > 1):
        return ""
    top = axis["range"][1] if "range" in axis else max(bar.start + bar.length for bar in bars) or 1.0
    inside = [trace.get("textposition") == "inside" for trace in traces]
    tracks: dict[int, str] = dict.fromkeys(range(len(names)), "")
    for bar in bars:
        if len(traces) > 1 and not bar.length and not bar.text:
            continue  # it would be a line at the end of the bar before it
        fill = _fill(traces[bar.place], bar.place)
        size = f"left:{_percent(bar.start / top)};width:{_percent(bar.length / top)}"
        within = f"<b>{_text(bar.text)}</b>" if bar.text and inside[bar.place] else ""
        tracks[bar.position] += f'<span class="tk-plot-bar{fill};{size}"{_tip(bar.tip)}>{within}</span>'
        if bar.text and not inside[bar.place]:
            left = _percent((bar.start + bar.length) / top)
            value = f'style="left:{left}">{_text(bar.text)}'
            tracks[bar.position] += f'<span class="tk-plot-value" {value}</span>'
    rows = (
        f'<span class="tk-plot-name">{_text(name)}</span><span class="tk-plot-track">{track}</span>'
        for name, track in zip(names, tracks.values(), strict=True)
    )
    ticks, nothing = _list_ticks(axis, 0, top), '<span class="tk-plot-nothing"></span>'
    has_values = any(bar.text and not inside[bar.place] for bar in bars)
    size = f"--tk-step:{_percent(next((share for share, _ in ticks if share > 0), 1))}"
    return (
        f'<div class="tk-plot-rows{" tk-plot-values" * has_values}" style="{size}">'
        f'{"".join(rows)}{nothing}<div class="tk-plot-foot">{_draw_ticks(ticks, "left")}</div>'
        f"{nothing}{_title(axis)}</div>"
    )


MIN_COLUMNS = 4
"""Columns that there is room for at least: one alone would fill the picture."""


def _draw_columns(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw vertical bars, stacked or beside each other."""
    axis, mode = layout["xaxis"], layout.get("barmode", "group")
    bars = _list_bars(traces, "x", "y", stacked=mode in _STACKED)
    is_plain = all(bar.length >= 0 and isinstance(bar.position, int) for bar in bars)
    if not bars or not is_plain or "ticktext" not in axis:
        return ""
    count = max(MIN_COLUMNS, 1 + max(bar.position for bar in bars))
    top = max(bar.start + bar.length for bar in bars) or 1.0
    beside = len(traces) if mode == "group" else 1
    gap = layout.get("bargap", 0.25)
    width = (1 - gap) / count / beside
    marks = []
    for bar in bars:
        left = (bar.position + gap / 2) / count + (bar.place * width if beside > 1 else 0)
        size = f"left:{_percent(left)};width:{_percent(width)};bottom:{_percent(bar.start / top)}"
        fill = f"{_fill(traces[bar.place], bar.place)};{size};height:{_percent(bar.length / top)}"
        marks.append(f'<span class="tk-plot-column{fill}"{_tip(bar.tip)}></span>')
    places = axis.get("tickvals", range(len(axis["ticktext"])))
    ticks = [((place + 0.5) / count, str(text)) for place, text in zip(places, axis["ticktext"], strict=True)]
    return _frame(layout, marks, ticks, _list_ticks(layout["yaxis"], 0, top))


def _draw_points(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw lines, and points, of which each has its hover text."""
    drawn: list[list[tuple[Any, Any, str]]] = [
        [
            (x, y, str(tip))
            for x, y, tip in zip(*map(unpack, (trace["x"], trace["y"])), _tips(trace), strict=True)
        ]
        for trace in traces
    ]
    ends = _find_both_ends(layout, [point for points in drawn for point in points])
    if not ends:
        return ""
    (x_axis, y_axis), (x_ends, y_ends) = (layout.get(name, {}) for name in ("xaxis", "yaxis")), ends
    x_share, y_share = _scale(x_axis, *x_ends), _scale(y_axis, *y_ends)
    placed = [
        [(None if x is None or y is None else (x_share(x), y_share(y)), tip) for x, y, tip in points]
        for points in drawn
    ]
    lines = "".join(
        _draw_line(trace, place, [at for at, _ in points])
        for place, (trace, points) in enumerate(zip(traces, placed, strict=True))
        if "lines" in trace["mode"]
    )
    view = f'viewBox="0 0 {_VIEW} {_VIEW}" preserveAspectRatio="none" aria-hidden="true"'
    marks = [f'<svg class="tk-plot-lines" {view}>{lines}</svg>'] if lines else []
    for place, (trace, points) in enumerate(zip(traces, placed, strict=True)):
        marks += _draw_dots(trace, place, points) if "markers" in trace["mode"] else ()
    return _frame(layout, marks, _list_ticks(x_axis, *x_ends), _list_ticks(y_axis, *y_ends))


def _draw_areas(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw closed areas, each with its hover text; those with a pattern are elements that are cut out."""
    outlines = [list(zip(*map(unpack, (trace["x"], trace["y"])), strict=True)) for trace in traces]
    ends = _find_both_ends(layout, [point for outline in outlines for point in outline])
    if not ends:
        return ""
    (x_axis, y_axis), (x_ends, y_ends) = (layout.get(name, {}) for name in ("xaxis", "yaxis")), ends
    x_share, y_share = _scale(x_axis, *x_ends), _scale(y_axis, *y_ends)
    shapes, cut = [], []
    for place, (trace, outline) in enumerate(zip(traces, outlines, strict=True)):
        fill, tip = _fill(trace, place), _tip(str(trace.get("text", "")))
        placed = [(x_share(x), 1 - y_share(y)) for x, y in outline]
        if "fillpattern" in trace:
            corners = ",".join(f"{100 * x:.2f}% {100 * y:.2f}%" for x, y in placed)
            cut.append(f'<span class="tk-plot-cut{fill};clip-path:polygon({corners})"{tip}></span>')
        else:
            corners = " ".join(f"{_VIEW * x:.1f},{_VIEW * y:.1f}" for x, y in placed)
            color = fill.rpartition(":")[2]
            shapes.append(f'<polygon points="{corners}" fill="{color}"{tip}/>')
    view = f'viewBox="0 0 {_VIEW} {_VIEW}" preserveAspectRatio="none" aria-hidden="true"'
    marks = [*cut, f'<svg class="tk-plot-lines" {view}>{"".join(shapes)}</svg>']
    return _frame(layout, marks, _list_ticks(x_axis, *x_ends), _list_ticks(y_axis, *y_ends))


def _find_both_ends(layout: dict[str, Any], points: Sequence[Any]) -> list[tuple[float, float]]:
    """Return the ends of both axes around points of x and y; empty for what only Plotly draws."""
    ends = []
    for place, name in enumerate(("xaxis", "yaxis")):
        values = [point[place] for point in points if point[place] is not None]
        axis = layout.get(name, {})
        is_log = axis.get("type") == "log"
        if not values or not all(isinstance(value, int | float) for value in values):
            return []
        if axis.get("type") == "category" or (is_log and min(values) <= 0):
            return []
        ends.append(_find_ends(axis, values))
    return ends


def _tips(trace: Trace) -> Sequence[str]:
    """Return the hover text of each point."""
    return trace.get("hovertext") or [""] * len(unpack(trace["x"]))


def _find_ends(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value on an axis of points."""
    if "range" in axis:
        return axis["range"][0], axis["range"][1]
    low, high = min(values), max(values)
    if axis.get("type") == "log":
        room = (high / low) ** _PAD if high > low else 2.0
        low, high = low / room, high * room
        ticks = axis.get("tickvals", ())
        if sum(low <= tick <= high for tick in ticks) < 2:  # as many as tell the scale
            low = max((tick for tick in ticks if tick <= low), default=low)
            high = min((tick for tick in ticks if tick >= high), default=high)
        return low, high
    if axis.get("rangemode") == "tozero":
        low, high = min(0.0, low), max(0.0, high)
    room = _PAD * (high - low) or 1.0
    return (low if low == 0 and axis.get("rangemode") == "tozero" else low - room), high + room


def _scale(axis: Axis, low: float, high: float) -> Callable[[float], float]:
    """Return the function from a value to its place on an axis, from 0 to 1."""
    if axis.get("type") == "log":
        return lambda value: math.log(value / low) / math.log(high / low)
    return lambda value: (value - low) / ((high - low) or 1.0)


def _draw_line(trace: Trace, place: int, places: Sequence[tuple[float, float] | None]) -> str:
    """Draw a line, which missing values interrupt."""
    line = trace.get("line", {})
    color = line.get("color") or trace.get("marker", {}).get("color")
    color = color if isinstance(color, str) else COLORWAY[place % len(COLORWAY)]
    dash = _DASHES.get(line.get("dash", ""), "")
    dashed = f" stroke-dasharray={dash!r}" if dash else ""
    look = f'stroke="{color}" stroke-width="{line.get("width", 2)}"{dashed}'
    shown = places[:: max(1, len(places) // _MAX_POINTS)]
    parts = []
    for is_gap, group in groupby(shown, key=lambda at: at is None):
        if not is_gap:
            path = " ".join(_corners((at for at in group if at), stepped=line.get("shape") == "hv"))
            parts.append(f'<polyline points="{path}" {look}/>')
    return "".join(parts)


def _corners(points: Iterable[tuple[float, float]], *, stepped: bool) -> Iterator[str]:
    """Yield the corners of a line; if stepped, each value holds until the next."""
    before = None
    for x, y in points:
        if stepped and before is not None:
            yield f"{_VIEW * x:.1f},{before:.1f}"
        before = _VIEW * (1 - y)
        yield f"{_VIEW * x:.1f},{before:.1f}"


def _draw_dots(
    trace: Trace, place: int, points: Sequence[tuple[tuple[float, float] | None, str]]
) -> Iterator[str]:
    """Yield the points of a trace; the area of each is its weight."""
    size = trace.get("marker", {}).get("size", 6)
    sizes = [size] * len(points) if isinstance(size, int | float) else unpack(size)
    fill = _fill(trace, place)
    symbol = trace.get("marker", {}).get("symbol", "circle")
    for (at, tip), wide in zip(points, sizes, strict=True):
        if at is not None:
            spot = f"left:{_percent(at[0])};bottom:{_percent(at[1])};--tk-size:{wide:.0f}px"
            yield f'<span class="tk-plot-dot tk-plot-{symbol}{fill};{spot}"{_tip(tip)}></span>'


def _list_ticks(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
    """Return place and label of the ticks of an axis: its own, or multiples of `dtick` or of 1, 2 or 5."""
    values, texts = axis.get("tickvals"), axis.get("ticktext")
    if values is None:
        step = axis.get("dtick") or _find_step((high - low) or 1.0)
        numbers = range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)
        values = [step * number for number in numbers]
    if texts is None:
        suffix = axis.get("ticksuffix", "")
        texts = [f"{value:,.6g}{suffix}".replace("-", "\N{MINUS SIGN}", value < 0) for value in values]
    share = _scale(axis, low, high)
    placed = [(share(value), str(text)) for value, text in zip(values, texts, strict=True)]
    return [(place, text) for place, text in placed if -1e-9 <= place <= 1 + 1e-9]


def _find_step(span: float) -> float:
    """Return the distance of ticks.

    Example:
        >>> _find_step(9), _find_step(100), _find_step(0.7)
        (2.0, 20.0, 0.2)
    """
    power = 10.0 ** math.floor(math.log10(span / _MAX_TICKS))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= span / _MAX_TICKS * (1 - 1e-9))


def _draw_ticks(ticks: Sequence[tuple[float, str]], side: str) -> str:
    """Draw the labels of an axis, of which `side` is the place in CSS."""
    return "".join(f'<span style="{side}:{_percent(place)}">{_text(text)}</span>' for place, text in ticks)


def _frame(
    layout: dict[str, Any],
    marks: Iterable[str],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
) -> str:
    """Draw the axes around marks, with a line at each tick of the values."""
    step = max(1, -(-sum(len(text) + 2 for _, text in x_ticks) // _MAX_TICK_CHARS))
    room = max((len(unescape(text)) for _, text in y_ticks), default=1)
    size = f"--tk-tall:{layout.get('height', HEIGHT) - _AROUND_PX}px;--tk-room:{room}ch"
    grid = "".join(f'<i class="tk-plot-grid" style="bottom:{_percent(place)}"></i>' for place, _ in y_ticks)
    return (
        f'{_title(layout.get("yaxis", {}))}<div class="tk-plot-frame" style="{size}">'
        f'<div class="tk-plot-side">{_draw_ticks(y_ticks, "bottom")}</div>'
        f'<div class="tk-plot-area">{grid}{"".join(marks)}</div>'
        f'<span></span><div class="tk-plot-foot">{_draw_ticks(x_ticks[::step], "left")}</div></div>'
        f"{_title(layout.get('xaxis', {}), ' tk-plot-middle')}"
    )


_DRAW: dict[str, Callable[[Sequence[Trace], dict[str, Any]], str]] = {
    "": lambda *_: "",
    "rows": _draw_rows,
    "columns": _draw_columns,
    "points": _draw_points,
    "areas": _draw_areas,
}
