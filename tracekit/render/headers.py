"""Headings and alignment of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.render.data import Record


_RATES = (("gb_per_s", "GB/s"), ("tflops", "TFLOP/s"))
"""Unit suffixes of column names, and their spelling in headings."""


def header(column: Column) -> str:
    """Return the heading of a column; the unit suffix is dropped, as cells show the unit.

    Example:
        >>> from tracekit.analysis import Column
        >>> header(Column("kernel_sum_ns", "ns", ""))
        'kernel sum'
        >>> header(Column("median_gb_per_s", "GB/s", ""))
        'median GB/s'
    """
    name = column.name.removesuffix("_ns") if column.unit == "ns" else column.name
    for written, unit in _RATES:
        if unit == column.unit and name.endswith(written):
            name = f"{name.removesuffix(written)}{unit}"
    return name.replace("_", " ")


def folded(head: str, width: int) -> str:
    """Wrap a heading to two lines if it is wider than the cells.

    Example:
        >>> print(folded("kernel sum", 4))
        kernel
        sum
    """
    words = head.split(" ")
    if cell_len(head) <= width or len(words) < 2:
        return head
    cuts = [(" ".join(words[:n]), " ".join(words[n:])) for n in range(1, len(words))]
    return "\n".join(min(cuts, key=lambda cut: max(map(cell_len, cut))))


def is_text(rows: list[Record], column: Column) -> bool:
    """Tell whether a column holds text, which is left-aligned."""
    return any(isinstance(row[column.name], str) for row in rows)
