from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.kineto.scan import native
from tracekit.ingest.kineto.scan.loader import CompiledNest
from tracekit.ingest.link import nesting

Spans = list[tuple[int, int, int]]

spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=60)


def ordered(rows: Spans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thread, start and end of each row, by thread, start and falling end."""
    table = sorted(((thread, start, start + length) for thread, start, length in rows), key=_outer_first)
    columns = np.array(table, np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _outer_first(row: tuple[int, int, int]) -> tuple[int, int, int]:
    return row[0], row[1], -row[2]


def naive_parents(thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> list[int]:
    def encloses(j: int, i: int) -> bool:
        return bool(thread[j] == thread[i] and end[j] >= end[i] and end[j] > start[i])

    return [next((j for j in range(i - 1, -1, -1) if encloses(j, i)), -1) for i in range(len(end))]


@given(spans)
def test_parents_are_the_nearest_earlier_rows_that_end_later(rows: Spans) -> None:
    thread, start, end = ordered(rows)
    assert nesting.parents(thread, start, end).tolist() == naive_parents(thread, start, end)


@given(spans, st.sampled_from([1, 2, 5, 1 << 13]))
def test_depth_counts_ancestors_in_blocks_of_any_size(rows: Spans, block: int) -> None:
    thread, start, end = ordered(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "BLOCK", block)
        parent = nesting.parents(thread, start, end)
        depth = nesting.depths(parent)
    expected: list[int] = []
    for above in parent:
        expected.append(expected[above] + 1 if above >= 0 else 0)
    assert depth.tolist() == expected


def test_rows_deep_inside_one_another_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nesting, "BLOCK", 16)
    start = np.arange(100)
    parent = nesting.parents(np.zeros(100, np.int64), start, 1000 - start)
    assert nesting.depths(parent).tolist() == start.tolist()


@given(spans, st.data())
def test_values_are_inherited_from_the_innermost_row_with_one(rows: Spans, data: st.DataObject) -> None:
    thread, start, end = ordered(rows)
    parent = nesting.parents(thread, start, end)
    own = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=len(end), max_size=len(end))), np.int64)
    found = nesting.inherit(parent, own)
    expected: list[int] = []
    for row, above in enumerate(parent):
        expected.append(int(own[row]) if own[row] >= 0 or above < 0 else expected[above])
    assert found.tolist() == expected


@given(spans, st.data())
def test_nearest_marked_walks_up(rows: Spans, data: st.DataObject) -> None:
    thread, start, end = ordered(rows)
    parent = nesting.parents(thread, start, end)
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=len(end), max_size=len(end))), np.bool_)
    expected = []
    for row in range(len(end)):
        at = row
        while at >= 0 and not marked[at]:
            at = parent[at]
        expected.append(at)
    assert nesting.nearest(parent, marked).tolist() == expected


@given(
    above=st.lists(st.integers(-1, 30), min_size=1, max_size=30),
    wished=st.lists(st.integers(-1, 29)),
    data=st.data(),
)
def test_few_and_many_rows_climb_to_the_same_ancestors_also_around_cycles(
    above: list[int], wished: list[int], data: st.DataObject
) -> None:
    count = len(above)
    parent = np.array([min(row, count - 1) for row in above], np.int32)
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    rows = np.array([min(row, count - 1) for row in wished], np.int64)
    expected = []
    for at in rows.tolist():
        for _ in range(count):
            at = at if at < 0 or wanted[at] else int(parent[at])
        expected.append(at if at >= 0 and wanted[at] else -1)
    for ratio, meet_after in ((0, 6), (0, 1), (1_000, 6)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nesting, "_FEW_ROWS", ratio)
            patch.setattr(nesting, "_MEET_AFTER", meet_after)
            assert nesting.climb_to(rows, parent, wanted).tolist() == expected


@given(spans, st.lists(st.integers(-1, 45), max_size=20))
def test_covering_finds_the_innermost_open_row(rows: Spans, times: list[int]) -> None:
    thread, start, end = ordered([(0, s, length) for _, s, length in rows])
    parent = nesting.parents(thread, start, end)
    latest = np.searchsorted(start, times, side="right") - 1
    found = nesting.find_covering(end, parent, latest, np.array(times, np.int64))
    for time, last, row in zip(times, latest.tolist(), found.tolist(), strict=True):
        chain = []
        while last >= 0:
            chain.append(last)
            last = int(parent[last])
        assert row == next((at for at in chain if end[at] > time), -1)


def test_a_million_siblings_take_few_rounds() -> None:
    count = 200_000
    start = np.arange(count) * 10
    end = np.concatenate(([count * 10], start[1:] + 5))
    parent = nesting.parents(np.zeros(count, np.int64), start, end)
    assert parent[0] == -1
    assert (parent[1:] == 0).all()


def test_rows_that_touch_do_not_nest() -> None:
    start, end = np.array([0, 2, 2, 2]), np.array([2, 4, 2, 2])
    assert nesting.parents(np.zeros(4, np.int64), start, end).tolist() == [-1, -1, 1, 1]


def test_rows_without_length_do_not_nest() -> None:
    start = np.zeros(50_000, np.int64)
    parent = nesting.parents(start, start, start)
    assert (parent == -1).all()
    assert (nesting.find_covering(start, parent, np.arange(50_000), np.arange(50_000)) == -1).all()


@given(st.lists(spans, min_size=1, max_size=3), st.data())
def test_compiled_nesting_equals_the_reference(windows: list[Spans], data: st.DataObject) -> None:
    """The first rows are carried over a border: their depths are known, and may be larger than here."""
    carried, rows = ordered(windows[0]), sorted(windows[-1], key=lambda row: (row[1], -row[2]))
    own = np.array([(thread, 30 + start, 30 + start + length) for thread, start, length in rows], np.int64)
    columns = [np.append(*pair) for pair in zip(carried, own.reshape(-1, 3).T, strict=True)]
    known = [len(windows[0]) + 7 * number for number in range(len(windows[0]))]
    count = len(columns[0])
    values = st.lists(st.integers(-1, 5), min_size=count, max_size=count)
    given_values = [np.array(data.draw(values), np.int64) for _ in range(2)]
    found = [
        nest(*columns, np.array(known, np.int64), given_values)
        for nest in (CompiledNest(), nesting.nest_rows)
    ]
    compiled, expected = (
        [parent.tolist(), depth.tolist(), *(column.tolist() for column in held)]
        for parent, depth, held in found
    )
    assert compiled == expected
    assert compiled[1][: len(known)] == known
    for row in range(len(known), count):
        above = compiled[0][row]
        assert compiled[1][row] == (compiled[1][above] + 1 if above >= 0 else 0)


def test_nesting_is_pickled_as_what_the_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = CompiledNest()
    pickle.dumps(sent)
    assert isinstance(copy.copy(sent), CompiledNest)
    monkeypatch.setattr(native, "is_compiled", lambda: False)
    assert copy.copy(sent) is nesting.nest_rows  # made anew as in another process
