"""Verify stored runs: metadata, files, digests, Parquet pages, columns, and order of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit import storage
from tracekit.errors import TracekitError
from tracekit.runs import meta as run_meta
from tracekit.runs.meta import RunMeta, TableFile
from tracekit.schema import SCHEMA_VERSION, TABLES, VERSION_KEY, Table
from tracekit.storage import Place

if TYPE_CHECKING:
    from tracekit.runs.run import Run

__all__ = ["Damage", "Kind", "Verdict", "verify"]


class Kind(StrEnum):
    """Kinds of damage; the values are stable."""

    METADATA = "metadata"
    """`run.json` is missing, unreadable, of an older version, or not as it was sealed."""
    MISSING = "missing"
    """A file named in `run.json` is missing."""
    UNKNOWN = "unknown"
    """A table is not named in `run.json`, or a link is in place of a file."""
    SIZE = "size"
    """The size of a table's files differs."""
    DIGEST = "digest"
    """The SHA-256 differs: the content was changed."""
    PARQUET = "parquet"
    """A file cannot be opened, or a page cannot be read."""
    ROWS = "rows"
    """The number of rows differs."""
    COLUMNS = "columns"
    """The columns or the schema version differ."""
    ORDER = "order"
    """Rows are not sorted by time."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Damage of a run.

    Attributes:
        kind: Kind of damage.
        table: The table; empty if it concerns the run.
        message: Description in a sentence.
    """

    kind: Kind
    message: str
    table: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of verifying a run.

    Attributes:
        run: Name of its folder.
        tables: Number of checked tables.
        rows: Number of their rows according to `run.json`.
        bytes: Bytes of Parquet on disk.
        damage: Damage; empty if the run is intact.
        unsupported: Why this tracekit cannot check the run, which a newer one has stored; empty if it can.
    """

    run: str
    tables: int
    rows: int
    bytes: int
    damage: tuple[Damage, ...]
    unsupported: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the run was checked and is intact."""
        return not (self.damage or self.unsupported)


if TYPE_CHECKING:
    Read = Callable[[int], None]
    """Called with the number of further bytes read."""

_BLOCK = 1 << 20
_LONGEST = 160
_UNREADABLE = (OSError, pa.ArrowException, ValueError)


def check(
    table: Table, files: Sequence[Place], stored: TableFile, *, quick: bool, read: Read
) -> list[Damage]:
    """Yield the damage of a table.

    Args:
        table: Name of the table.
        files: Its files, in order, at least one.
        stored: Its entry in `run.json`.
        quick: Check sizes, footers and columns only, without reading content.
        read: Progress callback.
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
    return [Damage(kind=one.kind, table=table.name, message=one.message) for one in found]


def size_of(files: Sequence[Place]) -> int:
    """Return the bytes of files; inaccessible ones count 0."""
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
        yield Damage(kind=Kind.SIZE, message=f"{size:,} bytes on disk, {stored.bytes:,} were stored")


def _digest(files: Sequence[Place], stored: TableFile, read: Read) -> Iterator[Damage]:
    try:
        found = _of_parts(files, read) if stored.parts else _together(files, read)
    except OSError as error:
        yield Damage(kind=Kind.PARQUET, message=f"cannot be read: {_line(error)}")
        return
    if found != stored.sha256:
        yield Damage(kind=Kind.DIGEST, message="the content is not what was stored (SHA-256)")


def _together(files: Sequence[Place], read: Read) -> str:
    """Return the digest of the concatenated files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                read(len(block))
    return digest.hexdigest()


def _of_parts(files: Sequence[Place], read: Read) -> str:
    """Return the digest of the digests of separately delivered files."""
    found = "".join(f"{_together([file], read)}\n" for file in files)
    return hashlib.sha256(found.encode()).hexdigest()


def _opened(files: Sequence[Place]) -> tuple[list[tuple[pq.FileMetaData, pa.Schema]], list[Damage]]:
    opened, broken = [], []
    for file in files:
        try:
            with file.open("rb") as stream, pq.ParquetFile(stream) as parquet:
                opened.append((parquet.metadata, parquet.schema_arrow))
        except _UNREADABLE as error:
            broken.append(Damage(kind=Kind.PARQUET, message=f"{file.name} does not open: {_line(error)}"))
    return opened, broken


def _rows(opened: Sequence[tuple[pq.FileMetaData, pa.Schema]], stored: TableFile) -> Iterator[Damage]:
    rows = sum(metadata.num_rows for metadata, _ in opened)
    if rows != stored.rows:
        yield Damage(kind=Kind.ROWS, message=f"{rows:,} rows in the files, {stored.rows:,} were stored")


def _columns(table: Table, opened: Sequence[tuple[pq.FileMetaData, pa.Schema]]) -> Iterator[Damage]:
    for metadata, schema in opened:
        version = (metadata.metadata or {}).get(VERSION_KEY)
        if version != str(SCHEMA_VERSION).encode():
            found = version.decode(errors="replace") if version else "none"
            yield Damage(
                kind=Kind.COLUMNS, message=f"schema version {found}, this tracekit reads {SCHEMA_VERSION}"
            )
        different = sorted(table.unfit(schema))  # other versions lack columns that may be null, or add some
        if different:
            yield Damage(kind=Kind.COLUMNS, message=f"columns missing or of another type: {_few(different)}")


