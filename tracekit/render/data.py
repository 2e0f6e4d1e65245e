"""Input of all renderers: rows as plain values in the declared column order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from typing_extensions import TypeIs

    from tracekit.analysis import Column

    Rows: TypeAlias = pd.DataFrame | Iterable[Mapping[str, Any]]

Record: TypeAlias = dict[str, Any]


def records(data: Rows, columns: Sequence[Column]) -> list[Record]:
    """Return the rows as dictionaries of plain Python values; missing values are None.

    Args:
        data: A DataFrame, or mappings by column name.
        columns: The columns, in order.

    Returns:
        One dictionary per row: exact integers, None for NaN, NA and absent keys.

    Example:
        >>> from tracekit.analysis import Column
        >>> records([{"a": float("nan"), "b": 2**60}], [Column("a", "", ""), Column("b", "", "")])
        [{'a': None, 'b': 1152921504606846976}]
    """
    names = [column.name for column in columns]
    if not _is_frame(data):
        return [{name: plain(row.get(name)) for name in names} for row in data]
    lists = [data[name].astype(object).tolist() for name in names]
    return [dict(zip(names, map(plain, row), strict=True)) for row in zip(*lists, strict=True)]


def first(data: Rows, columns: Sequence[Column], limit: int) -> tuple[list[Record], int]:
    """Return the first rows like `records` (0 for all), and the number of all rows.

    Example:
        >>> from tracekit.analysis import Column
        >>> first([{"a": 1}, {"a": 2}], [Column("a", "", "")], 1)
        ([{'a': 1}], 2)
    """
    if _is_frame(data):
        return records(data.head(limit) if limit else data, columns), len(data)
    rows = list(data)
    return records(rows[: limit or None], columns), len(rows)


def _is_frame(data: Rows) -> TypeIs[pd.DataFrame]:
    return hasattr(data, "to_dict")  # avoids importing pandas to print a list


def plain(value: Any) -> Any:
    """Convert a value to a JSON type."""
    if value is None or isinstance(value, str | bool | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "item"):
        return plain(value.item())
    return None if type(value).__name__ in {"NAType", "NaTType"} else str(value)
