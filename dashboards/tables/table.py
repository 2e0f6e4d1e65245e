"""Show a result table as a grid with row count, filter and CSV link."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from html import escape
from itertools import accumulate
from typing import Any
from urllib.parse import quote

import dash_ag_grid as dag
import dash_mantine_components as dmc
import numpy as np
import pandas as pd
from dash import MATCH, Input, Output, State, html, no_update
from dash.development.base_component import Component
from flask import abort

from tracekit import analysis, registry
from tracekit.analysis import NODE, PARENT, Column, TableSpec, get
from tracekit.errors import TracekitError, clean
from tracekit.render.cells import Record
from tracekit.runs.text import PROSE

from ..components.charts import aria
from ..components.elements import Later
from ..components.text import human, small_text, with_code
from ..site import Context, Site, with_peaks
from .columns import (
    ColumnValues,
    column_values,
    json_values,
    plain_values,
    timeline_link,
    with_cause_labels,
    with_places_first,
)

KIND = "table"
MAX_ROWS = 20_000
"""Maximum rows sent to the browser at once; longer tables are paged from the server."""
MAX_CELLS = 150_000
"""Maximum cells sent to the browser at once (about 8 MB), if the rest can be paged."""
MAX_UNSCROLLED_ROWS = 16
"""Maximum rows of a table that is shown without scrolling."""
ROW_PX = 30
TABLE_PX = 1_160
"""Width of a table in a window of 1,440 pixels; the headings of wider ones take two lines."""
_TOO_WIDE = "too wide"
_FIRST = {("launch_config", "configs"): ("op", "family", "launches", "total_ns", "waves", "occupancy")}
"""Columns that have room before others that are left of them, by analysis and table."""
_HEAD_PX, _WRAPPED_HEAD_PX = 34, 50
_BLOCK_ROWS = 200
_SAMPLED_ROWS = 1_000  # rows sampled for the column widths of a long table
MAX_ROWS_AT_FIRST = 32
"""Rows to show at first, at most, unless the upper level alone has more."""
_OPEN, _CLOSED, _HIDDEN = "tk_open", "tk_closed", "tk_hidden"
"""Fields of a row with children: whether they are shown. Field of a row below a closed one."""
_TREE_OPTIONS: dict[str, Any] = {
    "isExternalFilterPresent": {"function": "true"},
    "doesExternalFilterPass": {"function": "tracekit.treeShows(params)"},
}


def show_table(
    context: Context,
    page: str,
    spec: TableSpec,
    frame: pd.DataFrame,
    *,
    title: str = "",
    empty: str = "",
    exact: bool = False,
    csv: str = "",
) -> Component:
    """Show a result table.

    Args:
        context: The current context.
        page: Name of the analysis, for the id.
        spec: The table's metadata.
        frame: Its rows.
        title: Heading; none by default.
        empty: Text to show if there are no rows.
        exact: Whether to show names and numbers as they are, for the result of a query.
        csv: Address of the table as CSV; default: that of the analysis.
    """
    heading = [dmc.Title(title, order=2, size="h4")] if title else []
    if not len(frame):
        text = html.P(with_code(empty or "No rows."), className="tk-dim")
        return html.Section([*heading, text], className="tk-section")
    frame, address = frame if exact else with_cause_labels(frame), _csv_address(context, page, spec)
    # Only complete results can be paged, which the server has.
    complete = context.result(page).tables.get(spec.name) if address and is_long(frame) else None
    paged = complete is not None and len(complete) == len(frame)
    ordered = spec.columns if exact else with_places_first(frame, spec.columns)
    columns = column_values(frame, ordered, _SAMPLED_ROWS if paged else MAX_ROWS, exact=exact)
    missing = [column.heading for column in columns if column.empty]
    grid = _grid(context, page, spec, columns, paged=paged, rows=len(frame))
    height = int(grid.style.get("minHeight") or grid.style["height"])
    tools = _tools(context, spec, grid, csv or address, len(frame), paged=paged)
    content = [
        html.Div([*heading, *tools], className="tk-table-bar"),
        html.Div(Later(grid, partial(_write_rows, grid, columns)), style={"minHeight": height}),
        small_text(f"Columns hidden (no data): {', '.join(missing)}.") if missing else None,
    ]
    return html.Section(content, className="tk-table tk-section", **aria(label=clean(spec.title)))


def is_long(frame: pd.DataFrame) -> bool:
    """Return whether a table has too many rows, or too many cells, to be sent to the browser at once."""
    return len(frame) > MAX_ROWS or frame.size > MAX_CELLS


def _tools(
    context: Context, spec: TableSpec, grid: dag.AgGrid, address: str, rows: int, *, paged: bool
) -> list[Component]:
    """Show the number of rows, and what filters the table, shows hidden columns and saves it."""
    title = clean(spec.title)
    count = f"{rows:,} row" if rows == 1 else f"{rows:,} rows"
    if rows > MAX_ROWS and not paged:
        count = f"first {MAX_ROWS:,} of {count}"
    shown: list[Component] = [html.Span(count, className="tk-count"), html.Span(className="tk-grow")]
    hidden = sum(definition.get("context") == _TOO_WIDE for definition in grid.columnDefs)
    if hidden:
        words = f"{hidden} more column{'s' * (hidden > 1)}"
        state = aria(label=f"{words} of {title}", pressed=str(_shows_all(context, spec)).lower())
        shown.append(html.Button(words, type="button", className="tk-tool tk-columns", **state))
    if rows > MAX_UNSCROLLED_ROWS // 2:
        label = aria(label=f"Filter {title}")
        shown.append(dmc.TextInput(placeholder="Filter", size="xs", w=200, className="tk-filter", **label))
    if address:
        named = {"title": "Exact values of all rows", **aria(label=f"CSV of {title}")}
        shown.append(html.A("CSV", href=address, download="", className="tk-tool", **named))
    return shown


def _csv_address(context: Context, analysis: str, spec: TableSpec) -> str:
    """Return the address of a table's CSV; empty if no registered analysis declares the table."""
    if context.chosen is None or analysis not in registry.names(registry.ANALYSES):
        return ""
    try:
        declared = spec in get(analysis).tables
    except TracekitError:
        return ""
    path = "/".join(quote(word, safe="") for word in (context.chosen.path.name, analysis, spec.name))
    return f"/export/{path}.csv{peaks_query(context.view.peaks)}" if declared else ""


