"""Make a large SQLite export of Nsight Systems from a small one.

The rows of every event table are repeated in SQL, shifted in time, with fresh correlation ids, until the file
has the requested size: `python -m benchmarks.amplify_nsys SMALL.sqlite LARGE.sqlite --mb 1000`.
"""

from __future__ import annotations

import shutil
import sqlite3
from typing import TYPE_CHECKING

from benchmarks.amplify import command
from tracekit.ingest.nsys.rows import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHIFTED = ("start", "end", "timestamp")
FRESH = ("correlationId",)


def amplify(source: Path, target: Path, size: int) -> int:
    """Write the large export.

    Args:
        source: A real export; it is only read.
        target: The file to write.
        size: Bytes to reach.

    Returns:
        Number of rows of events written.
    """
    shutil.copyfile(source, target)
    target.chmod(0o644)
    file = sqlite3.connect(target)
    file.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    tables = _tables(file)
    period, fresh = _extent(file, tables)
    last = {table: file.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0 for table in tables}  # noqa: S608
    copies = max(1, size // (target.stat().st_size or 1)) + 1
    copy = 1
    while target.stat().st_size < size:
        for table in tables:
            file.execute(_repeat(file, table, last[table]), {"later": copy * period, "fresh": copy * fresh})
        if copy % max(1, copies // 20) == 0:
            file.commit()
        copy += 1
    file.commit()
    rows = count(file)
    file.close()
    return rows


def count(file: sqlite3.Connection) -> int:
    """Number of rows of events."""
    counts = (file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _tables(file))  # noqa: S608
    return int(sum(counts))


def _tables(file: sqlite3.Connection) -> list[str]:
    there = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return sorted(there & TABLES)


def _columns(file: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in file.execute(f"PRAGMA table_info({table})")]


def _extent(file: sqlite3.Connection, tables: list[str]) -> tuple[int, int]:
    """Time and correlation ids that one copy takes."""
    times, ids = list(_bounds(file, tables, SHIFTED)), list(_bounds(file, tables, FRESH))
    return max(high for _, high in times) - min(low for low, _ in times) + 1000, 1 + max(h for _, h in ids)


def _bounds(file: sqlite3.Connection, tables: list[str], names: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    for table in tables:
        for name in set(_columns(file, table)) & set(names):
            low, high = file.execute(f"SELECT min({name}), max({name}) FROM {table}").fetchone()  # noqa: S608
            if low is not None:
                yield low, high


def _repeat(file: sqlite3.Connection, table: str, last: int) -> str:
    """The statement that writes one more copy of a table's first rows."""
    chosen = []
    for name in _columns(file, table):
        if name in SHIFTED:
            chosen.append(f'"{name}" + :later')
        elif name in FRESH:
            chosen.append(f'CASE WHEN "{name}" > 0 THEN "{name}" + :fresh ELSE "{name}" END')
        else:
            chosen.append(f'"{name}"')
    return f"INSERT INTO {table} SELECT {', '.join(chosen)} FROM {table} WHERE rowid <= {last} ORDER BY rowid"  # noqa: S608


if __name__ == "__main__":
    command(amplify, unit="rows", description=__doc__)
