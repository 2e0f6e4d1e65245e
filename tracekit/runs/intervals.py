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

BLOCK = 1 << 20
"""Windows per block, which limits the memory of intermediate results."""
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
    order = np.argsort(start[keep], kind="stable")
    starts = start[keep][order]
    reach = np.maximum.accumulate(end[keep][order])  # sorted by start, a gap is where none reaches the next
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
    if not len(a[0]) or not len(b[0]):
        return EMPTY
    # Inside the common range, what is in both is what neither complement covers.
    lo, hi = int(max(a[0][0], b[0][0])), int(min(a[1][-1], b[1][-1]))
    if lo >= hi:
        return EMPTY
    not_a, not_b = complement(_near(a, lo, hi), lo, hi), complement(_near(b, lo, hi), lo, hi)
    outside = union(np.concatenate((not_a[0], not_b[0])), np.concatenate((not_a[1], not_b[1])))
    return complement(outside, lo, hi)


def _near(intervals: Union, low: int, high: int) -> Union:
    """Return the intervals that overlap a window, by binary search."""
    starts, ends = intervals
    part = slice(int(np.searchsorted(ends, low, side="right")), int(np.searchsorted(starts, high)))
    return starts[part], ends[part]


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
    reached = _cumulative_length(intervals)
    for first in range(0, len(start), BLOCK):
        part = slice(first, first + BLOCK)
        before = _length_before(intervals, reached, start[part])
        lengths[part] = _length_before(intervals, reached, end[part]) - before
    return lengths


def covered_before(intervals: Union, moments: Ints) -> Ints:
    """Return the length of the union before each time.

    Example:
        >>> covered_before((np.array([0, 5]), np.array([3, 12])), np.array([2, 4, 20]))
        array([ 2,  3, 10])
    """
    if not len(intervals[0]):
        return np.zeros(len(moments), np.int64)
    return _length_before(intervals, _cumulative_length(intervals), moments)


def _cumulative_length(intervals: Union) -> Ints:
    """Return the length before each interval, and the total length."""
    starts, ends = intervals
    return np.concatenate(([0], np.cumsum(ends - starts)))


def _length_before(intervals: Union, reached: Ints, moments: Ints) -> Ints:
    starts, ends = intervals
    begun = _count_starts(starts, moments)
    over = ends[np.maximum(begun - 1, 0)] - moments  # what the last of them covers after the moment
    before: Ints = reached[begun] - np.where(begun > 0, np.maximum(over, 0), 0)
    return before


def _count_starts(starts: Ints, moments: Ints) -> Ints:
    """Return the number of starts up to each time; merges sorted times, which is faster than a search."""
    if len(starts) > len(moments) or (moments[1:] < moments[:-1]).any():
        return np.searchsorted(starts, moments, side="right")
    positions = np.searchsorted(moments, starts)
    return np.repeat(np.arange(len(starts) + 1), np.diff(positions, prepend=0, append=len(moments)))
