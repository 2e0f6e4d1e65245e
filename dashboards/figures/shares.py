"""Time breakdown of devices, treemap of ops, and step time and causes of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pandas as pd

from tracekit.analysis import NODE, PARENT
from tracekit.diff import Diff
from tracekit.diff.breakdowns import Range
from tracekit.schema import C

from ..components.text import human
from . import axis
from .axis import (
    COLORWAY,
    LABEL,
    LEGEND,
    STACKED,
    TOTAL,
    color,
    format_values,
    hatch,
    hover,
    row_axis,
    scale_factor,
    scale_values,
    shorten_label,
)
from .bars import stack_bars

PARTS = {
    "active": ("active_ns", color("compute"), ""),
    "data movement": ("movement_ns", color("copies"), "/"),
    "opaque graph": ("graph_ns", color("graph"), "x"),
    "idle": ("idle_ns", color("idle"), ""),
}
"""Parts of a window: column of `gpu_breakdown`, color and pattern."""
DEFINITION = (
    "Active: a kernel runs. Data movement: a copy or memset runs and no kernel does. Idle: nothing runs."
)
WINDOW, _NAMED = "window_ns", "named"


def by_device(frame: pd.DataFrame, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Draw one bar per device with its parts as shares of the window; also return a caption.

    Of many, those with the least and the most active time are drawn. `frame` is `gpu_breakdown.whole` or
    `profiled_steps`, `names` the label of each row.
    """
    active = frame[PARTS["active"][0]] / frame[WINDOW].where(frame[WINDOW] > 0, 1)
    frame, cut = axis.keep_extremes(frame.assign(**{_NAMED: names}), active, "active time")
    names = frame[_NAMED].tolist()
    windows = frame[WINDOW].tolist()
    traces = []
    for part, (column, shade, pattern) in _parts_present(frame):
        values = frame[column].tolist()
        shares = [value / window if window else 0.0 for value, window in zip(values, windows, strict=True)]
        percent, _ = scale_values(shares, "share")
        texts = format_values(shares, "share")
        rows = zip(format_values(values, "ns"), texts, format_values(windows, "ns"), strict=True)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                "x": percent,
                "y": list(range(len(names))),
                "text": [text if share >= 0.09 else "" for share, text in zip(shares, texts, strict=True)],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "textfont": {"color": "#111"},
                "marker": _marker(shade, pattern),
                **hover(names, [f"{part}: {time}<br>{share} of {length}" for time, share, length in rows]),
            }
        )
    layout = {
        "height": max(150, 78 + 30 * len(names)),  # on a phone each part has a row of the legend
        "bargap": 0.5 if len(names) == 1 else 0.2,
        **STACKED,
        "margin": {"l": 8, "r": 28, "t": 28, "b": 28},
        "xaxis": {"range": [0, 100], "dtick": 25, "ticksuffix": "%", "fixedrange": True},
        "yaxis": row_axis(names, width=24) | {"fixedrange": True},
    }
    return {"data": traces, "layout": layout}, cut


def by_step(frame: pd.DataFrame, steps: Sequence[int]) -> dict[str, Any]:
    """Draw one column per step in time units, from `gpu_breakdown.per_step` of one device."""
    scale, unit = scale_factor(frame[WINDOW].tolist(), "ns")
    windows = format_values(frame[WINDOW], "ns")
    traces = [
        {
            "type": "bar",
            "name": part,
            "x": list(range(len(steps))),
            "y": [value * scale for value in frame[column].tolist()],
            "marker": _marker(color, pattern if len(steps) <= 60 else ""),
            **hover(
                [f"step {step}" for step in steps],
                [
                    f"{part}: {text} of {length}"
                    for text, length in zip(format_values(frame[column], "ns"), windows, strict=True)
                ],
            ),
        }
        for part, (column, color, pattern) in _parts_present(frame)
    ]
    layout = {
        **STACKED,
        "bargap": 0.15 if len(steps) <= 60 else 0,
        "xaxis": step_axis(steps),
        "yaxis": {"title": {"text": f"window ({unit})"}, "rangemode": "tozero"},
    }
    return {"data": traces, "layout": layout}