def peaks_query(device: str) -> str:
    """Return the query string of an export with given peaks; empty without them."""
    return f"?peaks={quote(device, safe='')}" if device else ""


def _grid(
    context: Context, page: str, spec: TableSpec, columns: list[ColumnValues], *, paged: bool, rows: int
) -> dag.AgGrid:
    # The column that shows the tree, if the table is one.
    trunk = next((of.column for of in columns if of.column.indent_by and not paged), None)
    left_out = {NODE, PARENT, trunk.indent_by} if trunk else set()  # shown by the tree itself
    visible = [
        column for column in columns if not column.empty and column.column.name not in left_out
    ] or columns
    links = timeline_link(columns, named=page in registry.names(registry.ANALYSES))
    definitions = [*links, *(column.definition(filters=not paged) for column in visible)]
    wrapped = sum(map(_min_width, definitions)) > TABLE_PX
    if wrapped:
        definitions = [*links, *(column.definition(filters=not paged, wrapped=True) for column in visible)]
    for definition in definitions:
        if trunk and definition["field"] == trunk.name and "colId" not in definition:
            depth = {"depth": trunk.indent_by}
            definition |= {"cellRenderer": "tracekitTree", "cellRendererParams": depth, "minWidth": 220}
    if without_room := columns_without_room(definitions, first=_FIRST.get((page, spec.name), ())):
        _stretch([of for of in definitions if of not in without_room and "colId" not in of])
    for definition in without_room:
        definition |= {"hide": not _shows_all(context, spec), "context": _TOO_WIDE}
    _sort(definitions, context.view.options.get("sort", ""), spec.name)
    options: dict[str, Any] = {
        "rowHeight": ROW_PX,
        "headerHeight": _WRAPPED_HEAD_PX if wrapped else _HEAD_PX,
        "animateRows": False,
        "suppressColumnMoveAnimation": True,
        "enableCellTextSelection": True,
        "ensureDomOrder": True,
        "suppressFieldDotNotation": True,
        "tooltipShowDelay": 400,
        "domLayout": "autoHeight" if rows <= MAX_UNSCROLLED_ROWS else "normal",
        "context": {"timeline": timeline_address(context), "table": spec.name},
    }
    if paged:
        options |= {"cacheBlockSize": _BLOCK_ROWS, "maxBlocksInCache": 20, "infiniteInitialRowCount": rows}
        options["context"]["filter"] = _quick_filter_column(definitions, visible)
        kind: dict[str, Any] = {"rowModelType": "infinite"}
    else:
        shown = (column for column in columns if not column.empty)
        records = _records({of.column.name: json_values(of.values, of.column.unit) for of in shown})
        kind = {"rowData": with_tree_state(records, trunk) if trunk else records}
        options |= _TREE_OPTIONS if trunk else {}
    run = context.chosen.path.name if context.chosen else ""
    place = {"type": "rows" if paged else KIND, "page": page, "name": spec.name}
    return dag.AgGrid(
        id=place | {"run": run, "peaks": context.view.peaks},
        className="tk-grid",
        columnDefs=definitions,
        dashGridOptions=options,
        eventListeners={"sortChanged": ["tracekit.sorted(params)"]},
        style=_size(definitions, rows, head=options["headerHeight"]),
        **kind,
    )


