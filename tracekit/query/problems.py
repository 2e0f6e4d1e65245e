"""What DuckDB says of a query, as one line: what is wrong, at which place, and what may have been meant."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.render.cells import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_MISSING = re.compile(r'column "?([^"]+?)"? not found|not have a column named "([^"]+)"', re.IGNORECASE)
_DOTS = "..."
_NEAREST = 3
_EXAMPLES = "the SQL is DuckDB's; `tracekit query --help` has examples"
_MEMORY = "ask for less, or give more with --memory"


def told(error: Exception, sql: str, columns: Sequence[str], *, before: int = 0) -> TracekitError:
    r"""The error of a query for its author.

    Args:
        error: What DuckDB raised.
        sql: The query.
        columns: The columns of the tables that it reads.
        before: Lines that DuckDB was given before the query.

    Example:
        >>> said = 'Binder Error: Referenced column "nam" not found!\n\nLINE 1: select nam\n'
        >>> str(told(ValueError(said + 15 * " " + "^"), "select nam", ["name", "rank"]))
        'Referenced column "nam" not found (line 1, column 8) (did you mean name?)'
    """
    text = str(error)
    text = text.replace("Values list", "Table")  # what it calls a view
    first = _KIND.sub("", text.strip().splitlines()[0] if text.strip() else "the query failed").rstrip("!.")
    if "Out of Memory" in text:
        return UnusableInputError(f"the query exceeds its memory limit: {clean(first)}", hint=_MEMORY)
    return UnusableInputError(clean(first + _place(text, sql, before)), hint=_meant(text, columns))


def _place(text: str, sql: str, before: int) -> str:
    """Where it is, in words; the line that DuckDB quotes may be cut at its start."""
    found = _PLACE.search(text)
    if found is None:
        return ""
    number, quoted = int(found[1]) - before, found[2]
    column = len(found[3]) - len(f"LINE {found[1]}: ")
    lines = sql.split("\n")
    if quoted.startswith(_DOTS) and 0 < number <= len(lines):
        start = lines[number - 1].find(quoted.removeprefix(_DOTS).removesuffix(_DOTS))
        column += start - len(_DOTS) if start >= 0 else 0
    return f" (line {number}, column {column + 1})" if number > 0 else ""


def _meant(text: str, columns: Sequence[str]) -> str:
    missing = _MISSING.search(text)
    if missing is None:
        return _EXAMPLES if "syntax error" in text else ""
    near = get_close_matches((missing[1] or missing[2]).lower(), columns, n=_NEAREST, cutoff=0.5)
    if near:
        return f"did you mean {', '.join(near)}?"
    return f"columns: {', '.join(columns)}" if columns else "`tracekit query --tables` lists them"
