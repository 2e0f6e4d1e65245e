"""Lanes of the timeline and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracekit.schema import C

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
    """Source of lanes: the steps of a rank, a stream, the idle time of a device, or a thread."""

    kind: str
    rank: int
    device: int = ABSENT
    stream: int = ABSENT
    waits: bool = False  # whether it contains the waits of a device, which overlap its work
    pid: int = ABSENT
    tid: int = ABSENT
    depth: int = 0  # nesting depth on a thread; 0 otherwise

    @property
    def line(self) -> Track:
        """The track without depth; lanes that differ only in depth share a title."""
        return replace(self, depth=0)


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A lane of non-overlapping intervals."""

    id: int  # lane number, in display order
    track: Track  # its track; `depth` is the index of the lane within its line
    at: int  # position of its first interval in the index
    rows: int  # number of intervals
    group: str = ""  # heading of its group
    title: str = ""

    @property
    def table(self) -> str:
        """Table of its rows."""
        return LANE_TABLES[self.track.kind]

    def describe(self) -> dict[str, Any]:
        """Return the lane as sent to clients; fields that do not apply are None."""
        track = self.track
        places = {C.RANK: track.rank, C.DEVICE: track.device, C.STREAM: track.stream}
        places |= {C.PID: track.pid, C.TID: track.tid}
        ids = {name: None if value == ABSENT else value for name, value in places.items()}
        head = {"id": self.id, "group": self.group, "title": self.title, C.KIND: track.kind}
        return {**head, **ids, C.DEPTH: track.depth, "rows": self.rows}


def order_lanes(track_ranges: Sequence[tuple[Track, int, int]]) -> tuple[Lane, ...]:
    """Return lanes in display order, from their tracks, positions and numbers of rows.

    Per rank: steps, annotations, devices with streams, waits and idle time, and host threads, busiest first.
    """
    weight: dict[Track, int] = {}
    for track, _, rows in track_ranges:
        weight[track.line] = weight.get(track.line, 0) + rows

    def place(track_range: tuple[Track, int, int]) -> tuple[Any, ...]:
        track, first, _ = track_range
        kind, last = _KINDS.index(track.kind), (track.depth, first)
        if track.kind in {DEVICE, IDLE}:
            return track.rank, _KINDS.index(DEVICE), track.device, kind, track.waits, track.stream, 0, *last
        return track.rank, kind, 0, 0, -weight[track.line], track.pid, track.tid, *last

    ambiguous = _ambiguous(weight)
    lanes: list[Lane] = []
    for number, (track, first, rows) in enumerate(sorted(track_ranges, key=place)):
        previous = lanes[-1].track if lanes else None
        depth = previous.depth + 1 if previous and previous.line == track.line else 0
        shown = replace(track, depth=depth)
        group, title = f"rank {track.rank}", _title(track, several=ambiguous)
        where = f"GPU {track.device}" if track.kind in {DEVICE, IDLE} else HOST
        group += f" · {where}" if track.kind in {DEVICE, IDLE, HOST} else ""
        lanes.append(Lane(id=number, track=shown, at=first, rows=rows, group=group, title=title))
    return tuple(lanes)


_KINDS = (STEPS, ANNOTATION, DEVICE, IDLE, HOST)


def _ambiguous(lines: Iterable[Track]) -> set[tuple[str, int]]:
    """Return ranks with several processes, and ranks with several threads with annotations."""
    numbers_by_place: dict[tuple[str, int], set[int]] = {}
    for line in lines:
        if line.kind in {HOST, ANNOTATION}:
            number = line.pid if line.kind == HOST else line.tid
            numbers_by_place.setdefault((line.kind, line.rank), set()).add(number)
    return {place for place, numbers in numbers_by_place.items() if len(numbers) > 1}


def _title(track: Track, *, several: set[tuple[str, int]]) -> str:
    thread = f"thread {track.tid}"
    if track.tid == track.pid:  # the id of the main thread is that of the process
        thread = f"main {thread}"
    elif (HOST, track.rank) in several:
        thread += ", no process" if track.pid == ABSENT else f" of process {track.pid}"
    if track.kind in {STEPS, IDLE}:
        return track.kind
    if track.kind == ANNOTATION:
        return f"annotations · {thread}" if (ANNOTATION, track.rank) in several else "annotations"
    if track.kind == HOST:
        return thread
    stream = "no stream" if track.stream == ABSENT else f"stream {track.stream}"
    return "waits" if track.waits else stream
