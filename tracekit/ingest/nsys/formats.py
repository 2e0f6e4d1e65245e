"""Which of Nsight Systems' formats a path is, told by its content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import places
from tracekit.ingest import files
from tracekit.ingest.nsys import report
from tracekit.ingest.nsys.vendor import MARKS, SUFFIX, TABLES

if TYPE_CHECKING:
    from tracekit.places import Place

_MAGIC = b"SQLite format 3\0"


def is_nsys(path: Place) -> bool:
    """Whether a path is for this reader: a SQLite database, a report, or a folder of its tables."""
    match places.kind(path):
        case places.Kind.FOLDER:
            return is_parquet_export(path)
        case places.Kind.FILE:
            return report.is_report(path) or is_sqlite(path)
        case _:
            return False


def is_sqlite(path: Place) -> bool:
    """Whether a file begins as SQLite databases do."""
    with files.reading(path), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_parquet_export(path: Place) -> bool:
    """Whether a folder holds tables of an export, one file each."""
    try:
        inside = {file.name: file for file in path.glob(f"*{SUFFIX}")}
    except OSError:
        return False
    wanted = (inside.get(f"{table}{SUFFIX}") for table in TABLES | MARKS)
    return any(file is not None and places.kind(file) is places.Kind.FILE for file in wanted)
