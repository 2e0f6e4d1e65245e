"""Write tables as Parquet, in row groups that readers of a time window can skip."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.ingest.pool import BackgroundThread
from tracekit.ingest.spool.rows import AnyInts, Rows, cast_integers, compact, fill_nulls, numbers, values_of
from tracekit.schema import COUNTERS, C, Column, Table

ROW_GROUP = 1 << 16
_WITH_STATISTICS = {
    *(C.RANK, C.DEVICE, C.STREAM, C.TID, C.STEP, C.ROW_ID, C.LAUNCH_ROW, C.OP_ROW),
    *(C.START_NS, C.DUR_NS, C.T_NS, C.SOURCE, C.METRIC, C.TOTAL_ALLOCATED),
}
"""Columns with statistics, by which readers skip row groups. Names and kinds have none, as nearly every group
contains most of them."""
_NOT_INCREASING = {
    *(C.RANK, C.PID, C.TID, C.DEPTH, C.DUR_NS, C.FLOPS),
    *(C.ADDRESS, C.BYTES, C.TOTAL_ALLOCATED, C.TOTAL_RESERVED),
}
"""Integers that are random or constant; the others increase, and are stored as differences."""
_ABSOLUTE = (C.START_NS, C.T_NS)


def write_table(rows: pa.Table, table: Table, path: Path) -> None:
    """Write a table that is in memory; creates the folder of a part.

    Args:
        rows: The rows, with the columns of the table.
        table: The table.
        path: The file.
    """
    with _writer(table.arrow, table.columns, path) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP)


def distinct_texts(texts: Sequence[bytes]) -> pa.ChunkedArray:
    """Return a column of distinct texts, in chunks as long as a row group, which stores their dictionary."""
    parts = [texts[first : first + ROW_GROUP] for first in range(0, len(texts), ROW_GROUP)]
    return pa.chunked_array([compact(np.arange(len(part)), part) for part in parts])


def _writer(schema: pa.Schema, columns: Sequence[Column], path: Path) -> pq.ParquetWriter:
    path.parent.mkdir(exist_ok=True)
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[column.name for column in columns if column.is_text],
        column_encoding={
            column.name: "DELTA_BINARY_PACKED"
            for column in columns
            if column.is_integer and column.name not in _NOT_INCREASING
        },
        write_page_checksum=True,
        write_statistics=[column.name for column in columns if column.name in _WITH_STATISTICS],
        max_rows_per_page=ROW_GROUP,  # larger pages compress better and faster
    )


class TableFile:
    """Writer of a table; creates no file without rows.

    Row groups are encoded in a thread of their own. Texts are codes, -1 for null; a row group stores only the
    values that it contains. A column of which no row can have a value is not in the file, as encoding its
    nulls takes as long as other values; readers fill it in.
    """

    def __init__(
        self,
        table: Table,
        path: Path,
        *,
        stored: Collection[str],
        values: dict[str, list[bytes]],
        zero_ns: int,
    ) -> None:
        """Create a writer without rows.

        Args:
            table: Name of the table.
            path: Path of the file.
            stored: Columns of which rows may have values.
            values: The text of each code of its text columns, in UTF-8.
            zero_ns: Instant that becomes 0.
        """
        self.values = values
        self._path, self._zero = path, zero_ns
        self._columns = [column for column in table.columns if not column.nullable or column.name in stored]
        fields = [table.arrow.field(column.name) for column in self._columns]
        self._schema = pa.schema(fields, table.arrow.metadata)
        self._coded = pa.schema([(column.name, _coded(column)) for column in self._columns])
        self._waiting = pa.Table.from_batches([], self._coded)  # `empty_table` would load pandas
        self._writer: pq.ParquetWriter | None = None
        self._encoding = BackgroundThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            with self._encoding:
                if kind is None:
                    self.finish()
                else:
                    self._encoding.stop()
        finally:
            if self._writer is not None:
                with suppress(OSError):
                    self._writer.close()

    def add(self, rows: Rows, computed: dict[str, AnyInts]) -> None:
        """Add rows.

        Args:
            rows: Rows in their final order; missing columns are null.
            computed: Further columns, of those stored; -1 is null in nullable columns.
        """
        arrays = [self._array(column, rows, computed) for column in self._columns]
        added = pa.Table.from_arrays(arrays, schema=self._coded)
        self._waiting = pa.concat_tables([self._waiting, added])
        while self._waiting.num_rows >= ROW_GROUP:
            self._write(self._waiting.slice(0, ROW_GROUP))
            self._waiting = self._waiting.slice(ROW_GROUP)

    def _array(self, column: Column, rows: Rows, computed: dict[str, AnyInts]) -> pa.Array:
        type_ = _coded(column)
        if column.name in computed:
            values = computed[column.name]
            missing = values < 0 if column.nullable and not column.is_text else None
            return cast_integers(numbers(values, missing), type_)
        if column.name not in rows.columns:
            return _nulls(rows.count, type_)
        if column.is_text:
            return numbers(rows.integers(column.name))
        values, missing = rows.columns[column.name]
        return cast_integers(
            numbers(values - self._zero if column.name in _ABSOLUTE else values, missing), type_
        )

    def finish(self) -> None:
        """Write the remaining rows and the footer."""
        if self._waiting.num_rows:
            self._write(self._waiting)
            self._waiting = self._waiting.slice(0, 0)
        if self._writer is not None:
            self._encoding.do(self._writer.close)

    def _write(self, group: pa.Table) -> None:
        if self._writer is None:
            self._writer = _writer(self._schema, self._columns, self._path)
        arrays = [self._final(column, group) for column in self._columns]
        final = pa.Table.from_arrays(arrays, schema=self._schema)
        self._encoding.do(partial(self._writer.write_table, final))

    def _final(self, column: Column, group: pa.Table) -> pa.Array:
        pieces = group.column(column.name)
        if pieces.null_count == group.num_rows:
            return _nulls(group.num_rows, column.type)
        array = pieces.chunk(0) if pieces.num_chunks == 1 else pieces.combine_chunks()
        if not column.is_text:
            return array
        codes = fill_nulls(array, -1) if array.null_count else values_of(array)
        return compact(codes, self.values.get(column.name, []))


def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return a null array; most columns of a trace have no value, so that their arrays share memory."""
    return _shared_nulls(kind).slice(0, count) if count <= ROW_GROUP else pa.nulls(count, kind)


