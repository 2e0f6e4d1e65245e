"""Tables of a Parquet export: a folder with one file per table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracekit import storage
from tracekit.errors import UnusableInputError, printable
from tracekit.ingest.nsys.rows import (
    CHUNK_ROWS,
    FEW_ROWS,
    NULL,
    SUFFIX,
    Chunk,
    Wanted,
    find_columns,
    find_tables,
)
from tracekit.ingest.spool.text_columns import HARMLESS_ROWS, MAX_GROUP_BYTES, MAX_ROWS_PER_BYTE


class ParquetTables:
    """Tables of a Parquet export."""

    def __init__(self, path: Path, *, rows: int = CHUNK_ROWS) -> None:
        self._chunk_rows = rows
        files = {
            file.name.removesuffix(SUFFIX): file
            for file in sorted(path.glob(f"*{SUFFIX}"))
            if storage.kind(file) is storage.Kind.FILE  # opening a pipe would block
        }
        self._files = files  # by stored name, for `_has_rows`
        stored_names = find_tables(files, self._has_rows)
        self._files = {name: files[stored] for name, stored in stored_names.items()}

    def close(self) -> None:
        """Do nothing, as no file stays open; exports in SQLite have to be closed."""

    def names(self) -> frozenset[str]:
        """Names of the tables."""
        return frozenset(self._files)

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table, empty if it is absent."""
        return frozenset(self._stored_columns(table))

    def _has_rows(self, table: str) -> bool:
        with self._convert_errors(table), self._open(table) as file:
            return bool(file.metadata.num_rows > 0)

    def _stored_columns(self, table: str) -> dict[str, str]:
        """Return the stored names of the columns of a table by name."""
        if table not in self._files:
            return {}
        with self._convert_errors(table):
            return find_columns(pq.read_schema(self._files[table]).names)

    def records(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return columns of the rows of a small table; absent ones are None."""
        stored = self._stored_columns(table)
        if not stored:
            return []
        with self._convert_errors(table):
            names = {stored[name]: name for name in columns if name in stored}
            with self._open(table) as file:
                # One batch: a table that describes the capture has few rows, and more of them are not read.
                first_rows = next(file.iter_batches(FEW_ROWS, columns=[*names]), None) if names else None
            rows = _plain(_rename(first_rows, names)).to_pylist() if first_rows else []
        return [{name: row.get(name) for name in columns} for row in rows]

    def chunks(self, table: str, wanted: Wanted) -> Iterator[Chunk]:
        """Yield the rows of a table, in the stored order."""
        stored = self._stored_columns(table)
        wanted_names = (*wanted.integers, *wanted.reals, *wanted.texts)
        names = {stored[name]: name for name in wanted_names if name in stored}
        if not names:
            return
        with self._convert_errors(table), self._open(table) as file:
            left = file.metadata.num_rows
            for batch in file.iter_batches(self._chunk_rows, columns=[*names]):
                left -= batch.num_rows
                if left < 0:
                    message = f"it has more than the {file.metadata.num_rows} rows that it says it has"
                    raise ValueError(message)
                yield _chunk(_rename(batch, names), wanted)

    def _open(self, table: str) -> pq.ParquetFile:
        """Open a table's file, after checks of the sizes that it declares."""
        path = self._files[table]
        file = pq.ParquetFile(path)
        try:
            _check_size(file.metadata, path.stat().st_size)
        except ValueError:
            file.close()
            raise
        return file

    @contextmanager
    def _convert_errors(self, table: str) -> Iterator[None]:
        """Convert errors of reading a table to one that names its file."""
        try:
            yield
        except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            message = f"{printable(str(self._files[table]))} is damaged: {reason}"
            hint = "export the report again: nsys export --type=parquetdir REPORT.nsys-rep"
            raise UnusableInputError(message, hint=hint) from error


def _check_size(metadata: pq.FileMetaData, size: int) -> None:
    """Refuse files that declare more rows, or larger row groups, than events have in a file of this size."""
    # Sizes of columns are not checked: pyarrow ends the process if it reads damaged column metadata alone; if
    # it reads the column, it raises an error.
    if metadata.num_rows > max(HARMLESS_ROWS, size * MAX_ROWS_PER_BYTE):
        raise ValueError(f"{metadata.num_rows} rows in {size} bytes: no recording has so many")
    for number in range(metadata.num_row_groups):
        if metadata.row_group(number).total_byte_size > MAX_GROUP_BYTES:
            raise ValueError(f"row group {number} unpacks to over {MAX_GROUP_BYTES >> 30} GiB")


def _rename(batch: pa.RecordBatch, names: dict[str, str]) -> pa.RecordBatch:
    """Return a batch with other names of its columns."""
    return pa.RecordBatch.from_arrays(batch.columns, names=[names[name] for name in batch.schema.names])


def _chunk(batch: pa.RecordBatch, wanted: Wanted) -> Chunk:
    converters = (
        *((name, _integers) for name in wanted.integers),
        *((name, _reals) for name in wanted.reals),
        *((name, _texts) for name in wanted.texts),
    )
    present = set(batch.schema.names)
    columns = {name: convert(batch.column(name)) for name, convert in converters if name in present}
    return Chunk(batch.num_rows, columns)


def _integers(column: pa.Array) -> Any:
    """Convert integers to int64; unsigned 64-bit integers keep their bits."""
    if pa.types.is_uint64(column.type):
        column = column.cast(pa.int64(), safe=False)
    return pc.fill_null(column.cast(pa.int64()), NULL).to_numpy(zero_copy_only=False)


def _reals(column: pa.Array) -> Any:
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a small table, with text for text and bytes, like SQLite."""
    types = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in batch.schema.types]
    columns = [
        _texts(column) if any(is_text(kind) for is_text in _TEXTS) else column
        for column, kind in zip(batch.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _texts(column: pa.Array) -> pa.Array:
    """Convert text or bytes of any type, dictionaries included, to text, and repair invalid UTF-8."""
    raw = pc.cast(column, options=_UNCHECKED).cast(pa.binary())
    try:
        return raw.cast(pa.string())  # checks the UTF-8
    except pa.ArrowInvalid:
        encoded = raw.dictionary_encode()  # so that each distinct text is repaired once
        repaired = [text.decode("utf-8", "replace") for text in encoded.dictionary.to_pylist()]
        return pa.array(repaired, pa.string()).take(encoded.indices)


_UNCHECKED: Final = pc.CastOptions(pa.string(), allow_invalid_utf8=True)
_TEXTS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
"""Types of values that `_texts` converts."""
