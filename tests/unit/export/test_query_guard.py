"""A query reads the tables of runs and nothing else, whatever it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.builders import kernel, make_run
from tracekit.errors import UnusableInputError
from tracekit.export.query import ask, read
from tracekit.export.views import KNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

OTHERS = [
    "COPY steps TO '{out}'",
    "COPY steps FROM '{secret}'",
    "WITH x AS (COPY steps TO '{out}') SELECT * FROM x",
    "WITH x AS (INSERT INTO steps VALUES (1) RETURNING *) SELECT * FROM x",
    "SELECT * FROM (WITH x AS (COPY steps TO '{out}') SELECT * FROM x)",
    "EXPLAIN ANALYZE COPY steps TO '{out}'",
    "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
    "EXPLAIN ANALYZE EXPLAIN ANALYZE COPY steps TO '{out}'",
    "/* a */ EXPLAIN ANALYZE COPY steps TO '{out}'",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA version",
    "SET threads = 1",
    "RESET threads",
    "CALL enable_logging()",
    "CREATE TABLE x AS SELECT 1",
    "CREATE MACRO f(a) AS a",
    "INSERT INTO steps VALUES (1)",
    "DELETE FROM steps",
    "DROP VIEW steps",
    "EXPORT DATABASE '{out}'",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "USE memory",
    "CHECKPOINT",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY steps TO '{out}'",
    "",
    "-- nothing",
]
FILES = [
    "SELECT * FROM '{secret}'",
    "SELECT * FROM '{secret}.parquet'",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM READ_TEXT('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM main.read_text('{secret}')",
    "SELECT (SELECT content FROM read_text('{secret}'))",
    "SELECT * FROM steps WHERE EXISTS (SELECT * FROM read_text('{secret}'))",
    "SELECT * FROM steps, LATERAL (SELECT * FROM read_text('{secret}'))",
    "WITH x AS (SELECT * FROM read_text('{secret}')) SELECT * FROM x",
    "DESCRIBE SELECT * FROM read_csv('{secret}')",
    "SUMMARIZE SELECT * FROM read_csv('{secret}')",
    "EXPLAIN SELECT * FROM read_csv('{secret}')",
    "PIVOT (SELECT * FROM read_csv('{secret}')) ON a IN (1) USING count(*)",
    "SELECT * FROM glob('{secret}*')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM parquet_metadata('{secret}')",
    "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "SELECT * FROM query_table('{secret}')",
    "SELECT * FROM json_execute_serialized_sql('{{}}')",
    "SELECT * FROM enable_logging(storage := 'file', storage_path := '{out}')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM pragma_version()",
    "SELECT getenv('HOME')",
    "SELECT * FROM secret_of_python",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM other.steps",
    "WITH tables AS (SELECT 1) SELECT * FROM information_schema.tables",
    "WITH steps AS (SELECT 1) SELECT * FROM other.steps",
    "SELECT * FROM (WITH sqlite_master AS (SELECT 1) SELECT * FROM sqlite_master), sqlite_master",
    "WITH a AS (WITH sqlite_master AS (SELECT 1) SELECT 1) SELECT * FROM sqlite_master",
    "WITH a AS (SELECT * FROM sqlite_master), sqlite_master AS (SELECT 1) SELECT * FROM a",
    "SELECT (WITH duckdb_types AS (SELECT 1) SELECT 1) FROM duckdb_types",
    "WITH a AS (SELECT 1) SELECT * FROM main.a",
    "SELECT $1",
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "store", device_intervals=[kernel(0, 5)], steps=[])


def outcome(sql: str, run: Run) -> object:
    with ask(read(sql, KNOWN), [run]) as answer:
        return answer.fetch(10)


@pytest.mark.parametrize("sql", [*OTHERS, *FILES])
def test_it_is_refused_and_leaves_nothing(sql: str, run: Run, tmp_path: Path) -> None:
    secret_of_python = object()
    secret = tmp_path / "secret"
    secret.write_text("a\n1\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnusableInputError) as caught:
        outcome(sql.format(secret=secret, out=tmp_path / "out"), run)
    assert "\n" not in caught.value.message + caught.value.hint
    assert sorted(tmp_path.rglob("*")) == before
    assert secret_of_python is not None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM '{secret}.csv'",
        "SELECT * FROM read_parquet('{other}')",
        "COPY device_intervals TO '{out}'",
        "ATTACH '{out}' AS other",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "RESET lock_configuration",
        "LOAD httpfs",
        "INSTALL httpfs",
        "SELECT * FROM enable_logging(storage := 'file', storage_path := '{out}')",
    ],
)
def test_were_it_read_as_a_query_the_database_itself_would_refuse(sql: str, run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a\n1\n")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    other = run.path / "steps.parquet"
    text = sql.format(secret=secret, out=tmp_path / "out", other=other)
    asked = ask(read("SELECT name FROM device_intervals", KNOWN), [run])
    with asked as answer, pytest.raises(duckdb.Error):
        answer._database.execute(text).fetchall()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT name FROM device_intervals", [("kernel",)]),
        ("FROM device_intervals SELECT dur_ns;", [(5,)]),
        (" ; SELECT ';' -- ; a comment", [(";",)]),
        ("WITH Steps AS (SELECT 1 AS a) SELECT a FROM steps", [(1,)]),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
            [(1,), (2,), (3,)],
        ),
        ("WITH a AS (SELECT 1 AS n), b AS (SELECT * FROM a) SELECT x.n FROM (SELECT * FROM B) x, A", [(1,)]),
        ("WITH a AS (SELECT 1) SELECT (SELECT * FROM a) UNION ALL SELECT * FROM a", [(1,), (1,)]),
        ("WITH a AS (SELECT 1), b AS (WITH a AS (SELECT 2) SELECT * FROM a) FROM a, b", [(1, 2)]),
        ("VALUES (1), (2)", [(1,), (2,)]),
        ("SELECT unnest(range(2))", [(0,), (1,)]),
        ("SELECT count(*) FROM generate_series(9)", [(10,)]),
        ("SELECT column_name FROM (DESCRIBE steps) LIMIT 1", [("rank",)]),
        ("SELECT count FROM (SUMMARIZE SELECT dur_ns FROM device_intervals)", [(1,)]),
        ("SELECT count(*) FROM main.DEVICE_INTERVALS", [(1,)]),
        ("(SELECT 1) UNION ALL (SELECT 2)", [(1,), (2,)]),
    ],
)
def test_what_only_reads_is_answered(sql: str, rows: list[tuple[object, ...]], run: Run) -> None:
    assert outcome(sql, run) == rows


def test_only_the_tables_that_it_reads_are_opened() -> None:
    assert read("SELECT 1", KNOWN).tables == frozenset()
    assert read("SELECT * FROM Steps s JOIN runs USING (x)", KNOWN).tables == {"steps", "runs"}
    assert read("DESCRIBE", KNOWN).tables == set(KNOWN)
    shadowed = "WITH steps AS (SELECT 1) SELECT * FROM steps"
    assert read(shadowed, KNOWN).tables == frozenset()
    both = f"SELECT * FROM ({shadowed}), steps"  # noqa: S608
    assert read(both, KNOWN).tables == {"steps"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 3_000 + "1" + ")" * 3_000,
        "SELECT 1 FROM range(1)" + ", range(1)" * 3_000,
        "SELECT " + "NOT " * 3_000 + "true",
        "SELECT * FROM (" * 3_000 + "SELECT 1" + ")" * 3_000,
    ],
    ids=["parentheses", "joins", "operators", "subqueries"],
)
def test_deep_statements_are_refused_in_one_line(sql: str) -> None:
    with pytest.raises(UnusableInputError, match=r"^the query is nested too deeply"):
        read(sql, KNOWN)


@pytest.mark.parametrize("code", [0xD800, 0xDCFF])
def test_what_is_no_utf_8_is_refused_in_one_line(code: int) -> None:
    with pytest.raises(UnusableInputError, match="not valid UTF-8"):
        read(f"SELECT '{chr(code)}'", KNOWN)


def test_a_long_chain_of_unions_is_read() -> None:
    assert read(" UNION ALL ".join(["SELECT row_id FROM host_intervals"] * 1_500), KNOWN).tables == {
        "host_intervals"
    }
