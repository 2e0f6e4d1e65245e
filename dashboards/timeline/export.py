"""Export the totals of a range as CSV; spreadsheet formulas are quoted."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ("name", "category", "count", "sum_ns", "mean_ns", "max_ns")
_MAX = ("table", "row")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows of totals as CSV with a header."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"max_{name}" for name in _MAX)])
    for row in rows:
        values = [row[name] for name in COLUMNS] + [row["max"][name] for name in _MAX]
        writer.writerow([cell(value) for value in values])
    return stream.getvalue()


def cell(value: Any) -> Any:
    """Quote text that a spreadsheet would evaluate.

    Example:
        >>> cell("=1+1"), cell("aten::add"), cell(-3)
        ("'=1+1", 'aten::add', -3)
    """
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
