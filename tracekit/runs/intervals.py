"""Exact interval arithmetic on integer nanoseconds.

An interval is half-open, ``[start, end)``. Functions take arrays of int64 starts and ends of equal length
and never mutates them. A *union* is a sorted set of disjoint, non-touching intervals as a pair of arrays.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Union: TypeAlias = tuple[Ints, Ints]

BLOCK = 1 << 15
"""Windows per block, whose intermediate results fit the CPU cache."""
_FAR = 1 << 62
"""Time before which and after which nothing happens."""
EMPTY: Union = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Ints, end: Ints) -> Union:
    """Merge overlapping and touching intervals; drop empty ones.

    Example:
        >>> union(np.array([5, 0, 8]), np.array([9, 3, 12]))
        (array([0, 5]), array([ 3, 12]))
    """
    keep = end > start
    if not keep.any():
        return EMPTY
    starts, ends = (start, end) if keep.all() else (start[keep], end[keep])
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)  # sorted by start, a gap is where none reaches the next
    first = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return starts[first], reach[last]


def length(intervals: Union) -> int:
    """Return the total length of a union, ns.

    Example:
        >>> length((np.array([0, 5]), np.array([3, 12])))
        10
    """
    start, end = intervals
    return int((end - start).sum())


def complement(intervals: Union, window_start: int, window_end: int) -> Union:
    """Return the part of a window that a union does not cover.

    Args:
        intervals: The union, ns.
        window_start: Start of the window, ns.
        window_end: Its end (exclusive), ns.

    Example:
        >>> complement((np.array([2]), np.array([4])), 0, 10)
        (array([0, 4]), array([ 2, 10]))
    """
    start, end = clip(intervals, window_start, window_end)
    gap_start = np.concatenate(([window_start], end)).astype(np.int64)
    gap_end = np.concatenate((start, [window_end])).astype(np.int64)
    keep = gap_end > gap_start
    return gap_start[keep], gap_end[keep]


def gaps(start: Ints, end: Ints) -> Union:
    """Return the gaps between intervals, from the first start to the last end; empty intervals split gaps.

    Example:
        >>> gaps(np.array([0, 5, 8]), np.array([3, 5, 9]))
        (array([3, 5]), array([5, 8]))
    """
    order = np.argsort(start, kind="stable")
    starts = start[order][1:]
    reach = np.maximum.accumulate(end[order])[:-1]
    keep = starts > reach
    return reach[keep], starts[keep]


def alone(start: Ints, end: Ints) -> Union:
    """Return the times at which exactly one of the intervals is in progress.

    Example:
        >>> alone(np.array([0, 2]), np.array([5, 9]))
        (array([0, 5]), array([2, 9]))
    """
    times = np.concatenate((start, end))
    change = np.repeat(np.array([1, -1]), [len(start), len(end)])
    order = np.argsort(times, kind="stable")  # ties may go either way: they bound empty intervals
    times, running = times[order], np.cumsum(change[order])[:-1]
    single = running == 1
    return union(times[:-1][single], times[1:][single])


def clip(intervals: Union, window_start: int, window_end: int) -> Union:
    """Return the part of a union inside a window.

    Args:
        intervals: The union, ns.
        window_start: Start of the window, ns.
        window_end: Its end (exclusive), ns.

    Example:
        >>> clip((np.array([0, 5]), np.array([3, 12])), 2, 6)
        (array([2, 5]), array([3, 6]))
    """
    start = np.maximum(intervals[0], window_start)
    end = np.minimum(intervals[1], window_end)
    keep = end > start
    return start[keep], end[keep]


def intersect(a: Union, b: Union) -> Union:
    """Return the intersection of two unions.

    Example:
        >>> intersect((np.array([0, 6]), np.array([4, 9])), (np.array([3]), np.array([7])))
        (array([3, 6]), array([4, 7]))
    """
    if len(a[0]) > len(b[0]):
        a, b = b, a
    low = np.searchsorted(b[1], a[0], side="right")
    counts = np.searchsorted(b[0], a[1]) - low
    first = np.repeat(np.arange(len(counts)), counts)
    second = np.arange(len(first)) + np.repeat(low - np.cumsum(counts) + counts, counts)
    return np.maximum(a[0][first], b[0][second]), np.minimum(a[1][first], b[1][second])


def subtract(a: Union, b: Union) -> Union:
    """Return the difference of two unions.

    Example:
        >>> subtract((np.array([0]), np.array([9])), (np.array([3]), np.array([7])))
        (array([0, 7]), array([3, 9]))
    """
    if not len(a[0]):
        return EMPTY
    return intersect(a, complement(b, int(a[0][0]), int(a[1][-1])))


def overlap_lengths(intervals: Union, start: Ints, end: Ints) -> Ints:
    """Return the covered length of each window.

    Args:
        intervals: The union, ns.
        start: Starts of the windows, shape (n,), int64 ns, in any order.
        end: Their ends, likewise.

    Example:
        >>> overlap_lengths((np.array([0, 5]), np.array([3, 12])), np.array([2, 0]), np.array([6, 20]))
        array([ 2, 10])
    """
    lengths = np.zeros(len(start), np.int64)
    if not len(intervals[0]):
        return lengths
    coverage = _Coverage(intervals)
    for first in range(0, len(start), BLOCK):
        part = slice(first, first + BLOCK)
        begun = coverage.count_begun(start[part])
        before = coverage.length_before(start[part], begun)
        coverage.count_on(begun, start[part], end[part])
        np.subtract(coverage.length_before(end[part], begun), before, out=lengths[part])
    return lengths


def covered_before(intervals: Union, moments: Ints) -> Ints:
    """Return the length of the union before each time.

    Example:
        >>> covered_before((np.array([0, 5]), np.array([3, 12])), np.array([2, 4, 20]))
        array([ 2,  3, 10])
    """
    if not len(intervals[0]):
        return np.zeros(len(moments), np.int64)
    coverage = _Coverage(intervals)
    return coverage.length_before(moments, coverage.count_begun(moments))


class _Coverage:
    """Length of a union before times, by the number of its intervals that have begun."""

    def __init__(self, intervals: Union) -> None:
        self._starts, ends = intervals
        self._end = np.concatenate(([-_FAR], ends))
        self._offset = np.concatenate(([_FAR], np.cumsum(ends - self._starts) - ends))
        self._following = np.concatenate((self._starts, [_FAR]))

    def length_before(self, moments: Ints, begun: Ints) -> Ints:
        """Return the length before each time, at which a number of intervals have begun."""
        # other modes take twice as long
        length: Ints = np.minimum(moments, self._end.take(begun, mode="clip"))
        length += self._offset.take(begun, mode="clip")
        return length

    def count_begun(self, moments: Ints) -> Ints:
        """Return the number of starts up to each time; merges sorted times, which is faster than a search."""
        if (moments[1:] >= moments[:-1]).all() and len(moments):
            low, high = np.searchsorted(self._starts, moments[[0, -1]], side="right")
            if high - low <= len(moments):
                positions = np.searchsorted(moments, self._starts[low:high])
                numbers = np.arange(low, high + 1)
                return np.repeat(numbers, np.diff(positions, prepend=0, append=len(moments)))
        return np.searchsorted(self._starts, moments, side="right")

    def count_on(self, begun: Ints, moments: Ints, others: Ints) -> None:
        """Change the number of starts up to each time to that up to another one, which is mostly the same."""
        other = (self._following.take(begun, mode="clip") <= others) | (others < moments)
        begun[other] = np.searchsorted(self._starts, others[other], side="right")
