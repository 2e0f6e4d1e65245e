"""Pictures of figures: HTML that shows bars, columns, lines, points and heatmaps without a script.

Places and lengths are shares of the room, so that a picture fits any width while its text keeps its size;
`assets/picture.css` has the styles, also of those in reports. What only Plotly draws has no picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from .axis import COLORWAY, SEQUENTIAL, unpack
from .picture_parts import (
    DASHES,
    PAD,
    Axis,
    Trace,
    draw_frame,
    draw_legend,
    draw_ticks,
    escape_text,
    find_both_ends,
    list_names,
    list_ticks,
    list_tips,
    make_scale,
    write_fill,
    write_name,
    write_number,
    write_percent,
    write_tip,
    write_title,
)

_MAX_POINTS = 4_000
"""Maximum points of a line, which is more than a line has pixels."""
_STACKED = {"stack", "relative"}
_DARK = 0.55
"""Part of the scale of colors on which white text is legible."""
_MAX_NARROW_CHARS = 36
"""Maximum characters of a row of values that are apart on a phone."""
_THIN = 0.004
"""Part of the room below which an area has no edge but its color."""
_VIEW = 1_000
"""Width and height of the picture of lines, in its own units."""


def draw_picture(figure: dict[str, Any], *, label: str) -> str:
    """Draw a figure as an HTML element; empty for what only Plotly draws.

    Args:
        figure: A figure, whose text is escaped, as Plotly reads it.
        label: Accessible name.

    Example:
        >>> draw_picture({"data": [], "layout": {}}, label="nothing")
        ''
    """
    kinds = {_kind(trace) for trace in figure["data"]}
    kind = kinds.pop() if len(kinds) == 1 else ""
    if not kind or not _knows_marks(figure["layout"], kind):
        return ""
    traces, layout = _number_names(figure, "y" if kind == "rows" else "x")
    body = _DRAW[kind](traces, layout)
    if not body:
        return ""
    legend = draw_legend(traces) if layout.get("showlegend", len(traces) > 1) else ""
    return f'<div class="tk-plot" role="group" aria-label="{escape(label)}">{legend}{body}</div>'


def _kind(trace: Trace) -> str:
    """Return how a trace is drawn; empty for by Plotly only."""
    if trace["type"] == "heatmap":
        return "cells"
    if trace["type"] == "bar":
        return "rows" if trace.get("orientation") == "h" else "columns"
    if fill := trace.get("fill"):
        return "areas" if fill == "toself" else ""
    if "error_x" in trace:
        return "rows"
    return "points" if trace["type"] in {"scatter", "scattergl"} else ""


def _knows_marks(layout: dict[str, Any], kind: str) -> bool:
    """Return whether all that is drawn over a figure is vertical lines, and texts at their upper ends."""
    shapes, notes = layout.get("shapes", ()), layout.get("annotations", ())
    is_vertical = all(shape.get("yref") == "paper" and shape["x0"] == shape["x1"] for shape in shapes)
    return not (shapes or notes) or (is_vertical and (kind == "points" or (kind == "rows" and not notes)))


def _number_names(figure: dict[str, Any], key: str) -> tuple[list[Trace], dict[str, Any]]:
    """Return traces and layout with numbers in place of names on an axis, which then has these as ticks."""
    traces, layout = figure["data"], figure["layout"]
    axis = layout.get(f"{key}axis", {})
    values = [unpack(trace.get(key, ())) for trace in traces]
    is_named = axis.get("type") == "category" or any(isinstance(value, str) for of in values for value in of)
    if not is_named:
        return traces, layout
    names = list(dict.fromkeys(str(value) for of_trace in values for value in of_trace))
    places = {name: place for place, name in enumerate(names)}
    numbered = [
        trace | {key: [places[str(value)] for value in of_trace]}
        for trace, of_trace in zip(traces, values, strict=True)
    ]
    ticks = {"tickvals": list(places.values()), "ticktext": names}
    shown = {**axis, **ticks, "type": "linear", "range": [-0.5, len(names) - 0.5]}
    return numbered, layout | {f"{key}axis": shown}


class _Bar(NamedTuple):
    """A bar: number of its trace, row or column, ends on the axis of values, and whether it is negative."""

    place: int
    position: int
    low: float
    high: float
    is_negative: bool
    fill: str
    text: str
    tip: str


def _list_bars(traces: Sequence[Trace], across: str, along: str, *, stacked: bool) -> list[_Bar]:
    """Return the bars of all traces; if stacked, each begins where the one before it on its side of 0 ends.

    Args:
        traces: Traces, of which those of bars count.
        across: Key of the rows or columns.
        along: Key of the lengths.
        stacked: Whether the bars of a row or column are one behind the other.
    """
    ends: dict[tuple[int, bool], float] = {}
    bars = []
    for place, trace in enumerate(traces):
        if trace["type"] != "bar":
            continue
        lengths, nothing = unpack(trace[along]), [""] * len(trace[across])
        bases = trace.get("base") or [0.0] * len(lengths)
        texts, tips = trace.get("text") or nothing, trace.get("hovertext") or nothing
        for number, (position, length) in enumerate(zip(trace[across], lengths, strict=True)):
            is_negative = (length or 0) < 0
            start = ends.get((position, is_negative), 0.0) if stacked else bases[number]
            end = ends[position, is_negative] = start + (length or 0)
            fill, text = write_fill(trace, place, number), str(texts[number] or "")
            sides = min(start, end), max(start, end)
            bars.append(_Bar(place, position, *sides, is_negative, fill, text, str(tips[number])))
    return bars


class _Spot(NamedTuple):
    """A point in a row, and the ends of its whisker on the axis of values."""

    position: int
    value: float
    low: float
    high: float
    fill: str
    tip: str


def _list_spots(traces: Sequence[Trace]) -> list[_Spot]:
    """Return the points of the traces with whiskers along the rows."""
    return [
        _Spot(position, value, value - below, value + above, write_fill(trace, place, number), str(tip))
        for place, trace in enumerate(traces)
        if "error_x" in trace
        for number, (position, value, below, above, tip) in enumerate(
            zip(trace["y"], trace["x"], *_errors(trace["error_x"]), list_tips(trace), strict=True)
        )
    ]


def _errors(error: dict[str, Any]) -> tuple[Sequence[float], Sequence[float]]:
    """Return how far whiskers reach below and above their points."""
    return error["arrayminus"], error["array"]


def _draw_rows(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw horizontal bars, and points with whiskers: a grid of names and tracks, the first at the top."""
    names, axis, mode = layout["yaxis"].get("ticktext"), layout["xaxis"], layout.get("barmode", "group")
    bars, spots = _list_bars(traces, "y", "x", stacked=mode in _STACKED), _list_spots(traces)
    if names is None or not (bars or spots):
        return ""
    inside = [trace.get("textposition") == "inside" for trace in traces]
    outer = [bar for bar in bars if bar.text and not inside[bar.place]]
    low, high = _find_row_ends(axis, [*bars, *spots], has_outer=bool(outer))
    share = make_scale(axis, low, high)
    is_beside = mode == "group" and len({bar.place for bar in bars}) > 1
    tracks: dict[int, dict[int, str]] = {row: {} for row in range(len(names))}  # by row and trace
    for bar in bars:
        if len(traces) > 1 and bar.low == bar.high and not bar.text:
            continue  # it would be a line at the end of the bar before it
        track, place = tracks[bar.position], bar.place if is_beside else 0
        track[place] = track.get(place, "") + _draw_bar(bar, share, is_inside=inside[bar.place])
    for spot in spots:
        tracks[spot.position][0] = tracks[spot.position].get(0, "") + _draw_spot(spot, share)
    limits = [shape["x0"] for shape in layout.get("shapes", ())] + [0.0] * (low < 0)
    lines = "".join(  # a part in each row
        f'<i class="tk-plot-limit" style="left:{write_percent(share(limit))}"></i>'
        for limit in limits
        if low <= limit <= high
    )
    rows = (_draw_row(name, of_row, lines) for name, of_row in zip(names, tracks.values(), strict=True))
    ticks, nothing = list_ticks(axis, low, high), '<span class="tk-plot-nothing"></span>'
    sides = {bar.is_negative for bar in outer}
    looks = f"{' tk-plot-values' * (False in sides)}{' tk-plot-lefts' * (True in sides)}"
    first, *later = [place for place, _ in ticks] or [0.0]
    size = f"--tk-first:{write_percent(first)};--tk-step:{write_percent(later[0] - first if later else 1)}"
    return (
        f'<div class="tk-plot-rows{looks}{" tk-plot-beside" * is_beside}" style="{size}">'
        f'{"".join(rows)}{nothing}<div class="tk-plot-foot">{draw_ticks(ticks, "left")}</div>'
        f"{nothing}{write_title(axis)}</div>"
    )


