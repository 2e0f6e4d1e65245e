"""Run queries of the dashboard in child processes with limits, few at once; each can be cancelled."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.export import query_process
from tracekit.export.query_process import default_memory, run_query
from tracekit.runs.run import Run
from tracekit.runs.store import Store

from .security import BusyError
from .site import MAX_SQL_CHARS, Results

MAX_SECONDS: Final = 30
MAX_ROWS: Final = 5_000
"""Maximum rows of a result on the page."""
MAX_CSV_ROWS: Final = 1_000_000
MAX_RUNNING: Final = 2
"""Maximum queries that run at once."""
MAX_MEMORY_BYTES: Final = min(default_memory(), 1 << 30)
_MAX_BYTES, _MAX_CSV_BYTES = 8 << 20, 256 << 20


@dataclass(frozen=True)
class Query:
    """A statement and what it reads."""

    sql: str  # the statement, as the user wrote it
    store: str  # address of the store
    runs: tuple[str, ...]  # ids of the runs; none for all runs of the store
    stamp: int = field(default=0, compare=False)  # changes with the runs of the store


def make_query(store: Store, sql: str, runs: Sequence[Run]) -> Query:
    """Return the query of a statement.

    Args:
        store: The store.
        sql: The statement.
        runs: Runs that it reads; none for all runs of the store.

    Raises:
        UnusableInputError: It is too long.
    """
    if len(sql) > MAX_SQL_CHARS:
        raise UnusableInputError(
            f"the query has more than {MAX_SQL_CHARS:,} characters",
            hint="`tracekit query -` reads longer ones from standard input",
        )
    names = tuple(dict.fromkeys(run.path.name for run in runs))
    stamp = hash(tuple(run.path.name for run in store.runs()))
    return Query(sql, str(store.path), names, stamp)


@dataclass(frozen=True)
class Result:
    """Result of a query."""

    columns: tuple[tuple[str, str], ...]  # name and SQL type of each column
    rows: list[list[Any]]  # the first rows, with exact integers
    more: bool  # whether there are more rows
    seconds: float  # time from the start of its process to the last row


@dataclass(eq=False)
class _Process:
    """A running query, and the function that ends its process."""

    query: Query
    kill: Callable[[], None] = lambda: None
    cancelled: bool = False


@dataclass
class Queries:
    """The queries of a server. Equal ones at the same time are one; some results are kept."""

    _results: Results = field(default_factory=lambda: Results(capacity=4))  # each up to about 50 MB
    _processes: list[_Process] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def result(self, requested: Query) -> Result:
        """Return the result of a query.

        Raises:
            TracekitError: It is refused, fails, was cancelled or exceeds a limit; or too many are running.
        """

        def read() -> Result:
            start = time.monotonic()
            with self.lines(requested, limit=MAX_ROWS, most_bytes=_MAX_BYTES) as values:
                head, *rows = values
            more = rows.pop()
            columns = tuple((str(name), str(kind)) for name, kind in head)
            return Result(columns, rows, more, time.monotonic() - start)

        return self._results.get((requested, requested.stamp), read)

    @contextmanager
    def lines(
        self, requested: Query, *, limit: int = MAX_CSV_ROWS, most_bytes: int = _MAX_CSV_BYTES
    ) -> Iterator[Iterator[Any]]:
        """Run a query in a context: iterate over its columns, its rows, and whether there are more.

        Args:
            requested: The query.
            limit: Maximum rows.
            most_bytes: Maximum bytes of the result.

        Raises:
            TracekitError: As of `result`.
        """
        process = self._begin(requested)

        def register(kill: Callable[[], None]) -> None:
            process.kill = kill
            if process.cancelled:
                kill()

        query = query_process.Query(
            sql=requested.sql,
            store=requested.store,
            references=requested.runs,
            all_runs=not requested.runs,
            limit=limit,
            output_format="lines",
            seconds=MAX_SECONDS,
            memory_bytes=MAX_MEMORY_BYTES,
        )
        texts = run_query(query, max_bytes=most_bytes, started=register)
        try:
            with closing(texts):
                yield (json.loads(line) for text in texts for line in text.splitlines())
        except TracekitError:
            if process.cancelled:
                raise UnusableInputError("cancelled", hint="run it again, or change it") from None
            raise
        finally:
            with self._guard:
                self._processes.remove(process)

    def _begin(self, requested: Query) -> _Process:
        with self._guard:
            if len(self._processes) >= MAX_RUNNING:
                raise BusyError(
                    f"{MAX_RUNNING} queries are running, the maximum at once",
                    hint="wait until one has ended, or cancel it in its tab",
                )
            self._processes.append(process := _Process(requested))
            return process

    def cancel(self, requested: Query) -> None:
        """End a query if it is running; who waits for it gets an error."""
        with self._guard:
            for process in self._processes:
                if process.query == requested:
                    process.cancelled = True
                    process.kill()


QUERIES: Final = Queries()
"""The queries of this process."""
