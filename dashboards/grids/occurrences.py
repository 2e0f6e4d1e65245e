"""Lead from a row that names a kernel, op, copy, collective, cause or step to its place on the timeline.

A row with a row id leads to that row (see `columns.ROWS`). Any other leads to a search on the timeline whose
longest match is selected; from there, N leads to the next longest and `.` to the next of the same name. The
timeline finds it when the link is followed, so that tables cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.analysis.idle_causes import CAUSES, label
from tracekit.schema import C

from ..timeline.matches import CATEGORY, COLLECTIVE, FAMILY, NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LONGEST, NEXT, STEP = "longest", "next", "step"


@dataclass(frozen=True)
class _Named:
    """A column that names intervals.

    Attributes:
        column: The column.
        mode: How the timeline searches for its values.
        texts: What to search for instead, by value.
    """

    column: str
    mode: str
    texts: Mapping[str, str] = field(default_factory=dict)


_COPIES = {"all copies": "copy", "D2D": "copy D2D/other"}
_NAMED = (
    _Named(C.NAME, NAME),
    _Named("call", NAME),
    _Named("op", FAMILY),
    _Named("family", FAMILY),
    _Named("collective", COLLECTIVE),
    _Named("cause", CATEGORY, {label(cause): f"idle: {label(cause)}" for cause in CAUSES}),
    _Named("what", CATEGORY, _COPIES),
    _Named("direction", CATEGORY, _COPIES),
)
"""In order of precedence."""


def link(columns: Collection[str]) -> dict[str, Any] | None:
    """Return the parameters of the links of a table's rows; None if its rows name no intervals.

    Args:
        columns: Names of the columns with values.

    Returns:
        `go` (to the longest, to the next from a start on, or to a step), the columns to read, and how to
        search.

    Example:
        >>> link(["name", "count"])
        {'go': 'longest', 'column': 'name', 'mode': 'name', 'texts': {}, 'rank': '', 'device': ''}
        >>> link(["rank", "step", "window_ns"])["go"], link(["rank", "device", "idle_ns"])
        ('step', None)
    """
    place = {
        C.RANK: C.RANK if C.RANK in columns else "",
        C.DEVICE: C.DEVICE if C.DEVICE in columns else "",
    }
    named = next((one for one in _NAMED if one.column in columns), None)
    if named and C.START_NS in columns:
        go = NEXT
    elif C.STEP in columns:
        rank = next((one for one in (C.RANK, "slowest_rank", "last_rank") if one in columns), "")
        return {"go": STEP, "column": C.STEP, "mode": "", "texts": {}, **place, C.RANK: rank}
    elif named:
        go = LONGEST
    else:
        return None
    return {"go": go, "column": named.column, "mode": named.mode, "texts": dict(named.texts), **place}