def step_axis(steps: Sequence[int]) -> dict[str, Any]:
    """Return a step axis with about ten ticks."""
    tick_step = max(1, -(-len(steps) // 10))
    ticks = list(range(0, len(steps), tick_step))
    return {"title": {"text": "step"}, "tickvals": ticks, "ticktext": [str(steps[index]) for index in ticks]}


def _parts_present(frame: pd.DataFrame) -> list[tuple[str, tuple[str, str, str]]]:
    """Return the parts to show; opaque graphs only if there are any."""
    return [(part, how) for part, how in PARTS.items() if part != "opaque graph" or (frame[how[0]] > 0).any()]


def _marker(color: str, pattern: str) -> dict[str, Any]:
    return {"color": color} | ({"pattern": hatch(pattern, size=6, solidity=0.2)} if pattern else {})


MAX_CAUSES = 12
"""Maximum causes drawn; the table has all of them."""
_TERMS = {"added": 1, "removed": -1, "count": 1, "rate": 1}


def steps(rows: Sequence[Mapping[str, Any]], ranges: tuple[Range, Range] | None = None) -> dict[str, Any]:
    """Draw the mean step of both sides as stacked bars, with whiskers from the shortest to the longest step.

    `rows` are parts of the wall ledger from `diff_tables.wall`, without the total.
    """
    parts = {str(row["part"]): [row["base_ns"], row["head_ns"]] for row in rows}
    figure = stack_bars(["A, base", "B, head"], parts, "ns", title="mean step")
    if ranges:
        means = [sum(values[side] for values in parts.values()) for side in (0, 1)]
        figure["data"].append(_whiskers(means, ranges, _factor(parts)))
    return {"data": figure["data"], "layout": figure["layout"] | {"height": 220, "legend": LEGEND}}


def _factor(parts: Mapping[str, Sequence[float]]) -> float:
    """Return the factor from ns to the unit that `stacked` uses."""
    return scale_factor([value for values in parts.values() for value in values], "ns")[0]


def _whiskers(centers: Sequence[float], ranges: Sequence[Range | None], factor: float) -> dict[str, Any]:
    """Draw the least and most value of each row around a marker."""
    with_range = [
        (row, value, ends) for row, (value, ends) in enumerate(zip(centers, ranges, strict=True)) if ends
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "spread of the steps",
        "x": [value * factor for _, value, _ in with_range],
        "y": [row for row, _, _ in with_range],
        "marker": {"color": TOTAL, "size": 5},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [(ends[1] - value) * factor for _, value, ends in with_range],
            "arrayminus": [(value - ends[0]) * factor for _, value, ends in with_range],
            "color": TOTAL,
            "thickness": 1.5,
        },
        "hovertext": [" to ".join(format_values(ends, "ns")) for _, _, ends in with_range],
        "hoverinfo": "text",
    }


def waterfall(rows: Sequence[Mapping[str, Any]], total: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the change from the base's mean step to the head's, part by part.

    `rows` are parts of the wall ledger, `total` its total: base, head and difference.
    """
    names = ["A, base", *(str(row["part"]) for row in rows), "B, head"]
    changes = [row["delta_ns"] for row in rows]
    labels = format_values([total["base_ns"], *changes, total["head_ns"]], "ns")
    labels[1:-1] = [
        (f"+{text}" if value > 0 else text) for value, text in zip(changes, labels[1:-1], strict=True)
    ]
    levels = list(accumulate(changes, initial=total["base_ns"]))  # before each part, and after the last
    factor, unit = scale_factor(levels, "ns")
    levels = [level * factor for level in levels]
    ends = [(0.0, levels[0]), *map(sorted, pairwise(levels)), (0.0, levels[-1])]
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": [low for low, _ in ends],
        "x": [high - low for low, high in ends],
        "y": list(range(len(names))),
        "text": labels,
        "textposition": "outside",
        "cliponaxis": False,
        **hover(names, labels),
        "marker": {"color": [TOTAL, *map(_color_change, changes), TOTAL]},
    }
    layout = {
        "height": 70 + 26 * len(names),
        "showlegend": False,
        "xaxis": {"title": {"text": f"step ({unit})"}, "range": _range(levels)},
        "yaxis": row_axis(names),
    }
    return {"data": [trace], "layout": layout}


def _color_change(change: float) -> str:
    return "#e03131" if change > 0 else "#2f9e44" if change < 0 else TOTAL


def _range(levels: Sequence[float]) -> list[float]:
    """Return the axis range with room for text; from zero unless the changes are small."""
    low, high = min(levels), max(levels)
    room = (high - low) or high or 1.0
    start = low - 0.35 * room if room < 0.5 * high else min(0.0, low)
    return [start, high + (0.35 * room if room < 0.5 * high else 0.18 * (high or 1.0))]


def terms(diff: Diff) -> dict[str, Any]:
    """Draw the largest causes of a comparison as stacked bars of their terms: increases to the right."""
    causes, steps = diff.causes[:MAX_CAUSES], max(1, diff.compared.steps if diff.compared else 1)
    names = [cause.label for cause in causes]
    parts = {
        name: [sign * getattr(cause.terms, name) / steps for cause in causes] for name, sign in _TERMS.items()
    }
    figure = stack_bars(names, parts, "ns", title="change")
    layout = figure["layout"]
    layout |= {"barmode": "relative", "legend": LEGEND}
    layout["xaxis"] = {"title": layout["xaxis"]["title"], "zeroline": True}
    drawn = [trace for trace in figure["data"] if any(trace["x"])]
    if any(cause.change for cause in causes):
        deltas = [cause.terms.delta / steps for cause in causes]
        drawn.append(_whiskers(deltas, [cause.change for cause in causes], _factor(parts)))
    return {"data": drawn, "layout": layout}


MAX_BOXES = 300
"""Maximum number of boxes."""
_MAX_NAME_CHARS = 24  # maximum characters of the name in a box, which is not shown if it does not fit


def treemap(tree: pd.DataFrame, measure: str, href: Callable[[str], str]) -> dict[str, Any]:
    """Draw boxes by self time: families, and in each its ops; what is too small is one box per family.

    The boxes in a family sum to it exactly, and the families to the whole.

    Args:
        tree: The table `tree` of `ops`.
        measure: Column that gives the area, in ns.
        href: Address to open when the box of an op is clicked.
    """
    positive = tree[tree[measure].fillna(0) > 0]
    families = positive[positive[C.DEPTH] == 0]
    ops = positive[positive[C.DEPTH] == 1].sort_values(measure, ascending=False, kind="stable")
    shown = ops.head(max(MAX_BOXES - 2 * len(families), 0))
    total = int(families[measure].sum())
    boxes = []
    for number, (node, name, value) in enumerate(_list_boxes(families, NODE, measure)):
        shade = COLORWAY[number] if number < len(COLORWAY) - 1 else TOTAL
        head = f"{name} · {human(value / max(total, 1), 'share')}"  # a family with ops shows its name only
        boxes.append((f"{node}", "", head, value, shade, ""))
        own_ops = shown[shown[PARENT] == node]
        boxes += [
            (f"{op}", f"{node}", op_name, op_value, shade, href(op_name))
            for op, op_name, op_value in _list_boxes(own_ops, NODE, measure)
        ]
        rest = value - int(own_ops[measure].sum())
        left = int((ops[PARENT] == node).sum()) - len(own_ops)
        boxes += [(f"{node} rest", f"{node}", f"{left:,} other ops", rest, shade, "")] if rest else []
    layout = {
        "height": 460,
        "margin": {"l": 0, "r": 0, "t": 8, "b": 8},
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    return {"data": [_draw_boxes(boxes, total)], "layout": layout}


def _list_boxes(rows: pd.DataFrame, node: str, measure: str) -> list[tuple[int, str, int]]:
    columns = rows[node], rows[C.NAME], rows[measure]
    return [(int(node_id), str(name), int(value)) for node_id, name, value in zip(*columns, strict=True)]


def _draw_boxes(boxes: list[tuple[str, str, str, int, str, str]], total: int) -> dict[str, Any]:
    ids, parents, names, values, colors, addresses = (list(column) for column in zip(*boxes, strict=True))
    texts = [f"{human(value, 'ns')} · {human(value / max(total, 1), 'share')}" for value in values]
    return {
        "type": "treemap",
        "ids": ids,
        "parents": parents,
        "labels": [
            shorten_label(name, _MAX_NAME_CHARS if parent else LABEL)
            for name, parent in zip(names, parents, strict=True)
        ],
        "values": values,
        "branchvalues": "total",
        "text": texts,
        "texttemplate": "%{label}<br>%{text}",
        **hover(names, texts),
        "customdata": addresses,
        "marker": {"colors": colors, "line": {"width": 1, "color": "rgba(0,0,0,0.4)"}},
        "textfont": {"color": "#111"},
        "tiling": {"pad": 1},
        "pathbar": {"textfont": {"color": "#111"}},
    }
