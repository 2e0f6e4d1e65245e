"""Builders of small exports of Nsight Systems."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.ingest.importer import import_traces

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

Row = dict[str, Any]
START_NS = 1_760_000_000_123_456_789
PROCESS = (1 << 48) | (4242 << 24)
OTHER = (1 << 48) | (4243 << 24)
NAMES = {
    1: "kernel_a(int*)",
    2: "kernel_a",
    3: "cudaLaunchKernel_v7000",
    4: "poll",
    5: "cudaStreamSynchronize",
}


def kernel(start: int, end: int, *, correlation: int = 0, process: int = PROCESS, **more: Any) -> Row:
    return {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "globalPid": process,
        "correlationId": correlation,
        "demangledName": 1,
        "shortName": 2,
        "gridX": 8,
        "gridY": 2,
        "gridZ": 1,
        "blockX": 64,
        "blockY": 1,
        "blockZ": 1,
        "registersPerThread": 32,
        "staticSharedMemory": 16,
        "dynamicSharedMemory": 1024,
        **more,
    }


def copy(start: int, end: int, *, kind: int, source: int, target: int, size: int = 8) -> Row:
    return {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "globalPid": PROCESS,
        "correlationId": 0,
        "bytes": size,
        "copyKind": kind,
        "srcKind": source,
        "dstKind": target,
    }


def call(start: int, end: int, *, correlation: int = 0, process: int = PROCESS, name: int = 3) -> Row:
    return {
        "start": start,
        "end": end,
        "globalTid": process | 77,
        "correlationId": correlation,
        "nameId": name,
    }


def nvtx(text: str | None, start: int, end: int | None, *, kind: int = 59, text_id: int | None = None) -> Row:
    return {
        "start": start,
        "end": end,
        "eventType": kind,
        "text": text,
        "textId": text_id,
        "globalTid": PROCESS | 77,
    }


def tables(**rows: list[Row]) -> dict[str, list[Row]]:
    """Tables of an export by name without their vendor's prefix; texts and the start are always there."""
    found = {
        "StringIds": [{"id": number, "value": text} for number, text in NAMES.items()],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": START_NS}],
    }
    prefixed = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "GRAPH_TRACE", "OVERHEAD")
    return found | {
        f"CUPTI_ACTIVITY_KIND_{name}" if name in prefixed else name: some for name, some in rows.items()
    }


def sqlite(path: Path, made: dict[str, list[Row]]) -> Path:
    """Write them as one file."""
    with closing(sqlite3.connect(path)) as file:
        for table, rows in made.items():
            names = ", ".join(f'"{name}"' for name in rows[0])
            file.execute(f"CREATE TABLE {table} ({names})")
            holes = ", ".join("?" * len(rows[0]))
            file.executemany(f"INSERT INTO {table} VALUES ({holes})", [tuple(row.values()) for row in rows])  # noqa: S608
        file.commit()
    return path


def parquet(path: Path, made: dict[str, list[Row]]) -> Path:
    """Write them as a folder with a file for each."""
    path.mkdir()
    for table, rows in made.items():
        pq.write_table(pa.Table.from_pylist(rows), path / f"{table}.parquet")
    return path


def imported(store: Store, path: Path) -> Run:
    (run,) = import_traces(store, [path])
    return run


def levels(run: Run) -> dict[str, str]:
    """Level of each diagnostic by its code."""
    return {found.code: str(found.level) for found in run.meta.diagnostics}
