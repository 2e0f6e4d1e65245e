"""What a query may be: one statement that reads the tables of runs, told from its syntax tree.

The kind of a statement is not enough: a common table expression may hold a COPY, and EXPLAIN may hold
anything. So every node of the tree is looked at, and what is not known to read only is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import duckdb

from tracekit.errors import UnusableInputError
from tracekit.query import problems

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_NODES: Final = {"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"}
_FUNCTIONS: Final = {"generate_series", "range", "repeat", "repeat_row", "unnest"}
"""Functions that may stand where a table does; others read files, settings, or start other queries."""
_SCHEMAS: Final = ("", "main")
_EXPLAIN = re.compile(r"\s*explain\b(\s+analyze\b)?", re.IGNORECASE)
_WORD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
ONLY = "a query only reads: one SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE or EXPLAIN"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that may be run.

    Attributes:
        sql: What to select, without the words that ask for its plan.
        explain: The words that ask for its plan; empty where the rows are asked for.
        tables: Names of the tables it reads, in lower case.
    """

    sql: str
    explain: str
    tables: frozenset[str]


def read(sql: str, known: Collection[str]) -> Statement:
    """The statement of a text.

    Args:
        sql: What the user wrote.
        known: Names of all tables there are.

    Raises:
        UnusableInputError: It is not a statement, more than one, does not only read, or reads something else.

    Example:
        >>> sorted(read("SELECT * FROM steps JOIN counters USING (rank)", ["counters", "steps"]).tables)
        ['counters', 'steps']
    """
    explain = _EXPLAIN.match(sql)
    rest = _blank(explain[0]) + sql[explain.end() :] if explain else sql
    rest, tree = _parsed(rest)
    nodes = list(_nodes(tree))
    for node in nodes:
        _refuse(node)
    words = " ".join(explain[0].split()).upper() if explain else ""
    return Statement(sql=rest, explain=words, tables=_tables(nodes, known))


def _blank(text: str) -> str:
    """As many spaces, so that what comes after keeps its place."""
    return re.sub(r"[^\n]", " ", text)


def _parsed(sql: str) -> tuple[str, dict[str, Any]]:
    """The one statement of a text, without what ends it, and its syntax tree."""
    with duckdb.connect(":memory:") as database:
        try:
            statements = database.extract_statements(sql)
            found = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
        except duckdb.Error as error:
            raise problems.told(error, sql, []) from error
    if len(statements) != 1:
        raise UnusableInputError(f"expected one statement, got {len(statements)}", hint=ONLY)
    tree: dict[str, Any] = json.loads(str(found[0]) if found else "{}")
    if tree.get("error", True):
        word = _WORD.match(sql)
        raise UnusableInputError(
            f"{word[1].upper() if word else 'this'} is not allowed in a query", hint=ONLY
        )
    return _without_ends(sql), tree


def _without_ends(sql: str) -> str:
    """One statement without semicolons, each of which gives way to a space."""
    text = sql.encode()  # places are counted in bytes
    for place, _ in duckdb.tokenize(sql):
        if text[place : place + 1] == b";":
            text = text[:place] + b" " + text[place + 1 :]
    return text.decode()


def _nodes(part: Any) -> Iterator[dict[str, Any]]:
    """Every object of a tree."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _nodes(each)


def _refuse(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        word = kind.removesuffix("_NODE").removesuffix("_QUERY")
        raise UnusableInputError(f"{word} is not allowed in a query", hint=ONLY)
    if kind == "TABLE_FUNCTION" and (name := _function(node)) not in _FUNCTIONS:
        raise UnusableInputError(
            f"{name}() is not allowed: a query can read only the tables of runs",
            hint="list them with `tracekit query --tables`",
        )
    if kind == "VALUE_PARAMETER":
        raise UnusableInputError("the query has a parameter (? or $)", hint="replace it with a value")


def _function(node: dict[str, Any]) -> str:
    return str(node["function"]["function_name"]).lower()


def _tables(nodes: list[dict[str, Any]], known: Collection[str]) -> frozenset[str]:
    """The tables that are read, by name; all there are where the query asks for a list of them."""
    own = {str(one["key"]).lower() for node in nodes for one in node.get("cte_map", {}).get("map", [])}
    found: set[str] = set()
    for node in nodes:
        if node.get("type") == "SHOW_REF" and not node.get("query"):
            found.update(known)
        if node.get("type") == "BASE_TABLE":
            name = str(node["table_name"]).lower()
            if name in known:
                found.add(name)
            if name not in own and (name not in known or node.get("schema_name", "") not in _SCHEMAS):
                raise _no_table(node, known)
    return frozenset(found)


def _no_table(node: dict[str, Any], known: Collection[str]) -> UnusableInputError:
    name = ".".join(str(node[key]) for key in ("catalog_name", "schema_name", "table_name") if node.get(key))
    near = get_close_matches(str(node["table_name"]).lower(), known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return UnusableInputError(
        f"unknown table {name!r}", hint=f"{hint}tables: {', '.join(known)} (`tracekit query --tables`)"
    )
