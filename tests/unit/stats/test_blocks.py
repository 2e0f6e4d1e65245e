"""Blocks alternate, and stored runs are pairs only where they were made so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.stats.samples import order, pairs


@given(st.integers(0, 9), st.integers(0, 9))
def test_an_order_goes_on_where_it_stopped(first: int, second: int) -> None:
    assert order(first) + order(second, start=first) == order(first + second)


@given(st.integers(1, 20))
def test_every_block_has_both_sides_and_a_drift_cancels_in_two(k: int) -> None:
    sides = order(k)
    assert all({sides[at], sides[at + 1]} == {"A", "B"} for at in range(0, 2 * k, 2))
    places = np.arange(2 * k)
    if k % 2 == 0:
        assert sum(places[[side == "A" for side in sides]]) == sum(places[[side == "B" for side in sides]])


@given(st.integers(0, 12), st.integers(0, 3))
def test_runs_made_in_order_are_found_to_be_pairs(k: int, start: int) -> None:
    sides = np.array(list(order(k, start=start)), dtype="<U1")
    times = [np.flatnonzero(sides == side).tolist() for side in "AB"]
    base_first = [side == "A" for side in sides[::2]]
    if k < 2:
        assert pairs(*times) is None
        return
    assert pairs(*times) == (list(range(k)), list(range(k)), base_first)
    shuffled = [own[::-1] for own in times]
    assert pairs(*shuffled) == (list(range(k))[::-1], list(range(k))[::-1], base_first)


def test_older_and_newer_runs_of_a_side_leave_the_blocks_alone() -> None:
    assert pairs([1, 2, 3, 10, 13, 14], [11, 12, 15, 20, 21]) == (
        [3, 4, 5],
        [0, 1, 2],
        [True, False, True],
    )


@pytest.mark.parametrize(
    ("a", "b"), [([1, 2], [3, 4]), ([1], [2, 3]), ([1, 3, 4], [2, 5, 6]), ([1, 2, 6], [3, 4, 5])]
)
def test_other_runs_are_no_pairs(a: list[float], b: list[float]) -> None:
    assert pairs(a, b) is None
