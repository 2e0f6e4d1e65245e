"""Reading tables by column name: exact values, chunks of any size, damaged files."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.unit.ingest.nsys.exports import kernel, parquet, sqlite, tables
from tracekit.errors import UnusableInputError
from tracekit.ingest.nsys.parquet import ParquetTables
from tracekit.ingest.nsys.reader import open_tables
from tracekit.ingest.nsys.report import is_nsys
from tracekit.ingest.nsys.rows import NULL, Wanted, pid, tid
from tracekit.ingest.nsys.sqlite import SqliteTables

if TYPE_CHECKING:
    from pathlib import Path

LARGE = 9_007_199_254_740_993  # the first whole number that a float cannot hold
ROWS = [
    {"start": LARGE + number, "value": 0.5 * number, "text": None if number % 3 else f"t{number}"}
    for number in range(10)
]
WANTED = Wanted(integers=("start", "absent"), reals=("value",), texts=("text", "never"))


@pytest.mark.parametrize("size", [1, 3, 10, 100])
@pytest.mark.parametrize("form", ["sqlite", "parquet"])
def test_columns_are_exact_in_chunks_of_any_size(form: str, size: int, tmp_path: Path) -> None:
    made = tables(NVTX_EVENTS=ROWS)
    opened = (
        SqliteTables(sqlite(tmp_path / "x.sqlite", made), rows=size)
        if form == "sqlite"
        else ParquetTables(parquet(tmp_path / "x", made), rows=size)
    )
    chunks = list(opened.chunks("NVTX_EVENTS", WANTED))
    opened.close()
    assert [chunk.rows for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    start = np.concatenate([chunk.integers("start") for chunk in chunks])
    assert start.tolist() == [row["start"] for row in ROWS]
    assert all((chunk.integers("absent") == NULL).all() for chunk in chunks)
    assert [v for c in chunks for v in c.reals("value").tolist()] == [row["value"] for row in ROWS]
    assert [v for c in chunks for v in c.texts("text").to_pylist()] == [row["text"] for row in ROWS]
    assert all(chunk.texts("never").null_count == chunk.rows for chunk in chunks)


@pytest.mark.parametrize("form", ["sqlite", "parquet"])
def test_tables_and_columns_of_other_versions_are_found(form: str, tmp_path: Path) -> None:
    renamed = [{"startNs": row["start"], "VALUE": row["value"], "text": row["text"]} for row in ROWS]
    made = tables(NVTX_EVENTS_V2=renamed, OSRT_API_3=renamed[:1], OTHER_V2=renamed)
    path = (sqlite if form == "sqlite" else parquet)(tmp_path / "x", made)
    if form == "sqlite":
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE NVTX_EVENTS (start, value, text)")
    opened = SqliteTables(path) if form == "sqlite" else ParquetTables(path)
    (chunk,) = opened.chunks("NVTX_EVENTS", WANTED)
    assert chunk.integers("start").tolist() == [row["start"] for row in ROWS]
    assert chunk.reals("value").tolist() == [row["value"] for row in ROWS]
    assert opened.records("OSRT_API", ("start", "text")) == [{"start": LARGE, "text": "t0"}]
    assert {"NVTX_EVENTS", "OSRT_API", "OTHER_V2"} <= opened.names()
    opened.close()


def test_ids_of_processes_and_threads_are_parts_of_the_global_ones() -> None:
    """A global id has the machine above 24 bits of the process, and these above 24 bits of the thread."""
    machine, process, thread = 3 << 48, 4_242 << 24, 77
    ids = np.array([machine | process | thread, process | thread, NULL])
    assert pid(ids).tolist() == [4_242, 4_242, 0]
    assert tid(ids).tolist() == [77, 77, 0]


@pytest.mark.parametrize("value", ["a\x1fb", "", "naïve ☃", "line\nbreak", 12])
def test_unusual_texts_stay_with_their_rows(value: object, tmp_path: Path) -> None:
    made = tables(NVTX_EVENTS=[{"text": text} for text in (None, "x", value, None, "y")])
    opened = SqliteTables(sqlite(tmp_path / "x.sqlite", made))
    (chunk,) = opened.chunks("NVTX_EVENTS", WANTED)
    opened.close()
    assert chunk.texts("text").to_pylist() == [None, "x", str(value), None, "y"]


def test_null_is_not_zero(tmp_path: Path) -> None:
    made = tables(NVTX_EVENTS=[{"start": 0, "value": 0.0}, {"start": None, "value": None}])
    opened = SqliteTables(sqlite(tmp_path / "x.sqlite", made))
    (chunk,) = opened.chunks("NVTX_EVENTS", WANTED)
    opened.close()
    assert chunk.integers("start").tolist() == [0, NULL]
    assert math.isnan(chunk.reals("value")[1])
    assert chunk.reals("value")[0] == 0


def test_deleted_rows_are_skipped(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "x.sqlite", tables(NVTX_EVENTS=ROWS))
    with closing(sqlite3.connect(path)) as file:
        file.execute("DELETE FROM NVTX_EVENTS WHERE rowid IN (2, 3, 7)")
        file.commit()
    kept = [row for number, row in enumerate(ROWS, start=1) if number not in (2, 3, 7)]
    opened = SqliteTables(path, rows=4)
    chunks = list(opened.chunks("NVTX_EVENTS", WANTED))
    opened.close()
    assert [v for c in chunks for v in c.integers("start").tolist()] == [row["start"] for row in kept]
    assert [v for c in chunks for v in c.texts("text").to_pylist()] == [row["text"] for row in kept]


def test_invalid_utf8_is_repaired(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "x.sqlite", tables(NVTX_EVENTS=ROWS))
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE NVTX_EVENTS SET text = CAST(x'6162ff' AS TEXT) WHERE rowid = 1")
        file.commit()
    opened = SqliteTables(path)
    (chunk,) = opened.chunks("NVTX_EVENTS", WANTED)
    opened.close()
    assert chunk.texts("text")[0].as_py() == "ab\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_invalid_utf8_in_parquet_is_repaired(kind: str, dictionary: bool, tmp_path: Path) -> None:
    raw = pa.array([b"ab\xff", None, "☃".encode(), b"ab\xff"], pa.large_binary())
    unchecked = pc.CastOptions(getattr(pa, kind)(), allow_invalid_utf8=True)
    text = pc.cast(raw if "large" in kind else raw.cast(pa.binary()), options=unchecked)
    table = pa.table({"text": text.dictionary_encode() if dictionary else text})
    pq.write_table(table, tmp_path / "NVTX_EVENTS.parquet")
    opened = ParquetTables(tmp_path)
    (chunk,) = opened.chunks("NVTX_EVENTS", WANTED)
    repaired = ["ab�", None, "☃", "ab�"]
    assert chunk.texts("text").to_pylist() == repaired
    assert opened.records("NVTX_EVENTS", ["text", "more"]) == [
        {"text": text, "more": None} for text in repaired
    ]


@pytest.mark.filterwarnings("ignore:string or file could not be read")
@pytest.mark.parametrize("value", ["twelve", 1.5])
def test_times_that_are_not_integers_are_refused(value: object, tmp_path: Path) -> None:
    made = tables(KERNEL=[kernel(1, 2), kernel(3, 4) | {"start": value}, kernel(5, 6)])
    opened = SqliteTables(sqlite(tmp_path / "x.sqlite", made))
    with pytest.raises(UnusableInputError, match="damaged"):
        list(opened.chunks("CUPTI_ACTIVITY_KIND_KERNEL", Wanted(integers=("start",))))
    opened.close()


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "x.sqlite", tables(KERNEL=[kernel(i, i + 1) for i in range(5000)]))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UnusableInputError, match=r"x\.sqlite is damaged") as raised:
        list(SqliteTables(path).chunks("CUPTI_ACTIVITY_KIND_KERNEL", Wanted(integers=("start",))))
    assert "nsys export" in raised.value.hint


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "bookmarks.sqlite", {"moz_places": [{"url": "x"}]})
    assert is_nsys(path)
    with pytest.raises(UnusableInputError, match="not an export of Nsight Systems"):
        open_tables(path, tmp_path)


def test_an_export_is_not_modified(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "x.sqlite", tables(KERNEL=[kernel(1, 2)]))
    before = path.read_bytes()
    opened = SqliteTables(path)
    list(opened.chunks("CUPTI_ACTIVITY_KIND_KERNEL", Wanted(integers=("start",))))
    opened.close()
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.sqlite"]
