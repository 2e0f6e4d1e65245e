"""Columns of grids in the browser: number formats and links to the timeline.

The number formats have the same rules as `tracekit.render.cells`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.analysis.idle_causes import CAUSES, label
from tracekit.analysis.modules import MARKER
from tracekit.errors import clean
from tracekit.export.views import cell
from tracekit.render.cells import header, plain
from tracekit.runs.text import ID, PROSE, SCALES
from tracekit.schema import C, DeviceKind

from ..components.text import human
from ..timeline.read_columns import COMMUNICATION, IDLE_CATEGORIES
from ..timeline.search import CATEGORY, COLLECTIVE, COMPUTE, FAMILY, KERNEL, NAME, REGEX, TEXT

MAX_EXACT = 1 << 53
"""Larger integers are sent as text, since JavaScript would round them."""


def number_format(unit: str, *, decimals: bool) -> dict[str, Any]:
    """Return the format that `tracekit.human` in `assets/grid_human.js` expects.

    Args:
        unit: Unit of the column.
        decimals: Whether its numbers are floats; JSON does not distinguish 5.0 from 5.
    """
    if unit in SCALES:
        scales, base = SCALES[unit]
        return {"kind": "scaled", "scales": [list(scale) for scale in scales], "base": base}
    if unit in {"share", "count"}:
        return {"kind": unit, "decimals": decimals}
    return {"kind": "plain", "decimals": decimals, "suffix": "" if unit in {"", PROSE} else unit}


def json_value(value: Any, unit: str) -> Any:
    """Convert a value for JSON; integers too large for JavaScript become formatted text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_EXACT else human(value, unit)
    text = clean(str(value))
    return text.replace("`", "") if unit == PROSE else text


def plain_values(series: pd.Series[Any]) -> list[Any]:
    """Convert a column to plain values, like `tracekit.render.cells.records`."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
        return series.tolist()
    if pd.api.types.is_integer_dtype(series.dtype):
        return series.astype(object).where(series.notna(), None).tolist()
    return [plain(value) for value in series.astype(object).tolist()]


def json_values(values: list[Any], unit: str) -> list[Any]:
    """Convert a column's values for JSON; each distinct text is cleaned once."""
    kinds = {type(value) for value in values}
    if kinds <= {float, bool, type(None)}:
        return values
    if kinds <= {int, type(None)} and max((abs(value) for value in values if value), default=0) <= MAX_EXACT:
        return values
    if kinds <= {str, type(None)}:
        cleaned = {value: json_value(value, unit) for value in set(values)}
        return [cleaned[value] for value in values]
    return [json_value(value, unit) for value in values]


_CAUSE = "cause"


