"""Build the index of a run: nesting depths, tracks, lanes and arrays.

Annotations on host threads have separate lanes, so their nesting depth is counted separately.

Kernels of one stream can overlap (programmatic dependent launch, graphs), as can siblings on a thread in a
skewed trace. Drawing relies on starts and ends being sorted alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, HostKind

from . import peaks, read_columns, render, tracks
from .index import CausesHolder, Index, Names
from .read_columns import NULL
from .tracks import ABSENT, ANNOTATION, DEVICE, HOST, IDLE, STEPS, Lane, Track

_TABLE = "host_intervals"

Bools = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int32]


def compute_depths(run: Run) -> tuple[Bools, Numbers]:
    """Return for each host row whether it is an annotation, and how many rows of its sort enclose it."""
    depth = read_columns.read_integers(run, _TABLE, C.DEPTH, dtype=np.int32)
    kind = read_columns.read_text(run, _TABLE, C.KIND)
    if HostKind.ANNOTATION not in kind.values:
        return np.zeros(len(depth), np.bool_), depth
    annotation = kind.codes == kind.values.index(HostKind.ANNOTATION)
    inside = _inside(_parents(run), depth, annotation)
    return annotation, np.where(annotation, inside, depth - inside)


def _parents(run: Run) -> Numbers:
    """Return the position of each row's parent; `NULL` for top-level rows."""
    row = read_columns.read_integers(run, _TABLE, C.ROW_ID, dtype=np.int32)
    position = np.full(int(row.max()) + 2, NULL, np.int32)
    position[row] = np.arange(len(row), dtype=np.int32)
    parent = read_columns.read_integers(run, _TABLE, C.PARENT_ROW, dtype=np.int32)
    np.clip(parent, NULL, len(position) - 2, out=parent)
    return position[parent]  # NULL (-1) selects the last element, which is NULL


def _inside(parent: Numbers, depth: Numbers, annotation: Bools) -> Numbers:
    """Return how many annotations enclose each row; computed from the outermost rows inwards."""
    inside = np.zeros(len(depth), np.int32)
    by_depth = read_columns.order_by_group(np.minimum(depth, 65_535), 1 << 16)
    bounds = np.searchsorted(depth[by_depth], np.arange(1, int(depth.max()) + 2))
    for first, last in itertools.pairwise(bounds):
        rows = by_depth[first:last]
        rows = rows[parent[rows] != NULL]
        inside[rows] = inside[parent[rows]] + annotation[parent[rows]]
    return inside


_WORK, _WAITS, _IDLE = range(3)


def _steps_tracks(run: Run) -> tuple[Numbers, list[Track]]:
    """Return the track number of each row of `steps`, and the tracks."""
    codes, keys = read_columns.group_rows(read_columns.read_integers(run, "steps", C.RANK, dtype=np.int32))
    return codes, [Track(kind=STEPS, rank=rank) for (rank,) in keys]


def _device_tracks(run: Run) -> tuple[Numbers, list[Track]]:
    """Return the track number of each device interval, and the tracks: streams, waits and idle time."""
    table = "device_intervals"
    kind = read_columns.read_text(run, table, C.KIND)
    sorts: dict[str, int] = {DeviceKind.SYNC: _WAITS, DeviceKind.IDLE: _IDLE}
    sort = np.array([sorts.get(value, _WORK) for value in kind.values], np.int8)[kind.codes]
    stream = read_columns.read_integers(run, table, C.STREAM)
    stream[sort != _WORK] = ABSENT
    rank, device = (
        read_columns.read_integers(run, table, name, dtype=np.int32) for name in (C.RANK, C.DEVICE)
    )
    codes, keys = read_columns.group_rows(sort, rank, device, stream)
    kinds = (DEVICE, DEVICE, IDLE)
    return codes, [
        Track(kind=kinds[sort], rank=rank, device=device, stream=stream, waits=sort == _WAITS)
        for sort, rank, device, stream in keys
    ]


def _host_tracks(run: Run) -> tuple[Numbers, list[Track]]:
    """Return the track number of each host interval, and the tracks: annotations and threads by depth."""
    threads, keys = read_columns.group_rows(read_columns.read_integers(run, _TABLE, C.RANK))
    for name in (C.PID, C.TID):
        threads, pairs = read_columns.group_rows(threads, read_columns.read_integers(run, _TABLE, name))
        keys = [(*keys[before], value) for before, value in pairs]
    annotation, depth = compute_depths(run)
    codes, pairs = read_columns.group_rows(threads, annotation.view(np.int8), depth)
    return codes, [
        Track(kind=ANNOTATION if marked else HOST, rank=rank, pid=pid, tid=tid, depth=depth)
        for thread, marked, depth in pairs
        for rank, pid, tid in [keys[thread]]
    ]


MAX_LEVELS = 64
"""Maximum lanes per track; further overlapping intervals are dropped."""


def assign_levels(start: Ints, end: Ints) -> list[Ints]:
    """Return the positions of each lane's intervals; assigned greedily to the first free lane.

    Intervals are half-open, and sorted by start. Those that fit in none of `LEVELS` lanes are dropped.
    """
    lanes: list[Ints] = []
    left = np.arange(len(start))
    while len(left) and len(lanes) < MAX_LEVELS:
        if (start[left][1:] >= end[left][:-1]).all():  # disjoint
            return [*lanes, left]
        is_taken = _greedy(start[left], end[left])
        lanes.append(left[is_taken])
        left = left[~is_taken]
    return lanes


