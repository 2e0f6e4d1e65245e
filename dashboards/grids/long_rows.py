"""Rows of tables too long for the browser: sorted and cut here, from the result that is kept."""

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
"""Rows of one answer at most."""


def connect(site: Site) -> None:
    """The callback that every long grid asks for the rows it scrolls to."""
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
        order, wanted = (
            _order(spec, request.get("sortModel") or []),
            _wanted(request.get("filterModel") or {}),
        )
        if order or wanted:
            key = (run.path, of["page"], spec.name, "rows", order, wanted)
            frame = site.results.get(key, lambda: in_order(holding(frame, wanted), order))
        return {"rowData": part(frame, spec, request), "rowCount": len(frame)}


def _order(spec: TableSpec, model: list[dict[str, str]]) -> tuple[str, bool] | None:
    """Column and whether ascending; None where nothing of the table is asked for."""
    known = {column.name for column in spec.columns}
    asked = next((one for one in model if one.get("colId") in known), None)
    return (asked["colId"], asked.get("sort") != "desc") if asked else None


def _wanted(model: dict[str, dict[str, Any]]) -> str:
    """The text of the quick filter, which comes as the filter of one column."""
    texts = (one.get("filter") for one in model.values())
    return next((text[:_LONGEST] for text in texts if isinstance(text, str)), "")


def holding(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    """The rows of which a column of words holds a text, in any case of letters."""
    if not text:
        return frame
    words = frame.select_dtypes(include=["object", "string", "category"])
    found = np.zeros(len(frame), dtype=bool)
    for name in words:
        held = words[name].astype("string").str.contains(text, case=False, regex=False)
        found |= held.to_numpy(dtype=bool, na_value=False)
    return frame[found]


def in_order(frame: pd.DataFrame, order: tuple[str, bool] | None) -> pd.DataFrame:
    """The rows by a column, those without a value last, equal ones as they were."""
    if order is None:
        return frame
    column, ascending = order
    return frame.sort_values(column, ascending=ascending, kind="stable", na_position="last")


def part(frame: pd.DataFrame, spec: TableSpec, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a request."""
    start = max(0, int(request.get("startRow") or 0))
    end = min(int(request.get("endRow") or 0), start + _MOST)
    return rows(frame.iloc[start:end], spec.columns)
