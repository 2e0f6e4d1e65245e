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
_FEW_ROWS, _MAX_CLIMB, _MEET_AFTER = 8, 100, 6
"""Ratio of all rows to those that climb from which they climb alone, one row at a time, up to how far, and
after how many rows those that met go on as one."""


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
    """Return the number of enclosing rows of each row; -1 for damaged rows, which form cycles.

    Example:
        >>> depths(np.array([-1, 0, 1, -1]))
        array([0, 1, 2, 0], dtype=int32)
    """
    jump, depth = np.append(parent, -1), np.append(parent >= 0, np.False_).astype(np.int32)
    for _ in range(len(parent).bit_length()):  # once if all rows follow those around them
        for block in _blocks(len(parent)):
            above, counted = jump[block], depth[block]
            for _ in range(BLOCK.bit_length() + 1):
                if (above < 0).all():
                    break
                counted += depth[above]
                above[:] = jump[above]
        if (jump < 0).all():
            break
    return np.where(jump < 0, depth, -1)[:-1]


def nearest(parent: Ints, marked: Bools) -> Ints:
    """Return the position of the innermost marked row among each row and those enclosing it, -1 if none.

    Example:
        >>> nearest(np.array([-1, 0, 1, -1]), np.array([True, False, False, False]))
        array([ 0,  0,  0, -1], dtype=int32)
    """
    position = np.where(marked, np.arange(len(parent), dtype=np.int32), parent.astype(np.int32, copy=False))
    position = np.append(position, np.int32(-1))  # where pointers to no row lead
    _follow(position)
    return position[:-1]


def _follow(pointers: Ints) -> None:
    """Follow pointers to their ends, which point to themselves; those of finished blocks are followed."""
    for part in map(pointers.__getitem__, _blocks(len(pointers) - 1)):
        for _ in range(BLOCK.bit_length() + 1):  # each round goes twice as far; cycles never end
            further = pointers.take(part, mode="wrap")  # half the time of indexing
            if np.array_equal(further, part):
                break
            part[:] = further


def inherit(parent: Ints, values: Ints) -> Ints:
    """Return the value of each row, or of the innermost enclosing row that has one; -1 if none.

    Example:
        >>> inherit(np.array([-1, 0, 1]), np.array([7, -1, -1]))
        array([7, 7, 7])
    """
    return np.append(values, values.dtype.type(-1))[nearest(parent, values != -1)]


def climb_to(rows: Ints, parent: Ints, wanted: Bools) -> npt.NDArray[np.int64]:
    """Return the position of the innermost wanted row among each row and those enclosing it, -1 if none.

    Unlike in `nearest`, rows may be in any order, and damaged ones may form cycles.

    Args:
        rows: Positions, -1 for none.
        parent: Position of the row around each row, -1 for none.
        wanted: Whether each row is wanted.

    Example:
        >>> climb_to(np.array([2, 1, -1]), np.array([-1, 0, 1]), np.array([True, False, False]))
        array([ 0,  0, -1])
    """
    if not wanted.any():
        return np.full(len(rows), -1, np.int64)
    if len(rows) * _FEW_ROWS <= len(parent):
        position = rows.astype(np.int64)
        active = np.flatnonzero(position >= 0)
        for count in range(1, _MAX_CLIMB + 1):
            active = active[~wanted[position[active]]]
            position[active] = parent[position[active]]
            active = active[position[active] >= 0]
            if not len(active):
                return position
            if count % _MEET_AFTER == 0 and len(met := _distinct(position[active], parent)) * 2 < len(active):
                position[active] = climb_to(met, parent, wanted)[np.searchsorted(met, position[active])]
                return position
    parent = parent.astype(np.int32, copy=False)
    itself = np.arange(len(parent), dtype=np.int32)
    jump = np.append(np.where(wanted, itself, parent), np.int32(-1))
    # Where all rows follow those around them, the pointers of a block lead to finished rows.
    for _ in range(1 if (parent < itself).all() else len(parent).bit_length()):
        _follow(jump)
    reached = jump[rows].astype(np.int64, copy=False)
    return np.where(np.append(wanted, False)[reached], reached, -1)


def _distinct(positions: Ints, parent: Ints) -> Ints:
    """Distinct positions of rows, sorted."""
    occurs = np.zeros(len(parent), np.bool_)
    occurs[positions] = True
    return np.flatnonzero(occurs)


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
