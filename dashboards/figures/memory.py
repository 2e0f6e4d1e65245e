"""Allocations stacked over time, as PyTorch's memory_viz draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from tracekit.schema import C

from ..components.text import human
from .axis import COLORWAY, LEGEND, TOTAL, add_unit, hover_name, scale_factor, shorten_label

MORE = "other groups"
EARLIER = "(before the capture)"
"""Group without a color of its own."""
OTHERS = "smaller allocations"
_HATCHED = {"shape": "/", "size": 6, "solidity": 0.25, "fillmode": "overlay", "fgcolor": "rgba(0,0,0,0.6)"}
_Path = list[tuple[int, int]]


def stack_lives(spans: Iterable[tuple[int, int, int]]) -> list[_Path]:
    """Return per allocation the times at which its lower edge moves, with the edge from then on.

    They are stacked in order of their starts; those above one that is freed drop by its size. `spans` are
    start, end and size of each, with the start before the end.
    """
    lives = list(spans)
    events = [(start, True, number) for number, (start, _, _) in enumerate(lives)]
    events += [(end, False, number) for number, (_, end, _) in enumerate(lives)]
    live: list[int] = []
    paths: list[_Path] = [[] for _ in lives]
    for time, begins, number in sorted(events):  # at equal times, frees come first
        if begins:
            paths[number].append((time, sum(lives[other][2] for other in live)))
            live.append(number)
            continue
        place = live.index(number)
        live.pop(place)
        for other in live[place:]:
            last, edge = paths[other][-1]
            lower = edge - lives[number][2]
            paths[other][-1 if last == time else len(paths[other]) :] = [(time, lower)]
    return paths


def draw_lives(
    lives: pd.DataFrame, over_time: pd.DataFrame, by: str, layers: Mapping[str, str]
) -> dict[str, Any]:
    """Draw the largest allocations as areas over time, and the bytes of all others on top of them.

    Args:
        lives: The rows of `lifetimes` of one rank and device that `over_time` counts as the largest.
        over_time: The rows of `active` of the same rank and device.
        by: Column of `lives` whose values are told apart by color.
        layers: Columns of `over_time` that part the others, by the name of the group.
    """
    wide, unit = scale_factor((int(time) for time in over_time[C.T_NS]), "ns")
    tall, size = scale_factor((int(value) for value in over_time["allocated"]), "bytes")
    sums = lives.groupby(by, sort=True)["size"].sum().sort_values(ascending=False, kind="stable")
    colored = [group for group in dict.fromkeys([*layers, *map(str, sums.index)]) if group != EARLIER]
    colors = dict(zip(colored, COLORWAY[:-1], strict=False))
    shown = lives[(lives["life_ns"] > 0) & (lives["size"] > 0)].to_dict("records")
    spans = [
        (int(row[C.START_NS]), int(row[C.START_NS]) + int(row["life_ns"]), int(row["size"])) for row in shown
    ]
    traces = []
    for row, path, (_, end, height) in zip(shown, stack_lives(spans), spans, strict=True):
        x, y = _outline(path, end, height)
        area = _area([time * wide for time in x], [edge * tall for edge in y])
        traces.append(area | _color_and_legend(str(row[by]), colors) | {"text": _hover_text(row)})
    traces += _others(over_time, layers or {OTHERS: "others"}, colors, (wide, tall))
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = trace["legendgroup"] not in seen
        seen.add(trace["legendgroup"])
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": add_unit("time", unit)}},
        "yaxis": {"title": {"text": add_unit("memory in use", size)}, "rangemode": "tozero"},
        "legend": LEGEND,
        "showlegend": True,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def _color_and_legend(group: str, colors: dict[str, str]) -> dict[str, Any]:
    """Return color and legend of an area; groups beyond the palette, and earlier allocations, are gray."""
    named = group if group in colors or group in {EARLIER, OTHERS} else MORE
    return {
        "name": shorten_label(named, 32),
        "legendgroup": hover_name(named),
        "fillcolor": colors.get(group, TOTAL),
    }


def _outline(path: _Path, end: int, size: int) -> tuple[list[int], list[int]]:
    """Return the corners of an area whose lower edge moves in steps."""
    x, y = [path[0][0]], [path[0][1]]
    for time, edge in path[1:]:
        x += [time, time]
        y += [y[-1], edge]
    x.append(end)
    y.append(y[-1])
    return [*x, *reversed(x), x[0]], [*y, *(edge + size for edge in reversed(y)), y[0]]


def _area(x: list[float], y: list[float]) -> dict[str, Any]:
    edge = {"color": "rgba(0,0,0,0.45)", "width": 0.5}
    shape = {"type": "scatter", "mode": "lines", "fill": "toself", "hoveron": "fills", "line": edge}
    return {**shape, "x": x, "y": y}


def _hover_text(row: dict[Any, Any]) -> str:
    crosses = f"<br>crosses the {row['edge']} of the capture" if row["edge"] else ""
    words = [hover_name(str(row[name])) for name in ("op", "category", "module")]
    life = f"{human(int(row['life_ns']), 'ns')} from {human(int(row[C.START_NS]), 'ns')}"
    return "<br>".join([human(int(row["size"]), "bytes"), *dict.fromkeys(words), life]) + crosses


def _others(
    over_time: pd.DataFrame, layers: Mapping[str, str], colors: dict[str, str], scales: tuple[float, float]
) -> list[dict[str, Any]]:
    """Draw what the largest allocations leave of the allocated bytes, in hatched layers on top of them."""
    moments = over_time.drop_duplicates(C.T_NS, keep="last")
    times = [int(time) * scales[0] for time in moments[C.T_NS]]
    edge = moments["largest"]
    traces = []
    for name, column in layers.items():
        lower, upper = edge, edge + moments[column]
        edge = upper
        if not moments[column].any():
            continue
        up, down = (
            _step_corners(times, [int(value) * scales[1] for value in values]) for values in (upper, lower)
        )
        traces.append(
            _area([*up[0], *reversed(down[0])], [*up[1], *reversed(down[1])])
            | _color_and_legend(name, colors)
            | {"text": OTHERS if name == OTHERS else f"{OTHERS}: {name}"}
            | {"fillpattern": _HATCHED, "line": {"width": 0}}
        )
    return traces


def _step_corners(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """Return the corners of a line whose values hold until the next."""
    later = [*x[1:], *x[-1:]]
    corners_x = [corner for pair in zip(x, later, strict=True) for corner in pair]
    return corners_x, [corner for value in y for corner in (value, value)]