def _find_row_ends(axis: Axis, marks: Sequence[_Bar | _Spot], *, has_outer: bool) -> tuple[float, float]:
    """Return the ends of an axis of bars.

    Args:
        axis: The axis.
        marks: What is drawn on it.
        has_outer: Whether texts are beyond the bars: there, a range has room, and a picture has margins.
    """
    least, most = axis.get("range", (0.0, 0.0))
    if "range" in axis and not has_outer:
        return least, most
    low = min(0.0, *(mark.low for mark in marks)) if least <= 0 else least
    high = max(0.0, *(mark.high for mark in marks))
    room = 0.0 if any(isinstance(mark, _Bar) for mark in marks) else PAD * (high - low)
    return low - room, high + room if high > low else low + 1.0


def _draw_row(name: str, tracks: dict[int, str], lines: str) -> str:
    """Draw a name and the tracks beside it, of which there is at least one."""
    bodies = [body for _, body in sorted(tracks.items())] or [""]
    span = f' style="grid-row:span {len(bodies)}"' if len(bodies) > 1 else ""
    drawn = "".join(f'<span class="tk-plot-track">{body}{lines}</span>' for body in bodies)
    return f'<span class="tk-plot-name"{span}>{write_name(name)}</span>{drawn}'


def _draw_bar(bar: _Bar, share: Callable[[float], float], *, is_inside: bool) -> str:
    """Draw a bar with its text, in it or at its end."""
    left, right = max(0.0, share(bar.low)), share(bar.high)
    within = f"<b>{escape_text(bar.text)}</b>" if bar.text and is_inside else ""
    size = f"left:{write_percent(left)};width:{write_percent(right - left)}"
    drawn = f'<span class="tk-plot-bar{bar.fill};{size}"{write_tip(bar.tip)}>{within}</span>'
    if bar.text and not is_inside:
        side = f"right:{write_percent(1 - left)}" if bar.is_negative else f"left:{write_percent(right)}"
        drawn += f'<span class="tk-plot-value" style="{side}">{escape_text(bar.text)}</span>'
    return drawn