@cache
def _shared_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(ROW_GROUP, kind)


def _coded(column: Column) -> pa.DataType:
    return pa.int64() if column.is_text else column.type


@dataclass(frozen=True)
class Sample:
    """A sample, row of `counters`."""

    t_unix_ns: int  # time, ns since the epoch
    source: str  # nvml, process or torch
    device: int | None  # device index; None for the host
    metric: str  # name of the metric
    unit: str  # unit of the value
    value: float
    rank: int | None = None  # rank that used the device; None for several, and if unknown
    gpu: str = ""  # UUID of the GPU, from which the collector derives device and rank; not stored


def write_samples(directory: Path, samples: Sequence[Sample], zero_ns: int) -> None:
    """Write samples to the counters of a draft run, in order of time.

    Args:
        directory: The run.
        samples: Samples in any order.
        zero_ns: The run's zero, ns since the epoch.
    """
    if not samples:
        return
    path, parts = directory / f"{COUNTERS.name}.parquet", directory / COUNTERS.name
    rows = _rows(sorted(samples, key=lambda sample: sample.t_unix_ns), zero_ns)
    if path.exists():
        import pyarrow.dataset as ds

        recorded = ds.dataset(path, schema=COUNTERS.arrow).to_table()
        rows = pa.concat_tables([recorded, rows]).unify_dictionaries().sort_by(C.T_NS)
    write_table(rows, COUNTERS, parts / "part-samples.parquet" if parts.is_dir() else path)


def _rows(samples: Sequence[Sample], zero_ns: int) -> pa.Table:
    columns = {
        C.T_NS: pa.array([sample.t_unix_ns - zero_ns for sample in samples], pa.int64()),
        C.SOURCE: pa.array([sample.source for sample in samples]).dictionary_encode(),
        C.RANK: pa.array([sample.rank for sample in samples], pa.int32()),
        C.DEVICE: pa.array([sample.device for sample in samples], pa.int32()),
        C.METRIC: pa.array([sample.metric for sample in samples]).dictionary_encode(),
        C.UNIT: pa.array([sample.unit for sample in samples]).dictionary_encode(),
        C.VALUE: pa.array([sample.value for sample in samples], pa.float64()),
    }
    return pa.table(columns, schema=COUNTERS.arrow)
