"""Nesting depth on host threads; annotations are counted separately, since they have separate lanes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tracekit.schema import C, HostKind

from . import reading
from .reading import NULL

_TABLE = "host_intervals"

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.run import Run

    Bools = npt.NDArray[np.bool_]
    Depths = npt.NDArray[np.int32]


def depths(run: Run) -> tuple[Bools, Depths]:
    """Return for each host row whether it is an annotation, and how many rows of its sort enclose it."""
    depth = reading.integers(run, _TABLE, C.DEPTH, dtype=np.int32)
    kind = reading.text(run, _TABLE, C.KIND)
    if HostKind.ANNOTATION not in kind.values:
        return np.zeros(len(depth), np.bool_), depth
    annotation = kind.codes == kind.values.index(HostKind.ANNOTATION)
    inside = _inside(_parents(run), depth, annotation)
    return annotation, np.where(annotation, inside, depth - inside)


def _parents(run: Run) -> npt.NDArray[np.int32]:
    """Return the position of each row's parent; `NULL` for top-level rows."""
    row = reading.integers(run, _TABLE, C.ROW_ID, dtype=np.int32)
    position = np.full(int(row.max()) + 2, NULL, np.int32)
    position[row] = np.arange(len(row), dtype=np.int32)
    parent = reading.integers(run, _TABLE, C.PARENT_ROW, dtype=np.int32)
    np.clip(parent, NULL, len(position) - 2, out=parent)
    return position[parent]  # NULL (-1) selects the last element, which is NULL


def _inside(parent: npt.NDArray[np.int32], depth: Depths, annotation: Bools) -> Depths:
    """Return how many annotations enclose each row; computed from the outermost rows inwards."""
    inside = np.zeros(len(depth), np.int32)
    by_depth = reading.order(np.minimum(depth, 65_535), 1 << 16)
    bounds = np.searchsorted(depth[by_depth], np.arange(1, int(depth.max()) + 2))
    for first, last in itertools.pairwise(bounds):
        rows = by_depth[first:last]
        rows = rows[parent[rows] != NULL]
        inside[rows] = inside[parent[rows]] + annotation[parent[rows]]
    return inside
