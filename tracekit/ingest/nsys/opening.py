"""The tables at a path, whichever of Nsight Systems' formats it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import places
from tracekit.errors import UnusableInputError
from tracekit.ingest.nsys import report
from tracekit.ingest.nsys.sqlite import SqliteTables
from tracekit.ingest.nsys.vendor import MARKS, TABLES
from tracekit.spelling import printable

if TYPE_CHECKING:
    from tracekit.ingest.nsys.parquet import ParquetTables
    from tracekit.places import Place


def is_export(path: Place) -> bool:
    """Whether a SQLite database holds an export's tables; False, too, for a damaged one.

    One on object storage is taken for an export: to tell, all of it would have to come here.
    """
    if not isinstance(path, Path):
        return True
    try:
        tables = SqliteTables(path)
    except (UnusableInputError, sqlite3.Error):
        return False
    found = bool(tables.names() & (TABLES | MARKS))
    tables.close()
    return found


def open_tables(path: Place, directory: Path) -> SqliteTables | ParquetTables:
    """The tables at a path.

    Args:
        path: A SQLite export, a folder of Parquet tables, or a report.
        directory: Where a report is exported to when there is no writing beside it, and where what lies on
            object storage is brought.

    Raises:
        UnusableInputError: It holds none of an export's tables.
    """
    local = places.fetch(path, directory)
    if places.kind(local) is places.Kind.FOLDER:
        from tracekit.ingest.nsys.parquet import ParquetTables

        return ParquetTables(local)
    tables = SqliteTables(report.exported(local, directory) if report.is_report(local) else local)
    if not tables.names() & (TABLES | MARKS):
        tables.close()
        raise UnusableInputError(
            f"{printable(str(path))} is an SQLite database, but not an export of Nsight Systems",
            hint="export the report: nsys export --type=sqlite REPORT.nsys-rep",
        )
    return tables
