"""Windows over spooled tables: the result does not depend on their size."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tests.unit.ingest.arrow import to_batch
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer.execution import Destination, Linked
from tracekit.ingest.importer.local import close
from tracekit.ingest.importer.trace_writer import write
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.link import launches, nesting_windows
from tracekit.ingest.link.trace import TopLevel, Trace
from tracekit.ingest.spool import part_files, window_reader
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.rows import concatenate_rows, host_order
from tracekit.ingest.spool.text_columns import NO_STRINGS
from tracekit.ingest.spool.window_reader import SortedColumns
from tracekit.schema import ALLOCATIONS, DEVICE_INTERVALS, HOST_INTERVALS, C

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.ingest.spool.rows import Rows

Row = dict[str, Any]
Tables = dict[str, pa.Table]

ids = st.one_of(st.none(), st.integers(0, 9))
times = st.integers(0, 60)
lengths = st.one_of(st.integers(0, 8), st.integers(0, 60))

HOST = st.fixed_dictionaries(
    {
        C.KIND: st.sampled_from(["op", "op", "runtime", "sync", "python", "annotation"]),
        C.NAME: st.sampled_from(
            [
                "a",
                "b",
                "nn.Module: M",
                "AddBackward0",
                "Optimizer.step#Adam",
                "ProfilerStep#1",
                "ProfilerStep#2",
            ]
        ),
        C.START_NS: times,
        C.DUR_NS: lengths,
        C.PID: st.integers(1, 2),
        C.TID: st.integers(1, 2),
        C.CORRELATION_ID: ids,
        C.EXTERNAL_ID: ids,
        C.SEQUENCE: ids,
        C.FWD_TID: ids,
    }
)
DEVICE = st.fixed_dictionaries(
    {
        C.KIND: st.sampled_from(["kernel", "memcpy", "sync"]),
        C.NAME: st.sampled_from(["k", "l"]),
        C.START_NS: times,
        C.DUR_NS: lengths,
        C.DEVICE: st.integers(0, 1),
        C.STREAM: ids,
        C.CORRELATION_ID: ids,
        C.EXTERNAL_ID: ids,
        C.BYTES: ids,
        C.PID: st.integers(1, 3),
    }
)
ALLOCATION = st.fixed_dictionaries(
    {
        C.T_NS: times,
        C.PID: st.integers(1, 2),
        C.TID: st.integers(1, 2),
        C.DEVICE: st.just(0),
        C.BYTES: st.integers(-9, 9),
        C.ADDRESS: ids,
        C.TOTAL_ALLOCATED: ids,
    }
)


def parts(row: st.SearchStrategy[Row], rows: int) -> st.SearchStrategy[list[list[Row]]]:
    return st.lists(st.lists(row, min_size=1, max_size=rows), max_size=5)


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = {
        name: pa.array([row[name] for row in rows], pa.string()).dictionary_encode()
        if name in (C.KIND, C.NAME)
        else pa.array([row[name] for row in rows], pa.int64())
        for name in sorted(rows[0])
    }
    return pa.RecordBatch.from_pydict(columns)


def without(name: str, row: Row) -> Row:
    return {key: value for key, value in row.items() if key != name}


def spool_parts(directory: Path, table: str, held: list[list[Row]]) -> None:
    for number, rows in enumerate(held):
        part_files.write_batches(directory, number, {table: to_batch(batch(rows))})


def imported(fill: Callable[[Path], None], *, size: int) -> tuple[Tables, Linked | None]:
    """Tables of the parts that `fill` spools, with windows, lookup files and stacks of `size` rows."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        sizes = (
            (window_reader, "WINDOW_ROWS"),
            (launches, "HELD"),
            (nesting_windows, "MAX_HELD_ROWS"),
        )
        for module, name in (*sizes, (nesting_windows, "MIN_ROWS_PER_THREAD")):
            patch.setattr(module, name, size)
        spooled, run = Path(folder, "spooled"), Path(folder, "run")
        spooled.mkdir()
        run.mkdir()
        fill(spooled)
        trace = Trace(
            path=spooled / "t", directory=spooled, top=TopLevel(), notes=(), empty=UnusableInputError("none")
        )
        found = close(trace)
        linked = (
            write(trace, Destination(run, None, Source(trace.path), 0, 0, found.first_ns)) if found else None
        )
        return {path.stem: pq.read_table(path) for path in run.glob("*.parquet")}, linked


