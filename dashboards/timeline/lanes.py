"""Lanes: which intervals share a line of the timeline, and the order of the lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STEPS, ANNOTATION, DEVICE, IDLE, HOST = "steps", "annotation", "device", "idle", "host"
TABLES = {
    STEPS: "steps",
    ANNOTATION: "host_intervals",
    DEVICE: "device_intervals",
    IDLE: "device_intervals",
    HOST: "host_intervals",
}
"""Which table the rows of a kind of lane are of."""
ABSENT = -1
"""A stream, device, process or thread that a track does not have."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """What lanes are of: the steps of a rank, a stream, the idle time of a device, a thread.

    Attributes:
        waits: Whether it holds the waits of a device, which run beside its work.
        depth: Nesting of the intervals on a thread; 0 elsewhere.
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
        """The track without the nesting: lanes that differ in depth alone stand under one title."""
        return replace(self, depth=0)


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One lane, in which nothing overlaps.

    Attributes:
        id: Its number, in the order in which lanes are shown.
        track: What it is of; its depth counts the lanes of a line from the top.
        at: Position of its first interval in the index.
        rows: How many intervals it has.
        group: Heading under which it stands.
        title: What it is called there.
    """

    id: int
    track: Track
    at: int
    rows: int
    group: str = ""
    title: str = ""

    @property
    def table(self) -> str:
        """The table of its rows."""
        return TABLES[self.track.kind]

    def described(self) -> dict[str, Any]:
        """The lane as clients are told of it; what it does not have is None."""
        track = self.track
        places = {C.RANK: track.rank, C.DEVICE: track.device, C.STREAM: track.stream}
        places |= {C.PID: track.pid, C.TID: track.tid}
        told = {name: None if value == ABSENT else value for name, value in places.items()}
        head = {"id": self.id, "group": self.group, "title": self.title, C.KIND: track.kind}
        return {**head, **told, C.DEPTH: track.depth, "rows": self.rows}


def ordered(found: Sequence[tuple[Track, int, int]]) -> tuple[Lane, ...]:
    """Lanes in the order in which they are shown, from their tracks, positions and numbers of rows.

    Per rank: steps, annotations, the devices with their streams, waits and idle time, and the host's threads,
    the busiest first.
    """
    weight: dict[Track, int] = {}
    for track, _, rows in found:
        weight[track.line] = weight.get(track.line, 0) + rows
    ranked = sorted(found, key=lambda one: (_place(one[0], weight[one[0].line]), one[0].depth, one[1]))
    crowded = _crowded(weight)
    lanes: list[Lane] = []
    for number, (track, at, rows) in enumerate(ranked):
        above = lanes[-1].track if lanes else None
        depth = above.depth + 1 if above and above.line == track.line else 0
        shown = replace(track, depth=depth)
        group, title = _group(track), _title(track, several=crowded)
        lanes.append(Lane(id=number, track=shown, at=at, rows=rows, group=group, title=title))
    return tuple(lanes)


_KINDS = (STEPS, ANNOTATION, DEVICE, IDLE, HOST)


def _place(track: Track, weight: int) -> tuple[int, ...]:
    kind = _KINDS.index(track.kind)
    if track.kind in {DEVICE, IDLE}:
        return (track.rank, _KINDS.index(DEVICE), track.device, kind, int(track.waits), track.stream, 0)
    return track.rank, kind, 0, 0, -weight, track.pid, track.tid


def _crowded(lines: Iterable[Track]) -> set[tuple[str, int]]:
    """Ranks with more than one process with threads, and those with more than one thread with annotations."""
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
    """What a thread is called; the main one has its process's number."""
    if track.tid == track.pid:
        return f"main thread {track.tid}"
    return f"thread {track.tid} of process {track.pid}" if processes else f"thread {track.tid}"
