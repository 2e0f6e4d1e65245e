"""Build the index of a run from its Parquet tables, a few columns at a time to limit memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.schema import C

from . import labels, lanes, peaks, reading, split, tracks
from .causes import Causes
from .index import Index, Names
from .lanes import IDLE, Lane, Track

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.intervals import Ints
    from tracekit.run import Run

    Places: TypeAlias = npt.NDArray[np.int32]
    Of: TypeAlias = Callable[[Run], tuple[Places, list[Track]]]
    Arrays: TypeAlias = dict[str, npt.NDArray[np.generic]]

VERSION = 1
_TABLES = (
    ("steps", tracks.of_steps, labels.of_steps),
    ("device_intervals", tracks.of_device, labels.of_device),
    ("host_intervals", tracks.of_host, labels.of_host),
)
"""Tables in storage order; idle intervals are the first device intervals."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Metadata of an index, stored next to its arrays.

    Attributes:
        seal: Digest of each table's files, which identifies the run.
        sizes: Elements of each level of the pyramid.
    """

    seal: dict[str, str]
    lanes: tuple[Lane, ...]
    texts: list[str]
    name_of: list[int]
    category_of: list[int]
    idle: dict[str, int]
    sizes: tuple[int, ...]
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


def build(run: Run) -> tuple[Outline, Arrays]:
    """Build outline and arrays of a run's index."""
    rows = sum(run.rows(name) for name, _, _ in _TABLES)
    draft = _Draft(
        np.empty(rows, np.int64),
        np.zeros(rows + 1, np.int64),
        np.empty(rows, np.uint32),
        np.empty(rows, np.uint32),
    )
    names = labels.Names()
    idle = names.idle()
    for table, tracks_of, labels_of in _TABLES:
        if run.rows(table):
            order = _assign_lanes(run, table, tracks_of, draft)
            part = slice(draft.count, draft.count + len(order))
            draft.label[part] = labels_of(run, names)[order]
            draft.row[part] = _row_ids(run, table)[order]
            draft.count += len(order)
            pa.default_memory_pool().release_unused()
    arrays, sizes = _finalize(draft)
    return (
        Outline(
            seal=seal(run),
            lanes=lanes.ordered(draft.found),
            texts=names.names,
            name_of=names.name_of,
            category_of=names.category_of,
            idle=idle,
            sizes=sizes,
            left_out=rows - draft.count,
        ),
        arrays,
    )


def _assign_lanes(run: Run, table: str, tracks_of: Of, draft: _Draft) -> Places:
    """Assign each row of a table to a lane; return the rows in storage order."""
    codes, known = tracks_of(run)
    by_track = reading.order(codes, len(known))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(known)))))
    del codes
    start, duration = (reading.integers(run, table, name) for name in (C.START_NS, C.DUR_NS))
    pieces: list[Places] = []
    at = draft.count
    for number in sorted(range(len(known)), key=lambda one: known[one].kind != IDLE):
        rows = _by_start(by_track[bounds[number] : bounds[number + 1]], start)
        starts = start[rows]
        for level in split.levels(starts, starts + duration[rows]):
            pieces.append(rows[level])
            draft.found.append((known[number], at, len(level)))
            draft.start[at : at + len(level)] = starts[level]
            draft.total[at + 1 : at + 1 + len(level)] = duration[pieces[-1]]
            at += len(level)
    return np.concatenate(pieces)


def _by_start(rows: Places, start: Ints) -> Places:
    starts = start[rows]
    return rows if (starts[1:] >= starts[:-1]).all() else rows[np.argsort(starts, kind="stable")]


def _row_ids(run: Run, table: str) -> npt.NDArray[np.uint32]:
    """Return row ids; for `steps`, which has none, the row numbers."""
    if table == "steps":
        return np.arange(run.rows(table), dtype=np.uint32)
    ids: npt.NDArray[np.uint32] = reading.integers(run, table, C.ROW_ID, dtype=np.uint32)
    return ids


def _finalize(draft: _Draft) -> tuple[Arrays, tuple[int, ...]]:
    count = draft.count
    found = peaks.build(draft.total[1 : count + 1])
    np.cumsum(draft.total, out=draft.total)
    arrays: Arrays = {
        "start": draft.start[:count],
        "total": draft.total[: count + 1],
        "row": draft.row[:count],
        "label": draft.label[:count],
        "masks": found.masks,
        "places": found.places,
        "lengths": found.lengths,
    }
    return arrays, found.sizes


def assemble(outline: Outline, arrays: Arrays) -> Index:
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
        causes=Causes(),
        left_out=outline.left_out,
        **plain,
    )
