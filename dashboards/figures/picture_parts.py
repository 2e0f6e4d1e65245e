"""Parts of pictures of figures: text, colors, legends, and axes with their ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape, unescape
from typing import Any, TypeAlias

from .axis import COLORWAY, unpack

Trace: TypeAlias = dict[str, Any]
Axis: TypeAlias = dict[str, Any]

HEIGHT = 320
"""Height of a figure that has none, in pixels."""
_AROUND_PX = 96
"""Part of a figure's height that its axes and its legend take."""
_MAX_TICKS = 5
_MAX_TICK_CHARS = 140
"""Maximum characters of all labels of a horizontal axis; of longer ones only some are shown."""
PAD = 0.04
"""Part of an axis that is beyond the points at either end."""
DASHES = {"dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "14 6"}
"""Lengths of the parts of a dashed line, by its name in Plotly."""
_TAIL = 14
"""Characters at the end of a long name that are shown in any case."""
_HATCHES = {"x": "crossed", ".": "dotted"}


def escape_text(text: str) -> str:
    """Return text for HTML that is escaped for Plotly."""
    return escape(unescape(text))


def write_name(text: str) -> str:
    """Return a name beside its bar; the first part of a long one is cut if there is no room for all of it."""
    name = unescape(text)
    tail = name.find("…") + 1 or len(name) - _TAIL
    if tail <= _TAIL:
        return escape(name)
    return f"<span>{escape(name[:tail])}</span><span>{escape(name[tail:])}</span>"


def write_tip(text: str) -> str:
    """Return the attribute with the hover text of a mark, which is escaped for Plotly."""
    return f' data-tip="{escape_text(text.replace("<br>", chr(10)))}"' if text else ""


def write_title(axis: Axis, names: str = "") -> str:
    """Return the title of an axis, if it has one; `names` are further classes, each after a space."""
    text = str(axis.get("title", {}).get("text", ""))
    return f'<div class="tk-plot-title{names}">{escape_text(text)}</div>' if text else ""


def write_percent(share: float) -> str:
    """Return a share for a style."""
    return f"{100 * share:.3f}%"


def write_fill(trace: Trace, place: int, number: int | None = None) -> str:
    """Return the attributes of what has the color and the pattern of a trace, after its class.

    Args:
        trace: The trace.
        place: Its place among the traces, which tells the color of one without.
        number: Number of a bar or point that may have a color of its own; None for the trace.
    """
    marker = trace.get("marker", {})
    color = trace.get("fillcolor") or marker.get("color") or trace.get("line", {}).get("color")
    if isinstance(color, list) and number is not None:
        color = color[number]
    hatch = trace.get("fillpattern", marker.get("pattern", {})).get("shape") or ""
    name = f" tk-plot-{_HATCHES.get(hatch, 'hatched')}" if hatch else ""
    shown = color if isinstance(color, str) else COLORWAY[place % len(COLORWAY)]
    is_open = marker.get("symbol", "").endswith("-open")
    return f'{name}" style="{"color" if is_open else "background-color"}:{shown}'


def draw_legend(traces: Sequence[Trace]) -> str:
    """Draw the legend, with the mark of each trace."""
    entries = []
    for place, trace in enumerate(traces):
        if not trace.get("showlegend", True):
            continue
        mark = f'<i class="{_name_symbol(trace)}{write_fill(trace, place)}"></i>'
        entries.append(f"<li>{mark}{escape_text(str(trace.get('name', '')))}</li>")
    return f'<ul class="tk-plot-legend">{"".join(entries)}</ul>'


def _name_symbol(trace: Trace) -> str:
    if trace.get("mode") == "lines" and trace.get("line", {}).get("dash") in DASHES:
        return "tk-plot-dashes"
    symbol = trace.get("marker", {}).get("symbol", "")
    return f"tk-plot-{symbol}" if symbol else "tk-plot-square"


def list_tips(trace: Trace) -> Sequence[str]:
    """Return the hover text of each point."""
    return trace.get("hovertext") or [""] * len(unpack(trace["x"]))


def find_both_ends(layout: dict[str, Any], points: Sequence[Any]) -> list[tuple[float, float]]:
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


def _find_ends(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value on an axis of points."""
    if "range" in axis:
        return axis["range"][0], axis["range"][1]
    low, high = min(values), max(values)
    if axis.get("type") == "log":
        room = (high / low) ** PAD if high > low else 2.0
        low, high = low / room, high * room
        ticks = axis.get("tickvals", ())
        if sum(low <= tick <= high for tick in ticks) < 2:  # as many as tell the scale
            low = max((tick for tick in ticks if tick <= low), default=low)
            high = min((tick for tick in ticks if tick >= high), default=high)
        return low, high
    if axis.get("rangemode") == "tozero":
        low, high = min(0.0, low), max(0.0, high)
    room = PAD * (high - low) or 1.0
    return (low if low == 0 and axis.get("rangemode") == "tozero" else low - room), high + room


def make_scale(axis: Axis, low: float, high: float) -> Callable[[float], float]:
    """Return the function from a value to its place on an axis, from 0 to 1."""
    if axis.get("type") == "log":
        return lambda value: math.log(value / low) / math.log(high / low)
    return lambda value: (value - low) / ((high - low) or 1.0)


def list_ticks(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
    """Return place and label of the ticks of an axis: its own, or multiples of `dtick` or of 1, 2 or 5."""
    values, texts = axis.get("tickvals"), axis.get("ticktext")
    if values is None:
        step = axis.get("dtick") or _find_step((high - low) or 1.0)
        numbers = range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)
        values = [step * number for number in numbers]
    if texts is None:
        suffix = axis.get("ticksuffix", "")
        texts = [write_number(value) + suffix for value in values]
    share = make_scale(axis, low, high)
    placed = [(share(value), str(text)) for value, text in zip(values, texts, strict=True)]
    return [(place, text) for place, text in placed if -1e-9 <= place <= 1 + 1e-9]


def write_number(value: float) -> str:
    """Return a number for an axis."""
    return f"{value:,.6g}".replace("-", "\N{MINUS SIGN}", value < 0)


def _find_step(span: float) -> float:
    """Return the distance of ticks.

    Example:
        >>> _find_step(9), _find_step(100), _find_step(0.7)
        (2.0, 20.0, 0.2)
    """
    power = 10.0 ** math.floor(math.log10(span / _MAX_TICKS))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= span / _MAX_TICKS * (1 - 1e-9))


def list_names(axis: Axis, count: int) -> list[tuple[float, str]]:
    """Return place and text of the names of so many columns or rows, at the middle of each."""
    places = axis.get("tickvals", range(len(axis["ticktext"])))
    return [((place + 0.5) / count, str(text)) for place, text in zip(places, axis["ticktext"], strict=True)]


def draw_ticks(ticks: Sequence[tuple[float, str]], side: str) -> str:
    """Draw the labels of an axis, of which `side` is the place in CSS."""
    return "".join(
        f'<span style="{side}:{write_percent(place)}">{escape_text(text)}</span>' for place, text in ticks
    )


def draw_frame(
    layout: dict[str, Any],
    marks: Iterable[str],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    *,
    gridded: bool = True,
) -> str:
    """Draw the axes around marks; if gridded, with a line at each tick of the values."""
    chars = sum(len(unescape(text)) + 2 for _, text in x_ticks)
    step = max(1, -(-chars // _MAX_TICK_CHARS))
    crowded = " tk-plot-crowded" * (chars // step > _MAX_TICK_CHARS // 2)
    room = max((len(unescape(text)) for _, text in y_ticks), default=1)
    size = f"--tk-tall:{layout.get('height', HEIGHT) - _AROUND_PX}px;--tk-room:{room}ch"
    lines = y_ticks if gridded else ()
    grid = "".join(
        f'<i class="tk-plot-grid" style="bottom:{write_percent(place)}"></i>' for place, _ in lines
    )
    return (
        f'{write_title(layout.get("yaxis", {}))}<div class="tk-plot-frame" style="{size}">'
        f'<div class="tk-plot-side">{draw_ticks(y_ticks, "bottom")}</div>'
        f'<div class="tk-plot-area">{grid}{"".join(marks)}</div>'
        f'<span></span><div class="tk-plot-foot{crowded}">{draw_ticks(x_ticks[::step], "left")}</div></div>'
        f"{write_title(layout.get('xaxis', {}), ' tk-plot-middle')}"
    )
