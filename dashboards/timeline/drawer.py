"""Details of a row: fields, launch, launched intervals, parents, stack, idle cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import RunNotFoundError
from tracekit.schema import C, DeviceKind

from . import family, fields
from .categories import CATEGORIES, IDLE, NUMBER
from .causes import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

    from .index import Index

DEVICES, HOSTS = "device_intervals", "host_intervals"
_FRAMES = re.compile(r"[;\n]")


def open_row(run: Run, index: Index, table: str, row: int) -> dict[str, Any]:
    """Return the details of a row, as sent to clients.

    Raises:
        RunNotFoundError: The run has no such row.
    """
    values = fields.row(run, table, row)
    if values is None:
        raise RunNotFoundError(f"{table} has no row {row}", hint=f"it has {run.rows(table):,} rows")
    at = int(index.position(table, np.array([row]))[0])
    details = {
        "table": table,
        "row": row,
        "lane": int(index.lane_at(np.array([at]))[0]) if at >= 0 else None,
        "category": _category(index, at),
        "fields": fields.described(table, values),
        **_EMPTY,
    }
    if table == HOSTS:
        details |= _of_host(run, index, values)
    elif table == DEVICES:
        details |= (
            _of_idle(index, at) if values[C.KIND] == DeviceKind.IDLE else _of_device(run, index, values)
        )
    return details


_EMPTY: dict[str, Any] = {
    "launch": None,
    "op": None,
    "launched": [],
    "launched_total": 0,
    "parents": [],
    C.STACK: [],
    "cause": None,
    "idle_op": None,
    "pending": False,
}


def _category(index: Index, at: int) -> str | None:
    if at < 0:
        return None
    return CATEGORIES[int(index.names.category_of[index.labels(np.array([at]))[0]])]


def refer(index: Index, row: int | None) -> dict[str, Any] | None:
    """Return a reference to a host row; None if it is missing or in no lane."""
    if row is None or row == NONE:
        return None
    at = int(index.position(HOSTS, np.array([row]))[0])
    return index.reference(at) if at >= 0 else None


def _of_device(run: Run, index: Index, values: dict[str, Any]) -> dict[str, Any]:
    launch, op = values[C.LAUNCH_ROW], values[C.OP_ROW]
    from_row = launch if launch is not None else op
    parents: list[int] = []
    if from_row is not None:
        record = fields.some(run, [from_row], [C.PARENT_ROW]).get(from_row, {})
        parents = family.chain(run, index, from_row, record.get(C.PARENT_ROW))
    related = [row for row in (launch, op, *parents) if row is not None]
    return {
        "launch": refer(index, launch),
        "op": refer(index, op),
        "parents": _known(index, parents),
        C.STACK: _stack(run, index, related),
    }


def _of_host(run: Run, index: Index, values: dict[str, Any]) -> dict[str, Any]:
    row = values[C.ROW_ID]
    parents = family.chain(run, index, row, values[C.PARENT_ROW])
    details, total = family.launched(run, index, row)
    known = _known(index, parents)
    ops = [one for one in known if one["category"] == NUMBER["op"]]
    return {
        "op": ops[0] if ops else None,
        "launched": details,
        "launched_total": total,
        "parents": known,
        C.STACK: _stack(run, index, [row, *parents]),
    }


def _of_idle(index: Index, at: int) -> dict[str, Any]:
    explained = index.causes.explained
    if explained is None or at < 0:
        return {"pending": not index.causes.final.is_set()}
    place = at - explained.first
    category = CATEGORIES[int(index.names.category_of[explained.label[place]])]
    op = int(explained.op[place])
    host = refer(index, int(explained.host[place]))
    return {
        "cause": category.removeprefix(f"{IDLE}: ") if category != IDLE else None,
        "launch": refer(index, int(explained.launch[place])),
        "op": host,
        "idle_op": explained.ops[op] if op != NONE else None,
    }


def _known(index: Index, rows: Sequence[int]) -> list[dict[str, Any]]:
    return [one for one in (refer(index, row) for row in rows) if one]


def _stack(run: Run, index: Index, rows: Sequence[int]) -> list[str]:
    """Return the stack, innermost first: the nearest recorded one, else the enclosing Python frames."""
    if not rows:
        return []
    found = fields.some(run, rows, [C.STACK])
    recorded = next((text for row in rows if (text := found.get(row, {}).get(C.STACK))), None)
    if recorded:
        return [frame.strip() for frame in _FRAMES.split(recorded) if frame.strip()]
    frames = [one for one in _known(index, rows) if one["category"] == NUMBER["python"]]
    return [str(frame["name"]) for frame in frames]
