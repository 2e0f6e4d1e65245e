"""Make a sample of an export of Nsight Systems.

    python -m samples.nsys.strip EXPORT.sqlite NAME

Writes `NAME.sqlite.gz` into this folder. Removed are other processes, settings of the system, call chains,
paths, serial numbers, and texts to which no row refers, such as the environment. Rows of the program stay.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

FOLDER = Path(__file__).parent
_REMOVED = ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "OSRT_CALLCHAINS", "ProcessStreams")
_PROCESS = "CUPTI_ACTIVITY_KIND_RUNTIME"  # has rows of the recorded program alone
_REFERENCE = re.compile(r"^\s*(\w+)\s.*REFERENCES StringIds", re.MULTILINE)
_PID_BITS = 0xFFFFFFFFFF000000  # of a `globalTid`


def strip(database: sqlite3.Connection) -> None:
    """Remove what is not of the recorded program, in place."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in tables & set(_REMOVED):
        database.execute(f"DROP TABLE {table}")
    database.create_function("process", 1, lambda thread: thread & _PID_BITS, deterministic=True)
    [(process,)] = database.execute(f"SELECT DISTINCT process(globalTid) FROM {_PROCESS}")
    for table in tables - set(_REMOVED):
        columns = _columns(database, table)
        thread = next((name for name in ("globalTid", "globalPid") if name in columns), None)
        if thread:
            database.execute(f"DELETE FROM {table} WHERE process({thread}) != ?", (process,))
    database.execute("DELETE FROM META_DATA_EXPORT WHERE name LIKE 'EXPORT_PARAM%' OR name = 'EXPORT_HOST'")
    database.execute("UPDATE PROCESSES SET name = 'python3'")
    database.execute("UPDATE TARGET_INFO_GPU SET uuid = ''")
    _remove_texts(database, tables - set(_REMOVED))
    database.commit()
    database.execute("VACUUM")


def _remove_texts(database: sqlite3.Connection, tables: set[str]) -> None:
    """Remove texts to which no row refers; comments in the tables' definitions tell which columns do."""
    made = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    used = {
        text
        for table, statement in made
        if table in tables
        for column in _REFERENCE.findall(statement)
        for (text,) in database.execute(f"SELECT DISTINCT {column} FROM {table}")
    }
    kept = ", ".join(str(text) for text in used if text is not None)
    database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({kept})")


def _columns(database: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the types of a table's columns by name."""
    return {name: kind for _, name, kind, *_ in database.execute(f"PRAGMA table_info({table})")}


def main() -> None:
    """Strip a copy of an export, and store it compressed."""
    source, name = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(source, folder))
        with closing(sqlite3.connect(copy)) as database:
            strip(database)
        (FOLDER / f"{name}.sqlite.gz").write_bytes(gzip.compress(copy.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main()
