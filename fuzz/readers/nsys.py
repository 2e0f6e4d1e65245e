"""Exports of Nsight Systems: SQLite files and folders of Parquet tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.case import Case
from fuzz.checks import check_decoding, check_import
from fuzz.damage import damage
from fuzz.edge_values import SQL
from samples.simulator import nsys
from samples.simulator.examples import training
from tracekit.ingest.nsys import reader
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from random import Random

Rows = dict[str, list[dict[str, Any]]]
"""Rows by table."""

_WORDS = (b"CREATE TABLE", b"SQLite format 3\0", b"PAR1", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"NULL", b"'")
_SCRIPTS = (
    "ALTER TABLE {t} RENAME TO old; CREATE VIEW {t} AS SELECT * FROM old",
    "CREATE TRIGGER pulled AFTER INSERT ON {t} BEGIN DELETE FROM {t}; END",
    "CREATE INDEX unusual ON {t} (start, hex(start))",
    "ALTER TABLE {t} ADD COLUMN more AS (hex(zeroblob(1000000)))",
    "ALTER TABLE {t} ADD COLUMN graphId AS (length(hex(zeroblob(1000000))))",
    "DROP TABLE {t}; CREATE TABLE {t} (start INTEGER PRIMARY KEY, end, globalTid, nameId) WITHOUT ROWID",
    "DROP TABLE {t}; CREATE VIRTUAL TABLE {t} USING fts5(start, end, text)",
    "DROP TABLE {t}; CREATE VIRTUAL TABLE {t} USING rtree(id, start, end)",
    "PRAGMA encoding = 'UTF-16'",
    "DROP TABLE {t}",
    "ALTER TABLE {t} RENAME TO {t}_V2",
    "CREATE TABLE {t}_V3 AS SELECT * FROM {t}",
    "CREATE TABLE UNKNOWN_EVENTS AS SELECT * FROM {t}",
    "DELETE FROM {t}",
    'ALTER TABLE {t} RENAME TO "name \x1b[2J"',
    "UPDATE {t} SET rowid = 9223372036854775807 WHERE rowid = 1",
    "UPDATE {t} SET rowid = -rowid",
)
"""Schema changes that a database may contain."""
_ROWS = (1, 3, 10)
_SHARES = (0.15, 0.3, 0.7)
"""Shares of the tables that an export has; each costs a millisecond."""
IMPORTED = 0.1
"""Share of the inputs that are imported; the others are only decoded."""


@cache
def _tables() -> tuple[dict[str, str], Rows]:
    """CREATE statements and rows of a simulated export."""
    with (
        TemporaryDirectory() as folder,
        closing(sqlite3.connect(nsys.write(training(), Path(folder) / "x"))) as file,
    ):
        file.row_factory = sqlite3.Row
        made = dict(file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        rows = {table: [dict(row) for row in file.execute(f"SELECT * FROM {table}")] for table in made}
    return {**made, **_EXTRA_TABLES}, {**rows, **_EXTRA_ROWS}


_EXTRA_TABLES = {
    "DIAGNOSTIC_EVENT": "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT)",
    "MPI_RANKS": "CREATE TABLE MPI_RANKS (globalPid INTEGER, rank INTEGER)",
    "ANALYSIS_DETAILS": "CREATE TABLE ANALYSIS_DETAILS (duration INTEGER)",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, "
    "end INTEGER, deviceId INTEGER, streamId INTEGER, globalPid INTEGER, syncType INTEGER)",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, "
    "globalPid INTEGER, deviceId INTEGER, address INTEGER, bytes INTEGER, memKind INTEGER, "
    "memoryOperationType INTEGER)",
    "GPU_METRICS": "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, "
    "value REAL)",
    "TARGET_INFO_GPU_METRICS": "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, "
    "metricName TEXT)",
    "TARGET_INFO_SYSTEM_ENV": "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)",
}
_EXTRA_ROWS: Rows = {
    "DIAGNOSTIC_EVENT": [{"timestamp": 1, "severity": 2, "text": "CUDA: some events were lost"}],
    "MPI_RANKS": [{"globalPid": nsys.GLOBAL_PID, "rank": 1}, {"globalPid": 1 << 24, "rank": 0}],
    "ANALYSIS_DETAILS": [{"duration": 1_000_000}],
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
        {"start": 5, "end": 90, "deviceId": 0, "streamId": 7, "globalPid": nsys.GLOBAL_PID, "syncType": 3}
    ],
    "CUDA_GPU_MEMORY_USAGE_EVENTS": [
        {
            "start": 7,
            "globalPid": nsys.GLOBAL_PID,
            "deviceId": 0,
            "address": 4096,
            "bytes": 64,
            "memKind": 2,
            "memoryOperationType": n,
        }
        for n in (0, 1)
    ],
    "GPU_METRICS": [{"timestamp": 9, "typeId": 1 << 8, "metricId": 3, "value": 0.5}],
    "TARGET_INFO_GPU_METRICS": [{"typeId": 1 << 8, "metricId": 3, "metricName": "SMs Active [Throughput %]"}],
    "TARGET_INFO_SYSTEM_ENV": [{"name": "NvDriverVersion", "value": "560.1"}],
}


def make(random: Random) -> Case:
    """Make an export with damaged values, tables or bytes."""
    made = _sqlite(random) if random.random() < 0.7 else _parquet(random)
    return replace(made, words=("imported",)) if random.random() < IMPORTED else made


def read(case: Case, folder: Path) -> bool:
    """Import the export, or only decode its tables."""
    path = case.write(folder)
    if case.words:
        return check_import(path, Store(folder / "store"))
    return check_decoding(lambda spool: reader.read(path, spool, lambda _done: None), folder)


def _chosen(random: Random) -> tuple[dict[str, str], Rows]:
    """Choose tables and rows, with a few edge values."""
    made, rows = _tables()
    share = random.choice(_SHARES)
    names = [name for name in made if random.random() < share] or ["StringIds"]
    count = random.choice(_ROWS)
    chosen = {name: [dict(row) for row in rows[name][:count]] for name in names}
    for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
        table = chosen[random.choice(names)]
        if table:
            row = random.choice(table)
            row[random.choice(list(row))] = random.choice(SQL)
    return {name: made[name] for name in names}, chosen


def _sqlite(random: Random) -> Case:
    made, rows = _chosen(random)
    with closing(sqlite3.connect(":memory:")) as file:
        for table, statement in made.items():
            file.execute(_untyped(random, statement))
            for row in rows[table]:
                file.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
        file.commit()
        if random.random() < 0.2:
            script = random.choice(_SCRIPTS).format(t=random.choice(list(made)))
            with suppress(sqlite3.Error):
                file.executescript(script)
        file.commit()
        content = file.serialize()
    if random.random() < 0.3:
        content = damage(random, content, _WORDS)
    return Case(files={"run.sqlite": content}, main="run.sqlite")


def _untyped(random: Random, statement: str) -> str:
    """Remove a type from a statement, or rename a column."""
    if random.random() < 0.7:
        return statement
    return statement.replace(
        *random.choice(((" INTEGER", ""), (" TEXT", " BLOB"), ("start", "begin"), ("end", "e")))
    )


def _parquet(random: Random) -> Case:
    _, rows = _chosen(random)
    files = {}
    hit = random.choice(list(rows))
    for name, found in rows.items():
        content = _file(random, found, changed=name == hit)
        if name == hit and random.random() < 0.3:
            content = damage(random, content, _WORDS)
        files[f"tables/{name}.parquet"] = content
    return Case(files=files, main="tables")


def _file(random: Random, rows: list[dict[str, Any]], *, changed: bool) -> bytes:
    table = _arrow(rows)
    if changed and table.num_columns and random.random() < 0.7:
        at = random.randrange(table.num_columns)
        values = table.column(at).to_pylist()
        table = table.set_column(at, table.column_names[at], random.choice(_TYPES)(values))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=random.choice(("none", "snappy", "zstd")))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {name: _plain([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    return pa.table(columns)


def _plain(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([str(value).encode("utf-8", "replace") for value in values])


_TYPES = (
    lambda values: pa.array([str(value).encode() for value in values]),
    lambda values: pa.array([str(value).encode("utf-8") for value in values]).dictionary_encode(),
    lambda values: pa.nulls(len(values)),
    lambda values: pa.nulls(len(values), pa.int64()),
    lambda values: pa.array([[1, None]] * len(values)),
    lambda values: pa.array([{"a": 1}] * len(values)),
    lambda values: pa.array([True] * len(values)),
    lambda values: pa.array([1 << 63] * len(values), pa.uint64()),
    lambda values: pa.array([float("nan")] * len(values)),
    lambda values: pa.array([1e300] * len(values)),
    lambda values: pa.array([2**40] * len(values), pa.timestamp("ns")),
    lambda values: pa.array([7] * len(values), pa.decimal128(38, 3)),
    lambda values: pa.array([b"\xff"] * len(values), pa.binary(1)),
    lambda values: pa.array([-1] * len(values), pa.int8()),
    lambda values: pa.array(["x\x1b[2J"] * len(values), pa.large_string()),
    lambda values: pa.array([3] * len(values), pa.date32()),
)
