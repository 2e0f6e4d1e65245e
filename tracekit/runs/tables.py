"""Parquet files of tables: move them to a draft, compute digests, open, check and convert them."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs.meta import PartFile, TableFile
from tracekit.schema import TABLES, C, Column, Table
from tracekit.storage import Place

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa
    import pyarrow.dataset as ds


ENDING = ".parquet"
_TAIL = struct.Struct("<I4s")  # last bytes of a Parquet file: length of the footer before them, and `PAR1`
_MAX_UPLOADS = 8  # files that are moved to a draft at the same time


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a draft, and its table; the name `<table>.parquet` is that of a whole table."""

    table: str
    file: PartFile


def move_to_draft(folder: Path, address: Place) -> tuple[WrittenFile, ...]:
    """Move the tables of a local folder to a draft.

    Any process may do so until the draft is committed. Each file is moved atomically; a file of the same name
    is replaced.

    Args:
        folder: Folder with `<table>/<name>.parquet`, or `<table>.parquet` for a run of one trace.
        address: `Draft.address`.

    Returns:
        The argument `written` of `Draft.commit`.

    Raises:
        OSError: A file cannot be read or sent.

    Example:
        >>> with store.draft(run_id) as draft:  # doctest: +SKIP
        ...     written = move_to_draft(folder, draft.address)  # as in the workers of a cluster
        ...     draft.commit(meta, written)
    """
    from concurrent.futures import ThreadPoolExecutor

    def move(table: str, file: Path) -> WrittenFile:
        described = describe_file(table, file)
        is_whole = file.name == f"{table}{ENDING}"
        storage.move(file, address / file.name if is_whole else address / table / file.name)
        return described

    files = [(table, file) for table, files in table_files(folder) for file in files]
    with ThreadPoolExecutor(_MAX_UPLOADS, "tracekit-upload") as threads:
        return tuple(threads.map(lambda pair: move(*pair), files))


