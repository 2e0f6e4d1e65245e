"""Only tracekit.schema spells a column; everything else goes through `C`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
COLUMNS = {column.name for table in TABLES.values() for column in table.columns if "_" in column.name}
MENTIONED = re.compile("|".join(sorted(COLUMNS)))
SOURCES = [
    path
    for top in ("tracekit", "collectors", "analyses", "dashboards")
    for path in sorted((ROOT / top).rglob("*.py"))
    if path != ROOT / "tracekit" / "schema.py"
]


def spelled(source: str) -> Iterator[tuple[int, str]]:
    """Line and column of each string that is a column's name; a docstring is never just that."""
    if not MENTIONED.search(source):  # to parse costs a hundred times as much
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in COLUMNS:
            yield node.lineno, str(node.value)


def test_no_column_is_spelled() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {column}"
        for path in SOURCES
        for line, column in spelled(path.read_text())
    ]
    assert found == []


def test_a_spelled_column_would_be_found() -> None:
    assert list(spelled('"""About start_ns."""\nframe["start_ns"]')) == [(2, "start_ns")]
