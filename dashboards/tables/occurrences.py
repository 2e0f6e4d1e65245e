"""Lead from a row of a table to its place on the timeline.

A row with a row id leads to that row (see `columns.ROWS`). One that names a kernel, op, copy, collective,
cause, module or kind of segment leads to a search on the timeline whose longest match is selected; one that
only names a rank or device, to the longest of what the table is about there, or the first from the row's time
on. From there, N leads to the next match and `.` to the next of the same name. The timeline finds it when the
link is followed, so that tables cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracekit.analysis.idle_causes import CAUSES, label
from tracekit.analysis.modules import MARKER
from tracekit.schema import C, DeviceKind

from ..timeline.read_columns import COMMUNICATION, IDLE_CATEGORIES
from ..timeline.search import CATEGORY, COLLECTIVE, COMPUTE, FAMILY, KERNEL, NAME, REGEX, TEXT

LONGEST, NEXT, STEP = "longest", "next", "step"


@dataclass(frozen=True)
class _NamedColumn:
    """A column that names intervals.

    Attributes:
        column: The column.
        mode: How the timeline searches for its values; empty if only `texts` are searched for.
        texts: What to search for instead, and how, by value.
        prefix: What precedes its values in the names of intervals.
    """

    column: str
    mode: str
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    prefix: str = ""


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

    Args:
        columns: Names of the columns with values.

    Returns:
        `go` (to the longest, to the next from a time on, or to a step), the columns to read (`at` has the
        time), and how to search: for the values of `column`, or for `text`, and for `host` if the device is
        the host.

    Example:
        >>> found = link_parameters(["name", "count"])
        >>> found["go"], found["column"], found["mode"]
        ('longest', 'name', 'name')
        >>> link_parameters(["rank", "step", "window_ns"])["go"]
        'step'
        >>> link_parameters(["rank", "device", "gaps"])["text"]
        'idle'
        >>> link_parameters(["checks"]) is None
        True
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
