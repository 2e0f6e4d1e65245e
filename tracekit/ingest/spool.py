"""Decoded batches parked on disk until they are written, so that memory follows the chunk, not the trace.

A part is one chunk's rows of one table, by time. Parts are mapped into memory while some of their rows are
read, and let go at once: what stays is a copy of the rows asked for.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest.arrays import filled, taken, values_of
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tracekit.ingest.texts import Strings

    Ints = npt.NDArray[np.int64]
    Positions = npt.NDArray[np.integer]
    Codes = npt.NDArray[np.intp]


_BUFFER = 1 << 20
"""Bytes that are written to a part at once."""


def park(directory: Path, number: int, batches: dict[str, pa.RecordBatch]) -> None:
    """Write a chunk's batches, each sorted by time, as part `number` of their tables."""
    for table, batch in batches.items():
        with (
            pa.output_stream(str(_part(directory, table, number)), buffer_size=_BUFFER) as sink,
            pa.ipc.new_stream(sink, batch.schema) as writer,
        ):
            writer.write_batch(_by_time(batch))


def discard(directory: Path, number: int) -> None:
    """Forget part `number` of every table."""
    for path in directory.glob(f"*.{number:06d}.arrow"):
        path.unlink()


def _part(directory: Path, table: str, number: int) -> Path:
    return directory / f"{table}.{number:06d}.arrow"


def _time(schema: pa.Schema) -> str:
    """The column that sorts; a table without a time is sorted by its first one."""
    return next((name for name in (C.START_NS, C.T_NS) if name in schema.names), schema.names[0])


def _by_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    time = values_of(batch.column(_time(batch.schema)))
    if (time[1:] >= time[:-1]).all():
        return batch
    order = np.argsort(time, kind="stable")
    return pa.RecordBatch.from_arrays([taken(column, order) for column in batch.columns], schema=batch.schema)


@contextmanager
def _mapped(path: Path, fields: Sequence[int] = ()) -> Iterator[pa.RecordBatchStreamReader]:
    """A part; what is read of it stays mapped into memory while something refers to it.

    Args:
        path: Its file.
        fields: Places of the columns that are wanted; all of them by default.
    """
    options = pa.ipc.IpcReadOptions(included_fields=list(fields), use_threads=False)
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source, options=options) as reader:
        yield reader


@dataclass(frozen=True, kw_only=True)
class Span:
    """Neighbouring rows of one part: from `first` up to, not including, `stop`."""

    part: int
    first: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some rows of a table.

    Attributes:
        count: How many.
        columns: Column name to array; text as codes of `texts.Strings`, -1 for null.
    """

    count: int
    columns: dict[str, pa.Array]

    def integers(self, column: str, *, missing: int = -1) -> Ints:
        """A column as int64, nulls as `missing`; one that was not parked is null."""
        if column not in self.columns:
            return np.full(self.count, missing, np.int64)
        array = self.columns[column]
        if array.null_count == self.count:
            return np.full(self.count, missing, np.int64)
        found: Ints = filled(array, missing).astype(np.int64, copy=False)
        return found

    def codes(self, column: str) -> Codes:
        """A text column as codes, -1 for null; one that was not parked is null."""
        if column not in self.columns:
            return np.full(self.count, -1)
        found: Codes = values_of(self.columns[column]).astype(np.intp)  # what NumPy picks fastest by
        return found

    def take(self, chosen: Positions) -> Rows:
        """Rows at these positions, in that order."""
        columns = {name: taken(column, chosen) for name, column in self.columns.items()}
        return Rows(count=len(chosen), columns=columns)


class Parked:
    """One table of one trace: its parts in file order."""

    def __init__(self, directory: Path, table: str) -> None:
        self._paths = sorted(directory.glob(f"{table}.*.arrow"))

    @property
    def parts(self) -> range:
        """Numbers of its parts."""
        return range(len(self._paths))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its parts, which all have the same; none when nothing was parked."""
        if not self._paths:
            return pa.schema([])
        with _mapped(self._paths[0]) as reader:
            return reader.schema

    @property
    def names(self) -> list[str]:
        """Names of its columns; none when nothing was parked."""
        return list(self.schema.names)

    @property
    def time(self) -> str:
        """The column that its parts are sorted by."""
        return _time(self.schema)

    def part(self, number: int, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns of a part, which stays mapped as long as they are referred to."""
        fields = [self.schema.get_field_index(column) for column in columns]
        with _mapped(self._paths[number], fields) as reader:
            return reader.read_next_batch().select(columns)

    def times(self, number: int) -> Ints:
        """The sorted times of a part."""
        found: Ints = values_of(self.part(number, [self.time]).column(0))
        return found

    def distinct(self, column: str) -> Ints:
        """Sorted distinct values of a column of integers."""
        found = [np.unique(values_of(self.part(number, [column]).column(0))) for number in self.parts]
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))

    def read(self, spans: Sequence[Span], columns: Sequence[str], texts: dict[str, Strings]) -> Rows:
        """Rows of some parts, one span behind the other.

        Args:
            spans: Which rows.
            columns: Which columns; those that were not parked are left out.
            texts: For each text column its distinct values over all parts.
        """
        there = [column for column in columns if column in self.names]
        if not spans:
            return Rows(count=0, columns={name: pa.nulls(0, self._type(name, texts)) for name in there})
        return joined([self._piece(span, there, texts) for span in spans])

    def _piece(self, span: Span, columns: Sequence[str], texts: dict[str, Strings]) -> Rows:
        batch = self.part(span.part, columns).slice(span.first, span.stop - span.first)
        found = dict(zip(columns, batch.columns, strict=True))
        for name in texts.keys() & found.keys():
            found[name] = texts[name].codes(span.part, found[name])
        return Rows(count=batch.num_rows, columns=found)

    def _type(self, name: str, texts: dict[str, Strings]) -> pa.DataType:
        return pa.int32() if name in texts else self.schema.field(name).type


def joined(pieces: Sequence[Rows]) -> Rows:
    """Rows of several pieces with the same columns, one behind the other; there must be a piece."""
    if len(pieces) == 1:
        return pieces[0]
    columns = {name: pa.concat_arrays([each.columns[name] for each in pieces]) for name in pieces[0].columns}
    return Rows(count=sum(each.count for each in pieces), columns=columns)
