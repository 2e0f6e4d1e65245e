"""Lanes of the timeline and their order; rows, parents and launched intervals of a host row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from tracekit.render import human
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

    from .index import Index


STEPS, ANNOTATION, DEVICE, IDLE, HOST = "steps", "annotation", "device", "idle", "host"
LANE_TABLES = {
    STEPS: "steps",
    ANNOTATION: "host_intervals",
    DEVICE: "device_intervals",
    IDLE: "device_intervals",
    HOST: "host_intervals",
}
"""Table of each kind of lane."""
ABSENT = -1
"""Value of fields that do not apply to a track."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """Source of lanes: the steps of a rank, a stream, the idle time of a device, or a thread.

    Attributes:
        waits: Whether it contains the waits of a device, which overlap its work.
        depth: Nesting depth on a thread; 0 otherwise.
    """

    kind: str
    rank: int
    device: int = ABSENT
    stream: int = ABSENT
    waits: bool = False
    pid: int = ABSENT
    tid: int = ABSENT
    depth: int = 0

    @property
    def line(self) -> Track:
        """The track without depth; lanes that differ only in depth share a title."""
        return replace(self, depth=0)


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A lane of non-overlapping intervals.

    Attributes:
        id: Lane number, in display order.
        track: Its track; `depth` is the index of the lane within its line.
        at: Position of its first interval in the index.
        rows: Number of intervals.
        group: Heading of its group.
        title: Title.
    """

    id: int
    track: Track
    at: int
    rows: int
    group: str = ""
    title: str = ""

    @property
    def table(self) -> str:
        """Table of its rows."""
        return LANE_TABLES[self.track.kind]

    def described(self) -> dict[str, Any]:
        """Return the lane as sent to clients; fields that do not apply are None."""
        track = self.track
        places = {C.RANK: track.rank, C.DEVICE: track.device, C.STREAM: track.stream}
        places |= {C.PID: track.pid, C.TID: track.tid}
        ids = {name: None if value == ABSENT else value for name, value in places.items()}
        head = {"id": self.id, "group": self.group, "title": self.title, C.KIND: track.kind}
        return {**head, **ids, C.DEPTH: track.depth, "rows": self.rows}


def ordered(found: Sequence[tuple[Track, int, int]]) -> tuple[Lane, ...]:
    """Return lanes in display order, from their tracks, positions and numbers of rows.

    Per rank: steps, annotations, devices with streams, waits and idle time, and host threads, busiest first.
    """
    weight: dict[Track, int] = {}
    for track, _, rows in found:
        weight[track.line] = weight.get(track.line, 0) + rows
    ranked = sorted(found, key=lambda one: (_place(one[0], weight[one[0].line]), one[0].depth, one[1]))
    ambiguous = _ambiguous(weight)
    lanes: list[Lane] = []
    for number, (track, at, rows) in enumerate(ranked):
        previous = lanes[-1].track if lanes else None
        depth = previous.depth + 1 if previous and previous.line == track.line else 0
        shown = replace(track, depth=depth)
        group, title = _group(track), _title(track, several=ambiguous)
        lanes.append(Lane(id=number, track=shown, at=at, rows=rows, group=group, title=title))
    return tuple(lanes)


_KINDS = (STEPS, ANNOTATION, DEVICE, IDLE, HOST)


def _place(track: Track, weight: int) -> tuple[int, ...]:
    kind = _KINDS.index(track.kind)
    if track.kind in {DEVICE, IDLE}:
        return (track.rank, _KINDS.index(DEVICE), track.device, kind, int(track.waits), track.stream, 0)
    return track.rank, kind, 0, 0, -weight, track.pid, track.tid


def _ambiguous(lines: Iterable[Track]) -> set[tuple[str, int]]:
    """Return ranks with several processes, and ranks with several threads with annotations."""
    found: dict[tuple[str, int], set[int]] = {}
    for line in lines:
        if line.kind in {HOST, ANNOTATION}:
            number = line.pid if line.kind == HOST else line.tid
            found.setdefault((line.kind, line.rank), set()).add(number)
    return {place for place, numbers in found.items() if len(numbers) > 1}


def _group(track: Track) -> str:
    rank = f"rank {track.rank}"
    if track.kind in {DEVICE, IDLE}:
        return f"{rank} · GPU {track.device}"
    return f"{rank} · host" if track.kind == HOST else rank


