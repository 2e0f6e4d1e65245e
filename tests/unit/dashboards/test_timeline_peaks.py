from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.dashboards.timeline import build, peaks

if TYPE_CHECKING:
    import pytest

values = st.lists(st.integers(0, 5), min_size=1, max_size=700)
pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40)


def longest(lengths: list[int], first: list[int], last: list[int]) -> list[int]:
    array = np.array(lengths, np.int64)
    return peaks.longest_intervals(
        peaks.build(array), array.__getitem__, np.array(first, np.int64), np.array(last, np.int64)
    ).tolist()


@settings(deadline=None)
@given(values, st.data())
def test_the_longest_is_the_first_of_the_largest(lengths: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(lengths) - 1))
    last = data.draw(st.integers(first, len(lengths) - 1))
    expected = first + int(np.argmax(lengths[first : last + 1]))
    assert longest(lengths, [first], [last]) == [expected]


def test_every_range_of_a_pyramid_of_three_levels() -> None:
    lengths = np.random.default_rng(1).integers(0, 9, 600)
    first, last = np.triu_indices(600)
    expected = [int(a + np.argmax(lengths[a : b + 1])) for a, b in zip(first[::97], last[::97], strict=True)]
    assert longest(lengths.tolist(), first[::97].tolist(), last[::97].tolist()) == expected


def test_blocks_end_where_the_values_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_STRIPE", 32)
    lengths = [3] * 99 + [7]
    assert longest(lengths, [0, 98, 99], [99, 98, 99]) == [99, 98, 99]


@settings(deadline=None)
@given(pairs)
def test_nothing_overlaps_in_a_lane_and_nothing_is_lost(spans: list[tuple[int, int]]) -> None:
    ordered = sorted(spans)
    start = np.array([one for one, _ in ordered], np.int64)
    end = start + np.array([length for _, length in ordered], np.int64)
    found = build.assign_levels(start, end)
    for lane in found:
        assert (start[lane][1:] >= end[lane][:-1]).all()
    assert sorted(np.concatenate([np.empty(0, int), *found]).tolist()) == list(range(len(ordered)))


def test_an_interval_takes_the_first_free_lane() -> None:
    lanes = build.assign_levels(np.array([0, 1, 2, 4]), np.array([2, 3, 4, 5]))
    assert [lane.tolist() for lane in lanes] == [[0, 2, 3], [1]]


def test_a_chain_in_which_each_overlaps_the_next_takes_two_lanes() -> None:
    start = np.arange(1_000) * 10
    assert [len(lane) for lane in build.assign_levels(start, start + 15)] == [500, 500]


def test_lanes_are_limited_where_everything_overlaps() -> None:
    start = np.arange(100)
    found = build.assign_levels(start, np.full(100, 1_000))
    assert [len(lane) for lane in found] == [1] * build.MAX_LEVELS
