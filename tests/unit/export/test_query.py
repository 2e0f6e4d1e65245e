"""Answers are exact, cost what they need, and can be stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders import host, kernel, make_run
from tests.runs import make_run as make_parts
from tests.runs import of_old
from tracekit.errors import UnusableInputError
from tracekit.export import query
from tracekit.export.query import ask, read
from tracekit.export.views import KNOWN
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from pathlib import Path

BIG = 2**62 + 1
ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"


def rows(sql: str, *runs: Run, **how: Any) -> list[tuple[Any, ...]]:
    with ask(read(sql, KNOWN), runs, **how) as answer:
        return answer.fetch(1_000)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(
        tmp_path,
        device_intervals=[kernel(BIG, BIG + 5, **{C.NAME: "gemm", C.LAUNCH_ROW: 0}), kernel(BIG, BIG + 2)],
        host_intervals=[host("aten::mm", 0, 5)],
    )


def test_integers_are_exact_and_tables_join(run: Run) -> None:
    sql = """SELECT h.name, d.start_ns, d.stream FROM device_intervals d
             JOIN host_intervals h ON h.row_id = d.launch_row"""
    assert rows(sql, run) == [("aten::mm", BIG, None)]
    assert rows("SELECT sum(start_ns), sum(dur_ns) FROM device_intervals", run) == [(2 * BIG, 7)]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_the_columns_of_the_schema_also_where_a_run_has_none(run: Run, name: str) -> None:
    with ask(read(f"FROM {name}", KNOWN), [run]) as answer:
        assert [one.name for one in answer.headings] == [column.name for column in TABLES[name].columns]


def test_rows_of_several_runs_begin_with_the_id_of_theirs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    runs = [make_parts(store, after_s=second) for second in range(2)]
    sql = "SELECT run_id, count(*) FROM steps GROUP BY ALL ORDER BY ALL"
    assert rows(sql, *runs, labelled=True) == [(run.id, 2) for run in runs]


def test_runs_of_other_columns_and_in_other_folders_are_one_table(tmp_path: Path) -> None:
    first, moved, older = (
        make_run(tmp_path, meta={"run_id": name}, device_intervals=[kernel(0, 5), kernel(6, 9)])
        for name in ("first", "moved", "older")
    )
    none = make_run(tmp_path, meta={"run_id": "none"})
    elsewhere = Run(moved.path.rename(tmp_path / "elsewhere"))
    file = older.path / "device_intervals.parquet"
    pq.write_table(pq.read_table(file).drop_columns([C.OP_ROW]), file)
    runs = [first, elsewhere, of_old(older), none]
    sql = "SELECT run_id, count(*), count(op_row) FROM device_intervals GROUP BY ALL ORDER BY ALL"
    assert rows(sql, *runs, labelled=True) == [("first", 2, 0), ("moved", 2, 0), ("older", 2, 0)]
    assert rows("SELECT run_id FROM device_intervals", none, labelled=True) == []
    sql = "SELECT DISTINCT run_id FROM device_intervals WHERE run_id LIKE '%ve%'"
    assert rows(sql, *runs, labelled=True) == [("moved",)]


def test_the_runs_of_the_store_are_a_table(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = make_parts(store, label="mine", workload={"name": "resnet50", "device": "cuda", "batch_size": 8})
    sql = "SELECT run_id, label, workload, machine, batch_size, rows, git_sha FROM runs"
    assert rows(sql, store=[run]) == [(run.id, "mine", "resnet50", "cuda", 8, 2, None)]


@pytest.mark.parametrize("folder", ["a'b", "a[b]*c?", "a{b}"])
def test_any_folder_can_hold_a_run(tmp_path: Path, folder: str) -> None:
    run = make_run(tmp_path / folder, device_intervals=[kernel(0, 5)])
    assert rows("SELECT kind, dur_ns FROM device_intervals WHERE kind = 'kernel'", run) == [("kernel", 5)]


def test_a_column_that_a_file_lacks_is_null(run: Run) -> None:
    file = run.path / "device_intervals.parquet"
    pq.write_table(pq.read_table(file).drop_columns([C.STREAM]), file)
    sql = "SELECT stream, dur_ns FROM device_intervals ORDER BY dur_ns"
    assert rows(sql, of_old(run)) == [(None, 2), (None, 5)]


def test_parts_are_one_table(tmp_path: Path) -> None:
    with Store(tmp_path).draft() as draft:
        from tests.runs import make_meta, step_rows, write_table

        for number in range(2):
            write_table(draft.path, "steps", step_rows(number), part=f"part-{number}.parquet")
        run = draft.commit(make_meta())
    assert rows("SELECT start_ns FROM steps ORDER BY 1", run) == [(0,), (1,)]


def test_parts_may_have_other_columns(tmp_path: Path) -> None:
    with Store(tmp_path).draft() as draft:
        from tests.runs import make_meta, write_table

        for number in range(2):
            file = f"part-{number}.parquet"
            row = kernel(number, number + 2, stream=7, device=0) | {C.RANK: number, C.ROW_ID: number}
            write_table(draft.path, "device_intervals", [row], part=file)
        first = draft.path / "device_intervals" / "part-0.parquet"
        pq.write_table(pq.read_table(first).drop_columns([C.STREAM]), first)
        run = draft.commit(make_meta())
    assert rows("SELECT start_ns, stream FROM device_intervals ORDER BY 1", run) == [(0, None), (1, 7)]


def test_only_the_columns_and_row_groups_that_are_needed_are_read(store: Store) -> None:
    from tests.runs import make_meta

    schema = TABLES["host_intervals"].arrow
    made = [
        {C.ROW_ID: n, C.START_NS: n, C.DUR_NS: 1, C.NAME: "a", C.KIND: "op"}
        | {C.RANK: 0, C.PID: 1, C.TID: 1, C.DEPTH: 0}
        for n in range(1_000)
    ]
    with store.draft() as draft:
        file = draft.path / "host_intervals.parquet"
        pq.write_table(pa.Table.from_pylist(made, schema), file, row_group_size=100)
        run = draft.commit(make_meta())
    ((_, plan),) = rows("EXPLAIN ANALYZE SELECT sum(dur_ns) FROM host_intervals WHERE start_ns < 50", run)
    words = " ".join(plan.replace("│", " ").split())
    assert "Row Groups Scanned: 1 / 10" in words
    assert "Projections: dur_ns" in words
    assert "Filters: start_ns < 50" in words


def test_a_query_that_takes_too_long_is_stopped(run: Run) -> None:
    with pytest.raises(UnusableInputError, match=r"longer than 0\.05 s"):
        rows(ENDLESS, run, seconds=0.05)


def test_memory_is_bounded_and_the_error_says_what_to_do(run: Run) -> None:
    sql = "SELECT list(range) FROM range(50000000)"
    with pytest.raises(UnusableInputError, match="memory limit") as caught:
        rows(sql, run, memory_bytes=50_000_000)
    assert "--memory" in caught.value.hint


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT nme FROM steps", "(line 1, column 8)", "did you mean name?"),
        ("SELECT 1,\n  s.star_ns FROM steps s", "(line 2, column 3)", "did you mean start_ns"),
        ("SELECT " + "rank, " * 40 + "nme FROM steps", "(line 1, column 248)", "did you mean name?"),
        ("EXPLAIN SELECT nme FROM steps", "(line 1, column 16)", "did you mean name?"),
        ("SELECT 1 +\nFROM WHERE", "(line 2, column 1)", "tracekit query --help"),
        ("SELECT * FROM step", "unknown table 'step'", "did you mean steps?"),
        ("SELECT nofunction(1)", "nofunction", ""),
    ],
)
def test_an_error_says_where_and_what_may_have_been_meant(
    run: Run, sql: str, message: str, hint: str
) -> None:
    with pytest.raises(UnusableInputError) as caught:
        rows(sql, run)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)


def test_an_error_names_the_place_and_the_nearest_column() -> None:
    said = 'Binder Error: Referenced column "nam" not found!\n\nLINE 1: select nam\n' + 15 * " " + "^"
    error = query._convert_error(ValueError(said), "select nam", ["name", "rank"])
    assert str(error) == 'Referenced column "nam" not found (line 1, column 8) (did you mean name?)'
