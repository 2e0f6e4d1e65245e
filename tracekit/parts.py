"""Files of a run being written: what is told of each, and how any process delivers them."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from tracekit import places
from tracekit.meta import PartFile, TableFile
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tracekit.places import Place

ENDING = ".parquet"
_TAIL = struct.Struct("<I4s")
"""The last bytes of a Parquet file: how long the footer before them is, and `PAR1`."""
SENT_AT_ONCE = 8


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a draft that is in place; it is a part of the run when the draft is committed with it.

    Attributes:
        table: Its table.
        file: Rows, bytes, digest, and its name in the table's folder; `<table>.parquet` is the whole table.
    """

    table: str
    file: PartFile


def deliver(folder: Path, address: Place) -> tuple[Delivered, ...]:
    """Put the tables in a folder of this machine in place in a draft; the folder's files are used up.

    Any process may do so, at any time until the draft is committed. A file is there as a whole or not at all;
    one of the same name takes the place of the earlier one.

    Args:
        folder: Holds `<table>/<name>.parquet`, or `<table>.parquet` for a run of one trace.
        address: `Draft.address`.

    Returns:
        What to commit the draft with.

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
    told = told_of(table, file)
    with places.put(_place(address, table, file.name)) as target:
        shutil.move(file, target)
    return told


def _place(address: Place, table: str, name: str) -> Place:
    return address / name if name == f"{table}{ENDING}" else address / table / name


def table_files(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Each table that a folder of this machine holds, with its file or its parts in order."""
    for name in TABLES:
        single, parts = folder / f"{name}{ENDING}", folder / name
        if single.is_file():
            yield name, [single]
        elif parts.is_dir():
            yield name, sorted(parts.glob(f"*{ENDING}"))


def seal(files: Sequence[Path]) -> TableFile:
    """What `run.json` says of a table that lies in these files of this machine."""
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
    """CRC-32 of a file's footer, which tells where everything in it is; of all of it where it has none.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL.size))
        tail = stream.read()
        length = _TAIL.unpack(tail)[0] if len(tail) == _TAIL.size else 0
        stream.seek(max(0, size - _TAIL.size - length))
        return zlib.crc32(stream.read())


def sealed(delivered: Iterable[Delivered]) -> dict[str, TableFile]:
    """What `run.json` says of tables whose files were delivered; of files of one name, the last counts."""
    tables: dict[str, dict[str, PartFile]] = {}
    for one in delivered:
        tables.setdefault(one.table, {})[one.file.name] = one.file
    return {name: _sealed(name, tables[name]) for name in TABLES if name in tables}


def _sealed(table: str, files: dict[str, PartFile]) -> TableFile:
    if list(files) == [f"{table}{ENDING}"]:
        (whole,) = files.values()
        return TableFile(rows=whole.rows, bytes=whole.bytes, sha256=whole.sha256, footers=_footers([whole]))
    parts = [files[name] for name in sorted(files)]
    told = "".join(f"{part.sha256}\n" for part in parts)
    return TableFile(
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        sha256=hashlib.sha256(told.encode()).hexdigest(),
        parts=parts,
        footers=_footers(parts),
    )


def _footers(files: Sequence[PartFile]) -> dict[str, int]:
    return {file.name: file.footer for file in files if file.footer is not None}


def told_of(table: str, file: Path) -> Delivered:
    """What is told of a file of this machine that is in place, or goes there."""
    digest = hashlib.sha256()
    _digested(file, digest)
    size = file.stat().st_size
    return Delivered(
        table=table, file=PartFile(file.name, _rows(file), size, digest.hexdigest(), footer(file))
    )


def _rows(file: Path) -> int:
    import pyarrow.parquet as pq  # who only reads what is told of files does without

    rows: int = pq.read_metadata(file).num_rows
    return rows


def _digested(file: Path, digest: hashlib._Hash) -> None:
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
