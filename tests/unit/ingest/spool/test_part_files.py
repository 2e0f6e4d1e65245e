"""Spooled parts: rows read back, with nulls in any part."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ingest.arrow import to_batch
from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.part_files import RowRange, SpooledTable
from tracekit.ingest.spool.rows import Batch, Column, Rows, concatenate_batches, concatenate_rows

Row = dict[str, Any]
KINDS = {
    "t_ns": pa.int64(),
    "number": pa.int64(),
    "real": pa.float64(),
    "word": pa.string(),
    "index": pa.int32(),
}

row = st.fixed_dictionaries(
    {
        "t_ns": st.integers(-9, 9),
        "number": st.none() | st.sampled_from([0, -1, 2**63 - 1, -(2**63)]),
        "real": st.none() | st.floats(allow_nan=False),
        "word": st.none() | st.sampled_from(["", "a", "é", "\x00"]),
        "index": st.none() | st.integers(-1, 3),
    }
)
chunks = st.lists(st.lists(row, min_size=1, max_size=9), min_size=1, max_size=4)


def batch(rows: list[Row]) -> Batch:
    columns = {name: pa.array([each[name] for each in rows], kind) for name, kind in KINDS.items()}
    return to_batch(pa.RecordBatch.from_pydict({**columns, "word": columns["word"].dictionary_encode()}))


def as_given(rows: Rows, texts: dict[str, list[str]]) -> list[Row]:
    """Rows as they were given."""
    nothing = Column(np.full(rows.count, -1), np.ones(rows.count, np.bool_))
    columns = {name: rows.columns.get(name, nothing) for name in KINDS}
    return [
        {name: _value(column, place, texts.get(name)) for name, column in columns.items()}
        for place in range(rows.count)
    ]


def _value(column: Column, place: int, texts: list[str] | None) -> Any:
    value, missing = column.values[place].item(), column.missing
    if texts is not None:
        return texts[value] if value >= 0 else None
    return None if missing is not None and missing[place] else value


def by_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda each: each["t_ns"])


@given(chunks, st.data())
def test_any_spans_of_parts_read_back(held: list[list[Row]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(held):
            part_files.write_batches(Path(folder), number, {"table": batch(rows)})
        table = SpooledTable(Path(folder), "table")
        bounds = [sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2))) for rows in held]
        spans = [RowRange(part=part, first=first, stop=stop) for part, (first, stop) in enumerate(bounds)]
        found = table.read(spans, list(KINDS))
        expected = [
            each
            for rows, (first, stop) in zip(held, bounds, strict=True)
            for each in by_time(rows)[first:stop]
        ]
        assert as_given(found, {name: each.values for name, each in table.texts.items()}) == expected
        assert [part.rows for part in table.extents] == [len(rows) for rows in held]
        assert [part.first for part in table.extents] == [by_time(rows)[0]["t_ns"] for rows in held]
        assert [part.last for part in table.extents] == [by_time(rows)[-1]["t_ns"] for rows in held]


@given(chunks, st.data())
def test_rows_are_concatenated_and_selected(held: list[list[Row]], data: st.DataObject) -> None:
    whole = concatenate_batches([batch(rows) for rows in held])
    flat = [each for rows in held for each in rows]
    texts = {name: [value.decode() for value in values] for name, values in whole.texts.items()}
    assert as_given(whole.rows, texts) == flat
    places = data.draw(st.lists(st.integers(0, len(flat) - 1), max_size=9))
    taken = whole.rows.take(np.array(places, np.int64))
    assert as_given(taken, texts) == [flat[place] for place in places]
    assert as_given(concatenate_rows([taken, taken]), texts) == 2 * [flat[place] for place in places]


def test_a_truncated_part_is_an_error(tmp_path: Path) -> None:
    part_files.write_batches(tmp_path, 0, {"table": batch([{**dict.fromkeys(KINDS), "t_ns": 5}])})
    table = SpooledTable(tmp_path, "table")
    assert table.times(0).tolist() == [5]
    (part,) = tmp_path.glob("*.rows")
    part.write_bytes(part.read_bytes()[:4])
    with pytest.raises(OSError, match="cut off") as raised:
        table.times(0)
    assert raised.value.errno == errno.EIO


def test_clearing_and_discarding_delete_parts(tmp_path: Path) -> None:
    for number in range(3):
        part_files.write_batches(
            tmp_path, number, {"table": batch([{**dict.fromkeys(KINDS), "t_ns": number}])}
        )
    part_files.discard(tmp_path, 1)
    assert [part.first for part in SpooledTable(tmp_path, "table").extents] == [0, 2]
    part_files.clear(tmp_path)
    assert not list(tmp_path.glob("*.rows"))


def test_a_later_part_of_the_same_number_replaces_the_earlier(tmp_path: Path) -> None:
    for time in (5, 7):
        part_files.write_batches(tmp_path, 0, {"table": batch([{**dict.fromkeys(KINDS), "t_ns": time}])})
    assert SpooledTable(tmp_path, "table").times(0).tolist() == [7]
