from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit.analyses.shared import groups
from tracekit.analyses.shared.common import to_categorical, union_by
from tracekit.analyses.shared.groups import search_by

from tests.builders import kernel, make_run
from tracekit.analysis import analyze
from tracekit.runs import intervals
from tracekit.runs.selection import RowIndex

if TYPE_CHECKING:
    from pathlib import Path

CLOCK_JUMP_NS = 1_700_000_000_000_000_000
"""From a clock that counts from the start of the machine to one that counts from 1970."""


@pytest.mark.parametrize("far", [0, CLOCK_JUMP_NS])
def test_union_by_is_that_of_each_group_alone(far: int) -> None:
    random = np.random.default_rng(7)
    start = random.integers(0, 1_000, 500) + far * random.integers(0, 2, 500)
    end = start + random.integers(0, 20, 500)
    codes = random.integers(0, 30, 500)
    alone = [intervals.length(intervals.union(start[codes == one], end[codes == one])) for one in range(31)]
    assert union_by(codes, 31, start, end).tolist() == alone


def test_union_by_of_nothing_is_zero() -> None:
    nothing = np.empty(0, np.int64)
    assert union_by(nothing, 2, nothing, nothing).tolist() == [0, 0]


def test_unions_of_kernels_are_exact_after_a_clock_jump(tmp_path: Path) -> None:
    times = [0, *(CLOCK_JUMP_NS + number * 100 for number in range(11))]
    rows = [kernel(at, at + 20, name=f"k{letter}") for letter, at in zip("abcdefghijkl", times, strict=True)]
    names = analyze(make_run(tmp_path, device_intervals=rows), "kernels").tables["names"]
    assert names["union_ns"].tolist() == [20] * 12


@pytest.mark.parametrize("ids", [[], [5], [5, 6, 7], [7, 5, 6], [0, 10**15, 3], [2**62, -4, 9]])
def test_places_of_ids_near_and_far_apart(ids: list[int]) -> None:
    wanted = np.array([*ids, -1, 4, 8, 10**15 + 1, 2**63 - 1, *ids], np.int64)
    found = RowIndex(np.array(ids, np.int64)).of(wanted)
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in wanted.tolist()]


def test_texts_by_number_come_once_and_in_their_order() -> None:
    found = to_categorical(["b", "a", "b", "unused"], np.array([2, 0, 1, 0]))
    assert found.tolist() == ["b", "b", "a", "b"]
    assert found.categories.tolist() == ["a", "b"]


@given(data=st.data())
def test_a_search_by_group_finds_what_a_search_in_each_group_finds(data: st.DataObject) -> None:
    number = st.integers(-5, 5) | st.integers(-(1 << 61), 1 << 61)  # keys of the widest would overflow
    pairs = st.lists(st.tuples(st.integers(0, 3), number), max_size=12)
    values, queries = sorted(data.draw(pairs)), data.draw(pairs)
    columns = [np.array(column, np.int64) for pair in (values, queries) for column in _columns(pair)]
    expected = [
        max((place for place, (g, value) in enumerate(values) if g == group and value <= query), default=-1)
        for group, query in queries
    ]
    assert search_by(*columns).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_FEW_GROUPS", 0)
        assert search_by(*columns).tolist() == expected


def test_no_group_has_no_value() -> None:
    group, values = np.array([0, 0, 1], np.int8), np.array([2, 5, 3])
    for few in (0, 9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(groups, "_FEW_GROUPS", few)
            assert search_by(group, values, np.array([-1, 1, 2], np.int8), np.full(3, 9)).tolist() == [
                -1,
                2,
                -1,
            ]


def _columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [group for group, _ in pairs], [value for _, value in pairs]
