"""Tables: a result's DataFrame and its columns' metadata as a grid that sorts, filters and can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import html

from tracekit import registry
from tracekit.analysis import get
from tracekit.errors import TracekitError
from tracekit.render.cells import clean
from tracekit.render.headers import header

from ..parts.aria import aria
from .columns import jump, shown
from .formats import cells, column

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

    from tracekit.analysis import Column, TableSpec
    from tracekit.render.data import Record

    from ..context import Context
    from .columns import Shown

KIND = "table"
MOST = 20_000
"""Rows that go to the browser at most; beyond them it asks for what is scrolled to."""
CELLS = 150_000
"""Cells that go to the browser at most where the others can be asked for: about 8 MB."""
SMALL = 16
"""Tables up to so many rows are as high as they are; longer ones scroll."""
ROW = 30
_HEAD = 34
_BLOCK = 200
_SAMPLE = 1_000
"""Rows that widths of a long table are told from."""


def table(
    context: Context,
    page: str,
    spec: TableSpec,
    frame: pd.DataFrame,
    *,
    title: str = "",
    empty: str = "",
) -> Component:
    """A table of a result: how many rows, a filter, its CSV, and a grid.

    Args:
        context: What is looked at.
        page: Name of the analysis, for the id.
        spec: The table's metadata.
        frame: Its rows.
        title: Heading; none by default.
        empty: Why there are no rows, where there are none.
    """
    if not len(frame):
        return html.Section(
            [*_title(title), dmc.Text(empty or "No rows.", c="dimmed", size="sm")], className="tk-section"
        )
    many = _long(frame) and _whole(context, page, spec, frame)
    columns = shown(frame, spec.columns, _SAMPLE if many else MOST)
    missing = [clean(header(one.column)) for one in columns if one.empty]
    return html.Section(
        [
            _bar(context, page, spec, len(frame), title=title, many=many),
            _grid(context, page, spec, columns, many=many, rows=len(frame)),
            dmc.Text(f"Without values here: {', '.join(missing)}.", size="xs", c="dimmed")
            if missing
            else None,
        ],
        className="tk-table tk-section",
        **aria(label=clean(spec.title)),
    )


def _long(frame: pd.DataFrame) -> bool:
    return len(frame) > MOST or frame.size > CELLS


def _whole(context: Context, page: str, spec: TableSpec, frame: pd.DataFrame) -> bool:
    """Whether the rows are those of the kept result, so that more of them can be asked for later."""
    if not csv_address(context, page, spec):
        return False
    kept = context.result(page).tables.get(spec.name)
    return kept is not None and len(kept) == len(frame)


def _title(title: str) -> list[Component]:
    return [dmc.Title(title, order=2, size="h4")] if title else []


def _bar(context: Context, page: str, spec: TableSpec, rows: int, *, title: str, many: bool) -> Component:
    count = f"{rows:,} row" if rows == 1 else f"{rows:,} rows"
    if rows > MOST and not many:
        count = f"the first {MOST:,} of {count}"
    quick = dmc.TextInput(
        placeholder="Filter",
        size="xs",
        w=200,
        className="tk-filter",
        **aria(label=f"Filter {clean(spec.title)}"),
    )
    address = csv_address(context, page, spec)
    link = html.A(
        "CSV",
        href=address,
        download="",
        className="tk-tool",
        title="Exact values of all rows",
        **aria(label=f"CSV of {clean(spec.title)}"),
    )
    return html.Div(
        [
            *_title(title),
            html.Span(count, className="tk-count"),
            html.Span(className="tk-grow"),
            *([quick] if rows > SMALL // 2 else []),
            *([link] if address else []),
        ],
        className="tk-table-bar",
    )


def csv_address(context: Context, analysis: str, spec: TableSpec) -> str:
    """Where the CSV of a table of an analysis is; empty for tables of nothing registered."""
    if context.chosen is None or analysis not in registry.names(registry.ANALYSES):
        return ""
    try:
        declared = spec in get(analysis).tables
    except TracekitError:
        return ""
    path = "/".join(quote(word, safe="") for word in (context.chosen.path.name, analysis, spec.name))
    return f"/export/{path}.csv" if declared else ""


def _grid(
    context: Context, page: str, spec: TableSpec, columns: list[Shown], *, many: bool, rows: int
) -> Component:
    visible = [one for one in columns if not one.empty] or columns
    definitions = [*jump(columns), *(one.definition(filters=not many) for one in visible)]
    _sort(definitions, context.view.options.get("sort", ""), spec.name)
    options = _options(context, spec, rows)
    if many:
        options |= {"cacheBlockSize": _BLOCK, "maxBlocksInCache": 20, "infiniteInitialRowCount": rows}
        options["context"]["filter"] = _filtered(definitions, visible)
        kind: dict[str, Any] = {"rowModelType": "infinite"}
    else:
        kind = {"rowData": sent(columns)}
    return dag.AgGrid(
        id={
            "type": "rows" if many else KIND,
            "page": page,
            "name": spec.name,
            "run": context.chosen.path.name if context.chosen else "",
        },
        className="tk-grid",
        columnDefs=definitions,
        dashGridOptions=options,
        eventListeners={"sortChanged": ["tracekit.sorted(params)"]},
        style=_size(definitions, rows),
        **kind,
    )


def _options(context: Context, spec: TableSpec, rows: int) -> dict[str, Any]:
    return {
        "rowHeight": ROW,
        "headerHeight": _HEAD,
        "animateRows": False,
        "enableCellTextSelection": True,
        "ensureDomOrder": True,
        "suppressFieldDotNotation": True,
        "tooltipShowDelay": 400,
        "domLayout": "autoHeight" if rows <= SMALL else "normal",
        "context": {"timeline": timeline(context), "table": spec.name},
    }


def _filtered(definitions: list[dict[str, Any]], columns: list[Shown]) -> str:
    """The column as whose filter the quick filter of a long table travels; empty for none."""
    named = next((one.column.name for one in columns if one.words), "")
    for definition in definitions:
        if definition["field"] == named:
            definition |= {"filter": "agTextColumnFilter", "suppressHeaderFilterButton": True}
    return named


def _size(definitions: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    """As high as its rows or scrolling, and no wider than its columns where none of them stretches."""
    size: dict[str, Any] = {"height": None if rows <= SMALL else _HEAD + ROW * SMALL + 2}
    if not any("flex" in one for one in definitions):
        size["maxWidth"] = sum(one["width"] for one in definitions) + (2 if rows <= SMALL else 18)
    return size


def timeline(context: Context) -> str:
    """Address of the timeline, to which the row is added; from the timeline itself all else stays."""
    if context.view.page == "timeline":
        return context.view.href(row="")
    return context.view.elsewhere("timeline")


def sent(columns: list[Shown]) -> list[Record]:
    """The rows as they travel to the browser."""
    names = [one.column.name for one in columns if not one.empty]
    lists = [cells(one.values, one.column.unit) for one in columns if not one.empty]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def rows(frame: pd.DataFrame, columns: tuple[Column, ...]) -> list[Record]:
    """Rows of a long table as they travel to the browser."""
    names = [one.name for one in columns]
    lists = [cells(column(frame[one.name]), one.unit) for one in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _sort(definitions: list[dict[str, Any]], asked: str, name: str) -> None:
    """Mark the column that the address sorts by."""
    table_name, _, rest = asked.partition(":")
    column, _, order = rest.rpartition(":")
    for definition in definitions:
        if table_name == name and definition["field"] == column and "colId" not in definition:
            definition["sort"] = "desc" if order == "desc" else "asc"
