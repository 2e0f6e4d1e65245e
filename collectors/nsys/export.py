"""From a report of nsys to SQLite, and what an export lacks."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..children import child
from . import options, problems

if TYPE_CHECKING:
    from pathlib import Path

    from .tool import Nsys

_KIND = "CUPTI_ACTIVITY_KIND_"
DEVICE_WORK = tuple(_KIND + name for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
HOST_WORK = (_KIND + "RUNTIME", "NVTX_EVENTS", "OSRT_API")
_WARNING = 2


def exported(nsys: Nsys, report: Path) -> Path:
    """The SQLite export of a report, made beside it; takes as long as it takes.

    Raises:
        CollectionError: nsys failed; the report is kept, and the message says where.
    """
    output, log = report.with_suffix(".sqlite"), report.with_name("export.txt")
    command = options.exporting(nsys, report, output)
    with (
        log.open("wb") as words,
        child(command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT) as process,
    ):
        code = process.wait()
    if code or not _readable(output):
        raise problems.not_exported(nsys, report, code, log.read_text(errors="replace"))
    return output


def has_rows(export: Path, tables: tuple[str, ...]) -> bool:
    """Whether any of these tables holds a row; one that is absent holds none."""
    with closing(_open(export)) as database:
        return any(_has_row(database, table) for table in tables)


def reason(export: Path) -> str:
    """What nsys itself says of missing data: its gravest and latest diagnostic, in one line; else empty."""
    with closing(_open(export)) as database, suppress(sqlite3.OperationalError):
        query = "SELECT text FROM DIAGNOSTIC_EVENT WHERE severity >= ? ORDER BY severity DESC, timestamp DESC"
        for (text,) in database.execute(query, (_WARNING,)):
            if text and text.strip():
                return str(text).strip().splitlines()[0].rstrip(".")
    return ""


def _open(export: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(export.absolute()))}?mode=ro", uri=True)


def _readable(export: Path) -> bool:
    try:
        with closing(_open(export)) as database:
            return bool(database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return False


def _has_row(database: sqlite3.Connection, table: str) -> bool:
    try:
        return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None  # noqa: S608 (ours)
    except sqlite3.OperationalError:
        return False
