"""Queries of the timeline: details of a row, and totals of a range."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.errors import RunNotFoundError
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from . import table_rows
from .index import NONE, Index
from .read_columns import CATEGORIES, HOST_CATEGORIES, IDLE_CATEGORIES, NUMBER
from .tracks import ABSENT, IDLE, Lane

DEVICES, HOSTS = "device_intervals", "host_intervals"
_FRAMES = re.compile(r"[;\n]")


def describe_row(run: Run, index: Index, table: str, row: int) -> dict[str, Any]:
    """Return the details of a row, as sent to clients.

    Args:
        run: The run.
        index: Its index.
        table: Name of the table.
        row: Row id, or row number for `steps`.

    Raises:
        RunNotFoundError: The run has no such row.
    """
    values = table_rows.read_row(run, table, row)
    if values is None:
        raise RunNotFoundError(f"{table} has no row {row}", hint=f"it has {run.rows(table):,} rows")
    position = int(index.position(table, np.array([row]))[0])
    interval = index.reference(position) if position >= 0 else {"lane": None, "category": None}
    category = interval["category"]
    details = {
        "table": table,
        "row": row,
        "lane": interval["lane"],
        C.START_NS: interval.get(C.START_NS, values[C.START_NS]),
        "category": category if category is None else CATEGORIES[category],
        "fields": table_rows.describe_fields(table, values),
        **_EMPTY,
    }
    if table == HOSTS:
        details |= _of_host(run, index, values)
    elif table == DEVICES and values[C.KIND] == DeviceKind.IDLE:
        details |= _of_idle(index, position)
    elif table == DEVICES:
        details |= _of_device(run, index, values)
        details["next"] = next_on_stream(index, position) if position >= 0 else None
    return details


_EMPTY: dict[str, Any] = {
    "launch": None,
    "op": None,
    "launched": [],
    "launched_total": 0,
    "parents": [],
    C.STACK: [],
    "related": {},
    "next": None,
    "cause": None,
    "idle_op": None,
    "source": None,
    "pending": False,
}


def host_reference(index: Index, row: int | None) -> dict[str, Any] | None:
    """Return a reference to a host row; None if it is missing or in no lane."""
    if row is None or row == NONE:
        return None
    position = int(index.position(HOSTS, np.array([row]))[0])
    return index.reference(position) if position >= 0 else None


def _of_device(run: Run, index: Index, values: dict[str, Any]) -> dict[str, Any]:
    launch, op = values[C.LAUNCH_ROW], values[C.OP_ROW]
    from_row = launch if launch is not None else op
    parents: list[int] = []
    if from_row is not None:
        record = table_rows.rows_by_id(run, [from_row], [C.PARENT_ROW]).get(from_row, {})
        parents = table_rows.ancestors(run, index, from_row, record.get(C.PARENT_ROW))
    around = [row for row in dict.fromkeys((launch, op, *parents)) if row is not None]
    records = table_rows.rows_by_id(run, around, [C.STACK, *table_rows.OF_OP, *table_rows.OF_AROUND])
    return {
        "launch": host_reference(index, launch),
        "op": host_reference(index, op),
        "parents": _references(index, parents),
        C.STACK: _stack(index, around, records),
        "related": table_rows.bandwidth(values) | table_rows.inherit_fields(records, op, around),
    }


def _of_host(run: Run, index: Index, values: dict[str, Any]) -> dict[str, Any]:
    row = values[C.ROW_ID]
    parents = table_rows.ancestors(run, index, row, values[C.PARENT_ROW])
    details, total = table_rows.find_launched(run, index, row)
    enclosing = _references(index, parents)
    ops = [interval for interval in enclosing if interval["category"] == NUMBER["op"]]
    around = [row, *parents]
    return {
        "op": ops[0] if ops else None,
        "launched": details,
        "launched_total": total,
        "parents": enclosing,
        C.STACK: _stack(index, around, table_rows.rows_by_id(run, around, [C.STACK])),
    }


def _of_idle(index: Index, position: int) -> dict[str, Any]:
    explained = index.causes.explained
    if explained is None or position < 0:
        return {"pending": not index.causes.final.is_set()}
    place = position - explained.first
    category = CATEGORIES[int(index.names.category_of[explained.label[place]])]
    op, source = int(explained.op[place]), int(explained.source[place])
    host = host_reference(index, int(explained.host[place]))
    return {
        "cause": category.removeprefix(f"{IDLE_CATEGORIES}: ") if category != IDLE_CATEGORIES else None,
        "launch": host_reference(index, int(explained.launch[place])),
        "op": host,
        "idle_op": explained.ops[op] if op != NONE else None,
        "source": explained.sources[source] if source != NONE else None,
    }


def _references(index: Index, rows: Sequence[int]) -> list[dict[str, Any]]:
    return [reference for reference in (host_reference(index, row) for row in rows) if reference]


def _stack(index: Index, rows: Sequence[int], records: dict[int, dict[str, Any]]) -> list[str]:
    """Return the stack, innermost first: the nearest recorded one, else the enclosing Python frames."""
    recorded = next((text for row in rows if (text := records.get(row, {}).get(C.STACK))), None)
    if recorded:
        return [frame.strip() for frame in _FRAMES.split(recorded) if frame.strip()]
    frames = [
        reference for reference in _references(index, rows) if reference["category"] == NUMBER["python"]
    ]
    return [str(frame["name"]) for frame in frames]


NOWHERE = -1
_STRIPE = 1 << 18


def next_on_stream(index: Index, position: int) -> dict[str, Any] | None:
    """Return the interval that starts after another on its stream; None without one or without a stream."""
    own_line = index.lanes[int(index.lane_at(np.array([position]))[0])].track.line
    if own_line.stream == ABSENT:
        return None
    start, followers = int(index.start[position]), []
    for lane in index.lanes:
        if lane.track.line != own_line:
            continue
        starts = index.start[lane.at : lane.at + lane.rows]
        low, high = (lane.at + int(np.searchsorted(starts, start, side=side)) for side in ("left", "right"))
        place = min(max(position + 1, low), high)
        if place < lane.at + lane.rows:
            followers.append((int(index.start[place]), place))
    return index.reference(min(followers)[1]) if followers else None


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Per label: number of intervals, and sum and maximum of their parts in the range."""

    count: Ints
    sum_ns: Ints
    max_ns: Ints
    longest: Ints  # position of the interval with the longest part; `NOWHERE` without any
    first: Ints  # position of the first interval; `NOWHERE` without any


