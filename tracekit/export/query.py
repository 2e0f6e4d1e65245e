"""SQL queries over runs with DuckDB: read-only sessions, and errors in one line.

The kind of a statement is not sufficient for read-only access: a common table expression can contain COPY,
and EXPLAIN any statement. All nodes of the parse tree are checked, and unknown ones are refused. DuckDB's
`enable_external_access` is the second line of defense: it closes files, but not catalogs and settings.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Final

import duckdb

from tracekit.errors import TracekitError, UnusableInputError, clean, did_you_mean
from tracekit.export import views
from tracekit.export.query_process import TOO_MUCH, default_memory, time_error
from tracekit.runs.run import Run

__all__ = ["Answer", "Statement", "ask", "read"]


_PLACE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_MISSING = re.compile(r'column "?([^"]+?)"? not found|not have a column named "([^"]+)"', re.IGNORECASE)
_DOTS = "..."
_NEAREST = 3
_EXAMPLES = "the SQL is DuckDB's; `tracekit query --help` has examples"


def _convert_error(error: Exception, sql: str, columns: Sequence[str], *, before: int = 0) -> TracekitError:
    """Convert an error of DuckDB, given that many lines before the query, to one for the query's author."""
    text = str(error)
    if "Max expression depth" in text:
        return too_deep()
    text = text.replace("Values list", "Table")  # what it calls a view
    first = _KIND.sub("", text.strip().splitlines()[0] if text.strip() else "the query failed").rstrip("!.")
    if "Out of Memory" in text:
        return UnusableInputError(f"the query exceeds its memory limit: {clean(first)}", hint=TOO_MUCH)
    return UnusableInputError(clean(first + _position(text, sql, before)), hint=_hint_for(text, columns))


def too_deep() -> UnusableInputError:
    """Return the error of a statement with too many levels."""
    return UnusableInputError("the query is nested too deeply", hint="use fewer levels, joins or UNIONs")


def _position(text: str, sql: str, before: int) -> str:
    """Return the position of an error in words; DuckDB may shorten the quoted line at its start."""
    match = _PLACE.search(text)
    if match is None:
        return ""
    number, quoted = int(match[1]) - before, match[2]
    column = len(match[3]) - len(f"LINE {match[1]}: ")
    lines = sql.split("\n")
    if quoted.startswith(_DOTS) and 0 < number <= len(lines):
        start = lines[number - 1].find(quoted.removeprefix(_DOTS).removesuffix(_DOTS))
        column += start - len(_DOTS) if start >= 0 else 0
    return f" (line {number}, column {column + 1})" if number > 0 else ""


def _hint_for(text: str, columns: Sequence[str]) -> str:
    missing = _MISSING.search(text)
    if missing is None:
        return _EXAMPLES if "syntax error" in text else ""
    if hint := did_you_mean(missing[1] or missing[2], columns, most=_NEAREST, cutoff=0.5):
        return hint
    return f"columns: {', '.join(columns)}" if columns else "`tracekit query --tables` lists them"


_NODES: Final = {"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"}
_FUNCTIONS: Final = {"generate_series", "range", "repeat", "repeat_row", "unnest"}
"""Allowed table functions; others read files or settings, or run other queries."""
_SCHEMAS: Final = ("", "main")
_RECURRING: Final = ("", "recurring")
"""Schemas of common table expressions: none, or all rows that a recursive one has made."""
_EXPLAIN = re.compile(r"\s*explain\b(\s+analyze\b)?", re.IGNORECASE)
_WORD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
ONLY = "a query only reads: one SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE or EXPLAIN"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that may be run."""

    sql: str  # what to select, without the words that ask for its plan
    explain: str  # the words that ask for its plan; empty where the rows are asked for
    tables: frozenset[str]  # names of the tables it reads, in lower case


def read(sql: str, tables: Collection[str]) -> Statement:
    """Parse a text into a statement that may be run.

    Raises:
        UnusableInputError: It is not a statement, more than one, does not only read, or reads something else.

    Example:
        >>> sorted(read("SELECT * FROM steps JOIN counters USING (rank)", ["counters", "steps"]).tables)
        ['counters', 'steps']
    """
    explain = _EXPLAIN.match(sql)
    # Spaces in place of EXPLAIN, so that later positions stay the same.
    rest = re.sub(r"[^\n]", " ", explain[0]) + sql[explain.end() :] if explain else sql
    rest, tree = _parse(rest)
    nodes = list(_nodes(tree))
    for node, _ in nodes:
        _refuse(node)
    words = " ".join(explain[0].split()).upper() if explain else ""
    return Statement(sql=rest, explain=words, tables=_read_tables(nodes, tables))


def _parse(sql: str) -> tuple[str, dict[str, Any]]:
    """Return the single statement of a text without its semicolon, and its syntax tree."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UnusableInputError("the query is not valid UTF-8") from None
    with duckdb.connect(":memory:") as database:
        try:
            statements = database.extract_statements(sql)
            row = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
        except duckdb.Error as error:
            raise _convert_error(error, sql, []) from error
    if len(statements) != 1:
        raise UnusableInputError(f"expected one statement, got {len(statements)}", hint=ONLY)
    try:
        tree: dict[str, Any] = json.loads(str(row[0]) if row else "{}")
    except RecursionError:
        raise too_deep() from None
    if tree.get("error", True):
        word = _WORD.match(sql)
        raise UnusableInputError(
            f"{word[1].upper() if word else 'this'} is not allowed in a query", hint=ONLY
        )
    return _remove_semicolons(sql), tree


