"""Verify stored runs: metadata, files, digests, Parquet pages, columns, and order of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit import storage
from tracekit.errors import TracekitError
from tracekit.runs import meta as run_meta
from tracekit.runs.meta import RunMeta, TableFile
from tracekit.runs.run import Run
from tracekit.runs.tables import sha256, sha256_of_parts
from tracekit.schema import SCHEMA_VERSION, TABLES, VERSION_KEY, Table
from tracekit.storage import Place

__all__ = ["Damage", "Kind", "Verdict", "verify"]


class Kind(StrEnum):
    """Kinds of damage; the values are stable."""

    METADATA = "metadata"
    """`run.json` is missing, unreadable, of an older version, without a seal, or not as it was sealed."""
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


@dataclass(frozen=True)
class Damage:
    """Damage of a run."""

    kind: Kind  # kind of damage
    message: str  # description in a sentence
    table: str = ""  # the table; empty if it concerns the run


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of verifying a run."""

    run: str  # name of its folder
    tables: int  # number of checked tables
    rows: int  # number of their rows according to `run.json`
    bytes: int  # bytes of Parquet on disk
    damage: tuple[Damage, ...]  # damage; empty if the run is intact
    # why this tracekit cannot check the run, which a newer one has stored; empty if it can
    unsupported: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the run was checked and is intact."""
        return not (self.damage or self.unsupported)


Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the run, its bytes read so far, and its size."""
_MAX_MESSAGE_CHARS = 160
_UNREADABLE = (OSError, pa.ArrowException, ValueError)


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
    size = size_of(storage.inside(run.path, "*.parquet", deep=True))
    try:
        meta, damage = _read_metadata(run)
    except run_meta.NewerVersionError as error:
        newer = error.message.removeprefix(f"{run.path} has ")
        return Verdict(run=run.path.name, tables=0, rows=0, bytes=size, damage=(), unsupported=newer)
    stored = meta.tables if meta else {}
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        progress(run.path.name, done, size)

    report(0)
    for name, entry in stored.items():
        if name not in TABLES:
            damage.append(Damage(Kind.UNKNOWN, "run.json names a table that there is not", name))
        elif not (files := files_of(run.path, name)):
            damage.append(Damage(Kind.MISSING, f"{name}.parquet is not there", name))
        else:
            damage += _check_table(TABLES[name], files, entry, quick=quick, report=report)
    damage += [
        Damage(Kind.UNKNOWN, f"{'/'.join(path.parts[len(run.path.parts) :])} is a link, and a run has none")
        for path in storage.inside(run.path, deep=True)
        if path.is_symlink()
    ]
    if meta:
        damage += _find_unknown(run.path, meta)
    rows = sum(entry.rows for entry in stored.values())
    return Verdict(run=run.path.name, tables=len(stored), rows=rows, bytes=size, damage=tuple(damage))


def size_of(files: Sequence[Place]) -> int:
    """Return the bytes of files; inaccessible ones count 0."""
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size
    return total


def files_of(folder: Place, name: str) -> Sequence[Place]:
    """Return the files of a table, in order; empty if there are none."""
    single = folder / f"{name}.parquet"
    return [single] if single.is_file() else storage.inside(folder / name, "*.parquet")


def _read_metadata(run: Run) -> tuple[RunMeta | None, list[Damage]]:
    try:
        meta = run_meta.read(run.path)
        data = (run.path / run_meta.FILE_NAME).read_bytes()
    except run_meta.NewerVersionError:
        raise
    except TracekitError as error:
        return None, [Damage(Kind.METADATA, error.message)]
    except OSError as error:
        return None, [Damage(Kind.METADATA, f"{run_meta.FILE_NAME} cannot be read: {error.strerror}")]
    damage = []
    if meta.run_id != run.path.name:
        damage.append(Damage(Kind.METADATA, f"it says that this is run {meta.run_id}"))
    is_as_sealed = run_meta.is_as_sealed(data)
    if is_as_sealed is None:
        what = "has no seal: it was removed, or a version before seals stored the run"
        damage.append(Damage(Kind.METADATA, f"{run_meta.FILE_NAME} {what}, so changes cannot be told"))
    elif not is_as_sealed:
        damage.append(Damage(Kind.METADATA, f"{run_meta.FILE_NAME} was changed after the run was stored"))
    return meta, damage


