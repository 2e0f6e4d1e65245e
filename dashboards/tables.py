"""Tables: a result's DataFrame and its columns' metadata as a grid that sorts, filters and can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_ag_grid as dag

from tracekit.render import data

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

    from tracekit.analysis import Column, TableSpec

    from .context import Context

KIND = "table"
NUMBERS = {"ns", "bytes", "share", "count", "GB/s", "TFLOP/s", "FLOP", "×"}


def table(context: Context, page: str, spec: TableSpec, frame: pd.DataFrame) -> Component:
    """A grid of a table of a result.

    Args:
        context: What is looked at; gives the theme.
        page: Name of the analysis, for the id.
        spec: The table's metadata.
        frame: Its rows.
    """
    return dag.AgGrid(
        id={"type": KIND, "page": page, "name": spec.name},
        className="ag-theme-alpine-dark tk-grid" if context.dark else "ag-theme-alpine tk-grid",
        columnDefs=[_column(column) for column in spec.columns],
        rowData=data.records(frame, spec.columns),
        columnSize="responsiveSizeToFit",
        dashGridOptions={"domLayout": "autoHeight" if len(frame) <= 15 else "normal"},
    )


def _column(column: Column) -> dict[str, Any]:
    number = column.unit in NUMBERS
    return {
        "field": column.name,
        "headerName": column.name.replace("_", " "),
        "headerTooltip": column.meaning,
        "type": "rightAligned" if number else None,
        "valueFormatter": {"function": f"tracekit.human(params.value, '{column.unit}')"},
        "filter": "agNumberColumnFilter" if number else "agTextColumnFilter",
        "sortable": True,
        "resizable": True,
    }
