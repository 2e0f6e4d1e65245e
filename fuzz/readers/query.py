"""SQL statements from a grammar, which read a run and must read and write nothing else."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.case import Case
from fuzz.checks import DefectError, check_message
from fuzz.commands import HERE
from fuzz.damage import damage
from fuzz.edge_values import INTEGERS, TEXTS
from fuzz.readers.store import RUN, made_files
from tracekit.errors import TracekitError
from tracekit.export import views
from tracekit.export.query import ask
from tracekit.export.query import read as read_statement
from tracekit.runs.run import Run

if TYPE_CHECKING:
    from random import Random

_SECRET = "canary-" + "91ab4e"
_MEMORY = 256 << 20
_ROWS = 20
_DEEPEST = 3
_WORDS = (
    b"'",
    b'"',
    b"(",
    b")",
    b";",
    b"--",
    b"/*",
    b"$$",
    b"\x00",
    b"\xff",
    b"SELECT",
    b" UNION ALL ",
    b"\\",
)
_FILE = f"'{HERE}/secret.txt'"
_OUTSIDE = (
    f"read_csv({_FILE})",
    f"read_text({_FILE})",
    f"read_blob({_FILE})",
    f"read_json({_FILE})",
    _FILE,
    f"glob('{HERE}/*')",
    f"parquet_scan({_FILE})",
    "'/etc/passwd'",
    "duckdb_settings()",
    "duckdb_secrets()",
    "information_schema.tables",
    "pg_catalog.pg_class",
    "sqlite_master",
    "pragma_version()",
    "memory.main.x",
    f"query('SELECT * FROM read_text({HERE})')",
    "query_table('steps')",
    f"sniff_csv({_FILE})",
    "which_secret('a', 'b')",
    f"sqlite_scan({_FILE}, 't')",
    "python_object",
    "test_all_types()",
    "checkpoint()",
    "seq_scan('steps')",
)
_OTHER = (
    f"COPY steps TO {_FILE}",
    f"COPY (SELECT 1) TO '{HERE}/made.csv'",
    f"ATTACH '{HERE}/made.db'",
    "INSTALL httpfs",
    "LOAD sqlite",
    "SET memory_limit = '1TB'",
    "PRAGMA database_list",
    "CREATE TABLE x AS SELECT 1",
    "DROP VIEW steps",
    "INSERT INTO steps SELECT * FROM steps",
    f"EXPORT DATABASE '{HERE}/made'",
    f"IMPORT DATABASE '{HERE}'",
    "CHECKPOINT",
    "VACUUM",
    "CALL duckdb_settings()",
    "DELETE FROM steps",
    "UPDATE steps SET rank = 1",
    "PREPARE x AS SELECT 1",
    "CREATE MACRO f(a) AS a",
    f"CREATE SECRET (TYPE s3, KEY_ID {_FILE})",
    "USE memory",
    "SHOW ALL TABLES",
    "BEGIN",
    "RESET threads",
    f"SET temp_directory = '{HERE}/made'",
    "EXPLAIN ANALYZE COPY steps TO 'made.csv'",
)
_FUNCTIONS = (
    "sum({})",
    "count(DISTINCT {})",
    "max({})",
    "abs({})",
    "upper({})",
    "length({})",
    "list({})",
    "hash({})",
    "coalesce({}, {})",
    "{} + {}",
    "{} / {}",
    "{} || {}",
    "{} LIKE {}",
    "{} IN ({}, {})",
    "CAST({} AS BIGINT)",
    "TRY_CAST({} AS TIMESTAMP)",
    "CASE WHEN {} THEN {} END",
    "row_number() OVER (ORDER BY {})",
    "[{}, {}]",
    "{{'a': {}}}",
    "regexp_replace({}, {}, '')",
    "list_transform([{}], lambda x: x)",
    "getenv({})",
    "printf('%s', {})",
    "current_setting({})",
    "getvariable({})",
    "strftime({}, {})",
    "json_extract({}, {})",
    "format({}, {})",
    "median({}) FILTER ({})",
    "NOT {}",
    "{}::JSON",
    "nextval({})",
    "version()",
    "current_database()",
    "to_base64({})",
)
_SHAPES = (
    "{select}",
    "{select}",
    "{select}",
    "WITH c AS ({select}) SELECT * FROM c, {table}",
    "{select} UNION ALL {select}",
    "WITH RECURSIVE c AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM c WHERE i < 9) SELECT * FROM c",
    "EXPLAIN {select}",
    "SUMMARIZE {select}",
    "DESCRIBE {select}",
    "FROM {table}",
    "VALUES ({value}, {value})",
    "{select}; {select}",
    "PIVOT {table} ON {column}",
    "{other}",
    "WITH c AS ({other}) SELECT * FROM c",
    "EXPLAIN {other}",
    "{select}; {other}",
    "SELECT ({other})",
    "{select} EXCEPT {select}",
    "TABLE {table}",
    "SELECT * FROM ({other})",
)


def make(random: Random) -> Case:
    """Make a statement."""
    statement = _statement(random).encode("utf-8", "surrogatepass")
    if random.random() < 0.2:
        statement = damage(random, statement, _WORDS)
    return Case(files={"statement": statement}, main="statement")


def _statement(random: Random, depth: int = 0) -> str:
    text = random.choice(_SHAPES)
    while "{" in text:
        before, _, rest = text.partition("{")
        name, closed, after = rest.partition("}")
        if not closed:
            break
        text = f"{before}\x00{after}".replace("\x00", _part(random, name, depth), 1)
        if len(text) > 4_000:
            break
    return text.replace("\x01", "{").replace("\x02", "}")


def _part(random: Random, name: str, depth: int) -> str:
    """Return a part of a statement, with its braces escaped."""
    made = {
        "select": lambda: _select(random, depth),
        "table": lambda: _source(random, depth),
        "value": lambda: _value(random, depth),
        "column": lambda: random.choice(_columns()),
        "other": lambda: random.choice(_OTHER),
    }
    return made[name]().replace("{", "\x01").replace("}", "\x02")


@cache
def _columns() -> list[str]:
    return sorted({column.name for table in views.KNOWN.values() for column in table.columns})


def _source(random: Random, depth: int) -> str:
    kind = random.random()
    if kind < 0.7 or depth >= _DEEPEST:
        return random.choice([*views.KNOWN])
    if kind < 0.8:
        return f"({_select(random, depth + 1)}) AS t{depth}"
    if kind < 0.85:
        return f"range({random.randrange(100)})"
    return random.choice(_OUTSIDE)


def _select(random: Random, depth: int) -> str:
    values = ", ".join(_value(random, depth) for _ in range(random.randint(1, 3)))
    values = random.choice(("", "", "DISTINCT ")) + random.choice((values, "*"))
    text = f"SELECT {values} FROM {_source(random, depth)}"
    if random.random() < 0.2:
        text += f" {random.choice(('JOIN', 'LEFT JOIN', 'POSITIONAL JOIN', ','))} {_source(random, depth)}"
    if random.random() < 0.3:
        text += f" WHERE {_value(random, depth)}"
    if random.random() < 0.2:
        text += f" GROUP BY {random.choice(('ALL', random.choice(_columns())))}"
    if random.random() < 0.2:
        text += f" ORDER BY {random.choice(('ALL', '1', random.choice(_columns())))}"
    return text + (f" LIMIT {random.randrange(9)}" if random.random() < 0.3 else "")


def _value(random: Random, depth: int) -> str:
    kind = random.random()
    if kind < 0.4:
        return random.choice(_columns())
    if kind < 0.55 or depth >= _DEEPEST:
        return str(random.choice((*INTEGERS, "NULL", "1e400", "true", "DATE '9999-12-31'", "?", "$1")))
    if kind < 0.7:
        return "'" + random.choice(TEXTS).replace("'", "''") + "'"
    if kind < 0.75:
        return f"({_select(random, depth + 1)})"
    text = random.choice(_FUNCTIONS)
    return text.format(*(_value(random, depth + 1) for _ in range(text.count("{}"))))


@cache
def _run() -> Run:
    folder = Path(tempfile.mkdtemp(prefix="tracekit-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Case(files=made_files(1), main="").write(folder / RUN)
    return Run(folder / RUN)


def read(case: Case, folder: Path) -> bool:
    """Run a statement; returns whether it had a result.

    Raises:
        DefectError: It read or wrote a file beside the run, or its error is not printable.
    """
    (folder / "secret.txt").write_text(_SECRET)
    statement = case.write(folder).read_bytes().decode("utf-8", "surrogateescape").replace(HERE, str(folder))
    try:
        known = read_statement(statement, [*views.KNOWN])
        with ask(known, [_run()], store=[_run()], limit=_ROWS, seconds=3, memory_bytes=_MEMORY) as answer:
            text = repr(answer.fetch(_ROWS))
    except TracekitError as error:
        check_message(str(error))
        text = str(error)
        is_read = False
    else:
        is_read = True
    if _SECRET in text or "root:x:0" in text:
        raise DefectError("a file was read")
    left = sorted(entry.name for entry in folder.iterdir())
    if left != ["secret.txt", "statement"] or (folder / "secret.txt").read_text() != _SECRET:
        raise DefectError(f"a file was written: {left}")
    return is_read
