"""Nesting of intervals: parents, depths and inherited values of millions of rows, without a Python loop.

Rows are sorted by thread, start and falling end, so a parent precedes its children. All functions work by
pointer jumping: each round doubles the distance of the pointers, so their number grows with the logarithm of
rows. They process blocks in order: pointers lead back to finished rows. Positions are int32, which takes half
the memory; a window has far fewer than 2**31 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Bools: TypeAlias = npt.NDArray[np.bool_]

BLOCK = 1 << 15
"""Rows whose pointers stay in the processor's cache."""


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))


def parents(thread: Ints, start: Ints, end: Ints) -> Ints:
    """Return the position of the innermost enclosing row of each row, -1 at the top.

    Intervals are half-open: one that starts where another ends is not inside it, whatever its length.

    Args:
        thread: Thread of each row; rows of one thread lie together, by start and then falling end.
        start: Start of each row.
        end: End of each row.

    Example:
        >>> parents(np.array([1, 1, 1, 2]), np.array([0, 1, 4, 0]), np.array([10, 4, 9, 5]))
        array([-1,  0,  0, -1], dtype=int32)
    """
    count = len(end)
    parent = np.arange(-1, count - 1, dtype=np.int32)
    parent[np.concatenate(([True], thread[1:] != thread[:-1]))[:count]] = -1
    for block in _blocks(count):
        active = block.start + np.flatnonzero(parent[block] >= 0)
        while len(active):
            reach = end[parent[active]]
            active = active[(reach < end[active]) | (reach <= start[active])]
            # no row between a row and its pointer encloses the row, so that pointer's pointer is next
            parent[active] = parent[parent[active]]
            active = active[parent[active] >= 0]
    return parent


def depths(parent: Ints) -> Ints:
    """Return the number of enclosing rows of each row.

    Example:
        >>> depths(np.array([-1, 0, 1, -1]))
        array([0, 1, 2, 0], dtype=int32)
    """
    depth = (parent >= 0).astype(np.int32)
    for block in _blocks(len(parent)):
        ancestor = parent[block].copy()
        active = np.flatnonzero(ancestor >= 0)
        while len(active):
            above = ancestor[active]
            depth[block.start + active] += depth[above]
            # the depth of a row before the block is its whole depth
            further = ancestor[np.maximum(above - block.start, 0)]
            ancestor[active] = np.where(above >= block.start, further, -1)
            active = active[ancestor[active] >= 0]
    return depth


def nearest(parent: Ints, marked: Bools) -> Ints:
    """Return the position of the innermost marked row among each row and those enclosing it, -1 if none.

    Example:
        >>> nearest(np.array([-1, 0, 1, -1]), np.array([True, False, False, False]))
        array([ 0,  0,  0, -1], dtype=int32)
    """
    position = np.where(marked, np.arange(len(parent), dtype=np.int32), parent.astype(np.int32, copy=False))
    for block in _blocks(len(parent)):
        active = block.start + np.flatnonzero((position[block] >= 0) & ~marked[position[block]])
        while len(active):
            position[active] = position[position[active]]
            active = active[position[active] >= 0]
            active = active[~marked[position[active]]]
    return position


def inherit(parent: Ints, values: Ints) -> Ints:
    """Return the value of each row, or of the innermost enclosing row that has one; -1 if none.

    Example:
        >>> inherit(np.array([-1, 0, 1]), np.array([7, -1, -1]))
        array([7, 7, 7])
    """
    return np.append(values, values.dtype.type(-1))[nearest(parent, values != -1)]


Nest: TypeAlias = Callable[[Ints, Ints, Ints, Ints, Sequence[Ints]], tuple[Ints, Ints, list[Ints]]]
"""`nest_rows`, or its compiled counterpart."""


def nest_rows(
    thread: Ints, start: Ints, end: Ints, known_depths: Ints, values: Sequence[Ints]
) -> tuple[Ints, Ints, list[Ints]]:
    """Compute parents, depths and inherited values.

    Args:
        thread: Number of each row's thread; rows of one come by start and then falling end.
        start: Start of each row.
        end: End of each row.
        known_depths: Depths of the first rows, whose enclosing rows may be missing.
        values: Columns of values, -1 where a row has none; may be overwritten.

    Returns:
        Position of the innermost enclosing row of each, -1 at the top; numbers of enclosing rows; and the
        columns, each value that of the row itself or of the innermost enclosing row that has one.
    """
    order = np.argsort(thread, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    parent = parents(thread[order], start[order], end[order])
    depth = depths(parent)
    inherited = [inherit(parent, column[order]) for column in values]
    missing = np.full(len(parent), -1)  # enclosing rows, which the known depths count
    missing[place[: len(known_depths)]] = known_depths - depth[place[: len(known_depths)]]
    depth = depth + np.maximum(inherit(parent, missing), 0)
    above = np.where(parent >= 0, order[parent], -1)
    return above[place], depth[place], [column[place] for column in inherited]


def find_covering(end: Ints, parent: Ints, latest: Ints, times: Ints) -> Ints:
    """Return the position of the innermost row that covers each instant, -1 if none.

    Args:
        end: End of each row.
        parent: Their parents.
        latest: For each instant the last row of its thread that had started by then, -1 for none.
        times: Instants.

    Example:
        >>> find_covering(np.array([9, 4]), np.array([-1, 0]), np.array([1, 1, 1]), np.array([3, 5, 20]))
        array([ 1,  0, -1])
    """
    position = latest.copy()
    active = np.flatnonzero(position >= 0)
    while len(active):
        active = active[end[position[active]] <= times[active]]
        position[active] = parent[position[active]]
        active = active[position[active] >= 0]
    return position
