"""Columns of a run that were read stay in memory, and those that were used longest ago are released."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.builders import host, make_run
from tests.unit.runs.test_run_windows import GROUP, GROUPS, damage, files, rows, stored
from tracekit.runs import column_cache
from tracekit.runs.column_cache import ColumnCache
from tracekit.runs.run import Run
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

HOST = TABLES["host_intervals"]
COUNT = GROUP * GROUPS


@pytest.fixture
def run(store: Store, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("MAX_ROWS_AT_ONCE", "MAX_SMALL_ROWS"):  # as for millions of rows
        monkeypatch.setattr(column_cache, name, 0)
    return stored(store, rows(0))


def damage_all(run: Run) -> None:
    """Whatever is read from now on is not read from the files."""
    damage(files(run)[0], range(GROUPS))


def test_a_column_is_read_once(run: Run) -> None:
    first = run.arrow("host_intervals", columns=[C.NAME, C.DUR_NS])
    damage_all(run)
    assert run.arrow("host_intervals", columns=[C.DUR_NS, C.NAME]).select([C.NAME, C.DUR_NS]) == first


def test_rows_are_selected_from_kept_columns(run: Run) -> None:
    run.arrow("host_intervals", columns=[C.ROW_ID, C.START_NS, C.DUR_NS])
    damage_all(run)
    some = pc.field(C.ROW_ID).isin([3, 5])
    for _ in range(2):  # the second time, the rows are known
        assert run.table("host_intervals", columns=[C.ROW_ID], where=some)[C.ROW_ID].tolist() == [3, 5]
    others = pc.field(C.ROW_ID).isin([4, 6])
    assert run.table("host_intervals", columns=[C.ROW_ID], where=others)[C.ROW_ID].tolist() == [4, 6]


def test_rows_by_id_are_read_from_their_row_group(run: Run) -> None:
    damage(files(run)[0], range(1, GROUPS))
    found = run.table("host_intervals", columns=[C.ROW_ID, C.NAME], where=pc.field(C.ROW_ID) == 7)
    assert found[C.ROW_ID].tolist() == [7]


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_by_id_are_those_of_the_filter(store: Store, parts: int) -> None:
    # The parts are merged by time, so that the ids of the merged rows are not consecutive.
    run = stored(store, *(rows(rank, rank * COUNT) for rank in range(parts)))
    ids = [COUNT + 3, 7, 7, 2, 10 * COUNT, -1]
    for view in (run, run.of_ranks(0)):
        for where in (None, pc.field(C.START_NS) > run.arrow("host_intervals")[C.START_NS][4]):
            has_id = pc.field(C.ROW_ID).isin(ids)
            filtered = view.arrow("host_intervals", where=has_id if where is None else has_id & where)
            assert view.arrow("host_intervals", where=where, row_ids=ids) == filtered
            assert filtered.num_rows


@pytest.mark.parametrize(
    "where",
    [
        pc.field(C.PHASE).isin(["forward", "optimizer"]),
        pc.field(C.PHASE) != "forward",
        pc.field(C.PHASE).is_null(),
        (pc.field(C.PHASE) == "forward") | (pc.field(C.NAME) == "b"),
    ],
)
def test_a_condition_on_texts_selects_the_rows_that_arrow_selects(
    tmp_path: Path, where: pc.Expression
) -> None:
    phases = ["forward", None, "backward", "forward", "optimizer", None]
    calls = [{**host("ab"[number % 2], number, 9), C.PHASE: phase} for number, phase in enumerate(phases)]
    run = make_run(tmp_path / "run", host_intervals=calls)
    selected = run.arrow("host_intervals", where=where)
    assert 0 < selected.num_rows < len(phases)
    assert selected == run.arrow("host_intervals").filter(where)


def test_an_empty_list_of_columns_has_the_rows(run: Run) -> None:
    assert run.arrow("host_intervals", columns=[], where=pc.field(C.ROW_ID) < 5).num_rows == 5


def test_the_column_used_longest_ago_is_released_first(run: Run) -> None:
    size = run.arrow("host_intervals", columns=[C.ROW_ID]).nbytes
    cache, dataset = ColumnCache(2 * size), run.dataset("host_intervals")
    for name in (C.ROW_ID, C.PID, C.ROW_ID, C.RANK):  # numbers of the same size
        assert cache.select(HOST, dataset, [name], None) is not None
    damage_all(run)
    assert cache.select(HOST, dataset, [C.ROW_ID, C.RANK], None) is not None
    assert cache.select(HOST, dataset, [C.PID], None) is None


def test_the_columns_of_the_run_read_longest_ago_are_released_first(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, dataset = run.arrow("host_intervals", columns=[C.ROW_ID]).nbytes, run.dataset("host_intervals")
    monkeypatch.setattr(column_cache, "_READ", type(column_cache._READ)())
    monkeypatch.setattr(column_cache, "MAX_BYTES_OF_RUNS", 3 * size)
    caches = [ColumnCache() for _ in range(3)]
    for place, name in ((0, C.ROW_ID), (1, C.ROW_ID), (0, C.PID), (2, C.ROW_ID)):
        assert caches[place].select(HOST, dataset, [name], None) is not None
    damage_all(run)
    kept = [cache.select(HOST, dataset, [C.ROW_ID], None) is not None for cache in caches]
    assert kept == [True, False, True]


def test_a_text_is_its_own_whichever_way_it_is_read(store: Store, run: Run) -> None:
    table = rows(0)
    place = table.schema.get_field_index(C.NAME)
    text = table.schema.field(place).type
    names = pa.chunked_array([pa.array([f"op{group}"] * GROUP).cast(text) for group in range(GROUPS)])
    run = stored(store, table.set_column(place, table.schema.field(place), names))
    whole = run.table("host_intervals", columns=[C.NAME])[C.NAME]
    # The row group has a dictionary of its own.
    last = run.table("host_intervals", columns=[C.ROW_ID, C.NAME], where=pc.field(C.ROW_ID) == COUNT - 1)
    assert (whole[COUNT - 1], last[C.NAME].tolist()) == ("op7", ["op7"])


def test_a_run_and_the_views_that_it_keeps_are_freed_together(store: Store) -> None:
    run = stored(store, rows(0), rows(1, COUNT))
    view, of_rank = run.of_ranks(1), [*range(COUNT, 2 * COUNT)]
    assert run.of_ranks(1) is view
    assert view.table("host_intervals", columns=[C.ROW_ID])[C.ROW_ID].tolist() == of_rank
    whole, sent = weakref.ref(run), pickle.loads(pickle.dumps(view))  # noqa: S301 (our own)
    del run
    assert whole() is None
    for alone in (view, sent):
        assert alone.table("host_intervals", columns=[C.ROW_ID])[C.ROW_ID].tolist() == [
            *range(COUNT, 2 * COUNT)
        ]


def test_a_view_without_its_run_has_the_rows_of_its_ranks_alone(tmp_path: Path) -> None:
    both = make_run(tmp_path / "run", host_intervals=[{**host("a", 0, 5), C.RANK: rank} for rank in (0, 1)])
    for view in (pickle.loads(pickle.dumps(both.of_ranks(1))), Run(both.path).of_ranks(1)):  # noqa: S301 (ours)
        gc.collect()
        assert view.arrow("host_intervals", columns=[C.RANK])[C.RANK].to_pylist() == [1]
