"""Parquet files of tables: deliver them to a draft, compute digests and footers, open and check them."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs.meta import PartFile, TableFile
from tracekit.schema import TABLES, C, Column, Table
from tracekit.storage import Place

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds


ENDING = ".parquet"
_TAIL = struct.Struct("<I4s")
"""Last bytes of a Parquet file: length of the footer before them, and `PAR1`."""
SENT_AT_ONCE = 8


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered file of a draft.

    Attributes:
        table: The table.
        file: Name, rows, bytes and digest; the name `<table>.parquet` is that of a whole table.
    """

    table: str
    file: PartFile


def deliver(folder: Path, address: Place) -> tuple[Delivered, ...]:
    """Move the tables of a local folder to a draft.

    Any process may do so until the draft is committed. Delivery of a file is atomic; a file of the same name
    is replaced.

    Args:
        folder: Folder with `<table>/<name>.parquet`, or `<table>.parquet` for a run of one trace.
        address: `Draft.address`.

    Returns:
        The argument `delivered` of `Draft.commit`.

    Raises:
        OSError: A file cannot be read or sent.

    Example:
        >>> with store.draft(run_id) as draft:  # doctest: +SKIP
        ...     delivered = deliver(folder, draft.address)  # as in the workers of a cluster
        ...     draft.commit(meta, delivered)
    """
    found = [(table, file) for table, files in table_files(folder) for file in files]
    with ThreadPoolExecutor(SENT_AT_ONCE, "tracekit-deliver") as threads:
        return tuple(threads.map(lambda one: _delivered(one[0], one[1], address), found))


def _delivered(table: str, file: Path, address: Place) -> Delivered:
    delivered_file = describe_file(table, file)
    with storage.put(_place(address, table, file.name)) as target:
        shutil.move(file, target)
    return delivered_file


def _place(address: Place, table: str, name: str) -> Place:
    return address / name if name == f"{table}{ENDING}" else address / table / name


