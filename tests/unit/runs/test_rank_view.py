from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from samples.simulator.large import Shape
from tests.builders import kernel, make_run, step
from tests.jobs import imported
from tracekit.errors import UnusableInputError
from tracekit.runs import rank_view
from tracekit.runs.run import RankView
from tracekit.runs.step_windows import step_windows
from tracekit.runs.store import Store
from tracekit.runs.text import format_ranks
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

RANKED = [name for name, table in TABLES.items() if C.RANK in table.arrow.names]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("job")
    shape = Shape(ranks=5, steps=2, layers=4, slow=3)
    return imported(Store(folder / "store"), folder / "traces", shape, steps={1: -1}, bare=frozenset({4}))


def test_the_ranks_are_those_with_rows(job: Run) -> None:
    assert job.ranks == (0, 2, 3, 4)


@pytest.mark.parametrize("name", RANKED)
@pytest.mark.parametrize("ranks", [(2,), (0, 3), (4,)])
def test_a_view_has_the_rows_of_its_ranks(job: Run, name: str, ranks: tuple[int, ...]) -> None:
    view = job.of_ranks(*ranks)
    expected = job.arrow(name, where=pc.field(C.RANK).isin(ranks))
    assert view.rows(name) == expected.num_rows
    rows = job.table(name, where=pc.field(C.RANK).isin(ranks))
    texts = dict.fromkeys(rows.select_dtypes("category").columns, object)  # other ranks have other texts
    assert view.table(name).astype(texts).equals(rows.astype(texts))


def test_a_view_reads_no_file_of_another_rank(job: Run, tmp_path: Path) -> None:
    own = {file.name for name in RANKED for file in job.of_ranks(3).files(name)}
    assert own == {"part-00002.parquet"}


def test_ranks_that_share_a_file_are_told_apart(tmp_path: Path) -> None:
    rows = [kernel(10 * number, 10 * number + 5, **{C.RANK: number % 3}) for number in range(9)]
    run = make_run(tmp_path, device_intervals=rows)
    assert run.ranks == (0, 1, 2)
    view = run.of_ranks(1)
    assert view.arrow("device_intervals", columns=[C.ROW_ID])[C.ROW_ID].to_pylist() == [1, 4, 7]
    assert (view.rows("device_intervals"), view.rows("host_intervals")) == (3, 0)
    assert rank_view.split_by_rank(run, 1) == [run]


def test_a_view_travels_without_what_it_has_read(job: Run) -> None:
    view = job.of_ranks(2)
    rows = view.table("device_intervals")
    sent = pickle.dumps(view)
    assert len(sent) < 2_000
    assert pickle.loads(sent).table("device_intervals").equals(rows)  # noqa: S301


def test_large_ranks_come_alone_and_small_ones_together(job: Run) -> None:
    alone = rank_view.split_by_rank(job, 1)
    assert [view.ranks for view in alone] == [(0,), (2,), (3,), (4,)]
    assert all(isinstance(view, RankView) for view in alone)
    assert rank_view.split_by_rank(alone[0], 1) == [alone[0]]
    assert rank_view.split_by_rank(job) == [job]
    assert [view.ranks for view in rank_view.split_by_rank(job, min_views=2)] == [(0, 2), (3, 4)]
    assert len(rank_view.split_by_rank(job, min_views=9)) == 4


def test_a_rank_that_is_not_there_is_named(job: Run) -> None:
    with pytest.raises(UnusableInputError, match=r"has no rank 1 \(it has ranks 0 and 2–4\)"):
        job.of_ranks(0, 1)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([7], "rank 7"),
        ([0, 1, 2, 5], "ranks 0–2 and 5"),
        ([*range(0, 40, 2)], "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_ranks_are_listed_in_few_words(ranks: list[int], words: str) -> None:
    assert format_ranks(ranks) == words


def test_windows_of_steps_do_not_overlap_and_leave_the_backlog_out(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100), step(1, 100, 200), step(2, 200, 210)],
        device_intervals=[
            kernel(0, 60, **{C.CORRELATION_ID: 3}),
            kernel(60, 150, **{C.STEP: 0, C.LAUNCH_ROW: 0, C.CORRELATION_ID: 10}),
            kernel(150, 300, **{C.STEP: 1, C.LAUNCH_ROW: 1, C.CORRELATION_ID: 11}),
            kernel(40, 50, **{C.STEP: 2, C.CORRELATION_ID: 12}),
        ],
    )
    windows = step_windows(run)
    assert windows[[C.START_NS, "end_ns", "host_start_ns"]].to_numpy().tolist() == [
        [60, 150, 0],
        [150, 300, 100],
        [300, 300, 200],
    ]