def _title(track: Track, *, several: set[tuple[str, int]]) -> str:
    thread = _thread(track, processes=(HOST, track.rank) in several)
    match track.kind:
        case "steps":
            return "steps"
        case "annotation":
            return f"annotations · {thread}" if (ANNOTATION, track.rank) in several else "annotations"
        case "idle":
            return "idle"
        case "host":
            return thread
    if track.waits:
        return "waits"
    return "no stream" if track.stream == ABSENT else f"stream {track.stream}"


def _thread(track: Track, *, processes: bool) -> str:
    """Return the title of a thread; the main thread's id equals the process id."""
    if track.tid == track.pid:
        return f"main thread {track.tid}"
    return f"thread {track.tid} of process {track.pid}" if processes else f"thread {track.tid}"


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
    """Return a row, or None if it does not exist. `steps` has no row ids; rows are numbered."""
    if table == "steps":
        found = run.arrow(table).slice(number, 1) if 0 <= number < run.rows(table) else None
    else:
        found = run.arrow(table, where=pc.field(C.ROW_ID) == number)
    records = found.to_pylist() if found is not None else []
    return records[0] if records else None


def described(table: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return value, unit, text and meaning of each field, in schema order.

    Example:
        >>> fields = described("steps", {C.RANK: 0, C.STEP: 3, C.NAME: "s", C.START_NS: 1500, C.DUR_NS: 9})
        >>> fields[C.START_NS]["value"], fields[C.START_NS]["text"]
        (1500, '1.50 µs')
    """
    return {
        column.name: {
            "value": values[column.name],
            "unit": UNITS.get(column.name, ""),
            "text": human(values[column.name], UNITS.get(column.name, "")),
            "meaning": column.meaning,
        }
        for column in TABLES[table].columns
    }


def some(run: Run, rows: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return columns of host rows, by row id."""
    found = run.arrow("host_intervals", columns=[C.ROW_ID, *columns], where=pc.field(C.ROW_ID).isin(rows))
    return {record[C.ROW_ID]: record for record in found.to_pylist()}


HOSTS = LANE_TABLES[HOST]
LAUNCHED = 200
"""Maximum launched intervals to list."""
_LONGEST_CHAIN = 2_000


def chain(run: Run, index: Index, row: int, parent: int | None) -> list[int]:
    """Return the rows that enclose a host row, innermost first.

    The index gives the candidates, to read their recorded parents at once.
    """
    near = some(run, _around(index, row), [C.PARENT_ROW])
    found: list[int] = []
    while parent is not None and len(found) < _LONGEST_CHAIN and parent not in found:
        found.append(parent)
        record = near.get(parent) or some(run, [parent], [C.PARENT_ROW]).get(parent, {})
        parent = record.get(C.PARENT_ROW)
    return found


def _around(index: Index, row: int) -> list[int]:
    """Return rows of the same thread that are open when a row starts."""
    at = int(index.position(HOSTS, np.array([row]))[0])
    if at < 0:
        return []
    start, _ = index.interval(at)
    found = []
    for lane in _thread_lanes(index, at):
        first, after = index.within(lane, start, start + 1)
        found += index.row[first:after].tolist()
    return found


def _thread_lanes(index: Index, at: int) -> Iterator[Lane]:
    """Yield the lanes of an interval's thread."""
    own = index.lanes[int(index.lane_at(np.array([at]))[0])].track
    for lane in index.lanes:
        track = lane.track
        same = (track.rank, track.pid, track.tid) == (own.rank, own.pid, own.tid)
        if same and track.kind in {HOST, ANNOTATION}:
            yield lane


def launched(run: Run, index: Index, row: int) -> tuple[list[dict[str, Any]], int]:
    """Return the first device intervals that a host row or its children launched, and their number."""
    inside = _inside(index, row)
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
    at = index.position("device_intervals", rows.astype(np.int64))
    at = at[at >= 0]
    at = at[np.argsort(index.start[at], kind="stable")]
    return [index.reference(one) for one in at[:LAUNCHED].tolist()], len(rows)


def _inside(index: Index, row: int) -> Ints:
    """Return a host row and its children, which follow it in the table and end no later."""
    at = int(index.position(HOSTS, np.array([row]))[0])
    if at < 0:
        return np.array([row], np.int64)
    start, end = index.interval(at)
    found = [np.array([row], np.int64)]
    for lane in _thread_lanes(index, at):
        own = index.start[lane.at : lane.at + lane.rows]
        first, after = (lane.at + int(place) for place in np.searchsorted(own, [start, max(end, start + 1)]))
        places = np.arange(first, after)
        rows = index.row[first:after].astype(np.int64)
        ends = index.start[first:after] + index.duration(places)
        found.append(rows[(rows > row) & (ends <= end)])
    return np.concatenate(found)
