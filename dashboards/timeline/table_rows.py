"""Rows of the tables behind a timeline: fields, enclosing calls and launched device intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import TABLES, C

from ..components.text import human
from .index import Index
from .tracks import ANNOTATION, HOST, LANE_TABLES, Lane

HOSTS = LANE_TABLES[HOST]
UNITS = {
    C.START_NS: "ns",
    C.DUR_NS: "ns",
    C.BYTES: "bytes",
    C.STATIC_SHARED_BYTES: "bytes",
    C.DYNAMIC_SHARED_BYTES: "bytes",
    C.FLOPS: "FLOP",
    C.OCCUPANCY_PCT: "%",
}
"""Units of columns; all others are names or ids."""


def read_row(run: Run, table: str, number: int) -> dict[str, Any] | None:
    """Return a row, or None if it does not exist. `steps` has no row ids; rows are numbered.

    Args:
        run: The run.
        table: Name of the table.
        number: Row id, or row number for `steps`.
    """
    if table == "steps":
        rows = run.arrow(table).slice(number, 1) if 0 <= number < run.rows(table) else None
    else:
        rows = run.arrow(table, row_ids=[number])
    records = rows.to_pylist() if rows is not None else []
    return records[0] if records else None


def describe_fields(table: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return value, unit, text and meaning of each field, in schema order."""
    return {
        column.name: {
            "value": values.get(column.name),
            "unit": UNITS.get(column.name, ""),
            "text": human(values.get(column.name), UNITS.get(column.name, "")),
            "meaning": column.meaning,
        }
        for column in TABLES[table].columns
    }


OF_OP = (C.INPUT_SHAPES, C.INPUT_DTYPES, C.FLOPS)
"""Columns of the op that are shown for its device intervals."""
OF_AROUND = (
    *(C.MODULE, C.COLLECTIVE, C.COLLECTIVE_SEQUENCE, C.DTYPE, C.ELEMENTS_IN, C.ELEMENTS_OUT),
    *(C.GROUP_NAME, C.GROUP_DESCRIPTION, C.GROUP_RANKS, C.GROUP_SIZE, C.SRC_RANK, C.DST_RANK),
)
"""Columns of the nearest enclosing call that has them."""


def inherit_fields(
    records: dict[int, dict[str, Any]], op: int | None, around: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Return what the op and the calls around a launch say about it; only known values.

    Args:
        records: Host rows by id.
        op: Row of the op.
        around: Rows of the launch, the op and the calls around them, innermost first.
    """
    values = {name: records.get(op, {}).get(name) for name in OF_OP} if op is not None else {}
    for row in around:
        for name in OF_AROUND:
            if values.get(name) is None:
                values[name] = records.get(row, {}).get(name)
    return {
        name: field for name, field in describe_fields(HOSTS, values).items() if field["value"] is not None
    }


def bandwidth(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the bandwidth of a copy or memset; nothing if its size is unknown or it took no time.

    Example:
        >>> bandwidth({C.BYTES: 4_000, C.DUR_NS: 2_000})["bandwidth"]["text"]
        '2.00 GB/s'
    """
    size, dur = values.get(C.BYTES), values.get(C.DUR_NS)
    if size is None or not dur:
        return {}
    rate = size / dur
    field = {"value": rate, "unit": "GB/s", "text": f"{rate:,.2f} GB/s", "meaning": "bytes over duration"}
    return {"bandwidth": field}


def rows_by_id(run: Run, rows: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return columns of host rows, by row id.

    Args:
        run: The run.
        rows: Row ids.
        columns: Names of the columns.
    """
    rows_read = run.arrow("host_intervals", columns=[C.ROW_ID, *columns], row_ids=rows)
    return {record[C.ROW_ID]: record for record in rows_read.to_pylist()}


MAX_LAUNCHED = 200
"""Maximum launched intervals to list."""
_MAX_ANCESTORS = 2_000


def ancestors(run: Run, index: Index, row: int, parent: int | None) -> list[int]:
    """Return the rows that enclose a host row, innermost first.

    The index gives the candidates, to read their recorded parents at once.

    Args:
        run: The run.
        index: Its index.
        row: Row id of the host row.
        parent: Row id of its parent; None at the top level.
    """
    position, open_rows = int(index.position(HOSTS, np.array([row]))[0]), []
    if position >= 0:  # rows of the same thread that are open when the row starts
        start, _ = index.interval(position)
        for lane in _thread_lanes(index, position):
            first, after = index.within(lane, start, start + 1)
            open_rows += index.row[first:after].tolist()
    near = rows_by_id(run, open_rows, [C.PARENT_ROW])
    enclosing: list[int] = []
    while parent is not None and len(enclosing) < _MAX_ANCESTORS and parent not in enclosing:
        enclosing.append(parent)
        record = near.get(parent) or rows_by_id(run, [parent], [C.PARENT_ROW]).get(parent, {})
        parent = record.get(C.PARENT_ROW)
    return enclosing


def _thread_lanes(index: Index, position: int) -> Iterator[Lane]:
    """Yield the lanes of an interval's thread."""
    own_track = index.lanes[int(index.lane_at(np.array([position]))[0])].track
    for lane in index.lanes:
        track = lane.track
        same = (track.rank, track.pid, track.tid) == (own_track.rank, own_track.pid, own_track.tid)
        if same and track.kind in {HOST, ANNOTATION}:
            yield lane


def find_launched(run: Run, index: Index, row: int) -> tuple[list[dict[str, Any]], int]:
    """Return the first device intervals that a host row or its children launched, and their number.

    Args:
        run: The run.
        index: Its index.
        row: Row id of the host row.
    """
    inside = _row_and_children(index, row)
    if not len(inside):
        return [], 0
    low, high = int(inside.min()), int(inside.max())
    launch = pc.field(C.LAUNCH_ROW)
    device = run.arrow(
        "device_intervals",
        columns=[C.ROW_ID, C.LAUNCH_ROW, C.START_NS],
        where=(launch >= low) & (launch <= high),
    )
    flags = np.zeros(high - low + 1, np.bool_)
    flags[inside - low] = True
    by = device[C.LAUNCH_ROW].to_numpy()
    rows = device[C.ROW_ID].to_numpy()[flags[by - low]] if len(by) else np.empty(0, np.int64)
    positions = index.position("device_intervals", rows.astype(np.int64))
    positions = positions[positions >= 0]
    positions = positions[np.argsort(index.start[positions], kind="stable")]
    return [index.reference(position) for position in positions[:MAX_LAUNCHED].tolist()], len(rows)


def _row_and_children(index: Index, row: int) -> Ints:
    """Return a host row and its children, which follow it in the table and end no later."""
    position = int(index.position(HOSTS, np.array([row]))[0])
    if position < 0:
        return np.array([row], np.int64)
    start, end = index.interval(position)
    row_groups = [np.array([row], np.int64)]
    for lane in _thread_lanes(index, position):
        starts = index.start[lane.at : lane.at + lane.rows]
        first, after = (
            lane.at + int(place) for place in np.searchsorted(starts, [start, max(end, start + 1)])
        )
        places = np.arange(first, after)
        rows = index.row[first:after].astype(np.int64)
        ends = index.start[first:after] + index.duration(places)
        row_groups.append(rows[(rows > row) & (ends <= end)])
    return np.concatenate(row_groups)
