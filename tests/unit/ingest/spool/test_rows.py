"""Rows in memory: conversions to and from Arrow, and sorting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.simulator import Program, write
from tracekit.ingest.spool import rows as rows_module
from tracekit.ingest.spool.rows import sorted_positions

SAMPLE = Path(__file__).parents[4] / "samples/simulated/training.json.gz"

integers = st.integers(-(2**40), 2**40)
rows = st.lists(st.none() | integers, max_size=40)


def sliced(values: list[Any], kind: pa.DataType, data: st.DataObject) -> pa.Array:
    """An array of these values that begins somewhere in its memory."""
    before = data.draw(st.integers(0, 9))
    return pa.array([values[0] if values else 0] * before + values, kind).slice(before)


@given(rows, st.data())
def test_numbers_round_trip_through_arrow(values: list[int | None], data: st.DataObject) -> None:
    array = sliced(values, pa.int64(), data)
    assert rows_module.fill_nulls(array, -7).tolist() == [-7 if value is None else value for value in values]
    nulls = rows_module.nulls_of(array)
    held = rows_module.numbers(rows_module.values_of(array), nulls)
    assert held.to_pylist() == values
    assert held.null_count == array.null_count
    assert (nulls is None) == (None not in values)


@given(rows, st.sampled_from([pa.int8(), pa.int32(), pa.int64()]))
def test_integers_are_cast_as_arrow_does(values: list[int | None], kind: pa.DataType) -> None:
    array = pa.array(values, pa.int64())
    try:
        expected = array.cast(kind)
    except pa.ArrowInvalid:
        with pytest.raises(pa.ArrowInvalid):
            rows_module.cast_integers(array, kind)
    else:
        assert rows_module.cast_integers(array, kind).equals(expected)


@given(st.lists(st.text(max_size=5), max_size=30))
def test_strings_round_trip_through_arrow(values: list[str]) -> None:
    array = rows_module.strings([value.encode() for value in values])
    array.validate(full=True)
    assert array.to_pylist() == values


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("decoder", ["native.load()", "native.is_compiled = lambda: False"])
def test_an_import_does_not_load_pandas_or_arrow_compute(tmp_path: Path, decoder: str) -> None:
    """With the compiled decoder, and with the reference; of a training run, and of an inference server."""
    server = Program()
    with server.annotation("step[DECODE bs=4]"):
        server.kernel("gemm", 1_000)
    traces = [str(SAMPLE), str(write(server, tmp_path / "server.json"))]
    program = f"""
import sys
from pathlib import Path
from tracekit.ingest.importer import import_traces
from tracekit.ingest.kineto.scan import native
from tracekit.runs.store import Store
{decoder}
import_traces(Store(Path({str(tmp_path / "store")!r})), [Path(each) for each in {traces!r}])
print(*sorted({{"pandas", "pyarrow.compute", "pyarrow.dataset"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))))
def test_rows_are_sorted_by_all_keys(rows: list[tuple[int, int, int]]) -> None:
    keys = np.array(rows, np.int64).reshape(-1, 3)
    order = sorted_positions(keys[:, 0], lambda: keys[:, 1], lambda: keys[:, 2])
    assert [rows[position] for position in order] == sorted(rows)


def test_ties_are_sorted_by_the_next_key() -> None:
    assert sorted_positions(np.array([5, 1, 5]), lambda: np.array([2, 0, 1])).tolist() == [1, 2, 0]