def totals(index: Index, lanes: Sequence[Lane], start: int, end: int) -> Totals:
    """Compute the totals of lanes in a time range.

    Args:
        index: The index.
        lanes: The lanes.
        start: Start of the range, in ns.
        end: End of the range, in ns.
    """
    size = len(index.names.name_of)
    sums = Totals(
        count=np.zeros(size, np.int64),
        sum_ns=np.zeros(size, np.int64),
        max_ns=np.full(size, -1),
        longest=np.full(size, NOWHERE),
        first=np.full(size, NOWHERE),
    )
    for positions, label, part in _stripes(index, lanes, start, end):
        sums.count[:] += np.bincount(label, minlength=size)
        np.add.at(sums.sum_ns, label, part)
        _longest(sums, positions, label, part)
        _first(index, sums, positions, label)
    return sums


def _stripes(index: Index, lanes: Sequence[Lane], start: int, end: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield positions, labels and lengths within the range, in chunks."""
    for lane in lanes:
        first, after = index.within(lane, start, end)
        # in chunks: temporary arrays of a lane with millions of intervals would take hundreds of MB
        for low in range(first, after, _STRIPE):
            high = min(low + _STRIPE, after)
            positions = np.arange(low, high)
            label = index.labels(positions) if lane.track.kind == IDLE else index.label[low:high]
            starts = index.start[low:high]
            ends = starts + np.diff(index.total[low : high + 1])
            part = np.minimum(ends, end) - np.maximum(starts, start)
            yield positions, label.astype(np.int64), part


def _longest(sums: Totals, positions: Ints, label: Ints, part: Ints) -> None:
    before = sums.max_ns.copy()
    np.maximum.at(sums.max_ns, label, part)
    most = sums.max_ns[label]
    hit = np.flatnonzero((part == most) & (most > before[label]))[::-1]
    sums.longest[label[hit]] = positions[hit]  # in reverse, so that the first wins a tie


def _first(index: Index, sums: Totals, positions: Ints, label: Ints) -> None:
    first_here = np.full(len(sums.first), NOWHERE)
    first_here[label[::-1]] = positions[::-1]
    present = np.flatnonzero(first_here != NOWHERE)
    first_before = sums.first[present]
    earlier = (first_before == NOWHERE) | (index.start[first_here[present]] < index.start[first_before])
    sums.first[present[earlier]] = first_here[present[earlier]]


def rows(index: Index, sums: Totals, *, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of totals, largest sums first, and their total number.

    Args:
        index: The index.
        sums: Totals of a range.
        limit: Maximum rows; None for all.
    """
    labels = np.flatnonzero(sums.count)
    ranked = labels[np.lexsort((labels, -sums.count[labels], -sums.sum_ns[labels]))]
    names = index.names
    records = [
        {
            "name": names.texts[int(names.name_of[label])],
            "category": CATEGORIES[int(names.category_of[label])],
            "count": int(sums.count[label]),
            "sum_ns": int(sums.sum_ns[label]),
            "mean_ns": int(sums.sum_ns[label]) / int(sums.count[label]),
            "max_ns": int(sums.max_ns[label]),
            "max": index.reference(int(sums.longest[label])),
        }
        for label in ranked[:limit].tolist()
    ]
    return records, len(ranked)


def by_category(index: Index, sums: Totals, length: int) -> list[dict[str, Any]]:
    """Return count, sum and share by category: work of devices, idle time, the host; largest sums first.

    Args:
        index: The index.
        sums: Totals of a range.
        length: Length of the range in ns, of which `share` is the sum; above 1 if intervals overlap.
    """
    count, total = np.zeros(len(CATEGORIES), np.int64), np.zeros(len(CATEGORIES), np.int64)
    np.add.at(count, index.names.category_of, sums.count)
    np.add.at(total, index.names.category_of, sums.sum_ns)
    present = np.flatnonzero(count)
    part = np.array([_PARTS.get(name, 0) for name in CATEGORIES])
    ranked = present[np.lexsort((present, -total[present], part[present]))].tolist()
    return [
        {
            "category": CATEGORIES[number],
            "count": int(count[number]),
            "sum_ns": int(total[number]),
            "share": int(total[number]) / length,
        }
        for number in ranked
    ]


_IDLE = dict.fromkeys((name for name in CATEGORIES if name.startswith(IDLE_CATEGORIES)), 1)
_PARTS = _IDLE | dict.fromkeys(HOST_CATEGORIES, 2)
"""Order of the categories: idle time, then the host, after everything else."""