def with_cause_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose causes of idle time are their labels, as charts and the timeline show them."""
    if _CAUSE not in frame or not set(frame[_CAUSE].dropna().unique()) <= {*CAUSES}:
        return frame
    return frame.assign(**{_CAUSE: frame[_CAUSE].astype(object).map(label, na_action="ignore")})


def with_places_first(frame: pd.DataFrame, columns: Sequence[Column]) -> list[Column]:
    """Return columns with the rank first, if rows are of several ranks, then the device, if one has several.

    Otherwise rows of other ranks look alike. A rank or device that is the same in all rows comes last, since
    columns for which there is no room are cut at the right.
    """
    of_rank = frame.groupby(C.RANK)[C.DEVICE] if {C.RANK, C.DEVICE} <= set(frame) else None
    several = {
        C.RANK: C.RANK in frame and frame[C.RANK].nunique() > 1,
        C.DEVICE: of_rank is not None and of_rank.nunique().max() > 1,
    }
    places = [place for place in _PLACES if several[place.name]]
    rest = [column for column in columns if column.name not in {of.name for of in places}]
    same = [column for column in rest if column.name in several and frame[column.name].nunique() < 2]
    return [*places, *(column for column in rest if column not in same), *same]


_PLACES = (Column(C.RANK, "", "rank"), Column(C.DEVICE, "", "device index"))
ROW_ID_TABLES = {
    C.ROW_ID: "device_intervals",
    "device_row": "device_intervals",
    "first_row": "device_intervals",
    "longest_row": "device_intervals",
    "idle_row": "device_intervals",
    "host_row": "host_intervals",
    C.LAUNCH_ROW: "host_intervals",
    "wait_row": "host_intervals",
}
"""Columns that contain row ids, and the table that the ids refer to."""
_SAMPLED_ROWS = 400
_CHAR_PX, _PAD_PX, _SORT_PX = 8.0, 24, 16
_MAX_FIXED_CHARS = 26
"""Maximum characters of a text column of fixed width; wider ones share the remaining width."""

_MIN_NAME_PX = 232
"""Minimum width of a column of long texts, in pixels."""


@dataclass(frozen=True)
class ColumnValues:
    """A column with its values."""

    column: Column  # its metadata
    values: list[Any]  # its values, possibly only the first ones
    empty: bool  # whether no row has a value
    # whether it is of a query: its heading is its name, numbers have all their digits, and row ids, which may
    # be of any table and run, are no links
    exact: bool = False

    @cached_property
    def words(self) -> bool:
        """Whether it contains text or booleans."""
        return any(isinstance(value, str | bool) for value in self.values)

    @cached_property
    def widest(self) -> int:
        """Characters of the widest cell in a sample."""
        step = max(1, len(self.values) // _SAMPLED_ROWS)
        texts = (cell(of) if self.exact else human(of, self.column.unit) for of in self.values[::step])
        return max(map(len, texts), default=0)

    @property
    def heading(self) -> str:
        """Its heading."""
        return clean(self.column.name if self.exact else header(self.column))

    @property
    def row_of(self) -> str:
        """Table that its row ids refer to; empty for none."""
        return "" if self.words or self.exact else ROW_ID_TABLES.get(self.column.name, "")

    def definition(self, *, filters: bool, wrapped: bool = False) -> dict[str, Any]:
        """Return the AG Grid column definition; if `wrapped`, the heading may take two lines."""
        head = self.heading
        letters = _in_two_lines(head) if wrapped else len(head)
        unit = {"ns": "nanoseconds", "share": "share, 0 to 1"}.get(self.column.unit, self.column.unit)
        exact = f" ({unit})" if unit and unit not in {PROSE, ID, "count"} else ""
        return {
            "field": self.column.name,
            "headerName": head,
            "headerTooltip": clean(f"{self.column.name}{exact}: {self.column.meaning}"),
            "cellDataType": False,
            "sortable": True,
            "resizable": True,
            "sortingOrder": ["asc", "desc", None] if self.words else ["desc", "asc", None],
            "filter": filters and ("agTextColumnFilter" if self.words else "agNumberColumnFilter"),
            **({"wrapHeaderText": True} if wrapped else {}),
            **self._width(letters * _CHAR_PX + _PAD_PX + _SORT_PX),
            **(self._text() if self.words or self.column.unit in {PROSE, ID} else self._number()),
        }

    def _width(self, head: float) -> dict[str, Any]:
        full = self.widest * _CHAR_PX + (_PAD_PX + 12 if self.words else _PAD_PX)
        head += 16 if self.words else 0  # room for the filter icon
        if self.column.unit == PROSE:
            return {"flex": 3, "minWidth": 280}
        if self.words and self.column.unit != ID and self.widest > _MAX_FIXED_CHARS:
            return {"flex": 2 if self.widest > 60 else 1, "minWidth": max(_MIN_NAME_PX, int(head))}
        return {"width": int(max(head, full, 64))}

    def _text(self) -> dict[str, Any]:
        if self.column.unit == PROSE:
            return {"wrapText": True, "autoHeight": True, "cellClass": "tk-cell-prose"}
        if self.column.unit == ID or self.widest <= _MAX_FIXED_CHARS:
            return {"valueFormatter": _formatter(self.column.unit, decimals=False)}
        return {"cellRenderer": "tracekitName", "tooltipField": self.column.name}

    def _number(self) -> dict[str, Any]:
        unit, decimals = self.column.unit, any(isinstance(value, float) for value in self.values)
        definition: dict[str, Any] = {
            "type": "rightAligned",
            "cellClass": ["ag-right-aligned-cell", "tk-cell-number"],
            "valueFormatter": _formatter(unit, decimals=decimals),
        }
        if self.exact:
            definition["valueFormatter"] = {"function": "tracekit.human(params.value, {kind: 'exact'})"}
        if unit == "share":
            definition["cellStyle"] = {"function": "tracekit.bar(params)"}
        if unit in SCALES:
            base = json.dumps(SCALES[unit][1])
            definition["tooltipValueGetter"] = {"function": f"tracekit.exact(params.value, {base})"}
        if self.row_of:
            definition |= {"cellRenderer": "tracekitRow", "cellRendererParams": {"table": self.row_of}}
        return definition


def _in_two_lines(head: str) -> int:
    """Return the letters of the longer line of a heading, broken where that is shortest."""
    words = head.split()
    breaks = [(" ".join(words[:split]), " ".join(words[split:])) for split in range(1, len(words))]
    return min((max(map(len, lines)) for lines in breaks), default=len(head))


def _formatter(unit: str, *, decimals: bool) -> dict[str, str]:
    return {"function": f"tracekit.human(params.value, {json.dumps(number_format(unit, decimals=decimals))})"}


def column_values(
    frame: pd.DataFrame, columns: Sequence[Column], most: int, *, exact: bool = False
) -> list[ColumnValues]:
    """Return each column with the values of the first rows.

    Args:
        frame: The rows.
        columns: Columns to show.
        most: Rows to read the values of.
        exact: Whether they are of a query, shown as they are.
    """
    return [
        ColumnValues(column, plain_values(values.head(most)), is_empty(values, exact=exact), exact)
        for column in columns
        for values in [frame[column.name]]
    ]


def is_empty(values: pd.Series[Any], *, exact: bool = False) -> bool:
    """Return whether a column has no values; if exact, empty texts are values."""
    without = values.isna() if exact else values.isna() | values.eq("")
    return bool(without.fillna(value=True).all())


def timeline_link(columns: list[ColumnValues], *, named: bool) -> list[dict[str, Any]]:
    """Return a leading column of timeline links, if the rows have row ids or stand for intervals.

    `named`: whether names, ranks and devices in the table are those of one run.
    """
    shown = [column for column in columns if not column.empty]
    rows = [(column.column.name, column.row_of) for column in shown if column.row_of]
    if rows:
        (field, table), *others = rows
        renderer = "tracekitRow"
        parameters: dict[str, Any] | None = {"table": table, "others": others, "icon": True}
    else:
        parameters = link_parameters([of.column.name for of in shown]) if named else None
        if parameters is None:
            return []
        field, renderer = parameters["column"], "tracekitOccurrence"
    return [
        {
            "colId": "timeline",
            "headerName": "Timeline",
            "headerClass": "tk-head-jump",
            "headerTooltip": "Show on the timeline",
            "field": field,
            "cellRenderer": renderer,
            "cellRendererParams": parameters,
            "cellDataType": False,
            "width": 40,
            "sortable": False,
            "filter": False,
            "resizable": False,
            "cellClass": "tk-cell-jump",
        }
    ]


LONGEST, NEXT, STEP = "longest", "next", "step"


@dataclass(frozen=True)
class _NamedColumn:
    """A column that names intervals."""

    column: str
    mode: str  # how the timeline searches for its values; empty if only `texts` are searched for
    # what to search for instead, and how, by value
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    prefix: str = ""  # what precedes its values in the names of intervals


_LAUNCHES = ("launch|memcpy|memset", REGEX)
_COPIES = {"all copies": ("copy", CATEGORY), "D2D": ("copy D2D/other", CATEGORY)}
_KINDS = {
    DeviceKind.KERNEL: (KERNEL, CATEGORY),
    "compute": (COMPUTE, CATEGORY),
    COMMUNICATION: (COMMUNICATION, CATEGORY),
    DeviceKind.MEMCPY: ("copy", CATEGORY),
    DeviceKind.MEMSET: ("memset", CATEGORY),
    DeviceKind.GRAPH: ("graph", CATEGORY),
    "CPU op": ("op", CATEGORY),
    "launch call": _LAUNCHES,
    "runtime call": ("runtime call", CATEGORY),
    "sync call": ("sync", CATEGORY),
    "profiler overhead": ("overhead", CATEGORY),
}
_CLASSES = {
    "launch overhead": _LAUNCHES,
    "copies": ("copy", CATEGORY),
    "sync waits": ("sync", CATEGORY),
    COMMUNICATION: (COMMUNICATION, CATEGORY),
}
_NAMED_COLUMNS = (
    _NamedColumn(C.NAME, NAME),
    _NamedColumn("call", NAME),
    _NamedColumn("op", FAMILY),
    _NamedColumn("removed", FAMILY, _CLASSES),
    _NamedColumn("family", FAMILY),
    _NamedColumn("activity", NAME),
    _NamedColumn("collective", COLLECTIVE),
    _NamedColumn("cause", CATEGORY, {label(cause): (f"idle: {label(cause)}", CATEGORY) for cause in CAUSES}),
    _NamedColumn("what", CATEGORY, _COPIES),
    _NamedColumn("direction", CATEGORY, _COPIES),
    _NamedColumn(C.MODULE, NAME, prefix=MARKER),
    _NamedColumn("type", TEXT, prefix=MARKER),
    _NamedColumn(C.KIND, "", _KINDS),
)
"""In order of precedence."""
_TIMES = (C.T_NS, "peak_at_ns")
_OF_STEPS = ("measure", "overhead_share")
"""Columns of tables about the steps of a rank."""
_SUBJECTS = {"gaps": IDLE_CATEGORIES, "wait_ns": COMMUNICATION, "dispatch_ns": COMMUNICATION}
"""What rows of ranks and devices are about, by a column; otherwise about kernels."""
_PARTS = ("phase", "part", "origin", "from_ns", "graph", "source", "reason", "metric", "link_rate")
"""Columns of tables whose rows are parts of what a rank did, or settings, that no interval stands for."""


def link_parameters(columns: Collection[str]) -> dict[str, Any] | None:
    """Return the parameters of the links of a table's rows; None if its rows stand for no intervals.

    A row that names a kernel, op, copy, collective, cause, module or kind of segment leads to a search on the
    timeline whose longest match is selected; one that only names a rank or device, to the longest of what the
    table is about there, or the first from the row's time on. N leads to the next match, and `.` to that of
    the same name. The timeline finds it when the link is followed, so that tables cost nothing.

    Args:
        columns: Names of the columns with values.

    Returns:
        `go` (to the longest, to the next from a time on, or to a step), the columns to read (`at` has the
        time), and how to search: for the values of `column`, or for `text`, and for `host` if the device is
        the host.
    """
    place = {name: name if name in columns else "" for name in (C.RANK, C.DEVICE)}
    named = next((candidate for candidate in _NAMED_COLUMNS if candidate.column in columns), None)
    if C.STEP in columns and not (named and C.START_NS in columns):
        ranks = (name for name in (C.RANK, "slowest_rank", "last_rank") if name in columns)
        return _parameters(STEP, C.STEP, **place | {C.RANK: next(ranks, "")})
    if named:
        sorting = C.START_NS if C.START_NS in columns else ""
        searched = {"mode": named.mode, "texts": dict(named.texts), "prefix": named.prefix}
        return _parameters(NEXT if sorting else LONGEST, named.column, at=sorting, **searched, **place)
    return _link_to_place(columns, place)


def _parameters(go: str, column: str, **more: Any) -> dict[str, Any]:
    words = dict.fromkeys(("mode", "prefix", "at", "text", "host"), "")
    return {"go": go, "column": column, "texts": {}, **words, **more}


def _link_to_place(columns: Collection[str], place: dict[str, str]) -> dict[str, Any] | None:
    """Return the parameters of rows that name only a rank, a device or a time."""
    sorting = next((name for name in _TIMES if name in columns), "")
    column = place[C.RANK] or place[C.DEVICE] or sorting
    if not column or any(name in columns for name in _PARTS):
        return None
    if place[C.RANK] and any(name in columns for name in _OF_STEPS):
        return _parameters(STEP, C.RANK, text="step", **place)
    about = next((text for name, text in _SUBJECTS.items() if name in columns), KERNEL)
    text = about if place[C.RANK] or place[C.DEVICE] else "op"
    go = NEXT if sorting else LONGEST
    return _parameters(go, column, at=sorting, mode=CATEGORY, host="op", text=text, **place)