def table_files(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Return the tables in a local folder, with their files in order."""
    for name in TABLES:
        single, parts = folder / f"{name}{ENDING}", folder / name
        if single.is_file():
            yield name, [single]
        elif parts.is_dir():
            yield name, sorted(parts.glob(f"*{ENDING}"))


def seal(files: Sequence[Path]) -> TableFile:
    """Return the entry of `run.json` for a table in local files."""
    digest = hashlib.sha256()
    for file in files:
        _digested(file, digest)
    return TableFile(
        rows=sum(map(_rows, files)),
        bytes=sum(file.stat().st_size for file in files),
        sha256=digest.hexdigest(),
        footers={file.name: footer(file) for file in files},
    )


def footer(file: Path) -> int:
    """Return the CRC-32 of a file's footer; of the whole file if it has none.

    Raises:
        OSError: The file cannot be read.
    """
    with file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL.size))
        tail = stream.read()
        length = _TAIL.unpack(tail)[0] if len(tail) == _TAIL.size else 0
        stream.seek(max(0, size - _TAIL.size - length))
        return zlib.crc32(stream.read())


def sealed(delivered: Iterable[Delivered]) -> dict[str, TableFile]:
    """Return the entries of `run.json` for delivered files; the last file of a name counts."""
    tables: dict[str, dict[str, PartFile]] = {}
    for one in delivered:
        tables.setdefault(one.table, {})[one.file.name] = one.file
    return {name: _sealed(name, tables[name]) for name in TABLES if name in tables}


def _sealed(table: str, files: dict[str, PartFile]) -> TableFile:
    if list(files) == [f"{table}{ENDING}"]:
        (whole,) = files.values()
        return TableFile(rows=whole.rows, bytes=whole.bytes, sha256=whole.sha256, footers=_footers([whole]))
    parts = [files[name] for name in sorted(files)]
    digests = "".join(f"{part.sha256}\n" for part in parts)
    return TableFile(
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        sha256=hashlib.sha256(digests.encode()).hexdigest(),
        parts=parts,
        footers=_footers(parts),
    )


def _footers(files: Sequence[PartFile]) -> dict[str, int]:
    return {file.name: file.footer for file in files if file.footer is not None}


def describe_file(table: str, file: Path) -> Delivered:
    """Return name, rows, bytes, digest and footer of a local file."""
    digest = hashlib.sha256()
    _digested(file, digest)
    size = file.stat().st_size
    return Delivered(
        table=table, file=PartFile(file.name, _rows(file), size, digest.hexdigest(), footer(file))
    )


def _rows(file: Path) -> int:
    import pyarrow.parquet as pq  # not needed by readers of `run.json` alone

    rows: int = pq.read_metadata(file).num_rows
    return rows


def _digested(file: Path, digest: hashlib._Hash) -> None:
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)


_FOOTERS = 16
"""Files on object storage whose footers are read concurrently."""
_NAMED = 5
_LATEST = (1 << 63) - 1


class MisfitError(ValueError):
    """A file does not have the columns of its table, or has invalid values."""


def open_dataset(
    table: Table, files: Sequence[Place], rows: int | None = None, footers: Mapping[str, int] | None = None
) -> ds.FileSystemDataset:
    """Open the files of a table and check their footers.

    Args:
        table: Name of the table.
        files: Its files, at least one, all in one folder.
        rows: Expected number of rows, if known.
        footers: Expected CRC-32 of footers by file name, if known. Object storage has its own checksums, so
            only local files are compared.

    Raises:
        MisfitError: A file has another footer, columns of other types, or lacks one that every row must have;
            or there are more rows, or fewer.
        OSError: A file is missing or unreadable.
        pyarrow.ArrowException: A file is no Parquet.
    """
    import pyarrow.dataset as ds  # loads pandas, which imports do not need

    _compare(files, footers or {})
    where = files[0].filesystem if isinstance(files[0], storage.RemotePath) else None
    keys = [file.key if isinstance(file, storage.RemotePath) else str(file) for file in files]
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)  # detects damaged pages
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    dataset = ds.dataset(keys, format=parquet, schema=table.arrow, filesystem=where)
    held = list(dataset.get_fragments())
    if where is not None and len(held) > 1:
        with ThreadPoolExecutor(_FOOTERS) as threads:
            list(threads.map(methodcaller("ensure_complete_metadata"), held))
    for file in held:
        _check(table, file)
    found = sum(file.metadata.num_rows for file in held)
    if rows is not None and found != rows:
        raise MisfitError(f"it has {found:,} rows, but {rows:,} were stored")
    return dataset


def ranks_in(table: Table, fragment: ds.ParquetFileFragment) -> frozenset[int]:
    """Return the ranks in a file, from its statistics if every row group has one rank."""
    import pyarrow.compute as pc

    ranges = [(group.statistics or {}).get(C.RANK) for group in fragment.row_groups]
    if all(ranks and ranks["min"] == ranks["max"] for ranks in ranges):
        return frozenset(int(ranks["min"]) for ranks in ranges if ranks)
    column = check_values(table, fragment.to_table(columns=[C.RANK]))[C.RANK]
    return frozenset(int(rank) for rank in pc.unique(column).to_pylist())


def _compare(files: Sequence[Place], footers: Mapping[str, int]) -> None:
    for file in files:
        if isinstance(file, Path) and file.name in footers and footer(file) != footers[file.name]:
            raise MisfitError(f"the footer of {file.name} has changed")


def _check(table: Table, file: ds.ParquetFileFragment) -> None:
    unfit = table.unfit(file.physical_schema)
    if unfit:
        more = f" and {len(unfit) - _NAMED} more" if len(unfit) > _NAMED else ""
        name = file.path.rpartition("/")[2]
        raise MisfitError(f"{name} does not match the schema: {', '.join(unfit[:_NAMED])}{more}")


def check_values(table: Table, rows: pa.Table) -> pa.Table:
    """Check that values are valid, and return the rows.

    Args:
        table: Name of the table.
        rows: Some of its columns; Arrow accepts any bytes as text.

    Raises:
        MisfitError: A column has nulls but is not nullable, or values are out of range.
        pyarrow.ArrowInvalid: A text is not UTF-8.
    """
    import pyarrow as pa

    known = {column.name: column for column in table.columns}
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if values.null_count and not known[name].nullable:
            count = f"{values.null_count:,} of {len(values):,}"
            raise MisfitError(f"{name} is null in {count} rows, but is not nullable")
        if pa.types.is_dictionary(values.type):
            for chunk in values.chunks:
                chunk.dictionary.validate(full=True)
        _check_range(known[name], values)
    if {C.START_NS, C.DUR_NS} <= set(rows.column_names):
        _check_ends(rows)
    return rows


def _check_range(column: Column, values: pa.ChunkedArray) -> None:
    import pyarrow.compute as pc  # loading it takes longer than most imports

    if column.between is None or not len(values):
        return
    (least, most), found = column.between, pc.min_max(values).as_py()
    for value in found.values():
        if not least <= value <= most:
            raise MisfitError(f"{column.name} is {value}, not between {least} and {most}")


def _check_ends(rows: pa.Table) -> None:
    """Check that ends fit 64 bits: a sum that overflows is less than the start."""
    import pyarrow.compute as pc

    starts = rows[C.START_NS]
    if pc.any(pc.less(pc.add(starts, rows[C.DUR_NS]), starts)).as_py():
        raise MisfitError(f"an interval ends later than {_LATEST}")


def _misfits() -> tuple[type[Exception], ...]:
    """Return the errors of missing, truncated, changed or invalid files."""
    from pyarrow import ArrowException

    return OSError, ArrowException, UnicodeError, MisfitError


@contextmanager
def one_line_errors(name: str, run_id: str) -> Iterator[None]:
    """Convert errors of reading a table to one line.

    Raises:
        UnusableInputError: A file is missing, unreadable or invalid.

    Example:
        >>> import pyarrow as pa
        >>> try:
        ...     with one_line_errors("steps", "a"):
        ...         raise pa.ArrowInvalid("no footer")
        ... except UnusableInputError as error:
        ...     print(error)
        table steps of run a cannot be read: no footer (check the run with `tracekit verify a`)
    """
    try:
        yield
    except _misfits() as error:
        raise UnusableInputError(
            f"table {name} of run {run_id} cannot be read: {storage.reason(error)}",
            hint=f"check the run with `tracekit verify {run_id}`",
        ) from error
