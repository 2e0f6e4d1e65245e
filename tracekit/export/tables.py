"""The tables of a run as CSV or as plain Parquet, one file each, a batch at a time."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tracekit.meta import write as write_meta
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.export.reading import Source


def as_csv(source: Source, path: Path) -> None:
    """One CSV file per table, in a folder, or in a zip where the path ends so.

    Args:
        source: The run.
        path: A new folder, or the file of the zip.
    """
    with _places(path, ".csv") as opened:
        for name in _present(source):
            schema = _plain(TABLES[name].arrow)
            with opened(name) as file, pacsv.CSVWriter(file, schema) as writer:
                for batch in _cast(source, name, schema):
                    writer.write_batch(batch)


def as_parquet(source: Source, path: Path) -> None:
    """One Parquet file per table in a folder, with common types and encodings, beside the run's `run.json`.

    Args:
        source: The run.
        path: A new folder.
    """
    path.mkdir()
    for name in _present(source):
        schema = _plain(TABLES[name].arrow)
        file = path / f"{name}.parquet"
        with pq.ParquetWriter(file, schema, compression="snappy", version="2.4") as writer:
            for batch in _cast(source, name, schema):
                writer.write_batch(batch)
    write_meta(path, source.run.meta)


def _present(source: Source) -> list[str]:
    return [name for name in TABLES if source.run.rows(name)]


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with text as text."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def _cast(source: Source, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in source.batches(name):
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)],
            schema=schema,
        )


@contextmanager
def _places(path: Path, ending: str) -> Iterator[Callable[[str], IO[Any]]]:
    """Opens the file of each table."""
    if path.suffix.lower() != ".zip":
        path.mkdir()
        yield lambda name: (path / f"{name}{ending}").open("wb")
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        yield lambda name: archive.open(f"{name}{ending}", "w", force_zip64=True)