@settings(max_examples=examples(30), deadline=None)
@given(parts(HOST, 12), parts(DEVICE, 8), parts(ALLOCATION, 6), st.integers(1, 9), st.booleans())
def test_tables_do_not_depend_on_the_size_of_windows(
    host: list[list[Row]], device: list[list[Row]], events: list[list[Row]], size: int, scoped: bool
) -> None:
    own = device if scoped else [[without(C.PID, row) for row in rows] for rows in device]

    def fill(directory: Path) -> None:
        spool_parts(directory, HOST_INTERVALS.name, host)
        spool_parts(directory, DEVICE_INTERVALS.name, own)
        spool_parts(directory, ALLOCATIONS.name, events)

    assert imported(fill, size=size) == imported(fill, size=1 << 20)


def test_a_long_kernel_covers_the_gaps_of_later_windows() -> None:
    fixed = {C.KIND: "kernel", C.NAME: "k", C.DEVICE: 0, C.STREAM: 1, C.CORRELATION_ID: 1}
    fixed |= {C.EXTERNAL_ID: 1, C.BYTES: 1, C.PID: 1}
    spans = [(0, 100), (10, 10), (50, 10), (150, 10)]
    rows: list[Row] = [{**fixed, C.START_NS: start, C.DUR_NS: length} for start, length in spans]
    tables, _ = imported(lambda directory: spool_parts(directory, DEVICE_INTERVALS.name, [rows]), size=1)
    found = tables[DEVICE_INTERVALS.name].select([C.KIND, C.START_NS, C.DUR_NS]).to_pylist()
    assert [row for row in found if row[C.KIND] == "idle"] == [
        {C.KIND: "idle", C.START_NS: 100, C.DUR_NS: 50}
    ]


@given(parts(HOST, 12), st.integers(1, 9))
def test_windows_contain_each_row_once_in_final_order_and_are_small(host: list[list[Row]], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_reader, "WINDOW_ROWS", size)
        spool_parts(Path(folder), HOST_INTERVALS.name, host)
        table = SpooledTable(Path(folder), HOST_INTERVALS.name)
        order = partial(host_order, kinds=table.texts.get(C.KIND, NO_STRINGS))
        wanted = SortedColumns(table=table, columns=table.names, order=order)
        seen, until = [], None
        for window in window_reader.windows([wanted]):
            (rows,) = window.rows
            assert rows.count <= window_reader.MAX_WINDOWS * size
            times = rows.integers(C.START_NS).tolist()
            assert until is None or all(until <= time for time in times)
            until = window.until
            seen.append(rows)
        whole = wanted.read([table.whole_part(part) for part in table.parts])
    assert not seen or columns(concatenate_rows(seen)) == columns(whole)
    assert sum(rows.count for rows in seen) == whole.count == sum(map(len, host))


def columns(rows: Rows) -> dict[str, list[int]]:
    return {name: rows.integers(name).tolist() for name in rows.columns}


def test_windows_over_overlapping_parts_have_about_the_requested_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        rows = pa.RecordBatch.from_pydict({C.T_NS: pa.array(range(number, 40_000, 40), pa.int64())})
        part_files.write_batches(tmp_path, number, {"samples": to_batch(rows)})
    monkeypatch.setattr(window_reader, "WINDOW_ROWS", 4096)
    table = SpooledTable(tmp_path, "samples")
    found = [
        window.rows[0].count
        for window in window_reader.windows([SortedColumns(table=table, columns=[C.T_NS])])
    ]
    assert sum(found) == 40_000
    assert max(found) < 1.2 * 4096
