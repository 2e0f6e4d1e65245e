"""Lanes whose intervals are the rows of a SQL query over the tables of a run.

The query is run as on the SQL page: in a child process, with the same limits and errors. Its result has
integer columns `start_ns`, and `dur_ns` or `end_ns`; `name` and `rank` are optional, and further columns are
shown with the selected interval. Each rank has lanes of its own, in which intervals do not overlap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS
from tracekit.runs.store import Store
from tracekit.schema import C

from ..query_runner import Query, Result, make_query
from .build import assign_levels

REQUIRED: Final = f"{C.START_NS}, and {C.DUR_NS} or {END_NS}"
_MAX_NS = 1 << 62
_MAX_EXACT = 1 << 53  # integers from which on browsers round
_NO_RANK = -1


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request."""

    sql: str  # the statement
    # only intervals of this rank, and of none; None for all
    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] | None = None


def read_body(body: bytes) -> Body:
    """Return the body of a request.

    Raises:
        UnusableInputError: It is malformed.
    """
    try:
        return msgspec.json.decode(body, type=Body)
    except ValueError as error:  # also of bytes that are not UTF-8
        raise UnusableInputError(f"not a query: {error}", hint="sql, and optionally rank") from None


def query_of(store: Store, run: Run, body: Body) -> Query:
    """Return the query of a request.

    Raises:
        UnusableInputError: There is none, or it is too long.
    """
    if not body.sql.strip():
        raise UnusableInputError("the query is empty", hint=f"select {REQUIRED}")
    return make_query(store, body.sql, [run])


def can_be_lanes(names: Sequence[str]) -> bool:
    """Return whether a result with these columns can be shown as lanes.

    Example:
        >>> can_be_lanes(["name", "start_ns", "end_ns"]), can_be_lanes(["name", "dur_ns"])
        (True, False)
    """
    return C.START_NS in names and not {C.DUR_NS, END_NS}.isdisjoint(names)


def read_lanes(
    result: Result, wanted_rank: int | None, span: tuple[int, int], offsets: Mapping[int, int]
) -> dict[str, Any]:
    """Return the lanes of a result, as sent to clients.

    Args:
        result: The result.
        wanted_rank: Only intervals of this rank, and of none; None for all.
        span: Start and end of the capture, ns.
        offsets: What to subtract from the times of ranks, ns.

    Raises:
        UnusableInputError: A column is missing or has values that are no integers.
    """
    names = [name for name, _ in result.columns]
    if not can_be_lanes(names):
        raise UnusableInputError(f"the result has no {_missing(names)}", hint=f"select {REQUIRED}")
    start, end, timed = _times(result, names)
    rank = _ranks(result, names)
    for of_rank, offset in offsets.items():
        start[rank == of_rank] -= offset
        end[rank == of_rank] -= offset
    shown = timed & ((rank == _NO_RANK) | (rank == wanted_rank) | (wanted_rank is None))
    inside = shown & (end >= span[0]) & (start <= span[1])
    lanes, crowded = _assign(start, end, rank, np.flatnonzero(inside))
    others = [place for place, name in enumerate(names) if name not in _SPECIAL]
    at = names.index(C.NAME) if C.NAME in names else None
    return {
        "lanes": lanes,
        "names": None if at is None else [_text(row[at]) for row in result.rows],
        "columns": [names[place] for place in others],
        "values": [[_value(row[place]) for place in others] for row in result.rows],
        "more": result.more,
        "without_times": int((~timed).sum()),
        "outside": int((shown & ~inside).sum()),
        "crowded": crowded,
    }


_SPECIAL = {C.START_NS, C.DUR_NS, END_NS, C.NAME, C.RANK}


def _missing(names: Sequence[str]) -> str:
    return C.START_NS if C.START_NS not in names else f"{C.DUR_NS} or {END_NS}"


def _integers(result: Result, place: int) -> list[int | None]:
    """Return a column of whole numbers.

    Raises:
        UnusableInputError: A value is none.
    """
    values = [row[place] for row in result.rows]
    if any(value is not None and type(value) is not int for value in values):
        name, kind = result.columns[place]
        raise UnusableInputError(f"{name} is {kind}, not an integer", hint=f"use CAST({name} AS BIGINT)")
    return values


def _times(result: Result, names: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return starts and ends of all rows, and whether both are known, possible and in order."""
    starts = _integers(result, names.index(C.START_NS))
    is_length = C.DUR_NS in names
    others = _integers(result, names.index(C.DUR_NS if is_length else END_NS))
    start, end = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    timed = np.zeros(len(starts), np.bool_)
    for place, (first, other) in enumerate(zip(starts, others, strict=True)):
        if first is None or other is None:
            continue
        last = first + other if is_length else other
        if -_MAX_NS < first <= last < _MAX_NS:
            start[place], end[place], timed[place] = first, last, True
    return start, end, timed


def _ranks(result: Result, names: Sequence[str]) -> Any:
    """Return the rank of each row; `_NO_RANK` without one."""
    if C.RANK not in names:
        return np.full(len(result.rows), _NO_RANK)
    ranks = _integers(result, names.index(C.RANK))
    return np.array(
        [_NO_RANK if rank is None else min(max(rank, _NO_RANK), _MAX_NS) for rank in ranks], np.int64
    )


def _assign(start: Any, end: Any, rank: Any, rows: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the lanes of some rows, and how many are in none since too many overlap."""
    lanes: list[dict[str, Any]] = []
    count = 0
    for of_rank in np.unique(rank[rows]).tolist():
        own = rows[rank[rows] == of_rank]
        # by time and then by place in the result, so that a row has the same lane whenever it is asked for
        own = own[np.lexsort((own, -end[own], start[own]))]
        for depth, level in enumerate(assign_levels(start[own], end[own])):
            places = own[level]
            count += len(places)
            lanes.append(
                {
                    C.RANK: None if of_rank == _NO_RANK else of_rank,
                    C.DEPTH: depth,
                    "start": start[places].tolist(),
                    "dur": (end[places] - start[places]).tolist(),
                    "row": places.tolist(),
                }
            )
    return lanes, len(rows) - count


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _value(value: Any) -> Any:
    """Return a value as browsers can read it exactly: a number, a text, or None."""
    is_plain = value is None or isinstance(value, str) or type(value) is float
    if is_plain or (type(value) is int and -_MAX_EXACT < value < _MAX_EXACT):
        return value
    return json.dumps(value)
