"""Parquet files: row groups, statistics, exact numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.unit.ingest.arrow import to_batch
from tracekit.ingest import write
from tracekit.ingest.spool.rows import Column, Rows
from tracekit.ingest.write import TableFile
from tracekit.schema import ALLOCATIONS, COUNTERS, STEPS, C

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def events(times: list[int], **columns: list[int | None]) -> Rows:
    given = {C.T_NS: times, C.DEVICE: [0] * len(times), C.BYTES: [1] * len(times), **columns}
    return to_batch(
        pa.RecordBatch.from_pydict({name: pa.array(values, pa.int64()) for name, values in given.items()})
    ).rows


def written(path: Path, pieces: list[Rows]) -> pq.ParquetFile:
    with TableFile(ALLOCATIONS, path, stored=[*pieces[0].columns], values={}, zero_ns=0) as file:
        for rows in pieces:
            file.add(rows, {C.RANK: np.zeros(rows.count, np.int64)})
    return pq.ParquetFile(path)


def test_row_groups_are_full_for_any_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ROW_GROUP", 10)
    time = list(range(37))
    one = written(tmp_path / "one.parquet", [events(time)])
    many = written(tmp_path / "many.parquet", [events(time[first : first + 4]) for first in range(0, 37, 4)])
    groups = [one.metadata.row_group(number) for number in range(one.metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [10, 10, 10, 7]
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "many.parquet").read_bytes()
    assert many.read().column(C.T_NS).to_pylist() == time


def test_a_time_window_can_prune_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ROW_GROUP", 10)
    file = written(tmp_path / "t.parquet", [events(list(range(20)))])
    place = file.schema_arrow.names.index(C.T_NS)
    bounds = [file.metadata.row_group(number).column(place).statistics for number in range(2)]
    assert [(bound.min, bound.max) for bound in bounds] == [(0, 9), (10, 19)]


def test_extreme_64_bit_integers_are_stored_exactly(tmp_path: Path) -> None:
    ends = [-(2**63), 2**63 - 1, None, -1, 0, 2**63 - 1, -(2**63)]
    rows = events([-(2**63), -(2**63), 0, 1, 2**53 + 1, 2**63 - 1, 2**63 - 1], **{C.ADDRESS: ends})
    found = written(tmp_path / "t.parquet", [rows]).read()
    assert found.column(C.ADDRESS).to_pylist() == ends
    assert found.column(C.T_NS).to_pylist() == rows.integers(C.T_NS).tolist()


def test_columns_that_no_row_has_are_not_in_the_file(tmp_path: Path) -> None:
    found = written(tmp_path / "t.parquet", [events([1, 2])])
    required = [column.name for column in ALLOCATIONS.columns if not column.nullable]
    assert found.schema_arrow.names == [
        *(name for name in ALLOCATIONS.arrow.names if name in (*required, C.DEVICE, C.BYTES))
    ]
    assert found.schema_arrow.metadata == ALLOCATIONS.arrow.metadata
    assert not ALLOCATIONS.unfit(found.schema_arrow)


def test_text_is_stored_once_per_row_group(tmp_path: Path) -> None:
    values = [b"a", b"b", b"unused"]
    codes = Column(np.array([1, 0, 1]))
    rows = Rows(
        count=3,
        columns={
            C.T_NS: Column(np.array([1, 2, 3])),
            C.SOURCE: codes,
            C.METRIC: codes,
            C.UNIT: codes,
            C.VALUE: Column(np.array([0.5, 1.5, 2.5])),
        },
    )
    texts = dict.fromkeys((C.SOURCE, C.METRIC, C.UNIT), values)
    path = tmp_path / "parts" / "t.parquet"
    with TableFile(COUNTERS, path, stored=rows.columns, values=texts, zero_ns=1) as file:
        file.add(rows, {})
    found = pq.read_table(path)
    assert found.column(C.METRIC).to_pylist() == ["b", "a", "b"]
    assert found.column(C.T_NS).to_pylist() == [0, 1, 2]


def test_a_row_group_stores_only_its_own_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ROW_GROUP", 2)
    names = [f"ProfilerStep#{number}" for number in range(5)]
    columns = dict.fromkeys((C.RANK, C.STEP, C.START_NS, C.DUR_NS), range(5))
    columns |= {name: [None] * 5 for name in STEPS.arrow.names if name not in columns}
    columns |= {C.NAME: write.distinct_texts([name.encode() for name in names])}
    table = pa.table({name: columns[name] for name in STEPS.arrow.names}, STEPS.arrow)
    write.write_table(table, STEPS, tmp_path / "t.parquet")
    file = pq.ParquetFile(tmp_path / "t.parquet")
    groups = [file.read_row_group(number)[C.NAME].chunk(0) for number in range(3)]
    assert [group.dictionary.to_pylist() for group in groups] == [names[:2], names[2:4], names[4:]]
    assert file.read()[C.NAME].to_pylist() == names


def test_a_table_without_rows_has_no_file(tmp_path: Path) -> None:
    path = tmp_path / "parts" / "t.parquet"
    with TableFile(ALLOCATIONS, path, stored=(), values={}, zero_ns=0) as file:
        file.add(events([]), {C.RANK: np.zeros(0, np.int64)})
    assert list(tmp_path.iterdir()) == []
