"""Only tracekit.schema spells a column; everything else goes through `C`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
COLUMNS = {column.name for table in TABLES.values() for column in table.columns if "_" in column.name}
SOURCES = [
    path
    for top in ("tracekit", "collectors", "analyses", "dashboards")
    for path in sorted((ROOT / top).rglob("*.py"))
    if path != ROOT / "tracekit" / "schema.py"
]


def spelled(source: str) -> Iterator[tuple[int, str]]:
    """Line and column of each string that is a column's name; a docstring is never just that."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in COLUMNS:
            yield node.lineno, str(node.value)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_column_is_spelled(path: Path) -> None:
    assert list(spelled(path.read_text())) == []


def test_a_spelled_column_would_be_found() -> None:
    assert list(spelled('"""About start_ns."""\nframe["start_ns"]')) == [(2, "start_ns")]