def _greedy(start: Ints, end: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the intervals that one lane takes greedily."""
    count = len(start)
    after = np.maximum(np.searchsorted(start, end), np.arange(1, count + 1)).tolist()
    is_taken = np.zeros(count, np.bool_)
    place, places = 0, []
    while place < count:
        places.append(place)
        place = after[place]
    is_taken[places] = True
    return is_taken


Of: TypeAlias = Callable[[Run], tuple[Numbers, list[Track]]]
Arrays: TypeAlias = dict[str, npt.NDArray[np.generic]]

VERSION = 2
_TABLES = (
    ("steps", _steps_tracks, render.label_steps),
    ("device_intervals", _device_tracks, render.label_device),
    ("host_intervals", _host_tracks, render.label_host),
)
"""Tables in storage order; idle intervals are the first device intervals."""


@dataclass(frozen=True, kw_only=True)
class IndexHeader:
    """Metadata of an index, stored next to its arrays."""

    seal: dict[str, str]  # digest of each table's files, which identifies the run
    lanes: tuple[Lane, ...]
    texts: list[str]
    name_of: list[int]
    category_of: list[int]
    idle: dict[str, int]
    sizes: tuple[int, ...]  # elements of each level of the pyramid
    left_out: int


@dataclass
class _Draft:
    """Arrays of the index, filled table by table."""

    start: Ints
    total: Ints
    row: npt.NDArray[np.uint32]
    label: npt.NDArray[np.uint32]
    count: int = 0
    found: list[tuple[Track, int, int]] = field(default_factory=list)


def seal(run: Run) -> dict[str, str]:
    """Return the digests of a run's tables."""
    return {name: table.sha256 for name, table in sorted(run.meta.tables.items())}


def build(run: Run) -> tuple[IndexHeader, Arrays]:
    """Build outline and arrays of a run's index."""
    rows = sum(run.rows(name) for name, _, _ in _TABLES)
    draft = _Draft(
        np.empty(rows, np.int64),
        np.zeros(rows + 1, np.int64),
        np.empty(rows, np.uint32),
        np.empty(rows, np.uint32),
    )
    names = render.Names()
    idle = names.idle()
    for table, tracks_of, labels_of in _TABLES:
        if run.rows(table):
            order = _assign_lanes(run, table, tracks_of, draft)
            part = slice(draft.count, draft.count + len(order))
            draft.label[part] = labels_of(run, names)[order]
            ids = order if table == "steps" else read_columns.read_integers(run, table, C.ROW_ID)[order]
            draft.row[part] = ids  # of steps, which have none, the row numbers
            draft.count += len(order)
            pa.default_memory_pool().release_unused()
    arrays, sizes = _finalize(draft)
    outline = IndexHeader(
        seal=seal(run),
        lanes=tracks.order_lanes(draft.found),
        texts=names.names,
        name_of=names.name_of,
        category_of=names.category_of,
        idle=idle,
        sizes=sizes,
        left_out=rows - draft.count,
    )
    return outline, arrays


def _assign_lanes(run: Run, table: str, tracks_of: Of, draft: _Draft) -> Numbers:
    """Assign each row of a table to a lane; return the rows in storage order."""
    codes, table_tracks = tracks_of(run)
    by_track = read_columns.order_by_group(codes, len(table_tracks))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(table_tracks)))))
    del codes
    start, duration = (read_columns.read_integers(run, table, name) for name in (C.START_NS, C.DUR_NS))
    pieces: list[Numbers] = []
    position = draft.count
    for number in sorted(range(len(table_tracks)), key=lambda number: table_tracks[number].kind != IDLE):
        rows = by_track[bounds[number] : bounds[number + 1]]
        if (np.diff(start[rows]) < 0).any():
            rows = rows[np.argsort(start[rows], kind="stable")]
        starts = start[rows]
        for level in assign_levels(starts, starts + duration[rows]):
            pieces.append(rows[level])
            draft.found.append((table_tracks[number], position, len(level)))
            draft.start[position : position + len(level)] = starts[level]
            draft.total[position + 1 : position + 1 + len(level)] = duration[pieces[-1]]
            position += len(level)
    return np.concatenate(pieces)


def _finalize(draft: _Draft) -> tuple[Arrays, tuple[int, ...]]:
    count = draft.count
    pyramid = peaks.build(draft.total[1 : count + 1])
    np.cumsum(draft.total, out=draft.total)
    arrays: Arrays = {
        "start": draft.start[:count],
        "total": draft.total[: count + 1],
        "row": draft.row[:count],
        "label": draft.label[:count],
        "masks": pyramid.masks,
        "places": pyramid.places,
        "lengths": pyramid.lengths,
    }
    return arrays, pyramid.sizes


def assemble(outline: IndexHeader, arrays: Arrays) -> Index:
    """Create an index from its outline and arrays."""
    names = Names(
        texts=outline.texts,
        name_of=np.array(outline.name_of, np.uint32),
        category_of=np.array(outline.category_of, np.uint8),
        idle=outline.idle,
    )
    plain = {name: array.view(np.ndarray) for name, array in arrays.items()}  # slicing a memmap is slow
    pyramid = peaks.Peaks(plain.pop("masks"), plain.pop("places"), plain.pop("lengths"), tuple(outline.sizes))
    return Index(
        lanes=outline.lanes,
        names=names,
        peaks=pyramid,
        causes=CausesHolder(),
        left_out=outline.left_out,
        **plain,
    )