def _write_rows(grid: dag.AgGrid, columns: Sequence[ColumnValues]) -> str:
    """Return the first rows of a grid as HTML, which a browser shows before it can make the grid.

    Rows that the grid would sort are left out, as is the result of a query.
    """
    shown = [definition for definition in grid.columnDefs if not definition.get("hide")]
    if any("sort" in definition for definition in shown) or any(column.exact for column in columns):
        return ""
    units = {of.column.name: of.column.unit for of in columns}
    rows = getattr(grid, "rowData", None) or _records(
        {of.column.name: of.values[:MAX_UNSCROLLED_ROWS] for of in columns if not of.empty}
    )
    cells = [f"<b>{escape(definition['headerName'])}</b>" for definition in shown]
    for row in [row for row in rows if not row.get(_HIDDEN)][:MAX_UNSCROLLED_ROWS]:
        cells += (_write_cell(definition, row, units.get(definition["field"], "")) for definition in shown)
    widths = " ".join(
        f"minmax({of['minWidth']}px,{of['flex']}fr)" if "flex" in of else f"{_min_width(of)}px"
        for of in shown
    )
    head = grid.dashGridOptions["headerHeight"]
    place = f'style="grid-template-columns:{widths};--tk-head:{head}px"'
    return f'<div class="tk-first-rows" {place}>{"".join(cells)}</div>'


def _write_cell(definition: dict[str, Any], row: Record, unit: str) -> str:
    value = row.get(definition["field"])
    text = "" if "colId" in definition else escape(clean(human(value, unit)))
    words = ["tk-number"] if definition.get("type") == "rightAligned" else []
    words += ["tk-first-prose"] if unit == PROSE else []
    depth = row.get(definition.get("cellRendererParams", {}).get("depth", ""))
    style = f"--tk-share:{100 * value:.2f}%" if unit == "share" and isinstance(value, int | float) else ""
    style = f"padding-left:{30 + 14 * depth}px" if isinstance(depth, int) else style
    return f'<span class="{" ".join(words)}" style="{style}">{text}</span>'


def with_tree_state(rows: list[Record], tree: Column) -> list[Record]:
    """Add to rows, depth first, whether they are open or hidden: the upper levels that fit are shown."""
    depths = sorted(row[tree.indent_by] for row in rows)
    level = depths[min(MAX_ROWS_AT_FIRST, len(depths)) - 1]
    if len(depths) > MAX_ROWS_AT_FIRST and depths[MAX_ROWS_AT_FIRST] == level:
        level = max(level - 1, 0)
    parents = {row.get(PARENT) for row in rows}
    return [
        {
            **row,
            _HIDDEN: row[tree.indent_by] > level,
            _OPEN: row[NODE] in parents and row[tree.indent_by] < level,
            _CLOSED: row[NODE] in parents and row[tree.indent_by] >= level,
        }
        for row in rows
    ]


def _shows_all(context: Context, spec: TableSpec) -> bool:
    """Return whether the address asks for the columns for which the table is too wide."""
    return context.view.options.get("wide") == spec.name


def columns_without_room(
    definitions: Sequence[dict[str, Any]], *, first: Collection[str] = (), room: int = TABLE_PX
) -> list[dict[str, Any]]:
    """Return the columns for which a table has no room: the last ones, of those that are not first.

    The first column, which names the rows, is shown in any case.

    Args:
        definitions: The columns, from the left.
        first: Fields of columns that have room before all others.
        room: Width of the table, in pixels.
    """
    by_priority = sorted(definitions, key=lambda definition: definition["field"] not in first)
    used = accumulate(map(_min_width, by_priority))
    kept = next((definition for definition in by_priority if "colId" not in definition), None)
    return [
        definition
        for definition, width in zip(by_priority, used, strict=True)
        if width > room and definition is not kept
    ]


def _stretch(definitions: list[dict[str, Any]]) -> None:
    """Let columns fill the width of their table: those of text if there are any, else all."""
    if any("flex" in definition for definition in definitions):
        return
    of_text = [definition for definition in definitions if definition.get("type") != "rightAligned"]
    for definition in of_text or definitions:
        width = _min_width(definition)
        definition |= {"flex": width, "minWidth": width}


def _min_width(definition: dict[str, Any]) -> int:
    """Return the least width of a column, in pixels."""
    return max(definition.get("width", 0), definition.get("minWidth", 0))