def _content(table: Table, files: Sequence[Place]) -> Iterator[Damage]:
    """Decode all pages, by row group, and check the order of rows."""
    for file in files:
        try:
            with (
                file.open("rb") as stream,
                pq.ParquetFile(stream, page_checksum_verification=True) as parquet,
            ):
                sorted_ = _is_sorted(parquet, table.time)
        except _UNREADABLE as error:
            yield Damage(kind=Kind.PARQUET, message=f"{file.name} cannot be read: {_line(error)}")
            continue
        if not sorted_:
            yield Damage(kind=Kind.ORDER, message=f"rows of {file.name} are not sorted by {table.time}")


def _is_sorted(parquet: pq.ParquetFile, key: str | None) -> bool:
    last: int | None = None
    sorted_ = True
    for group in range(parquet.num_row_groups):
        rows = parquet.read_row_group(group, use_threads=False)
        if key is None or not rows.num_rows:
            continue
        times = rows[key].to_numpy()
        sorted_ &= bool((np.diff(times) >= 0).all()) and (last is None or last <= times[0])
        last = int(times[-1])
    return sorted_


def _line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


if TYPE_CHECKING:
    Progress = Callable[[str, int, int], None]
    """Called with the run, its bytes read so far, and its size."""


def verify(run: Run, *, quick: bool = False, progress: Progress = lambda *_: None) -> Verdict:
    """Verify a run, without changing it.

    Args:
        run: A run of a store, or a folder that should be a run.
        quick: Compare sizes, footers and columns only, which finds truncated, missing and outdated files, but
            not changed bits.
        progress: Progress callback.

    Example:
        >>> verify(tracekit.open("latest")).is_whole  # doctest: +SKIP
        True
    """
    sizes = size_of(storage.inside(run.path, "*.parquet", deep=True))
    try:
        meta, found = _metadata(run)
    except run_meta.NewerVersionError as error:
        newer = error.message.removeprefix(f"{run.path} has ")
        return Verdict(run=run.path.name, tables=0, rows=0, bytes=sizes, damage=(), unsupported=newer)
    stored = meta.tables if meta else {}
    done = 0

    def read(more: int) -> None:
        nonlocal done
        done += more
        progress(run.path.name, done, sizes)

    progress(run.path.name, 0, sizes)
    for name, one in stored.items():
        found += _table(run.path, name, one, quick=quick, read=read)
    found += _links(run.path)
    if meta:
        found += _unknown(run.path, meta)
    rows = sum(one.rows for one in stored.values())
    return Verdict(run=run.path.name, tables=len(stored), rows=rows, bytes=sizes, damage=tuple(found))


def _metadata(run: Run) -> tuple[RunMeta | None, list[Damage]]:
    try:
        meta = run_meta.read(run.path)
        data = (run.path / run_meta.FILE_NAME).read_bytes()
    except run_meta.NewerVersionError:
        raise
    except TracekitError as error:
        return None, [_wrong(error.message)]
    except OSError as error:
        return None, [_wrong(f"{run_meta.FILE_NAME} cannot be read: {error.strerror}")]
    found = []
    if meta.run_id != run.path.name:
        found.append(_wrong(f"it says that this is run {meta.run_id}"))
    if run_meta.is_as_sealed(data) is False:
        found.append(_wrong(f"{run_meta.FILE_NAME} was changed after the run was stored"))
    return meta, found


def _wrong(text: str) -> Damage:
    return Damage(kind=Kind.METADATA, message=text)


def _table(
    folder: Place, name: str, stored: TableFile, *, quick: bool, read: Callable[[int], None]
) -> list[Damage]:
    if name not in TABLES:
        return [Damage(kind=Kind.UNKNOWN, table=name, message="run.json names a table that there is not")]
    files = files_of(folder, name)
    if not files:
        return [Damage(kind=Kind.MISSING, table=name, message=f"{name}.parquet is not there")]
    return check(TABLES[name], files, stored, quick=quick, read=read)


def files_of(folder: Place, name: str) -> Sequence[Place]:
    """Return the files of a table, in order; empty if there are none."""
    single = folder / f"{name}.parquet"
    return [single] if single.is_file() else storage.inside(folder / name, "*.parquet")


def _unknown(folder: Place, meta: RunMeta) -> Iterator[Damage]:
    for name in TABLES.keys() - meta.tables.keys():
        if files_of(folder, name):
            yield Damage(kind=Kind.UNKNOWN, table=name, message="run.json does not name this table")
    for name in meta.tables.keys() & TABLES.keys():
        both = (folder / f"{name}.parquet").is_file() and (folder / name).is_dir()
        if both:
            yield Damage(kind=Kind.UNKNOWN, table=name, message="there is a file and a folder of this table")


def _links(folder: Place) -> Iterator[Damage]:
    for path in storage.inside(folder, deep=True):
        if path.is_symlink():
            where = "/".join(path.parts[len(folder.parts) :])
            yield Damage(kind=Kind.UNKNOWN, message=f"{where} is a link, and a run has none")
