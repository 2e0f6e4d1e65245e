"""Allocations stacked over time, as PyTorch's memory_viz draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human
from tracekit.schema import C

from .axis import COLORWAY, LEGEND, TOTAL, label, scale_factor, titled, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

GROUPS = len(COLORWAY) - 1
"""Maximum groups with a colour of their own."""
MORE = "other groups"
OTHERS = "smaller allocations"
_Path = list[tuple[int, int]]


def stack(spans: Iterable[tuple[int, int, int]]) -> list[_Path]:
    """Stack allocations in order of their starts; those above one that is freed drop by its size.

    Args:
        spans: Start, end and size of each, with the start before the end.

    Returns:
        Per allocation the times at which its lower edge moves, with the edge from then on.

    Example:
        >>> stack([(0, 20, 5), (10, 30, 7)])
        [[(0, 0)], [(10, 5), (20, 0)]]
    """
    known = list(spans)
    events = [(start, True, at) for at, (start, _, _) in enumerate(known)]
    events += [(end, False, at) for at, (_, end, _) in enumerate(known)]
    live: list[int] = []
    paths: list[_Path] = [[] for _ in known]
    for time, begins, at in sorted(events):  # at equal times, frees come first
        if begins:
            paths[at].append((time, sum(known[one][2] for one in live)))
            live.append(at)
            continue
        place = live.index(at)
        live.pop(place)
        for one in live[place:]:
            last, edge = paths[one][-1]
            lower = edge - known[at][2]
            paths[one][-1 if last == time else len(paths[one]) :] = [(time, lower)]
    return paths


def active(lives: pd.DataFrame, over_time: pd.DataFrame, by: str) -> dict[str, Any]:
    """Draw the largest allocations as areas over time, and the bytes of all others on top of them.

    Args:
        lives: The rows of `lifetimes` of one rank and device that `over_time` counts as the largest.
        over_time: The rows of `active` of the same rank and device.
        by: Column of `lives` whose values are told apart by colour.
    """
    shown = lives[(lives["life_ns"] > 0) & (lives["size"] > 0)].to_dict("records")
    wide, unit = scale_factor((int(time) for time in over_time[C.T_NS]), "ns")
    tall, size = scale_factor((int(value) for value in over_time["allocated"]), "bytes")
    ends = [int(row[C.START_NS]) + int(row["life_ns"]) for row in shown]
    paths = stack((int(row[C.START_NS]), end, int(row["size"])) for row, end in zip(shown, ends, strict=True))
    groups = _groups(lives, by)
    traces = []
    named: set[str] = set()
    for row, end, path in zip(shown, ends, paths, strict=True):
        group = str(row[by]) if str(row[by]) in groups else MORE
        x, y = _outline(path, end, int(row["size"]))
        traces.append(
            _area([time * wide for time in x], [edge * tall for edge in y])
            | {"name": label(group, 40), "legendgroup": group, "showlegend": group not in named}
            | {"fillcolor": groups.get(group, TOTAL), "text": _described(row), "hoverinfo": "text"}
        )
        named.add(group)
    traces.append(_others(over_time, wide, tall))
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": titled("time", unit)}},
        "yaxis": {"title": {"text": titled("memory in use", size)}, "rangemode": "tozero"},
        "legend": LEGEND,
        "showlegend": True,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def _groups(lives: pd.DataFrame, by: str) -> dict[str, str]:
    """Colour of each group with a colour, the largest first."""
    sums = lives.groupby(by, sort=True)["size"].sum().sort_values(ascending=False, kind="stable")
    return {str(name): COLORWAY[at] for at, name in enumerate(sums.index[:GROUPS])}


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
    return {
        "type": "scatter",
        "mode": "lines",
        "fill": "toself",
        "hoveron": "fills",
        "line": edge,
        "x": x,
        "y": y,
    }


def _described(row: dict[str, Any]) -> str:
    crosses = f"<br>crosses the {row['edge']} of the capture" if row["edge"] else ""
    words = [whole(str(row[name])) for name in ("op", "category", "module")]
    life = f"{human(int(row['life_ns']), 'ns')} from {human(int(row[C.START_NS]), 'ns')}"
    return "<br>".join([human(int(row["size"]), "bytes"), *dict.fromkeys(words), life]) + crosses


def _others(over_time: pd.DataFrame, wide: float, tall: float) -> dict[str, Any]:
    """Draw what the largest allocations leave of the allocated bytes."""
    moments = over_time.drop_duplicates(C.T_NS, keep="last")
    times = [int(time) * wide for time in moments[C.T_NS]]
    upper = _stepped(times, [int(value) * tall for value in moments["allocated"]])
    lower = _stepped(times, [int(value) * tall for value in moments["largest"]])
    x = [*upper[0], *reversed(lower[0])]
    pattern = {"shape": "/", "size": 6, "fgcolor": TOTAL, "solidity": 0.3, "fillmode": "overlay"}
    more = {"name": OTHERS, "fillcolor": "rgba(134,142,150,0.35)", "fillpattern": pattern}
    return _area(x, [*upper[1], *reversed(lower[1])]) | more | {"text": OTHERS, "hoverinfo": "text"}


def _stepped(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """Return the corners of a line whose values hold until the next."""
    later = [*x[1:], *x[-1:]]
    corners_x = [each for pair in zip(x, later, strict=True) for each in pair]
    return corners_x, [each for value in y for each in (value, value)]
