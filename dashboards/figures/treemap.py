"""Treemap of families of ops and their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from tracekit.analysis import NODE, PARENT
from tracekit.render import human
from tracekit.schema import C

from .axis import COLORWAY, LABEL, TOTAL, hover, shorten_label

MAX_BOXES = 300
"""Maximum number of boxes."""
_MAX_NAME_CHARS = 24
"""Maximum characters of the name in a box, which is not shown if it does not fit."""


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
    for number, (node, name, value) in enumerate(_values(families, NODE, measure)):
        color = COLORWAY[number] if number < len(COLORWAY) - 1 else TOTAL
        head = f"{name} · {human(value / max(total, 1), 'share')}"  # a family with ops shows its name only
        boxes.append((f"{node}", "", head, value, color, ""))
        own_ops = shown[shown[PARENT] == node]
        boxes += [
            (f"{op}", f"{node}", op_name, op_value, color, href(op_name))
            for op, op_name, op_value in _values(own_ops, NODE, measure)
        ]
        rest = value - int(own_ops[measure].sum())
        left = int((ops[PARENT] == node).sum()) - len(own_ops)
        boxes += [(f"{node} rest", f"{node}", f"{left:,} other ops", rest, color, "")] if rest else []
    layout = {
        "height": 460,
        "margin": {"l": 0, "r": 0, "t": 8, "b": 8},
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    return {"data": [_trace(boxes, total)], "layout": layout}


def _values(rows: pd.DataFrame, node: str, measure: str) -> list[tuple[int, str, int]]:
    columns = rows[node], rows[C.NAME], rows[measure]
    return [(int(node_id), str(name), int(value)) for node_id, name, value in zip(*columns, strict=True)]


def _trace(boxes: list[tuple[str, str, str, int, str, str]], total: int) -> dict[str, Any]:
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