def table_files(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Return the tables in a local folder, with their files in order."""
    for name in TABLES:
        single, parts = folder / f"{name}{ENDING}", folder / name
        if single.is_file():
            yield name, [single]
        elif parts.is_dir():
            yield name, sorted(parts.glob(f"*{ENDING}"))


def whole_entry(files: Sequence[Path]) -> TableFile:
    """Return the entry of `run.json` for a table in local files, with one digest of their content."""
    return TableFile(
        rows=sum(map(_count_rows, files)),
        bytes=sum(file.stat().st_size for file in files),
        sha256=sha256(files),
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


def table_entries(written: Iterable[WrittenFile]) -> dict[str, TableFile]:
    """Return the entries of `run.json` for files of a draft; the last file of a name counts."""
    tables: dict[str, dict[str, PartFile]] = {}
    for part in written:
        tables.setdefault(part.table, {})[part.file.name] = part.file
    return {name: _table_entry(name, tables[name]) for name in TABLES if name in tables}


def _table_entry(table: str, files: dict[str, PartFile]) -> TableFile:
    parts = [files[name] for name in sorted(files)]
    footers = {file.name: file.footer for file in parts if file.footer is not None}
    if list(files) == [f"{table}{ENDING}"]:
        (only_part,) = parts
        return TableFile(rows=only_part.rows, bytes=only_part.bytes, sha256=only_part.sha256, footers=footers)
    return TableFile(
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        sha256=sha256_of_parts([part.sha256 for part in parts]),
        parts=parts,
        footers=footers,
    )


def sha256_of_parts(digests: Iterable[str]) -> str:
    """Return the digest of a table whose parts were hashed where they were written: that of their digests."""
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def describe_file(table: str, file: Path) -> WrittenFile:
    """Return name, rows, bytes, digest and footer of a local file."""
    size = file.stat().st_size
    part = PartFile(file.name, _count_rows(file), size, sha256([file]), footer(file))
    return WrittenFile(table=table, file=part)


def _count_rows(file: Path) -> int:
    import pyarrow.parquet as pq  # not needed by readers of `run.json` alone

    rows: int = pq.read_metadata(file).num_rows
    return rows


def sha256(files: Iterable[Place], progress: Callable[[int], None] = lambda _: None) -> str:
    """Return the digest of the concatenated files; `progress` receives the number of further bytes read."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                progress(len(block))
    return digest.hexdigest()


_MAX_FOOTERS = 16  # files on object storage whose footers are read concurrently
_MAX_NAMED = 5
_MAX_INT64 = (1 << 63) - 1


class MisfitError(ValueError):
    """A file does not have the columns of its table, or has invalid values."""


def list_files(folder: Place, name: str, stored: TableFile | None, *, in_parts: bool) -> list[Place]:
    """Return the Parquet files of a table, in order; empty without rows.

    Args:
        folder: Folder of the run.
        name: Name of the table.
        stored: What `run.json` has of it.
        in_parts: Whether its rows are in several files, in a folder of its name.

    Raises:
        OSError: Object storage denies access; or a file or their folder is a link, which may lead anywhere.
    """
    if not stored or not stored.rows:
        return []
    whole = folder / f"{name}{ENDING}"
    if stored.parts:
        files = [folder / name / part.name for part in stored.parts]
    elif stored.footers.keys() == {whole.name} or not in_parts:
        files = [whole]
    else:
        files = [*storage.inside(folder / name, f"*{ENDING}")] or [whole]
    if isinstance(folder, Path):
        own = (*files, folder / name) if files != [whole] else files
        if linked := next((path for path in own if path.is_symlink()), None):
            raise OSError(errno.ELOOP, f"{linked.name} is a link, which is not followed")
    return files


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
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow.dataset as ds  # loads pandas, which imports do not need

    for file in files:  # before Arrow reads them: a damaged footer may end the process
        expected = (footers or {}).get(file.name)
        if isinstance(file, Path) and expected is not None and footer(file) != expected:
            raise MisfitError(f"the footer of {file.name} has changed")
    remote = files[0].filesystem if isinstance(files[0], storage.RemotePath) else None
    keys = [file.key if isinstance(file, storage.RemotePath) else str(file) for file in files]
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)  # detects damaged pages
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    # With a schema, columns that older versions lack are null, and unknown ones are left out.
    dataset = ds.dataset(keys, format=parquet, schema=table.arrow, filesystem=remote)
    fragments = list(dataset.get_fragments())
    if remote is not None and len(fragments) > 1:
        with ThreadPoolExecutor(_MAX_FOOTERS) as threads:  # Arrow reads them one after the other
            list(threads.map(methodcaller("ensure_complete_metadata"), fragments))
    for fragment in fragments:
        _check_columns(table, fragment)
    actual = sum(fragment.metadata.num_rows for fragment in fragments)
    if rows is not None and actual != rows:
        raise MisfitError(f"it has {actual:,} rows, but {rows:,} were stored")
    return dataset


def ranks_in(table: Table, fragment: ds.ParquetFileFragment) -> frozenset[int]:
    """Return the ranks in a file, from its statistics if every row group has one rank."""
    import pyarrow.compute as pc

    ranges = [(group.statistics or {}).get(C.RANK) for group in fragment.row_groups]
    if all(ranks and ranks["min"] == ranks["max"] for ranks in ranges):
        return frozenset(int(ranks["min"]) for ranks in ranges if ranks)
    column = check_values(table, fragment.to_table(columns=[C.RANK]))[C.RANK]
    return frozenset(int(rank) for rank in pc.unique(column).to_pylist())


def _check_columns(table: Table, file: ds.ParquetFileFragment) -> None:
    unfit = table.unfit(file.physical_schema)
    if unfit:
        more = f" and {len(unfit) - _MAX_NAMED} more" if len(unfit) > _MAX_NAMED else ""
        name = file.path.rpartition("/")[2]
        raise MisfitError(f"{name} does not match the schema: {', '.join(unfit[:_MAX_NAMED])}{more}")


