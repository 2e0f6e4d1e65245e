"""One table of a run: its files against what `run.json` says of it, and against the schema."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.schema import SCHEMA_VERSION, VERSION_KEY, C
from tracekit.verifying.model import Damage, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.meta import TableFile
    from tracekit.places import Place
    from tracekit.schema import Table

    Read = Callable[[int], None]
    """Told how many more bytes were read."""

_BLOCK = 1 << 20
_LONGEST = 160
_UNREADABLE = (OSError, pa.ArrowException, ValueError)


def check(
    table: Table, files: Sequence[Place], stored: TableFile, *, quick: bool, read: Read
) -> list[Damage]:
    """What is wrong with a table.

    Args:
        table: Which.
        files: Its files, in the order in which they were sealed; there is one at least.
        stored: What `run.json` says.
        quick: Read no content: sizes, footers and columns only.
        read: Told of what is read.
    """
    found = [*_size(files, stored)]
    if not quick:
        found += _digest(files, stored, read)
    opened, broken = _opened(files)
    found += broken
    if not broken:
        found += _rows(opened, stored)
        found += _columns(table, opened)
    if not quick and not found:
        found += _content(table, files)
    return [Damage(kind=one.kind, table=table.name, told=one.told) for one in found]


def size_of(files: Sequence[Place]) -> int:
    """Bytes of some files; those that cannot be asked count nothing."""
    total = 0
    for file in files:
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total


def _size(files: Sequence[Place], stored: TableFile) -> Iterator[Damage]:
    size = size_of(files)
    if size != stored.bytes:
        yield Damage(kind=Kind.SIZE, told=f"{size:,} bytes on disk, {stored.bytes:,} were stored")


def _digest(files: Sequence[Place], stored: TableFile, read: Read) -> Iterator[Damage]:
    try:
        found = _of_parts(files, read) if stored.parts else _together(files, read)
    except OSError as error:
        yield Damage(kind=Kind.PARQUET, told=f"cannot be read: {_line(error)}")
        return
    if found != stored.sha256:
        yield Damage(kind=Kind.DIGEST, told="the content is not what was stored (SHA-256)")


def _together(files: Sequence[Place], read: Read) -> str:
    """The digest of the files, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                read(len(block))
    return digest.hexdigest()


def _of_parts(files: Sequence[Place], read: Read) -> str:
    """The digest of the digests of files that were delivered one by one."""
    told = "".join(f"{_together([file], read)}\n" for file in files)
    return hashlib.sha256(told.encode()).hexdigest()


def _opened(files: Sequence[Place]) -> tuple[list[tuple[pq.FileMetaData, pa.Schema]], list[Damage]]:
    opened, broken = [], []
    for file in files:
        try:
            with file.open("rb") as stream, pq.ParquetFile(stream) as parquet:
                opened.append((parquet.metadata, parquet.schema_arrow))
        except _UNREADABLE as error:
            broken.append(Damage(kind=Kind.PARQUET, told=f"{file.name} does not open: {_line(error)}"))
    return opened, broken


def _rows(opened: Sequence[tuple[pq.FileMetaData, pa.Schema]], stored: TableFile) -> Iterator[Damage]:
    rows = sum(metadata.num_rows for metadata, _ in opened)
    if rows != stored.rows:
        yield Damage(kind=Kind.ROWS, told=f"{rows:,} rows in the files, {stored.rows:,} were stored")


def _columns(table: Table, opened: Sequence[tuple[pq.FileMetaData, pa.Schema]]) -> Iterator[Damage]:
    for metadata, schema in opened:
        version = (metadata.metadata or {}).get(VERSION_KEY)
        if version != str(SCHEMA_VERSION).encode():
            told = version.decode(errors="replace") if version else "none"
            yield Damage(
                kind=Kind.COLUMNS, told=f"schema version {told}, this tracekit reads {SCHEMA_VERSION}"
            )
        different = sorted({*table.unfit(schema), *(set(schema.names) ^ set(table.arrow.names))})
        if different:
            yield Damage(
                kind=Kind.COLUMNS, told=f"columns missing, unknown or of another type: {_few(different)}"
            )


def _content(table: Table, files: Sequence[Place]) -> Iterator[Damage]:
    """Every page is decoded, a row group at a time, and the order of rows is looked at on the way."""
    key = C.START_NS if C.START_NS in table.arrow.names else C.T_NS
    for file in files:
        try:
            with (
                file.open("rb") as stream,
                pq.ParquetFile(stream, page_checksum_verification=True) as parquet,
            ):
                sorted_ = _is_sorted(parquet, key)
        except _UNREADABLE as error:
            yield Damage(kind=Kind.PARQUET, told=f"{file.name} cannot be read: {_line(error)}")
            continue
        if not sorted_:
            yield Damage(kind=Kind.ORDER, told=f"rows of {file.name} are not sorted by {key}")


def _is_sorted(parquet: pq.ParquetFile, key: str) -> bool:
    last: int | None = None
    sorted_ = True
    for group in range(parquet.num_row_groups):
        times = parquet.read_row_group(group, use_threads=False)[key].to_numpy()
        if not len(times):
            continue
        sorted_ &= bool((np.diff(times) >= 0).all()) and (last is None or last <= times[0])
        last = int(times[-1])
    return sorted_


def _line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
