"""Heatmaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import label, scaled, texts, titled, whole
from .palette import DIVERGING, SEQUENTIAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    Numbers = Sequence[float | None]


def heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Numbers],
    unit: str,
    *,
    title: str = "",
    row_title: str = "",
    column_title: str = "",
    diverging: bool = False,
) -> dict[str, Any]:
    """Draw a heatmap, the first row at the top; small ones show values in the cells.

    Args:
        rows: Names of the rows; any text.
        columns: Names of the columns.
        values: One list per row; None leaves a cell empty.
        unit: Unit of the values.
        title: Title of the colour scale.
        row_title: Title of the row axis.
        column_title: Title of the column axis.
        diverging: Whether to use a diverging colour scale around zero, as for differences.

    Example:
        >>> heatmap(["rank 0"], ["step 1"], [[2_000_000]], "ns")["data"][0]["z"]
        [[2.0]]
    """
    width = len(columns)
    flat, name = scaled([value for row in values for value in row], unit)
    human = texts([value for row in values for value in row], unit)
    cells = [flat[at * width : (at + 1) * width] for at in range(len(rows))]
    written = [human[at * width : (at + 1) * width] for at in range(len(rows))]
    trace = {
        "type": "heatmap",
        "x": list(range(width)),
        "y": list(range(len(rows))),
        "z": cells,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"title": {"text": titled(title, name)}, "thickness": 12},
        "hovertext": [
            [f"{whole(row)}<br>{whole(column)}: {text}" for column, text in zip(columns, line, strict=True)]
            for row, line in zip(rows, written, strict=True)
        ],
        "hoverinfo": "text",
    } | _colours(diverging=diverging)
    if width <= 12 and len(rows) <= 30:
        trace |= {"text": written, "texttemplate": "%{text}"}
    layout = {
        "height": max(210, 90 + 26 * min(len(rows), 40)),
        "xaxis": _named(columns, column_title),
        "yaxis": _named(rows, row_title) | {"autorange": "reversed"},
    }
    return {"data": [trace], "layout": layout}


def _colours(*, diverging: bool) -> dict[str, Any]:
    if diverging:
        return {"colorscale": [list(stop) for stop in DIVERGING], "zmid": 0}
    return {"colorscale": SEQUENTIAL}


def _named(names: Sequence[str], title: str) -> dict[str, Any]:
    every = max(1, len(names) // 40)
    return {
        "title": {"text": label(title)},
        "tickvals": list(range(0, len(names), every)),
        "ticktext": [label(name, 32) for name in names[::every]],
        "automargin": True,
        "showgrid": False,
    }