def check_values(table: Table, rows: pa.Table) -> pa.Table:
    """Check that values are valid, and return the rows.

    Raises:
        MisfitError: A column has nulls but is not nullable, or values are out of range.
        pyarrow.ArrowInvalid: A text is not UTF-8.
    """
    import pyarrow as pa

    columns = {column.name: column for column in table.columns}
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if values.null_count and not columns[name].nullable:
            count = f"{values.null_count:,} of {len(values):,}"
            raise MisfitError(f"{name} is null in {count} rows, but is not nullable")
        if pa.types.is_dictionary(values.type):  # texts, in which Arrow accepts any bytes
            for chunk in values.chunks:
                chunk.dictionary.validate(full=True)
        _check_range(columns[name], values)
    if {C.START_NS, C.DUR_NS} <= set(rows.column_names):
        import pyarrow.compute as pc

        starts = rows[C.START_NS]
        if pc.any(pc.less(pc.add(starts, rows[C.DUR_NS]), starts)).as_py():  # 64 bits overflowed
            raise MisfitError(f"an interval ends later than {_MAX_INT64}")
    return rows


def _check_range(column: Column, values: pa.ChunkedArray) -> None:
    import pyarrow.compute as pc  # loading it takes longer than most imports

    if column.between is None or not len(values):
        return
    minimum, maximum = column.between
    for value in pc.min_max(values).as_py().values():
        if not minimum <= value <= maximum:
            raise MisfitError(f"{column.name} is {value}, not between {minimum} and {maximum}")


Categories: TypeAlias = "dict[str, tuple[pa.Array, pd.CategoricalDtype]]"
"""Dictionaries of columns of text, and their pandas types, by column."""


def to_pandas(column: pa.ChunkedArray, spec: Column, categories: Categories) -> object:
    """Convert a column to an array for pandas: exact integers, with a mask if nullable.

    Args:
        column: The column.
        spec: Its declaration.
        categories: Those of columns that were converted, to which that of this column is added: making a type
            costs more than converting a few rows.
    """
    import pandas as pd
    import pyarrow as pa

    if spec.is_integer and not spec.nullable:
        return column.to_numpy()
    if spec.is_integer:
        masked: Any = pd.Int64Dtype() if column.type == pa.int64() else pd.Int32Dtype()
        return masked.__from_arrow__(column)
    is_text = column.num_chunks == 1 and pa.types.is_dictionary(column.type)  # not without rows
    if is_text and spec.name in categories:
        dictionary, dtype = categories[spec.name]
        texts = column.chunk(0)
        if _is_same(dictionary, texts.dictionary):
            codes = texts.indices.fill_null(-1).to_numpy()
            return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)
    values = column.to_pandas().array
    if is_text:
        categories[spec.name] = column.chunk(0).dictionary, values.dtype
    return values


def to_integers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Convert a column of integers to an array of its type, with -1 for missing ones."""
    plain = column.fill_null(-1) if column.null_count else column
    return plain.to_numpy()  # type: ignore[no-any-return]


def to_codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    """Convert a column of texts to the index of each row's text, and the distinct texts.

    Indices have the smallest type, and are -1 for missing texts.
    """
    import numpy as np

    chunks = column.unify_dictionaries().chunks
    if not chunks:
        return np.empty(0, np.int32), []
    texts = chunks[0].dictionary.to_pylist()
    codes = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate(codes, dtype=np.min_scalar_type(-1 - len(texts)), casting="same_kind"), texts


def _is_same(first: pa.Array, second: pa.Array) -> bool:
    """Return whether two dictionaries are in the same memory, which the first one keeps from being freed."""
    places = ([buffer and buffer.address for buffer in array.buffers()] for array in (first, second))
    return len(first) == len(second) and next(places) == next(places)


@contextmanager
def one_line_errors(name: str, run_id: str) -> Iterator[None]:
    """Convert errors of reading a table to one line.

    Raises:
        UnusableInputError: A file is missing, unreadable or invalid.
    """
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException, UnicodeError, MisfitError) as error:
        message = f"table {name} of run {run_id} cannot be read: {storage.reason(error)}"
        raise UnusableInputError(message, hint=f"check the run with `tracekit verify {run_id}`") from error
