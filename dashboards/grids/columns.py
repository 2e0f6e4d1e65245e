"""Columns of a grid from the metadata of a table: heading, alignment, width, and how a cell is shown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracekit.render import human
from tracekit.render.cells import ID, PROSE, SCALES, clean
from tracekit.render.headers import header
from tracekit.schema import C

from .formats import column, has_floats, number_format

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis import Column

ROWS = {
    C.ROW_ID: "device_intervals",
    "device_row": "device_intervals",
    "first_row": "device_intervals",
    "longest_row": "device_intervals",
    "idle_row": "device_intervals",
    "host_row": "host_intervals",
    C.LAUNCH_ROW: "host_intervals",
    "wait_row": "host_intervals",
}
"""Names of columns that hold the row of a table of the run, and which table that is."""
_SAMPLE = 400
_CHAR, _PAD, _SORT = 8.0, 24, 16
_SHORT = 26
"""Texts up to so many characters get their whole width; longer ones share what is left."""

_NAME = 232
"""Pixels of a column of long texts at least: what is left of a name must still tell it."""


@dataclass(frozen=True)
class Shown:
    """One column of a table and the values it shows.

    Attributes:
        column: Its metadata.
        values: Its values, or the first of very many.
        empty: Whether no row has a value.
    """

    column: Column
    values: list[Any]
    empty: bool

    @cached_property
    def words(self) -> bool:
        """Whether it holds text, or yes and no."""
        return any(isinstance(value, str | bool) for value in self.values)

    @cached_property
    def widest(self) -> int:
        """Characters of its widest cell, from a sample."""
        every = max(1, len(self.values) // _SAMPLE)
        return max((len(human(value, self.column.unit)) for value in self.values[::every]), default=0)

    @property
    def row_of(self) -> str:
        """The run's table whose rows it names; empty for none."""
        return "" if self.words else ROWS.get(self.column.name, "")

    def definition(self, *, filters: bool) -> dict[str, Any]:
        """The column as the grid takes it."""
        head = clean(header(self.column))
        return {
            "field": self.column.name,
            "headerName": head,
            "headerTooltip": _tooltip(self.column),
            "cellDataType": False,
            "sortable": True,
            "resizable": True,
            "sortingOrder": ["asc", "desc", None] if self.words else ["desc", "asc", None],
            **(self._filter() if filters else {"filter": False}),
            **self._width(len(head) * _CHAR + _PAD + _SORT),
            **(self._text() if self.words or self.column.unit in {PROSE, ID} else self._number()),
        }

    def _filter(self) -> dict[str, Any]:
        return {"filter": "agTextColumnFilter" if self.words else "agNumberColumnFilter"}

    def _width(self, head: float) -> dict[str, Any]:
        full = self.widest * _CHAR + (_PAD + 12 if self.words else _PAD)
        head += 16 if self.words else 0  # its sign of a filter stands beside the name
        if self.column.unit == PROSE:
            return {"flex": 3, "minWidth": 280}
        if self.words and self.column.unit != ID and self.widest > _SHORT:
            return {"flex": 2 if self.widest > 60 else 1, "minWidth": max(_NAME, int(head))}
        return {"width": int(max(head, full, 64))}

    def _text(self) -> dict[str, Any]:
        if self.column.unit == PROSE:
            return {"wrapText": True, "autoHeight": True, "cellClass": "tk-cell-prose"}
        if self.column.unit == ID or self.widest <= _SHORT:
            return {"valueFormatter": _formatter(self.column.unit, decimals=False)}
        return {"cellRenderer": "tracekitName", "tooltipField": self.column.name}

    def _number(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "type": "rightAligned",
            "cellClass": ["ag-right-aligned-cell", "tk-cell-number"],
            "valueFormatter": _formatter(self.column.unit, decimals=has_floats(self.values)),
        }
        if self.column.unit == "share":
            shown["cellStyle"] = {"function": "tracekit.bar(params)"}
        if self.column.unit in SCALES:
            base = json.dumps(SCALES[self.column.unit][1])
            shown["tooltipValueGetter"] = {"function": f"tracekit.exact(params.value, {base})"}
        if self.row_of:
            shown |= {"cellRenderer": "tracekitRow", "cellRendererParams": {"table": self.row_of}}
        return shown


def _formatter(unit: str, *, decimals: bool) -> dict[str, str]:
    return {"function": f"tracekit.human(params.value, {json.dumps(number_format(unit, decimals=decimals))})"}


def _tooltip(column: Column) -> str:
    unit = {"ns": "nanoseconds", "share": "share, 0 to 1"}.get(column.unit, column.unit)
    exact = f" ({unit})" if unit and unit not in {PROSE, ID, "count"} else ""
    return clean(f"{column.name}{exact}: {column.meaning}")


def shown(frame: pd.DataFrame, columns: tuple[Column, ...], most: int) -> list[Shown]:
    """Each column with its values, of the first rows at most."""
    head = frame.head(most)
    return [Shown(one, column(head[one.name]), bool(frame[one.name].isna().all())) for one in columns]


def jump(columns: list[Shown]) -> list[dict[str, Any]]:
    """The first column of a table whose rows lie on the timeline: a link to there."""
    first = next((one for one in columns if one.row_of and not one.empty), None)
    if first is None:
        return []
    return [
        {
            "colId": "timeline",
            "headerName": "",
            "headerTooltip": "Show on the timeline",
            "field": first.column.name,
            "cellRenderer": "tracekitRow",
            "cellRendererParams": {"table": first.row_of, "icon": True},
            "cellDataType": False,
            "width": 40,
            "sortable": False,
            "filter": False,
            "resizable": False,
            "cellClass": "tk-cell-jump",
        }
    ]
