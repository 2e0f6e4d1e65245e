"""Lanes in which nothing overlaps: intervals of a track that do go to lanes below, the earlier one above.

Kernels of one stream overlap where the next begins before the last has ended (programmatic launches, graphs),
and siblings on a thread where a trace is skewed. Drawing relies on starts and ends that rise together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.intervals import Ints

LEVELS = 64
"""Lanes of a track at most: a device runs no more at once in a stream; what is beyond is left out."""


def levels(start: Ints, end: Ints) -> list[Ints]:
    """Positions of each lane's intervals, in order; the first lane takes all that it can.

    Intervals are half-open. What finds no place in `LEVELS` lanes is in none.

    Args:
        start: Sorted starts.
        end: Their ends.

    Example:
        >>> [lane.tolist() for lane in levels(np.array([0, 1, 2, 4]), np.array([2, 3, 4, 5]))]
        [[0, 2, 3], [1]]
    """
    found: list[Ints] = []
    left = np.arange(len(start))
    while len(left) and len(found) < LEVELS:
        if _disjoint(start[left], end[left]):
            return [*found, left]
        taken = _greedy(start[left], end[left])
        found.append(left[taken])
        left = left[~taken]
    return found


def _disjoint(start: Ints, end: Ints) -> bool:
    return bool((start[1:] >= end[:-1]).all())


def _greedy(start: Ints, end: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which intervals are taken by who goes through them and takes each that is free of the last taken."""
    count = len(start)
    after = np.maximum(np.searchsorted(start, end), np.arange(1, count + 1)).tolist()
    taken = np.zeros(count, np.bool_)
    place, places = 0, []
    while place < count:
        places.append(place)
        place = after[place]
    taken[places] = True
    return taken
