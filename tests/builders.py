"""Small runs and tables, made by hand for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.store import Store
from tracekit.schema import TABLES, C, DeviceKind, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

Row = dict[str, Any]

_DEFAULTS: Row = {
    C.RANK: 0,
    C.DEVICE: 0,
    C.PID: 1,
    C.TID: 1,
    C.DEPTH: 0,
    C.DUR_NS: 0,
    C.NAME: "unnamed",
}


def device(kind: str, start: int, end: int, **more: Any) -> Row:
    """One device interval of a kind, from its start to its end."""
    return {C.KIND: kind, C.START_NS: start, C.DUR_NS: end - start, C.NAME: kind, **more}


def kernel(start: int, end: int, **more: Any) -> Row:
    return device(DeviceKind.KERNEL, start, end, **more)


def memcpy(start: int, end: int, **more: Any) -> Row:
    return device(DeviceKind.MEMCPY, start, end, **more)


def memset(start: int, end: int, **more: Any) -> Row:
    return device(DeviceKind.MEMSET, start, end, **more)


def host(name: str, start: int, end: int, *, kind: str = HostKind.OP, **more: Any) -> Row:
    """One host interval, by default an op, from its start to its end."""
    return {C.KIND: kind, C.NAME: name, C.START_NS: start, C.DUR_NS: end - start, **more}


def step(number: int, start: int, end: int, **more: Any) -> Row:
    """One profiled step from its start to its end."""
    return {
        C.STEP: number,
        C.NAME: f"ProfilerStep#{number}",
        C.START_NS: start,
        C.DUR_NS: end - start,
        **more,
    }


def make_run(path: Path, *, meta: Row | None = None, **tables: list[Row]) -> Run:
    """A run with these rows by table name; `row_id` counts up in the order given unless it is set."""
    content: Row = {
        "run_id": "20261121T000000Z-made-by-hand-000000",
        "created_at": "2026-11-21T00:00:00Z",
        "t0_unix_ns": 0,
        "collector": Collector("test"),
        **(meta or {}),
    }
    with Store(path).draft() as draft:
        for name, rows in tables.items():
            pq.write_table(_arrow(name, rows), draft.path / f"{name}.parquet")
        return draft.commit(RunMeta(**content))


def _arrow(name: str, rows: list[Row]) -> pa.Table:
    schema = TABLES[name].arrow
    full = [{C.ROW_ID: number, **_DEFAULTS, **row} for number, row in enumerate(rows)]
    full.sort(key=lambda row: int(row.get(C.START_NS, row.get(C.T_NS, 0))))
    return pa.Table.from_pylist(full, schema=schema)
