"""The Parquet files of a table, opened: one room where what a file holds is held against the schema."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import parts, places
from tracekit.errors import UnusableInputError
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    import pyarrow.dataset as ds

    from tracekit.places import Place
    from tracekit.schema import Column, Table

_FOOTERS = 16
"""Files on object storage whose footers are read at a time."""
_NAMED = 5
_LATEST = (1 << 63) - 1


class MisfitError(ValueError):
    """A file does not have the columns of its table, or not their values."""


def opened(
    table: Table, files: Sequence[Place], rows: int | None = None, footers: Mapping[str, int] | None = None
) -> ds.FileSystemDataset:
    """The files of a table, in their order; their footers are read, and no rows.

    Args:
        table: Which.
        files: Its files; one at least, all in one place.
        rows: How many rows they have together, where that is known.
        footers: CRC-32 of the footers of files by name, where these are known. Object storage has checksums
            of its own, so only files of this machine are compared.

    Raises:
        MisfitError: A file has another footer, columns of other types, or lacks one that every row must have;
            or there are more rows, or fewer.
        OSError: A file is missing or unreadable.
        pyarrow.ArrowException: A file is no Parquet.
    """
    import pyarrow.dataset as ds  # loads pandas, which an import does not need

    _compare(files, footers or {})
    where = files[0].filesystem if isinstance(files[0], places.RemotePath) else None
    keys = [file.key if isinstance(file, places.RemotePath) else str(file) for file in files]
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)  # damaged pages are refused
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


def _compare(files: Sequence[Place], footers: Mapping[str, int]) -> None:
    for file in files:
        if isinstance(file, Path) and file.name in footers and parts.footer(file) != footers[file.name]:
            raise MisfitError(f"the footer of {file.name} has changed")


def _check(table: Table, file: ds.ParquetFileFragment) -> None:
    unfit = table.unfit(file.physical_schema)
    if unfit:
        more = f" and {len(unfit) - _NAMED} more" if len(unfit) > _NAMED else ""
        name = file.path.rpartition("/")[2]
        raise MisfitError(f"{name} does not match the schema: {', '.join(unfit[:_NAMED])}{more}")


def sound(table: Table, rows: pa.Table) -> pa.Table:
    """Rows as they were read, if their values can be those of a run: whoever computes with them relies on it.

    Args:
        table: Whose rows they are.
        rows: Some columns of it; Arrow itself takes any bytes for text.

    Raises:
        MisfitError: A column has nulls, and always has values; or values are beyond what there can be.
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
    import pyarrow.compute as pc  # takes longer to load than most imports take

    if column.between is None or not len(values):
        return
    (least, most), found = column.between, pc.min_max(values).as_py()
    for value in found.values():
        if not least <= value <= most:
            raise MisfitError(f"{column.name} is {value}, not between {least} and {most}")


def _check_ends(rows: pa.Table) -> None:
    """An interval ends at an instant that 64 bits hold: a sum beyond them is less than the start."""
    import pyarrow.compute as pc

    starts = rows[C.START_NS]
    if pc.any(pc.less(pc.add(starts, rows[C.DUR_NS]), starts)).as_py():
        raise MisfitError(f"an interval ends later than {_LATEST}")


def _misfits() -> tuple[type[Exception], ...]:
    """What is raised of a file that is not there, cut, or changed, or holds what its table cannot."""
    from pyarrow import ArrowException

    return OSError, ArrowException, UnicodeError, MisfitError


@contextmanager
def reading(name: str, run_id: str) -> Iterator[None]:
    """Tell in one line that a table of a run cannot be read, whatever was met while reading it.

    Raises:
        UnusableInputError: A file is missing or unreadable, or is not as its table is.

    Example:
        >>> import pyarrow as pa
        >>> try:
        ...     with reading("steps", "a"):
        ...         raise pa.ArrowInvalid("no footer")
        ... except UnusableInputError as error:
        ...     print(error)
        table steps of run a cannot be read: no footer (check the run with `tracekit verify a`)
    """
    try:
        yield
    except _misfits() as error:
        raise UnusableInputError(
            f"table {name} of run {run_id} cannot be read: {places.reason(error)}",
            hint=f"check the run with `tracekit verify {run_id}`",
        ) from error
