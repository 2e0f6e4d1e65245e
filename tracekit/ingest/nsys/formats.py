"""Which of Nsight Systems' formats a path is, told by its content, and the tables in it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.ingest import files
from tracekit.ingest.nsys import report
from tracekit.ingest.nsys.sqlite import SqliteTables
from tracekit.ingest.nsys.vendor import MARKS, SUFFIX, TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.ingest.nsys.parquet import ParquetTables

_MAGIC = b"SQLite format 3\0"


def is_nsys(path: Path) -> bool:
    """Whether a path is for this reader: a SQLite database, a report, or a folder of its tables."""
    match files.kind(path):
        case files.Kind.FOLDER:
            return is_parquet_export(path)
        case files.Kind.FILE:
            return report.is_report(path) or is_sqlite(path)
        case _:
            return False


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as SQLite databases do."""
    with files.reading(path), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_parquet_export(path: Path) -> bool:
    """Whether a folder holds tables of an export, one file each."""
    return any(files.kind(path / f"{table}{SUFFIX}") is files.Kind.FILE for table in TABLES | MARKS)


def is_export(path: Path) -> bool:
    """Whether a SQLite database holds an export's tables; False, too, for a damaged one."""
    try:
        tables = SqliteTables(path)
    except (UnusableInputError, sqlite3.Error):
        return False
    found = bool(tables.names() & (TABLES | MARKS))
    tables.close()
    return found


def open_tables(path: Path, directory: Path) -> SqliteTables | ParquetTables:
    """The tables at a path.

    Args:
        path: A SQLite export, a folder of Parquet tables, or a report.
        directory: Where a report is exported to when there is no writing beside it.

    Raises:
        UnusableInputError: It holds none of an export's tables.
    """
    if files.kind(path) is files.Kind.FOLDER:
        from tracekit.ingest.nsys.parquet import ParquetTables

        return ParquetTables(path)
    tables = SqliteTables(report.exported(path, directory) if report.is_report(path) else path)
    if not tables.names() & (TABLES | MARKS):
        tables.close()
        raise UnusableInputError(
            f"{files.printable(str(path))} is an SQLite database, but no export of Nsight Systems",
            hint="export the report: nsys export --type=sqlite REPORT.nsys-rep",
        )
    return tables
