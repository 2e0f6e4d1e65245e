"""Making the index of a run from its Parquet tables, a few columns at a time so that memory stays small."""

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
"""In the order in which intervals are stored; the idle ones stand first among those of devices."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What an index has beside its arrays.

    Attributes:
        seal: Table to the digest of its files, by which an index is told to be of this run.
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
    """Arrays of the whole run that are filled table by table."""

    start: Ints
    total: Ints
    row: npt.NDArray[np.uint32]
    label: npt.NDArray[np.uint32]
    count: int = 0
    found: list[tuple[Track, int, int]] = field(default_factory=list)


def seal(run: Run) -> dict[str, str]:
    """What tells a run's tables from any others."""
    return {name: table.sha256 for name, table in sorted(run.meta.tables.items())}


def build(run: Run) -> tuple[Outline, Arrays]:
    """The index of a run."""
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
            order = _placed(run, table, tracks_of, draft)
            part = slice(draft.count, draft.count + len(order))
            draft.label[part] = labels_of(run, names)[order]
            draft.row[part] = _row_ids(run, table)[order]
            draft.count += len(order)
            pa.default_memory_pool().release_unused()
    arrays, sizes = _finished(draft)
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


def _placed(run: Run, table: str, tracks_of: Of, draft: _Draft) -> Places:
    """Give each row of a table a place in a lane; returns the rows in the order of their places."""
    codes, known = tracks_of(run)
    by_track = reading.order(codes, len(known))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(known)))))
    del codes
    start, duration = (reading.integers(run, table, name) for name in (C.START_NS, C.DUR_NS))
    pieces: list[Places] = []
    at = draft.count
    for number in sorted(range(len(known)), key=lambda one: known[one].kind != IDLE):
        rows = _by_start(by_track[bounds[number] : bounds[number + 1]], start)
        begun = start[rows]
        for level in split.levels(begun, begun + duration[rows]):
            pieces.append(rows[level])
            draft.found.append((known[number], at, len(level)))
            draft.start[at : at + len(level)] = begun[level]
            draft.total[at + 1 : at + 1 + len(level)] = duration[pieces[-1]]
            at += len(level)
    return np.concatenate(pieces)


def _by_start(rows: Places, start: Ints) -> Places:
    begun = start[rows]
    return rows if (begun[1:] >= begun[:-1]).all() else rows[np.argsort(begun, kind="stable")]


def _row_ids(run: Run, table: str) -> npt.NDArray[np.uint32]:
    """Rows of `steps` have no number; their place is one."""
    if table == "steps":
        return np.arange(run.rows(table), dtype=np.uint32)
    ids: npt.NDArray[np.uint32] = reading.integers(run, table, C.ROW_ID, dtype=np.uint32)
    return ids


def _finished(draft: _Draft) -> tuple[Arrays, tuple[int, ...]]:
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
    """The index of an outline and its arrays."""
    names = Names(
        texts=outline.texts,
        name_of=np.array(outline.name_of, np.uint32),
        category_of=np.array(outline.category_of, np.uint8),
        idle=outline.idle,
    )
    plain = {name: array.view(np.ndarray) for name, array in arrays.items()}  # no memmap: slices are cheap
    pyramid = peaks.Peaks(plain.pop("masks"), plain.pop("places"), plain.pop("lengths"), tuple(outline.sizes))
    return Index(
        lanes=outline.lanes,
        names=names,
        peaks=pyramid,
        causes=Causes(),
        left_out=outline.left_out,
        **plain,
    )
