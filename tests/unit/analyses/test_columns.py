from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit.analyses.shared import host_columns

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), max_size=20)


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_columns, "_BLOCK", 4)
        yield


@given(rows=ROWS, by_start=st.booleans())
def test_rows_are_ordered_by_thread_and_every_key(
    rows: list[tuple[int, int, int]], *, by_start: bool
) -> None:
    ordered = sorted(rows, key=lambda row: row[1]) if by_start else rows
    thread, start, length = (np.array([row[key] for row in ordered], np.int64) for key in range(3))
    found = host_columns.order_by_thread(thread, lambda at: start[at], lambda at: -length[at])
    assert found.tolist() == np.lexsort((-length, start, thread)).tolist()


@given(st.lists(st.integers(-1, 5)))
def test_values_are_picked_the_same_in_blocks(places: list[int]) -> None:
    values = np.arange(10, 17)
    assert (
        host_columns.take(values, np.array(places, np.int8)).tolist()
        == values[np.array(places, int)].tolist()
    )


def test_what_arrow_holds_is_not_written_over() -> None:
    fixed = np.array([5, 7])
    fixed.flags.writeable = False
    moved = host_columns.reorder(np.array([1, 0]), [fixed, np.array([1, 2]), np.array([3, 4])])
    assert [column.tolist() for column in moved] == [[7, 5], [2, 1], [4, 3]]
    assert fixed.tolist() == [5, 7]


def test_patterns_are_matched_once_for_each_text() -> None:
    names = host_columns.Coded.of(np.array([1, 0, -1, 1], np.int8), np.array(["cudaFree", "launch"], object))
    for _ in range(2):
        assert names.matches("launch").tolist() == [True, False, False, True]
        assert names.matches("Free").tolist() == [False, True, False, False]
    assert names[np.array([0, 2])].matches("launch").tolist() == [True, False]