def _check_table(
    table: Table, files: Sequence[Place], entry: TableFile, *, quick: bool, report: Callable[[int], None]
) -> list[Damage]:
    """Return the damage of a table; a quick check of sizes, footers and columns reads no content."""
    damage: list[tuple[Kind, str]] = []
    if (size := size_of(files)) != entry.bytes:
        damage.append((Kind.SIZE, f"{size:,} bytes on disk, {entry.bytes:,} were stored"))
    if not quick:
        damage += _check_digest(files, entry, report)
    footers, unreadable = _read_footers(files)
    damage += unreadable
    if not unreadable:
        rows = sum(metadata.num_rows for metadata, _ in footers)
        if rows != entry.rows:
            damage.append((Kind.ROWS, f"{rows:,} rows in the files, {entry.rows:,} were stored"))
        damage += _check_columns(table, footers)
    if not quick and not damage:
        damage += _check_content(table, files)
    return [Damage(kind, message, table.name) for kind, message in damage]


def _check_digest(
    files: Sequence[Place], entry: TableFile, report: Callable[[int], None]
) -> Iterator[tuple[Kind, str]]:
    try:
        if entry.parts:
            digest = sha256_of_parts(sha256([file], report) for file in files)
        else:
            digest = sha256(files, report)
    except OSError as error:
        yield Kind.PARQUET, f"cannot be read: {_one_line(error)}"
        return
    if digest != entry.sha256:
        yield Kind.DIGEST, "the content is not what was stored (SHA-256)"


def _read_footers(
    files: Sequence[Place],
) -> tuple[list[tuple[pq.FileMetaData, pa.Schema]], list[tuple[Kind, str]]]:
    footers, unreadable = [], []
    for file in files:
        try:
            with file.open("rb") as stream, pq.ParquetFile(stream) as parquet:
                footers.append((parquet.metadata, parquet.schema_arrow))
        except _UNREADABLE as error:
            unreadable.append((Kind.PARQUET, f"{file.name} does not open: {_one_line(error)}"))
    return footers, unreadable


def _check_columns(
    table: Table, footers: Sequence[tuple[pq.FileMetaData, pa.Schema]]
) -> Iterator[tuple[Kind, str]]:
    for metadata, schema in footers:
        version = (metadata.metadata or {}).get(VERSION_KEY)
        if version != str(SCHEMA_VERSION).encode():
            actual = version.decode(errors="replace") if version else "none"
            yield Kind.COLUMNS, f"schema version {actual}, this tracekit reads {SCHEMA_VERSION}"
        # Other versions lack columns that may be null, or add some.
        if different := sorted(table.unfit(schema)):
            more = f" and {len(different) - 5} more" if len(different) > 5 else ""
            yield Kind.COLUMNS, f"columns missing or of another type: {', '.join(different[:5])}{more}"


def _check_content(table: Table, files: Sequence[Place]) -> Iterator[tuple[Kind, str]]:
    """Decode all pages, by row group, and check the order of rows."""
    for file in files:
        try:
            with (
                file.open("rb") as stream,
                pq.ParquetFile(stream, page_checksum_verification=True) as parquet,
            ):
                is_sorted = _is_sorted(parquet, table.time)
        except _UNREADABLE as error:
            yield Kind.PARQUET, f"{file.name} cannot be read: {_one_line(error)}"
            continue
        if not is_sorted:
            yield Kind.ORDER, f"rows of {file.name} are not sorted by {table.time}"


def _is_sorted(parquet: pq.ParquetFile, key: str | None) -> bool:
    last: int | None = None
    is_sorted = True
    for group in range(parquet.num_row_groups):  # all are read, also after a disorder: each may be damaged
        rows = parquet.read_row_group(group, use_threads=False)
        if key is None or not rows.num_rows:
            continue
        times = rows[key].to_numpy()
        is_sorted &= bool((np.diff(times) >= 0).all()) and (last is None or last <= times[0])
        last = int(times[-1])
    return is_sorted


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}..."


def _find_unknown(folder: Place, meta: RunMeta) -> Iterator[Damage]:
    for name in TABLES.keys() - meta.tables.keys():
        if files_of(folder, name):
            yield Damage(Kind.UNKNOWN, "run.json does not name this table", name)
    for name in meta.tables.keys() & TABLES.keys():
        if (folder / f"{name}.parquet").is_file() and (folder / name).is_dir():
            yield Damage(Kind.UNKNOWN, "there is a file and a folder of this table", name)
