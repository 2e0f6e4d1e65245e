"""Pages and figures name only columns that an analysis declares."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tracekit import analysis, schema

DASHBOARDS = Path(__file__).parents[3] / "dashboards"
OTHERS = {"axis", "history", "runs", "suite", "sweep", "timeline"}
"""Modules that do not read results of analyses."""
MODULES = sorted(
    path.relative_to(DASHBOARDS)
    for folder in ("figures", "pages")
    for path in (DASHBOARDS / folder).glob("*.py")
    if path.stem not in OTHERS
)
KEYS = {
    "colorbar",
    "data",
    "layout",
    "height",
    "hovertext",
    "label",
    "left",
    "legendgroup",
    "marker",
    "mode",
    "name",
    "pattern",
    "range",
    "showlegend",
}
KEYS |= {"text", "ticktext", "tickvals", "title", "total", "type", "x", "x0", "xaxis", "y", "yaxis", "z"}
KEYS |= {"active", "computation", "device busy", "x1", "error_x", "error_y", "array", "arrayminus"}
"""Keys of figures and of other dictionaries."""
DERIVED = {"wide", "height", "kind", "grid", "block"} | {"part", "base_ns", "head_ns", "delta_ns"}
"""Columns that the figures add, and those of `diff_tables.wall`."""
METHODS = {"sort_values", "groupby", "number", "largest", "columns"}


def declared() -> set[str]:
    specs = [spec for one in analysis.available() for spec in (*one.tables, *one.comparison)]
    names = {column.name for spec in specs for column in spec.columns} | {spec.name for spec in specs}
    return names | {column.name for table in schema.TABLES.values() for column in table.columns}


def literals(text: str) -> set[str]:
    """Strings that index something, or are passed to a method that takes columns."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Subscript):
            found.append(node.slice)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
        ):
            found += node.args
    each = [
        one for node in found for one in (node.elts if isinstance(node, ast.List | ast.Tuple) else [node])
    ]
    return {one.value for one in each if isinstance(one, ast.Constant) and isinstance(one.value, str)}


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_columns_are_declared_by_an_analysis(module: Path) -> None:
    assert literals((DASHBOARDS / module).read_text()) <= declared() | KEYS | DERIVED
