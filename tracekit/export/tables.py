"""Write tables of runs as CSV or Parquet, atomically."""

from __future__ import annotations

import os
import re
import secrets
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tracekit.errors import UnusableInputError, clean
from tracekit.runs.meta import FILE_NAME
from tracekit.runs.meta import write as write_meta
from tracekit.runs.run import Run
from tracekit.runs.selection import Window, restrict
from tracekit.runs.tables import check_values
from tracekit.schema import TABLES, C
from tracekit.storage.atomic import delete, write_atomically


@contextmanager
def open_output(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `path` on success and deleted otherwise.

    `overwrite` lets it replace a file, or the folder of an earlier export.

    Raises:
        UnusableInputError: Something is there already, or it cannot be written.
    """
    if path.is_dir() and not (overwrite and _is_export(path)):
        hint = "choose another -o" if overwrite else "use --force to overwrite it, or choose another -o"
        why = " and contains other files" if overwrite else ""
        raise UnusableInputError(f"the folder {path} already exists{why}", hint=hint)
    if path.exists() and not overwrite:
        raise UnusableInputError(
            f"{path} already exists", hint="use --force to overwrite it, or choose another -o"
        )
    temporary = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        with write_atomically(path, temporary=temporary):
            yield temporary
            if path.is_dir() and not path.is_symlink():
                delete(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UnusableInputError(f"{path} cannot be written: {reason}", hint="choose another -o") from error


def _is_export(folder: Path) -> bool:
    """Whether a folder holds nothing but what an export writes."""
    ours = {f"{table}{ending}" for table in TABLES for ending in (".csv", ".parquet")} | {FILE_NAME}
    return all(entry.name in ours for entry in folder.iterdir())


MAX_BATCH_ROWS = 16_384
"""Maximum rows converted at a time."""


@dataclass(frozen=True)
class Source:
    """Selection of an export: the rows of a run, or those that overlap a window."""

    run: Run
    window: Window | None = None

    def batches(
        self, table: str, columns: Sequence[str] | None = None, *, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in file order, batch by batch; nothing without rows.

        Args:
            table: Name of the table.
            columns: Its columns to read; None for all.
            where: Condition on the rows.

        Raises:
            UnusableInputError: A file is missing or unreadable.
        """
        if not self.run.rows(table):
            return
        with self.run.one_line_errors(table):
            dataset = self.run.dataset(table)
            dataset, where = restrict(dataset, self.window, where)
            wanted = list(columns) if columns is not None else TABLES[table].arrow.names
            files = dataset.get_fragments()
            # Group by group, as a scan of all would read far ahead.
            for part in (
                file.subset(row_group_ids=[group.id]) for file in files for group in file.row_groups
            ):
                rows = part.to_table(schema=dataset.schema, columns=wanted, filter=where)
                yield from check_values(TABLES[table], rows).combine_chunks().to_batches(MAX_BATCH_ROWS)

    def nested(self, table: str, columns: Sequence[str], then: str) -> Iterator[pa.RecordBatch]:
        """Sort intervals by start, longest first at equal starts, as viewers need for nesting.

        Args:
            table: A table of intervals.
            columns: Its columns, the start and the duration among them.
            then: Orders those of one start and duration.
        """
        order = [(C.START_NS, "ascending"), (C.DUR_NS, "descending"), (then, "ascending")]
        waiting: pa.Table | None = None
        for batch in self.batches(table, columns):
            table_ = pa.Table.from_batches([batch])
            if waiting is not None:
                table_ = pa.concat_tables([waiting, table_]).unify_dictionaries().combine_chunks()
            starts = table_[C.START_NS].to_numpy()
            cut = int(np.searchsorted(starts, starts[-1])) if len(starts) else 0
            waiting = table_.slice(cut)  # the next batch may hold more of the same start
            yield from table_.slice(0, cut).sort_by(order).combine_chunks().to_batches(MAX_BATCH_ROWS)
        if waiting is not None:
            yield from waiting.sort_by(order).combine_chunks().to_batches(MAX_BATCH_ROWS)


FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""Beginnings of text that a spreadsheet evaluates, also after spaces."""
_FORMULA = rf"^(?:[\t\r]|\s*[{re.escape(''.join(FORMULAS).replace(chr(9), '').replace(chr(13), ''))}])"
_UNPRINTABLE = r"[\p{Cc}\p{Cf}]"


def as_csv(source: Source, path: Path, *, safe: bool = False) -> None:
    """Write a CSV file per table, to a new folder or a zip file.

    Args:
        source: What to write.
        path: Where.
        safe: Quote text that a spreadsheet would evaluate as a formula, and escape control characters.
    """
    with _places(path, ".csv") as opened:
        for name, schema, batches in _tables(source):
            with opened(name) as file, pacsv.CSVWriter(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(_quote_formulas(batch) if safe else batch)


def _quote_formulas(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with an apostrophe before each text that begins like a formula."""
    columns = []
    for column in batch.columns:
        if pa.types.is_string(column.type):
            if pc.any(pc.match_substring_regex(column, _UNPRINTABLE)).as_py():
                texts = [None if text is None else clean(text) for text in column.to_pylist()]
                column = pa.array(texts, pa.string())
            is_formula = pc.fill_null(pc.match_substring_regex(column, _FORMULA), fill_value=False)
            column = pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def as_parquet(source: Source, path: Path) -> None:
    """Write a Parquet file per table with common types and encodings, and `run.json`, to a new folder."""
    path.mkdir()
    for name, schema, batches in _tables(source):
        file = path / f"{name}.parquet"
        with pq.ParquetWriter(file, schema, compression="snappy", version="2.4") as writer:
            for batch in batches:
                writer.write_batch(batch)
    write_meta(path, source.run.meta)


def _tables(source: Source) -> Iterator[tuple[str, pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield name, schema and rows of each table that has any, with dictionary columns as strings."""
    for name, table in TABLES.items():
        if source.run.rows(name):
            fields = [
                field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field
                for field in table.arrow
            ]
            schema = pa.schema(fields, metadata=table.arrow.metadata)
            yield name, schema, (batch.cast(schema) for batch in source.batches(name))


@contextmanager
def _places(path: Path, ending: str) -> Iterator[Callable[[str], IO[Any]]]:
    """Opens the file of each table."""
    if path.suffix.lower() != ".zip":
        path.mkdir()
        yield lambda name: (path / f"{name}{ending}").open("wb")
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        yield lambda name: archive.open(f"{name}{ending}", "w", force_zip64=True)