def _remove_semicolons(sql: str) -> str:
    """Return a single statement with semicolons replaced by spaces."""
    text = sql.encode()  # places are counted in bytes
    for place, _ in duckdb.tokenize(sql):
        if text[place : place + 1] == b";":
            text = text[:place] + b" " + text[place + 1 :]
    return text.decode()


def _nodes(tree: Any) -> Iterator[Scoped]:
    """Yield every object of a tree with the names of common table expressions that it can refer to."""
    pending: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while pending:  # not recursive: a chain of UNIONs is as deep as it is long
        part, scope = pending.pop()
        if isinstance(part, list):
            pending += [(item, scope) for item in part]
        if not isinstance(part, dict):
            continue
        yield part, scope
        if part.get("type") == "RECURSIVE_CTE_NODE":
            scope |= {str(part["cte_name"]).lower()}
        for entry in (part.get("cte_map") or {}).get("map", []):
            pending.append((entry["value"], scope))  # an expression sees those before it
            scope |= {str(entry["key"]).lower()}
        pending += [(value, scope) for key, value in part.items() if key != "cte_map"]


def _refuse(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        word = kind.removesuffix("_NODE").removesuffix("_QUERY")
        raise UnusableInputError(f"{word} is not allowed in a query", hint=ONLY)
    if (
        kind == "TABLE_FUNCTION"
        and (name := str(node["function"]["function_name"]).lower()) not in _FUNCTIONS
    ):
        raise UnusableInputError(
            f"{name}() is not allowed: a query can read only the tables of runs",
            hint="list them with `tracekit query --tables`",
        )
    if kind == "VALUE_PARAMETER":
        raise UnusableInputError("the query has a parameter (? or $)", hint="replace it with a value")


def _read_tables(nodes: list[Scoped], tables: Collection[str]) -> frozenset[str]:
    """Return the names of the tables that are read; all if the query lists tables."""
    names: set[str] = set()
    for node, scope in nodes:
        if node.get("type") == "SHOW_REF" and not node.get("query"):
            names.update(tables)
        if node.get("type") == "BASE_TABLE":
            name, schema = str(node["table_name"]).lower(), node.get("schema_name", "")
            if name in scope and schema in _RECURRING:
                continue
            if name not in tables or schema not in _SCHEMAS:
                raise _no_table(node, tables)
            names.add(name)
    return frozenset(names)


def _no_table(node: dict[str, Any], tables: Collection[str]) -> UnusableInputError:
    name = ".".join(str(node[key]) for key in ("catalog_name", "schema_name", "table_name") if node.get(key))
    hint = did_you_mean(str(node["table_name"]), tables) or f"tables: {', '.join(tables)}"
    return UnusableInputError(f"unknown table {name!r}", hint=f"{hint} (`tracekit query --tables`)")


Scoped = tuple[dict[str, Any], frozenset[str]]

_MAX_THREADS = 8
_INTERRUPT_INTERVAL_S = 0.05
_RESTRICTIONS = (
    "SET enable_progress_bar = false",  # DuckDB writes it to stdout where it takes Python for interactive
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET lock_configuration = true",
)
"""Restrict reading to the files of the views, disable extensions and progress, and lock the configuration."""


@dataclass(frozen=True)
class Heading:
    """A column of a result: its name and its SQL type."""

    name: str
    type: str


class Answer:
    """Rows of a query, computed as they are fetched; `headings` are its columns."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, statement: Statement, limit: int, seconds: float
    ) -> None:
        self._database, self._statement, self._seconds = database, statement, seconds
        self._execute(f"EXPLAIN\n{statement.sql}")  # errors then have the statement's own lines and columns
        rows = _subquery("*", statement.sql) + (f" LIMIT {limit + 1}" if limit else "")
        self._execute(f"{statement.explain}\n{statement.sql}" if statement.explain else rows)
        self.headings = [Heading(name, str(kind)) for name, kind, *_ in self._database.description or []]

    def fetch(self, count: int) -> list[tuple[Any, ...]]:
        """Return at most `count` further rows; empty at the end."""
        with self._convert_errors():
            return self._database.fetchmany(count)

    def count(self) -> int:
        """Count the rows of the query by running it again; unfetched rows are discarded."""
        self._execute(_subquery("count(*)", self._statement.sql))
        return int(self.fetch(1)[0][0])

    def _execute(self, sql: str) -> None:
        with self._convert_errors():
            self._database.execute(sql)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.InterruptException as error:
            raise time_error(self._seconds) from error
        except duckdb.Error as error:
            names = [column.name for name in self._statement.tables for column in views.KNOWN[name].columns]
            raise _convert_error(error, self._statement.sql, names, before=1) from error


def _subquery(what: str, sql: str) -> str:
    """Return the statement as a subquery, on lines of its own since it may end in a comment."""
    return f"SELECT {what} FROM (\n{sql}\n)"  # noqa: S608 - it was read, and is the user's own


@contextmanager
def ask(
    statement: Statement,
    runs: Sequence[Run],
    *,
    store: Sequence[Run] = (),
    labelled: bool = False,
    limit: int = 0,
    seconds: float = 0,
    memory_bytes: int | None = None,
) -> Iterator[Answer]:
    """Run a statement in a context; its rows are valid inside it.

    Args:
        statement: From `read`.
        runs: Whose tables it reads, one after the other.
        store: The runs that the table `runs` lists.
        labelled: Whether each row begins with its run's id.
        limit: One row more than this at most is made; 0 for all.
        seconds: How long it may take; 0 for as long as it needs.
        memory_bytes: Bytes beyond which it spills to disk; None for half of the machine's, 4 GiB at most.

    Raises:
        UnusableInputError: It names what there is not, or took too much memory or time.

    Example:
        >>> from tracekit.export.query import ask, read
        >>> with ask(read("SELECT 2 * 4611686018427387903 AS big", []), []) as answer:
        ...     answer.fetch(1)
        [(9223372036854775806,)]
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_bytes or default_memory()}B",
        "threads": min(len(os.sched_getaffinity(0)), _MAX_THREADS),
    }
    with (
        tempfile.TemporaryDirectory(prefix="tracekit-query-") as spill,
        duckdb.connect(":memory:", config={**settings, "temp_directory": spill}) as database,
    ):
        if views.RUNS.name in statement.tables:
            views.of_store(database, store)
        names = sorted(statement.tables - {views.RUNS.name})
        files = views.of_runs(database, runs, names, labelled=labelled)
        database.execute("SET allowed_paths = ?", [[str(file) for file in files]])
        for setting in _RESTRICTIONS:
            database.execute(setting)
        with _interrupt_after(seconds, database):
            yield Answer(database, statement, limit, seconds)


@contextmanager
def _interrupt_after(seconds: float, database: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt the queries of a block after a time; 0 for never."""
    ended = Event()

    def interrupt() -> None:
        if not ended.wait(seconds):
            while not ended.wait(_INTERRUPT_INTERVAL_S):  # a query that has not begun ignores an interrupt
                database.interrupt()

    watch = Thread(target=interrupt, daemon=True)
    if seconds:
        watch.start()
    try:
        yield
    finally:
        ended.set()
        if seconds:
            watch.join()  # the connection must be open as long as it can be interrupted
