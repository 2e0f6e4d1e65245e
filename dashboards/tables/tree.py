"""Grids of tables that are trees: rows in depth-first order, which open and close."""

from __future__ import annotations

from typing import Any

from tracekit.analysis import NODE, PARENT, Column
from tracekit.render.cells import Record

from .columns import ColumnValues

MAX_ROWS_AT_FIRST = 32
"""Rows to show at first, at most, unless the upper level alone has more."""
_OPEN, _CLOSED, _HIDDEN = "tk_open", "tk_closed", "tk_hidden"
"""Fields of a row with children: whether they are shown. Field of a row below a closed one."""
OPTIONS: dict[str, Any] = {
    "isExternalFilterPresent": {"function": "true"},
    "doesExternalFilterPass": {"function": "tracekit.treeShows(params)"},
}


def tree_column(columns: list[ColumnValues]) -> Column | None:
    """Return the column that shows the tree; None if the table is none."""
    return next((column.column for column in columns if column.column.indent_by), None)


def columns_in_tree(columns: list[ColumnValues]) -> set[str]:
    """Return the columns that the tree itself shows."""
    tree = tree_column(columns)
    return {NODE, PARENT, tree.indent_by} if tree else set()


def tree_renderer(tree: Column) -> dict[str, Any]:
    """Return the part of a column definition that shows the tree."""
    return {"cellRenderer": "tracekitTree", "cellRendererParams": {"depth": tree.indent_by}, "minWidth": 220}


def with_state(rows: list[Record], tree: Column) -> list[Record]:
    """Add to rows whether they are open and whether they are hidden: the upper levels that fit are shown.

    Args:
        rows: Rows in depth-first order.
        tree: Column that shows the tree.

    Example:
        >>> from tracekit.analysis import Column
        >>> rows = [{"node": 0, "parent": None, "depth": 0}, {"node": 1, "parent": 0, "depth": 1}]
        >>> [row["tk_hidden"] for row in with_state(rows, Column("name", "", "", indent_by="depth"))]
        [False, False]
    """
    depths = sorted(row[tree.indent_by] for row in rows)
    level = depths[min(MAX_ROWS_AT_FIRST, len(depths)) - 1]
    if len(depths) > MAX_ROWS_AT_FIRST and depths[MAX_ROWS_AT_FIRST] == level:
        level = max(level - 1, 0)
    parents = {row.get(PARENT) for row in rows}
    return [
        {
            **row,
            _HIDDEN: row[tree.indent_by] > level,
            _OPEN: row[NODE] in parents and row[tree.indent_by] < level,
            _CLOSED: row[NODE] in parents and row[tree.indent_by] >= level,
        }
        for row in rows
    ]
