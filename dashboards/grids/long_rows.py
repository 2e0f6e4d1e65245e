"""Server-side sorting, filtering and paging for tables too long for the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import MATCH, Input, Output, State, no_update

from tracekit import analysis

from .table import rows

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis import TableSpec

    from ..site import Site

_LONGEST = 200
_MOST = 2_000
"""Maximum rows of a response."""


def connect(site: Site) -> None:
    """Register the callback that serves rows to grids with the infinite row model."""
    place = {"type": "rows", "page": MATCH, "name": MATCH, "run": MATCH}

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
        spec = next(one for one in analysis.get(of["page"]).tables if one.name == of["name"])
        frame = site.results.of(run, of["page"]).tables[spec.name]
        order, text_filter = (
            _order(spec, request.get("sortModel") or []),
            _text_filter(request.get("filterModel") or {}),
        )
        if order or text_filter:
            key = (run.path, of["page"], spec.name, "rows", order, text_filter)
            frame = site.results.get(key, lambda: ordered(filtered(frame, text_filter), order))
        return {"rowData": page_rows(frame, spec, request), "rowCount": len(frame)}


def _order(spec: TableSpec, model: list[dict[str, str]]) -> tuple[str, bool] | None:
    """Return sort column and direction; None if the request does not sort."""
    known = {column.name for column in spec.columns}
    sort = next((one for one in model if one.get("colId") in known), None)
    return (sort["colId"], sort.get("sort") != "desc") if sort else None


def _text_filter(model: dict[str, dict[str, Any]]) -> str:
    """Return the quick filter's text, which is sent as the filter of one column."""
    texts = (one.get("filter") for one in model.values())
    return next((text[:_LONGEST] for text in texts if isinstance(text, str)), "")


def filtered(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return the rows with a text column that contains the text, ignoring case."""
    if not text:
        return frame
    words = frame.select_dtypes(include=["object", "string", "category"])
    found = np.zeros(len(frame), dtype=bool)
    for name in words:
        matches = words[name].astype("string").str.contains(text, case=False, regex=False)
        found |= matches.to_numpy(dtype=bool, na_value=False)
    return frame[found]


def ordered(frame: pd.DataFrame, order: tuple[str, bool] | None) -> pd.DataFrame:
    """Sort rows by a column (stable, missing values last)."""
    if order is None:
        return frame
    column, ascending = order
    return frame.sort_values(column, ascending=ascending, kind="stable", na_position="last")


def page_rows(frame: pd.DataFrame, spec: TableSpec, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the requested page of rows."""
    start = max(0, int(request.get("startRow") or 0))
    end = min(int(request.get("endRow") or 0), start + _MOST)
    return rows(frame.iloc[start:end], spec.columns)
