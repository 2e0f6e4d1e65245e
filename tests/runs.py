"""Hand-made runs in a store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.runs import meta as run_meta
from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.run import Run
from tracekit.runs.store import new_run_id, timestamp
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

START = datetime(2026, 11, 21, 3, 15, tzinfo=UTC)


def step_rows(*starts: int) -> list[dict[str, Any]]:
    return [
        {C.RANK: 0, C.STEP: number, C.NAME: f"step {number}", C.START_NS: start, C.DUR_NS: 10}
        for number, start in enumerate(starts)
    ]


def write_table(directory: Path, name: str, rows: list[dict[str, Any]], *, part: str = "") -> None:
    file = directory / name / part if part else directory / f"{name}.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[name].arrow), file)


def make_meta(*, after_s: int = 0, name: str = "resnet50-train", **fields: Any) -> RunMeta:
    created = START + timedelta(seconds=after_s)
    defaults: dict[str, Any] = {
        "run_id": new_run_id(name, now=created),
        "created_at": timestamp(created),
        "t0_unix_ns": 1_763_694_900_000_000_000,
        "collector": Collector("torch", "2.13.0"),
    }
    return RunMeta(**defaults | fields)


def make_run(
    store: Store, *, tables: dict[str, list[dict[str, Any]]] | None = None, after_s: int = 0, **fields: Any
) -> Run:
    with store.draft() as draft:
        for name, rows in (tables or {"steps": step_rows(0, 20)}).items():
            write_table(draft.path, name, rows)
        return draft.commit(make_meta(after_s=after_s, **fields))


def of_old(run: Run) -> Run:
    """The run as versions before stored it: nothing is known of its footers."""
    tables = {name: replace(stored, footers={}) for name, stored in run.meta.tables.items()}
    run_meta.write(run.path, replace(run.meta, tables=tables))
    return Run(run.path)
