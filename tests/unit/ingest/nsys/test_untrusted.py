"""Exports of unknown origin: only plain tables are read, within limits."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.ingest.nsys.exports import imported, kernel, levels, parquet, sqlite, tables
from tracekit.errors import UnusableInputError
from tracekit.ingest.nsys import sqlite as sqlite_module
from tracekit.ingest.nsys.rows import FEW_ROWS, Wanted
from tracekit.ingest.nsys.sqlite import SqliteTables
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def changed(path: Path, script: str) -> Path:
    """An export of two kernels, and what a script does to it."""
    sqlite(path, tables(KERNEL=[kernel(10, 20), kernel(30, 45)]))
    with closing(sqlite3.connect(path)) as file:
        file.executescript(script)
    return path


@pytest.mark.parametrize(
    "script",
    [
        "CREATE VIEW NVTX_EVENTS AS SELECT 1 AS start",
        "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start)",
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start FROM n) "
        "SELECT * FROM n",
    ],
)
def test_only_stored_tables_are_visible(script: str, store: Store, tmp_path: Path) -> None:
    path = changed(tmp_path / "run.sqlite", script)
    with closing(SqliteTables(path)) as found:
        assert "NVTX_EVENTS" not in found.names()
        assert found.columns("NVTX_EVENTS") == frozenset()
    assert imported(store, path).rows("device_intervals") == 3  # two kernels and the gap between them


def test_computed_columns_are_not_read(store: Store, tmp_path: Path) -> None:
    script = f"ALTER TABLE {KERNEL} ADD COLUMN graphId AS (length(hex(zeroblob(400000000))))"
    run = imported(store, changed(tmp_path / "run.sqlite", script))
    assert run.arrow("device_intervals", columns=[C.GRAPH_ID])[C.GRAPH_ID].null_count == 3


def test_only_the_first_rows_about_the_capture_are_read(tmp_path: Path) -> None:
    rows = "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('name', 'value');" * (FEW_ROWS + 9)
    path = changed(tmp_path / "run.sqlite", f"CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value); {rows}")
    with closing(SqliteTables(path)) as found:
        assert len(found.records("TARGET_INFO_SYSTEM_ENV", ("name", "value"))) == FEW_ROWS


@pytest.mark.parametrize("value", ["'soon'", "x'ff00'", "1e300", "NULL"])
def test_values_of_wrong_types_about_the_capture_are_missing(
    value: str, store: Store, tmp_path: Path
) -> None:
    script = """
        UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = @;
        CREATE TABLE TARGET_INFO_GPU (id, name, smCount);
        INSERT INTO TARGET_INFO_GPU VALUES (@, @, @);
    """
    run = imported(store, changed(tmp_path / "run.sqlite", script.replace("@", value)))
    assert run.rows("device_intervals") == 3  # two kernels and the gap between them
    assert run.meta.environment.get("gpus", []) == [] or "sm_count" not in run.meta.environment["gpus"][0]


@pytest.mark.parametrize(
    "question",
    [
        "ATTACH '/tmp/other.sqlite' AS other",
        "SELECT load_extension('x')",
        "SELECT hex(randomblob(10))",
        "PRAGMA journal_mode = WAL",
        "PRAGMA trusted_schema = ON",
        "CREATE TEMP TABLE x (y)",
        "DELETE FROM StringIds",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT * FROM n",
    ],
)
def test_only_select_statements_are_allowed(question: str, tmp_path: Path) -> None:
    path = changed(tmp_path / "run.sqlite", "")
    with (
        closing(sqlite_module.open_database(path)) as file,
        pytest.raises(sqlite3.Error, match=r"authorized|prohibited"),
    ):
        file.execute(question).fetchone()


def test_a_query_with_too_many_steps_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sqlite(tmp_path / "run.sqlite", tables(KERNEL=[kernel(n, n + 1) for n in range(30_000)]))
    monkeypatch.setattr(sqlite_module, "_STEPS", 1_000)
    monkeypatch.setattr(sqlite_module, "MAX_STEPS", 100_000)
    with closing(SqliteTables(path)) as found, pytest.raises(UnusableInputError, match="interrupted"):
        list(found.chunks(KERNEL, Wanted(integers=("start", "end", "gridX", "gridY"))))


def test_long_texts_are_read_in_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": number, "value": f"{number} " * 200} for number in range(500)]
    path = sqlite(tmp_path / "run.sqlite", {"StringIds": rows})
    monkeypatch.setattr(sqlite_module, "MAX_VALUE_BYTES", 60_000)
    with closing(SqliteTables(path)) as found:
        chunks = list(found.chunks("StringIds", Wanted(integers=("id",), texts=("value",))))
    assert len(chunks) > 1
    texts = [text for chunk in chunks for text in chunk.texts("value").to_pylist()]
    assert texts == [row["value"] for row in rows]


def test_a_file_name_that_is_not_utf_8_is_opened(store: Store, tmp_path: Path) -> None:
    path = changed(tmp_path / "run.sqlite", "")
    renamed = tmp_path / os.fsdecode(b"r\xff?un%41#.sqlite")
    path.rename(renamed)
    assert imported(store, renamed).rows("device_intervals") == 3


def test_rows_without_a_usable_time_are_dropped_and_counted(store: Store, tmp_path: Path) -> None:
    far = (1 << 63) - 1
    rows = [kernel(10, 20), kernel(far, far), kernel(-far, 5), kernel(30, far)]
    run = imported(store, sqlite(tmp_path / "run.sqlite", tables(KERNEL=rows)))
    assert levels(run)["bad_timestamp"] == "warn"
    found = run.arrow("device_intervals", columns=[C.START_NS, C.DUR_NS]).to_pydict()
    assert found == {C.START_NS: [0, 10, 20], C.DUR_NS: [10, 10, 0]}


def test_instants_before_the_capture_are_dropped_and_counted(store: Store, tmp_path: Path) -> None:
    far = (1 << 61) - 1
    allocations = [{"start": start, "bytes": 512, "deviceId": 0} for start in (-far, -1, 0, far)]
    samples = [{"timestamp": time, "typeId": 1, "metricId": 1, "value": 5.0} for time in (-far, far)]
    found = tables(KERNEL=[kernel(far - 20, far - 10)])
    found |= {"CUDA_GPU_MEMORY_USAGE_EVENTS": allocations, "GPU_METRICS": samples}
    run = imported(store, sqlite(tmp_path / "run.sqlite", found))
    assert levels(run)["bad_timestamp"] == "warn"
    assert run.arrow("allocations")[C.T_NS].to_pylist() == [20 - far, 20]
    assert run.arrow("counters")[C.T_NS].to_pylist() == [20]


def test_a_pipe_among_parquet_tables_does_not_block(store: Store, tmp_path: Path) -> None:
    path = parquet(tmp_path / "tables", tables(KERNEL=[kernel(10, 20)]))
    os.mkfifo(path / "NVTX_EVENTS.parquet")
    assert imported(store, path).rows("device_intervals") == 1


def test_a_parquet_file_with_implausibly_many_rows_is_refused(store: Store, tmp_path: Path) -> None:
    path = parquet(tmp_path / "tables", tables(KERNEL=[kernel(10, 20)]))
    zeros = pa.array(np.zeros(10_000_001, np.int64))
    pq.write_table(pa.table({"start": zeros}), path / "NVTX_EVENTS.parquet")
    with pytest.raises(UnusableInputError, match=r"10000001 rows in \d+ bytes: no recording has so many"):
        imported(store, path)


def test_an_implausibly_large_row_group_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "tables", tables(KERNEL=[kernel(10, 20)]))
    zeros = pa.table({"start": pa.array(np.zeros(200_000, np.int64))})
    pq.write_table(zeros, path / "NVTX_EVENTS.parquet", use_dictionary=False)
    assert imported(store, path).rows("device_intervals") == 1
    monkeypatch.setattr("tracekit.ingest.nsys.parquet.MAX_GROUP_BYTES", 10_000)
    with pytest.raises(
        UnusableInputError, match=r"NVTX_EVENTS\.parquet is damaged: row group 0 unpacks to over"
    ):
        imported(store, path)


def test_more_rows_than_declared_in_a_parquet_file_are_refused(store: Store, tmp_path: Path) -> None:
    path = parquet(tmp_path / "tables", tables(KERNEL=[kernel(n, n + 1) for n in range(10)]))
    file = path / f"{KERNEL}.parquet"
    said = b"\x16\x14\x19"  # field num_rows of the footer: 10, zigzag; the row groups follow
    assert file.read_bytes().count(said) == 1
    file.write_bytes(file.read_bytes().replace(said, b"\x16\x12\x19"))
    assert pq.read_metadata(file).num_rows == 9
    with pytest.raises(UnusableInputError, match=r"more than the 9 rows that it says it has"):
        imported(store, path)
