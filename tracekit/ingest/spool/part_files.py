"""Spool of decoded batches on disk, so that memory depends on the size of chunks, not of the trace.

A part contains the rows of one table of one chunk, by time: an Arrow file of its columns, in which texts are
codes, and a file of these texts. Rows are mapped from the files where they are needed.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.ingest.spool.rows import (
    Batch,
    Column,
    Ints,
    Rows,
    concatenate_rows,
    distinct,
    fill_nulls,
    nulls_of,
    numbers,
    values_of,
)
from tracekit.ingest.spool.text_columns import Strings, StringsBuilder
from tracekit.schema import C

_CODE: Final = np.dtype(np.int32)  # type of spooled codes of texts: a chunk has fewer
_ROWS, _TEXTS = ".rows", ".texts"
_EXTENT: Final = b"extent"  # key of the extent in the metadata of a file
_DECODE_TEXTS: Final = msgspec.msgpack.Decoder(dict[str, list[bytes]]).decode


class Extent(msgspec.Struct, frozen=True):
    """Extent of a part."""

    rows: int  # number of rows
    first: int  # first time
    last: int  # last time
    end: int  # latest end of an interval; the last time in a table without durations


class RowRange(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive rows of one part: from `first` up to, not including, `stop`."""

    part: int
    first: int
    stop: int


def write_batches(directory: Path, number: int, batches: Mapping[str, Batch]) -> None:
    """Write the non-empty batches of a chunk, sorted by time, as parts of their tables.

    Args:
        directory: The spool folder.
        number: Number of the part in each table; an earlier part of this number is replaced.
        batches: Batches by table.
    """
    for table, batch in batches.items():
        if batch.rows.count:
            path = directory / f"{table}.{number:06d}{_ROWS}"
            path.with_suffix(_TEXTS).write_bytes(msgspec.msgpack.encode(batch.texts))
            _write_rows(path, _sort_by_time(batch.rows), batch.texts)


def discard(directory: Path, number: int) -> None:
    """Discard part `number` of every table."""
    for path in directory.glob(f"*.{number:06d}{_ROWS}"):
        path.unlink()


def clear(directory: Path) -> None:
    """Delete all parts."""
    for path in directory.glob(f"*{_ROWS}"):
        path.unlink()


def _time_of(names: Collection[str]) -> str:
    """Return the time column of a table, or its first column."""
    return next((name for name in (C.START_NS, C.T_NS) if name in names), next(iter(names)))


def _sort_by_time(rows: Rows) -> Rows:
    time = rows.integers(_time_of(rows.columns))
    if (time[1:] >= time[:-1]).all():
        return rows
    return rows.take(np.argsort(time, kind="stable"))


def _write_rows(path: Path, rows: Rows, texts: Collection[str]) -> None:
    arrays = {
        name: numbers(values.astype(_CODE) if name in texts else values, missing)
        for name, (values, missing) in rows.columns.items()
    }
    time = rows.integers(_time_of(rows.columns))
    end = (time + rows.integers(C.DUR_NS)).max() if C.DUR_NS in rows.columns else time[-1]
    extent = Extent(rows.count, int(time[0]), int(time[-1]), int(end))
    fields = [pa.field(name, array.type) for name, array in arrays.items()]
    schema = pa.schema(fields, {_EXTENT: msgspec.json.encode(extent)})
    with pa.ipc.new_file(str(path), schema) as file:
        file.write_batch(pa.RecordBatch.from_arrays([*arrays.values()], schema=schema))


class SpooledTable:
    """A spooled table of one trace, with its parts in the order of the file.

    Attributes:
        directory: The spool folder.
        name: Name of the table.
        extents: Extents of the parts.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Read the extents and the types of all parts that exist now."""
        self.directory, self.name = directory, name
        self._paths = sorted(directory.glob(f"{name}.{'[0-9]' * 6}{_ROWS}"))
        schemas = [self._read_part(part).schema for part in self.parts]
        self.extents = [msgspec.json.decode(schema.metadata[_EXTENT], type=Extent) for schema in schemas]
        self._types = {field.name: field.type for schema in schemas for field in schema}

    @property
    def parts(self) -> range:
        """Numbers of the parts."""
        return range(len(self._paths))

    @property
    def names(self) -> list[str]:
        """Names of the columns with any value."""
        return list(self._types)

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(part.rows for part in self.extents)

    def whole_part(self, part: int) -> RowRange:
        """Return the range of all rows of a part."""
        return RowRange(part=part, first=0, stop=self.extents[part].rows)

    @cached_property
    def texts(self) -> Mapping[str, Strings]:
        """The text columns, over all parts; each is built at its first use."""
        builders = {name: StringsBuilder() for name, kind in self._types.items() if kind == pa.int32()}
        for path in self._paths if builders else ():
            texts = _DECODE_TEXTS(path.with_suffix(_TEXTS).read_bytes())
            for name, builder in builders.items():
                builder.add(texts.get(name, []))
        return _TextColumns(builders)

    def _read_part(self, part: int) -> pa.RecordBatch:
        """Map a part from its file, as long as any of its arrays is used."""
        try:
            return pa.ipc.open_file(pa.memory_map(str(self._paths[part]))).get_batch(0)
        except pa.ArrowInvalid as error:
            raise OSError(errno.EIO, "what was decoded is cut off") from error

    def times(self, part: int) -> Ints:
        """Return the sorted times of a part."""
        return values_of(self._read_part(part).column(_time_of(self.names)))

    def replace(self, part: int, batch: Batch) -> None:
        """Replace the file of a part, also while its rows are mapped; not used by this table any more."""
        path = self._paths[part]
        if not batch.rows.count:
            path.unlink()
            return
        new = path.with_suffix(".new")
        _write_rows(new, _sort_by_time(batch.rows), batch.texts)
        path.with_suffix(_TEXTS).write_bytes(msgspec.msgpack.encode(batch.texts))
        new.replace(path)

    def distinct(self, column: str) -> Ints:
        """Return the sorted distinct values of a column of integers."""
        parts = (self._read_part(part) for part in self.parts)
        values = [distinct(fill_nulls(rows[column], -1)) for rows in parts if column in rows.schema.names]
        return distinct(np.concatenate([np.empty(0, np.int64), *values]))

    def read(self, ranges: Sequence[RowRange], columns: Sequence[str]) -> Rows:
        """Read ranges of rows, in their order; columns without any value are left out."""
        pieces = [self._read_range(rows, columns) for rows in ranges]
        return concatenate_rows(pieces) if pieces else Rows(count=0, columns={})

    def _read_range(self, rows: RowRange, columns: Sequence[str]) -> Rows:
        batch = self._read_part(rows.part).slice(rows.first, rows.stop - rows.first)
        present = [name for name in columns if name in batch.schema.names]
        read = {name: self._column(name, batch.column(name), rows.part) for name in present}
        return Rows(count=batch.num_rows, columns=read)

    def _column(self, name: str, array: pa.Array, part: int) -> Column:
        values = values_of(array)
        if values.dtype != _CODE:
            return Column(values, nulls_of(array))
        return Column(self.texts[name].codes(part, values).astype(np.intp))


class _TextColumns(Mapping[str, Strings]):
    """Text columns by name, each built at its first use."""

    def __init__(self, builders: dict[str, StringsBuilder]) -> None:
        self._builders, self._built = builders, dict[str, Strings]()

    def __getitem__(self, name: str) -> Strings:
        if name not in self._built:
            self._built[name] = self._builders[name].build()
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._builders)

    def __len__(self) -> int:
        return len(self._builders)