def _quick_filter_column(definitions: list[dict[str, Any]], columns: list[ColumnValues]) -> str:
    """Return the column whose filter carries the quick filter of a long table; empty for none."""
    named = next((column.column.name for column in columns if column.words), "")
    for definition in definitions:
        if definition["field"] == named:
            definition |= {"filter": "agTextColumnFilter", "suppressHeaderFilterButton": True}
    return named


def _size(definitions: list[dict[str, Any]], rows: int, *, head: int) -> dict[str, Any]:
    """Return the CSS size: height of the rows that fit; maximum width if no column stretches."""
    height = head + ROW_PX * min(rows, MAX_UNSCROLLED_ROWS) + 2
    scrolls = rows > MAX_UNSCROLLED_ROWS
    size: dict[str, Any] = {"height": height} if scrolls else {"height": None, "minHeight": height}
    if not any("flex" in definition for definition in definitions):
        size["maxWidth"] = sum(definition["width"] for definition in definitions) + (18 if scrolls else 2)
    return size


def timeline_address(context: Context) -> str:
    """Return the timeline address to which grids append a row; on the timeline, keep the current view."""
    view = context.view
    return view.href(row="") if view.page == "timeline" else view.elsewhere("timeline")


def _records(columns: dict[str, list[Any]]) -> list[Record]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _sort(definitions: list[dict[str, Any]], sort: str, name: str) -> None:
    """Mark the column that the address sorts by."""
    table_name, _, rest = sort.partition(":")
    column, _, order = rest.rpartition(":")
    for definition in definitions:
        if table_name == name and definition["field"] == column and "colId" not in definition:
            definition["sort"] = "desc" if order == "desc" else "asc"


_MAX_FILTER_CHARS = 200
_MAX_RESPONSE_ROWS = 2_000  # maximum rows of a response


def connect(site: Site) -> None:
    """Register the callback that serves rows to grids with the infinite row model."""
    place = {"type": "rows", "page": MATCH, "name": MATCH, "run": MATCH, "peaks": MATCH}

    @site.app.callback(
        Output(place, "getRowsResponse"),
        Input(place, "getRowsRequest"),
        State(place, "id"),
        prevent_initial_call=True,
    )
    def answer(request: dict[str, Any] | None, of: dict[str, str]) -> Any:
        run = site.run(of["run"])
        if request is None or run is None:
            return no_update
        spec = next((table for table in analysis.get(of["page"]).tables if table.name == of["name"]), None)
        if spec is None:
            abort(404)
        run = with_peaks(run, of["peaks"])
        frame = with_cause_labels(site.results.of(run, of["page"]).tables[spec.name])
        names, model = {column.name for column in spec.columns}, request.get("sortModel") or []
        sort = next((entry for entry in model if entry.get("colId") in names), None)
        order = (sort["colId"], sort.get("sort") != "desc") if sort else None
        texts = [entry.get("filter") for entry in (request.get("filterModel") or {}).values()]
        # the text of the quick filter is sent as the filter of one column
        text_filter = next((text[:_MAX_FILTER_CHARS] for text in texts if isinstance(text, str)), "")
        if order or text_filter:
            key = (run.path, run.peaks, of["page"], spec.name, "rows", order, text_filter)
            frame = site.results.get(key, lambda: sort_rows(filter_rows(frame, text_filter), order))
        return {"rowData": page_rows(frame, spec, request), "rowCount": len(frame)}


def filter_rows(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return the rows with a text column that contains the text, ignoring case."""
    if not text:
        return frame
    words = frame.select_dtypes(include=["object", "string", "category"])
    matching = np.zeros(len(frame), dtype=bool)
    for name in words:
        matches = words[name].astype("string").str.contains(text, case=False, regex=False)
        matching |= matches.to_numpy(dtype=bool, na_value=False)
    return frame[matching]


def sort_rows(frame: pd.DataFrame, order: tuple[str, bool] | None) -> pd.DataFrame:
    """Sort rows by a column (stable, missing values last)."""
    if order is None:
        return frame
    column, ascending = order
    return frame.sort_values(column, ascending=ascending, kind="stable", na_position="last")


def page_rows(frame: pd.DataFrame, spec: TableSpec, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the requested page of rows.

    Args:
        frame: All rows, sorted and filtered.
        spec: The table's metadata.
        request: `startRow` and `endRow` of the grid.
    """
    start = max(0, int(request.get("startRow") or 0))
    end = min(int(request.get("endRow") or 0), start + _MAX_RESPONSE_ROWS)
    page = frame.iloc[start:end]
    return _records({of.name: json_values(plain_values(page[of.name]), of.unit) for of in spec.columns})
