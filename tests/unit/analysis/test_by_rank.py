"""Rank by rank an analysis says the same as of all ranks at once, in memory that does not grow with them."""

from __future__ import annotations

import tempfile
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from samples.simulator.large import Shape
from tests.jobs import imported
from tests.tiers import examples
from tracekit.analysis import Result, analyze, available, by_rank
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.model import set_up_libraries
from tracekit.errors import UnusableInputError
from tracekit.executors import workers
from tracekit.executors.local import InProcess
from tracekit.runs import rank_view
from tracekit.runs import run as runs
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.run import Run

SPREAD = sorted(one.name for one in available() if one.by_rank)


def same(one: Result, other: Result) -> None:
    assert list(one.tables) == list(other.tables)
    for name, table in one.tables.items():
        pd.testing.assert_frame_equal(table, other.tables[name], check_categorical=False)
    assert one.findings == other.findings
    assert one.notes == other.notes


class Counting(InProcess):
    """No workers that count as so many, so that a run comes in as many pieces and more."""

    def __init__(self, count: int) -> None:
        self._count = count

    @property
    def count(self) -> int:
        return self._count


def test_these_analyses_work_rank_by_rank() -> None:
    assert {"gpu_breakdown", "kernels", "overlap", "ranks"} <= set(SPREAD)


@pytest.mark.slow
@settings(max_examples=examples(6))
@given(
    steps=st.lists(st.integers(-1, 3), min_size=2, max_size=5).filter(lambda each: max(each) >= 0),
    slow=st.integers(0, 4),
    bare=st.frozensets(st.integers(0, 4), max_size=2),
)
def test_parts_together_are_the_whole(steps: list[int], slow: int, bare: frozenset[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = Shape(ranks=len(steps), layers=4, slow=slow)
        own = dict(enumerate(steps))
        set_up_libraries()  # as an analysis does first; `whole` below does not
        run = imported(Store(folder / "store"), folder / "traces", shape, steps=own, bare=bare)
        for found in available():
            if found.by_rank:
                whole = found.by_rank.whole(run)
                for pieces in (2, len(run.ranks)):
                    same(analyze(run, found.name, workers=Counting(pieces)), whole)


def job(folder: Path, ranks: int, *, layers: int = 8) -> Run:
    shape = Shape(ranks=ranks, steps=2, layers=layers, slow=1)
    return imported(Store(folder / "store"), folder / "traces", shape, bare=frozenset())


@pytest.mark.slow
def test_processes_say_what_this_one_says(tmp_path: Path) -> None:
    run = job(tmp_path, 4)
    with workers(count=2) as executor:
        for name in SPREAD:
            same(analyze(run, name, workers=executor), analyze(run, name))


@pytest.mark.slow_except("kernels")
@pytest.mark.parametrize("name", SPREAD)
def test_a_rank_that_cannot_be_read_is_named_and_left_out(tmp_path: Path, name: str) -> None:
    run = job(tmp_path, 3)
    sound = analyze(run.of_ranks(0, 2), name)
    (part,) = run.of_ranks(1).files("device_intervals")
    text = part.read_bytes()
    part.write_bytes(text[: len(text) // 3] + bytes(len(text) // 3) + text[2 * len(text) // 3 :])
    found = analyze(run, name)
    assert found.notes[0].startswith("rank 1 left out: table device_intervals of run ")
    assert found.incomplete
    assert found.tables.keys() == sound.tables.keys()
    for key, table in found.tables.items():
        assert_frame_equal(table, sound.tables[key])
    result_cache = ResultCache(Store(tmp_path / "store"))
    assert result_cache.analyze(run, name).incomplete
    part.write_bytes(text)
    assert not result_cache.analyze(run, name).incomplete


def test_where_no_rank_can_be_read_the_reason_is_the_error(tmp_path: Path) -> None:
    run = job(tmp_path, 2)
    assert run.ranks == (0, 1)
    for part in run.files("device_intervals"):
        text = part.read_bytes()
        part.write_bytes(text[: len(text) // 3] + bytes(len(text) // 3) + text[2 * len(text) // 3 :])
    with pytest.raises(UnusableInputError, match=r"table device_intervals of run .* cannot be read"):
        analyze(run, "kernels")


def test_what_reads_ranks_at_once_reads_as_many_as_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job(tmp_path, 6)
    rows = sum(run.rows(name) for name in ("device_intervals", "host_intervals", "steps", "allocations"))
    assert by_rank.sample(run) is None
    for room, ranks in ((rows, None), (1, [0]), (rows // 2, [0, 2, 4])):
        monkeypatch.setattr(by_rank, "ROWS_AT_ONCE", room)
        assert by_rank.sample(run) == ranks
    found = analyze(run, "idle_gaps")
    assert found.notes[0].startswith("read for 3 of 6 ranks (ranks 0, 2 and 4), because")
    assert sorted(found.tables["gaps"]["rank"].unique()) == [0, 2, 4]
    everything = analyze(run.of_ranks(*run.ranks), "idle_gaps")
    assert sorted(everything.tables["gaps"]["rank"].unique()) == [0, 1, 2, 3, 4, 5]
    assert len(analyze(run, "gpu_breakdown").tables["whole"]) == 6


POOLS: list[pa.MemoryPool] = []


def peak(function: Callable[[Run], object], run: Run) -> int:
    """The most bytes that Arrow, numpy and Python have at a time."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    POOLS.append(pool)  # what is left in it is freed in it
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        function(run)
        return tracemalloc.get_traced_memory()[1] + int(pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


@pytest.mark.slow
def test_memory_hardly_grows_with_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_view, "MAX_VIEW_ROWS", 1)
    for name in ("MAX_SMALL_ROWS", "MAX_ROWS_OF_KEPT_VIEWS"):  # nothing is kept, as of ranks with many rows
        monkeypatch.setattr(runs, name, 0)
    few, many = job(tmp_path / "few", 4, layers=400), job(tmp_path / "many", 16, layers=400)

    def grown(function: Callable[[Run], object]) -> int:
        function(few)  # loads what it needs
        return peak(function, many) - peak(function, few)

    read_at_once = grown(lambda run: run.table("device_intervals"))
    for name in SPREAD:
        assert grown(partial(analyze, name=name)) < read_at_once / 2, name
