"""Split overlapping intervals of a track into lanes without overlap.

Kernels of one stream can overlap (programmatic dependent launch, graphs), as can siblings on a thread in a
skewed trace. Drawing relies on starts and ends being sorted alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.intervals import Ints

LEVELS = 64
"""Maximum lanes per track; further overlapping intervals are dropped."""


def levels(start: Ints, end: Ints) -> list[Ints]:
    """Return the positions of each lane's intervals; assigned greedily to the first free lane.

    Intervals are half-open. Those that fit in none of `LEVELS` lanes are dropped.

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
    """Return a mask of the intervals that one lane takes greedily."""
    count = len(start)
    after = np.maximum(np.searchsorted(start, end), np.arange(1, count + 1)).tolist()
    taken = np.zeros(count, np.bool_)
    place, places = 0, []
    while place < count:
        places.append(place)
        place = after[place]
    taken[places] = True
    return taken
