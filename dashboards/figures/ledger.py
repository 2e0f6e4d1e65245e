"""Figures of a comparison: what a step was filled with on both sides, and what its difference is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import label, scaled, texts, whole
from .bars import stacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.diff import Diff

MOST = 12
"""Causes drawn; the table holds all."""
_TERMS = {"added": 1, "removed": -1, "count": 1, "rate": 1}


def steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean step of both sides as bars of its parts.

    Args:
        rows: Parts of the wall ledger, as `diff_tables.wall` gives them, without the whole.
    """
    parts = {str(row["part"]): [row["base_ns"], row["head_ns"]] for row in rows}
    return stacked(["A, base", "B, head"], parts, "ns", title="mean step")


def waterfall(rows: Sequence[Mapping[str, Any]], total: Mapping[str, Any]) -> dict[str, Any]:
    """From the base's step to the head's, part by part.

    Args:
        rows: Parts of the wall ledger.
        total: Its whole: base, head and difference.
    """
    names = ["A, base", *(str(row["part"]) for row in rows), "B, head"]
    values = [total["base_ns"], *(row["delta_ns"] for row in rows), total["head_ns"]]
    x, unit = scaled(values, "ns")
    told = texts(values, "ns")
    told[1:-1] = [_signed(value, text) for value, text in zip(values[1:-1], told[1:-1], strict=True)]
    trace = {
        "type": "waterfall",
        "orientation": "h",
        "measure": ["absolute", *("relative" for _ in rows), "total"],
        "x": x,
        "y": list(range(len(names))),
        "text": told,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"{whole(name)}<br>{text}" for name, text in zip(names, told, strict=True)],
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
    """Where the running sum goes, with room for the text; from zero unless the changes are small."""
    known = [value or 0.0 for value in x]
    sums = [known[0]]
    for value in known[1:-1]:
        sums.append(sums[-1] + value)
    low, high = min(*sums, known[-1]), max(*sums, known[-1])
    room = (high - low) or high or 1.0
    start = low - 0.35 * room if room < 0.5 * high else min(0.0, low)
    return [start, high + (0.35 * room if room < 0.5 * high else 0.18 * (high or 1.0))]


def truncated(figure: Mapping[str, Any]) -> bool:
    """Whether the axis of a waterfall leaves zero out, which its caption must say."""
    return bool(figure["layout"]["xaxis"]["range"][0] > 0)


def terms(diff: Diff) -> dict[str, Any]:
    """The greatest causes as bars of their terms: more work to the right, less to the left.

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
    layout["barmode"] = "relative"
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
