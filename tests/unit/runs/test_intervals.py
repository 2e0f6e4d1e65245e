"""Interval arithmetic against sets of integers, where every law is plain to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.runs import intervals

if TYPE_CHECKING:
    import pytest

    from tracekit.runs.intervals import Ints, Union

Pairs = list[tuple[int, int]]
pairs = st.lists(
    st.tuples(st.integers(-40, 40), st.integers(0, 15)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)
windows = st.tuples(st.integers(-50, 50), st.integers(0, 60)).map(lambda p: (p[0], p[0] + p[1]))


def arrays(given_pairs: Pairs) -> tuple[Ints, Ints]:
    return (
        np.array([start for start, _ in given_pairs], np.int64),
        np.array([end for _, end in given_pairs], np.int64),
    )


def union(given_pairs: Pairs) -> Union:
    return intervals.union(*arrays(given_pairs))


def points(given_pairs: Pairs) -> set[int]:
    return {point for start, end in given_pairs for point in range(start, end)}


def covered(result: Union) -> set[int]:
    """The points of a union, which must be sorted, disjoint and not touching."""
    start, end = result
    assert start.dtype == end.dtype == np.int64
    assert (start < end).all()
    assert (start[1:] > end[:-1]).all()
    return points(list(zip(start.tolist(), end.tolist(), strict=True)))


@given(pairs)
def test_union_covers_exactly_the_points(a: Pairs) -> None:
    assert covered(union(a)) == points(a)
    assert intervals.length(union(a)) == len(points(a))


@given(pairs.flatmap(lambda a: st.tuples(st.just(a), st.permutations(a))))
def test_union_does_not_depend_on_order(orders: tuple[Pairs, Pairs]) -> None:
    first, second = map(union, orders)
    assert [side.tolist() for side in first] == [side.tolist() for side in second]


@given(pairs)
def test_union_leaves_its_input_alone(a: Pairs) -> None:
    start, end = arrays(a)
    intervals.union(start, end)
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == a


@given(pairs, windows)
def test_complement_covers_the_rest_of_the_window(a: Pairs, window: tuple[int, int]) -> None:
    busy, idle = intervals.clip(union(a), *window), intervals.complement(union(a), *window)
    assert covered(idle) == points([window]) - points(a)
    assert intervals.length(busy) + intervals.length(idle) == window[1] - window[0]


@given(pairs, windows)
def test_clip_covers_the_points_inside(a: Pairs, window: tuple[int, int]) -> None:
    assert covered(intervals.clip(union(a), *window)) == points(a) & points([window])


@given(pairs, pairs)
def test_intersect_and_subtract_split_the_first(a: Pairs, b: Pairs) -> None:
    both, only = intervals.intersect(union(a), union(b)), intervals.subtract(union(a), union(b))
    assert covered(both) == points(a) & points(b)
    assert covered(only) == points(a) - points(b)
    assert intervals.length(both) + intervals.length(only) == intervals.length(union(a))


def test_lengths_are_exact_beyond_what_a_float_holds() -> None:
    far = 2**60
    assert intervals.length(intervals.union(np.array([far, far + 5]), np.array([far + 1, far + 6]))) == 2


def test_windows_are_covered_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    union = (np.array([0, 5, 9]), np.array([3, 7, 12]))
    start = np.arange(-2, 14)
    whole = [intervals.overlap_lengths(union, start, start + length) for length in (0, 1, 4, 30)]
    monkeypatch.setattr(intervals, "BLOCK", 3)
    for expected, length in zip(whole, (0, 1, 4, 30), strict=True):
        assert intervals.overlap_lengths(union, start, start + length).tolist() == expected.tolist()


@given(pairs, st.lists(st.integers(-5, 60)))
def test_what_is_covered_before_moments_does_not_depend_on_their_order(a: Pairs, times: list[int]) -> None:
    moments, inside = np.array(times, np.int64), points(a)
    expected = [sum(point < moment for point in inside) for moment in times]
    assert intervals.covered_before(union(a), moments).tolist() == expected
    assert intervals.covered_before(union(a), np.sort(moments)).tolist() == sorted(expected)
