"""Figures of a comparison: the step breakdown of both sides, and the causes of the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import label, scaled, texts, whole
from .bars import stacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.diff import Diff

MOST = 12
"""Maximum causes drawn; the table has all of them."""
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
_TERMS = {"added": 1, "removed": -1, "count": 1, "rate": 1}


def steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Draw the mean step of both sides as stacked bars.

    Args:
        rows: Parts of the wall ledger from `diff_tables.wall`, without the total.
    """
    parts = {str(row["part"]): [row["base_ns"], row["head_ns"]] for row in rows}
    figure = stacked(["A, base", "B, head"], parts, "ns", title="mean step")
    return {"data": figure["data"], "layout": figure["layout"] | {"height": 220, "legend": _LEGEND}}


def waterfall(rows: Sequence[Mapping[str, Any]], total: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the change from the base's mean step to the head's, part by part.

    Args:
        rows: Parts of the wall ledger.
        total: Its total: base, head and difference.
    """
    names = ["A, base", *(str(row["part"]) for row in rows), "B, head"]
    values = [total["base_ns"], *(row["delta_ns"] for row in rows), total["head_ns"]]
    x, unit = scaled(values, "ns")
    labels = texts(values, "ns")
    labels[1:-1] = [_signed(value, text) for value, text in zip(values[1:-1], labels[1:-1], strict=True)]
    trace = {
        "type": "waterfall",
        "orientation": "h",
        "measure": ["absolute", *("relative" for _ in rows), "total"],
        "x": x,
        "y": list(range(len(names))),
        "text": labels,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"{whole(name)}<br>{text}" for name, text in zip(names, labels, strict=True)],
        "hoverinfo": "text",
        "increasing": {"marker": {"color": "#e03131"}},
        "decreasing": {"marker": {"color": "#2f9e44"}},
        "totals": {"marker": {"color": "#868e96"}},
        "connector": {"line": {"color": "#868e96", "width": 1}},
    }
    return {"data": [trace], "layout": _rows(names, f"step ({unit})", _range(x))}


def _signed(value: float, text: str) -> str:
    return f"+{text}" if value > 0 else text


def _range(x: Sequence[float | None]) -> list[float]:
    """Return the axis range with room for text; from zero unless the changes are small."""
    known = [value or 0.0 for value in x]
    sums = [known[0]]
    for value in known[1:-1]:
        sums.append(sums[-1] + value)
    low, high = min(*sums, known[-1]), max(*sums, known[-1])
    room = (high - low) or high or 1.0
    start = low - 0.35 * room if room < 0.5 * high else min(0.0, low)
    return [start, high + (0.35 * room if room < 0.5 * high else 0.18 * (high or 1.0))]


def truncated(figure: Mapping[str, Any]) -> bool:
    """Return whether the axis of a waterfall does not start at zero."""
    return bool(figure["layout"]["xaxis"]["range"][0] > 0)


def terms(diff: Diff) -> dict[str, Any]:
    """Draw the largest causes as stacked bars of their terms: increases to the right.

    Args:
        diff: A comparison with causes.
    """
    causes, steps = diff.causes[:MOST], max(1, diff.compared.steps if diff.compared else 1)
    names = [one.label for one in causes]
    parts = {
        name: [sign * getattr(one.terms, name) / steps for one in causes] for name, sign in _TERMS.items()
    }
    figure = stacked(names, parts, "ns", title="change per step")
    layout = figure["layout"]
    layout |= {"barmode": "relative", "legend": _LEGEND}
    layout["xaxis"] = {"title": layout["xaxis"]["title"], "zeroline": True}
    return {"data": [trace for trace in figure["data"] if any(trace["x"])], "layout": layout}


def _rows(names: Sequence[str], title: str, shown: list[float]) -> dict[str, Any]:
    return {
        "height": 70 + 26 * len(names),
        "showlegend": False,
        "xaxis": {"title": {"text": title}, "range": shown},
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": [label(each) for each in names],
            "autorange": "reversed",
            "automargin": True,
        },
    }