def _draw_spot(spot: _Spot, share: Callable[[float], float]) -> str:
    """Draw a point in a row with its whisker."""
    left, right = share(spot.low), share(spot.high)
    size = f"left:{write_percent(left)};width:{write_percent(right - left)}"
    at = f"left:{write_percent(share(spot.value))};bottom:50%;--tk-size:8px"
    dot = f'<span class="tk-plot-dot tk-plot-circle{spot.fill};{at}"{write_tip(spot.tip)}></span>'
    return f'<i class="tk-plot-whisker{spot.fill};{size}"></i>{dot}'


MIN_COLUMNS = 4
"""Columns that there is room for at least: one alone would fill the picture."""


def _draw_columns(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw vertical bars, stacked or beside each other."""
    axis, mode = layout["xaxis"], layout.get("barmode", "group")
    bars = _list_bars(traces, "x", "y", stacked=mode in _STACKED)
    is_plain = all(not bar.is_negative and isinstance(bar.position, int) for bar in bars)
    if not bars or not is_plain or "ticktext" not in axis:
        return ""
    count = max(MIN_COLUMNS, 1 + max(bar.position for bar in bars))
    top = max(bar.high for bar in bars) or 1.0
    beside = len(traces) if mode == "group" else 1
    gap = layout.get("bargap", 0.25)
    width = (1 - gap) / count / beside
    marks = []
    for bar in bars:
        left = (bar.position + gap / 2) / count + (bar.place * width if beside > 1 else 0)
        size = (
            f"left:{write_percent(left)};width:{write_percent(width)};bottom:{write_percent(bar.low / top)}"
        )
        fill = f"{bar.fill};{size};height:{write_percent((bar.high - bar.low) / top)}"
        marks.append(f'<span class="tk-plot-column{fill}"{write_tip(bar.tip)}></span>')
    return draw_frame(layout, marks, list_names(axis, count), list_ticks(layout["yaxis"], 0, top))


def _draw_points(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw lines, and points, of which each has its hover text, and perhaps a whisker and an address."""
    drawn: list[list[tuple[Any, Any]]] = [
        list(zip(unpack(trace["x"]), unpack(trace["y"]), strict=True)) for trace in traces
    ]
    reached = [
        (x, y + side)
        for trace, points in zip(traces, drawn, strict=True)
        if "error_y" in trace
        for (x, y), *errors in zip(points, *_errors(trace["error_y"]), strict=True)
        for side in (-errors[0], errors[1])
        if y is not None
    ]
    ends = find_both_ends(layout, [point for points in (*drawn, reached) for point in points])
    if not ends:
        return ""
    (x_axis, y_axis), (x_ends, y_ends) = (layout.get(name, {}) for name in ("xaxis", "yaxis")), ends
    x_share, y_share = make_scale(x_axis, *x_ends), make_scale(y_axis, *y_ends)
    placed = [
        [None if x is None or y is None else (x_share(x), y_share(y)) for x, y in points] for points in drawn
    ]
    lines = "".join(
        _draw_line(trace, place, points)
        for place, (trace, points) in enumerate(zip(traces, placed, strict=True))
        if "lines" in trace["mode"]
    )
    view = f'viewBox="0 0 {_VIEW} {_VIEW}" preserveAspectRatio="none" aria-hidden="true"'
    marks = [f'<svg class="tk-plot-lines" {view}>{lines}</svg>'] if lines else []
    marks += _draw_limits(layout, x_share)
    for place, (trace, points) in enumerate(zip(traces, placed, strict=True)):
        if "error_y" in trace:
            marks += _draw_whiskers(trace, place, points, y_share)
        marks += _draw_dots(trace, place, points) if "markers" in trace["mode"] else ()
    return draw_frame(layout, marks, list_ticks(x_axis, *x_ends), list_ticks(y_axis, *y_ends))


def _draw_limits(layout: dict[str, Any], x_share: Callable[[float], float]) -> Iterator[str]:
    """Yield vertical lines, and the texts at their upper ends."""
    for shape in layout.get("shapes", ()):
        yield f'<i class="tk-plot-limit" style="left:{write_percent(x_share(shape["x0"]))}"></i>'
    for note in layout.get("annotations", ()):
        left = write_percent(x_share(note["x"]))
        yield f'<span class="tk-plot-note" style="left:{left}">{escape_text(note["text"])}</span>'


def _draw_areas(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw closed areas, each with its hover text; those with a pattern are elements that are cut out."""
    outlines = [list(zip(*map(unpack, (trace["x"], trace["y"])), strict=True)) for trace in traces]
    ends = find_both_ends(layout, [point for outline in outlines for point in outline])
    if not ends:
        return ""
    (x_axis, y_axis), (x_ends, y_ends) = (layout.get(name, {}) for name in ("xaxis", "yaxis")), ends
    x_share, y_share = make_scale(x_axis, *x_ends), make_scale(y_axis, *y_ends)
    shapes, cut = [], []
    for place, (trace, outline) in enumerate(zip(traces, outlines, strict=True)):
        fill, tip = write_fill(trace, place), write_tip(str(trace.get("text", "")))
        placed = [(x_share(x), 1 - y_share(y)) for x, y in outline]
        if "fillpattern" in trace:
            corners = ",".join(f"{100 * x:.2f}% {100 * y:.2f}%" for x, y in placed)
            cut.append(f'<span class="tk-plot-cut{fill};clip-path:polygon({corners})"{tip}></span>')
        else:
            corners = " ".join(f"{_VIEW * x:.1f},{_VIEW * y:.1f}" for x, y in placed)
            color = fill.rpartition(":")[2]
            wide = max(x for x, _ in placed) - min(x for x, _ in placed)
            edge = f' style="stroke:{color};stroke-width:1px"' if wide < _THIN else ""  # else all edge
            shapes.append(f'<polygon points="{corners}" fill="{color}"{edge}{tip}/>')
    view = f'viewBox="0 0 {_VIEW} {_VIEW}" preserveAspectRatio="none" aria-hidden="true"'
    marks = [*cut, f'<svg class="tk-plot-lines" {view}>{"".join(shapes)}</svg>']
    return draw_frame(layout, marks, list_ticks(x_axis, *x_ends), list_ticks(y_axis, *y_ends))


def _draw_cells(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """Draw the cells of a heatmap, the first row at the top, below the scale of their colors."""
    trace = traces[0]
    tall, wide = len(trace["z"]), len(trace["z"][0])
    known = [value for row in trace["z"] for value in row if value is not None]
    if not known or len(traces) > 1:
        return ""
    low, high = min(known), max(known)
    cells, texts = [], []
    for y, row in enumerate(trace["z"]):
        for x, value in enumerate(row):
            if value is None:
                continue
            share = (value - low) / ((high - low) or 1.0)
            color, tip = SEQUENTIAL[round(share * (len(SEQUENTIAL) - 1))], write_tip(trace["hovertext"][y][x])
            cells.append(f'<rect x="{x}" y="{y}" width="1" height="1" fill="{color}"{tip}/>')
            if "text" in trace:
                at = f"left:{write_percent((x + 0.5) / wide)};top:{write_percent((y + 0.5) / tall)}"
                ink = "#fff" if share < _DARK else "#111"
                texts.append(f'<b style="{at};color:{ink}">{escape_text(trace["text"][y][x])}</b>')
    view = f'viewBox="0 0 {wide} {tall}" preserveAspectRatio="none" aria-hidden="true"'
    longest = max((len(text) for row in trace.get("text", ()) for text in row), default=0)
    small = " tk-plot-small" * (wide * (longest + 2) > _MAX_NARROW_CHARS)
    marks = [f'<svg class="tk-plot-lines tk-plot-cells{small}" {view}>{"".join(cells)}</svg>', *texts]
    sides = [(1 - place, text) for place, text in list_names(layout["yaxis"], tall)]
    frame = draw_frame(layout, marks, list_names(layout["xaxis"], wide), sides, gridded=False)
    return _draw_scale(trace["colorbar"]["title"]["text"], low, high) + frame


def _draw_scale(title: str, low: float, high: float) -> str:
    """Draw the colors of a heatmap between its least and its largest value."""
    colors = f'<i style="background:linear-gradient(90deg,{",".join(SEQUENTIAL)})"></i>'
    ends = (f"<span>{write_number(float(f'{value:.3g}'))}</span>" for value in (low, high))
    return f'<div class="tk-plot-scale">{escape_text(title)}{colors.join(ends)}</div>'


def _draw_line(trace: Trace, place: int, places: Sequence[tuple[float, float] | None]) -> str:
    """Draw a line, which missing values interrupt."""
    line = trace.get("line", {})
    color = line.get("color") or trace.get("marker", {}).get("color")
    color = color if isinstance(color, str) else COLORWAY[place % len(COLORWAY)]
    dash = DASHES.get(line.get("dash", ""), "")
    dashed = f" stroke-dasharray={dash!r}" if dash else ""
    look = f'stroke="{color}" stroke-width="{line.get("width", 2)}"{dashed}'
    shown = places[:: max(1, len(places) // _MAX_POINTS)]
    parts = []
    for is_gap, group in groupby(shown, key=lambda at: at is None):
        if not is_gap:
            path = " ".join(_corners((at for at in group if at), line.get("shape", "linear")))
            parts.append(f'<polyline points="{path}" {look}/>')
    return "".join(parts)


def _corners(points: Iterable[tuple[float, float]], shape: str) -> Iterator[str]:
    """Yield the corners of a line: `hv` holds each value until the next, `hvh` half of the way."""
    before = None
    for x, y in points:
        if before and shape != "linear":
            turn = x if shape == "hv" else (before[0] + x) / 2
            yield f"{_VIEW * turn:.1f},{_VIEW * (1 - before[1]):.1f}"
            if shape == "hvh":
                yield f"{_VIEW * turn:.1f},{_VIEW * (1 - y):.1f}"
        before = x, y
        yield f"{_VIEW * x:.1f},{_VIEW * (1 - y):.1f}"


def _draw_whiskers(
    trace: Trace, place: int, points: Sequence[tuple[float, float] | None], y_share: Callable[[float], float]
) -> Iterator[str]:
    """Yield the whiskers of points, upright."""
    fill = write_fill(trace, place)
    for point, y, below, above in zip(points, trace["y"], *_errors(trace["error_y"]), strict=True):
        if point is not None:
            low, high = y_share(y - below), y_share(y + above)
            at = f"left:{write_percent(point[0])};bottom:{write_percent(low)}"
            yield f'<i class="tk-plot-rod{fill};{at};height:{write_percent(high - low)}"></i>'


def _draw_dots(trace: Trace, place: int, points: Sequence[tuple[float, float] | None]) -> Iterator[str]:
    """Yield the points of a trace; the area of each is its weight, and those with an address are links."""
    size = trace.get("marker", {}).get("size", 6)
    sizes = [size] * len(points) if isinstance(size, int | float) else unpack(size)
    symbol = trace.get("marker", {}).get("symbol", "circle")
    hrefs = trace.get("customdata") or [""] * len(points)
    for number, (point, tip) in enumerate(zip(points, list_tips(trace), strict=True)):
        if point is None:
            continue
        spot = (
            f"left:{write_percent(point[0])};bottom:{write_percent(point[1])};--tk-size:{sizes[number]:.0f}px"
        )
        names = f"tk-plot-dot tk-plot-{symbol}"
        look = f'{write_fill(trace, place, number)};{spot}"{write_tip(str(tip))}'
        if hrefs[number]:  # a table has the same links, for the keyboard
            name = escape_text(str(tip).replace("<br>", ", "))
            link = f'href="{escape(hrefs[number])}" tabindex="-1" aria-label="{name}"'
            yield f'<a class="tk-go {names}{look} {link}></a>'
        else:
            yield f'<span class="{names}{look}></span>'


_DRAW: dict[str, Callable[[Sequence[Trace], dict[str, Any]], str]] = {
    "": lambda *_: "",
    "rows": _draw_rows,
    "columns": _draw_columns,
    "points": _draw_points,
    "areas": _draw_areas,
    "cells": _draw_cells,
}
