"""A SQLite file of unknown origin, opened so that it is read as plain tables and does nothing else.

A database can hold more than rows: views, triggers, virtual tables, columns that are computed, and a schema
that calls functions. None of it is evaluated: only tables that are stored row by row are seen, and whatever a
question would touch beyond selecting from those is denied when the question is prepared.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tracekit.ingest.limits import MOST_STEPS, MOST_VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STORED: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
_TABLE: Final = b"CREATE TABLE "
"""How the statement of a table begins that is stored row by row; SQLite writes them itself, always so."""
_FUNCTIONS: Final = frozenset({"count", "group_concat", "ifnull", "max", "min"})
_PRAGMAS: Final = frozenset({"table_info"})
_STEPS: Final = 1_000_000
"""Steps of SQLite's machine between two looks at how many they were."""


def opened(path: Path) -> sqlite3.Connection:
    """Open a database for reading: without locks, journals, and anything that it might do by itself.

    Raises:
        sqlite3.Error: It is not there, or no database.
    """
    where = quote(os.fsencode(path))
    file = sqlite3.connect(f"file:{where}?mode=ro&immutable=1", uri=True)
    try:
        for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
            file.execute(f"PRAGMA {pragma}")
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
        file.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        file.set_authorizer(_authorized)
    except sqlite3.Error:
        file.close()
        raise
    return file


def _authorized(
    action: int, first: str | None, second: str | None, _file: str | None, inside: str | None
) -> int:
    """Whether a question may do this; `inside` names the view or trigger that would."""
    allowed = inside is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def stored(file: sqlite3.Connection) -> Iterator[bytes]:
    """Names of the tables that are stored row by row; text must come as bytes."""
    for name, statement in file.execute(_STORED):
        if isinstance(name, bytes) and isinstance(statement, bytes) and statement.startswith(_TABLE):
            yield name


class Budget:
    """Ends a question that takes more steps than any export can need."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._left = 0
        file.set_progress_handler(self._over, _STEPS)

    def renew(self) -> None:
        """Begin another question."""
        self._left = MOST_STEPS // _STEPS

    def _over(self) -> bool:
        self._left -= 1
        return self._left < 0
