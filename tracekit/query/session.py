"""A query run: a database in memory that reads a few files, can be stopped, and keeps to its memory."""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import psutil

from tracekit.errors import UnusableInputError
from tracekit.query import problems, views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tracekit.query.guard import Statement
    from tracekit.run import Run

    T = TypeVar("T")

_MOST_BYTES = 4 << 30
_MOST_THREADS = 8
_AGAIN_S = 0.05
_LOOK_S = 1.0
_CLOSED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET lock_configuration = true",
)
"""Nothing but the files of the views is read, no extension is loaded, and none of that is turned on again."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a query may take.

    Attributes:
        memory_bytes: Bytes beyond which it spills to disk; None for half of the machine's, 4 GiB at most.
        seconds: How long it may take; 0 for as long as it needs.
    """

    memory_bytes: int | None = None
    seconds: float = 0


@dataclass(frozen=True)
class Heading:
    """A column of a result: its name and its SQL type."""

    name: str
    type: str


class Answer:
    """The rows of a query, which are made as they are fetched.

    Attributes:
        headings: Its columns.
    """

    def __init__(self, session: Session, statement: Statement, limit: int) -> None:
        self._session, self._sql = session, statement.sql
        rows = _inside("*", statement.sql) + (f" LIMIT {limit + 1}" if limit else "")
        asked = f"{statement.explain}\n{statement.sql}" if statement.explain else rows
        session.run(lambda database: database.execute(asked))
        described = session.run(lambda database: database.description)
        self.headings = [Heading(one[0], str(one[1])) for one in described or []]

    def fetch(self, count: int) -> list[tuple[Any, ...]]:
        """The next rows, so many at most; none when all were given."""
        return self._session.run(lambda database: database.fetchmany(count))

    def count(self) -> int:
        """How many rows the query has, asked of the database anew; what was not fetched is lost."""
        counted = _inside("count(*)", self._sql)
        found = self._session.run(lambda database: database.execute(counted).fetchone())
        return int(found[0]) if found else 0


def _inside(what: str, sql: str) -> str:
    """The statement as a table; lines of their own, as it may end in a comment."""
    return f"SELECT {what} FROM (\n{sql}\n)"  # noqa: S608 - it was read, and is the user's own


class Session:
    """A database whose work can be stopped: it is done beside the thread that waits for it."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        pool: ThreadPoolExecutor,
        statement: Statement,
        limits: Limits,
    ) -> None:
        self._database, self._pool, self._seconds = database, pool, limits.seconds
        self._ends = time.monotonic() + limits.seconds
        self._sql = statement.sql
        self._columns = [column.name for name in statement.tables for column in views.KNOWN[name].columns]

    def check(self) -> None:
        """Find what is wrong with the statement, by its own lines and columns."""
        with self._telling():
            self._database.execute(f"EXPLAIN\n{self._sql}").fetchall()

    def run(self, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """What some work on the database gives.

        Raises:
            UnusableInputError: It failed, or took too long.
        """
        with self._telling():
            done = self._pool.submit(work, self._database)
            while wait([done], self._patience()).not_done:
                if self._seconds and time.monotonic() >= self._ends:
                    raise UnusableInputError(
                        f"the query took longer than {self._seconds:g} s",
                        hint="simplify the query, or increase --timeout",
                    )
            return done.result()

    def _patience(self) -> float:
        """Seconds to wait before looking up: an interrupt just before a wait is heard only after it."""
        return min(_LOOK_S, max(self._ends - time.monotonic(), 0)) if self._seconds else _LOOK_S

    def stop(self) -> None:
        """End whatever is being done; an interrupt may have come at any moment, so nobody knows what."""
        idle = self._pool.submit(int)
        while wait([idle], _AGAIN_S).not_done:  # a query that had not begun does not hear it
            self._database.interrupt()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise problems.told(error, self._sql, self._columns, before=1) from error


@contextmanager
def ask(
    statement: Statement,
    runs: Sequence[Run],
    *,
    store: Sequence[Run] = (),
    labelled: bool = False,
    limit: int = 0,
    limits: Limits | None = None,
) -> Iterator[Answer]:
    """Run a statement and give its answer, which ends with the block.

    Args:
        statement: From `read`.
        runs: Whose tables it reads, one after the other.
        store: The runs that the table `runs` lists.
        labelled: Whether each row begins with its run's id.
        limit: One row more than this at most is made; 0 for all.
        limits: What it may take.

    Raises:
        UnusableInputError: It names what there is not, or took too much memory or time.

    Example:
        >>> from tracekit.query import ask, read
        >>> with ask(read("SELECT 2 * 4611686018427387903 AS big", []), []) as answer:
        ...     answer.fetch(1)
        [(9223372036854775806,)]
    """
    allowed = limits or Limits()
    with (
        tempfile.TemporaryDirectory(prefix="tracekit-query-") as spill,
        duckdb.connect(":memory:", config=_settings(allowed, spill)) as database,
        ThreadPoolExecutor(1) as pool,
    ):
        if views.RUNS.name in statement.tables:
            views.of_store(database, store)
        named = sorted(statement.tables - {views.RUNS.name})
        _close(database, views.of_runs(database, runs, named, labelled=labelled))
        session = Session(database, pool, statement, allowed)
        try:
            session.check()
            yield Answer(session, statement, limit)
        finally:
            session.stop()


def _settings(limits: Limits, spill: str) -> dict[str, str | bool | int | float | list[str]]:
    memory = limits.memory_bytes or min(psutil.virtual_memory().total // 2, _MOST_BYTES)
    return {
        "memory_limit": f"{memory}B",
        "threads": min(len(os.sched_getaffinity(0)), _MOST_THREADS),
        "temp_directory": spill,
    }


def _close(database: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Shut everything but the files, for good."""
    database.execute("SET allowed_paths = ?", [[str(file) for file in files]])
    for setting in _CLOSED:
        database.execute(setting)
