"""Write a process's linked tables as Parquet, a row group at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.schema import TEXT, C, Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from tracekit.ingest.spool import Parked, Strings

    Ints = npt.NDArray[Any]

ROW_GROUP = 1 << 16
_ABSOLUTE = (C.START_NS, C.T_NS)


@dataclass(frozen=True)
class Coded:
    """A computed text column: a code per row, -1 for null, and what the codes stand for."""

    codes: Ints
    values: list[str]


Computed = Callable[[slice], "Ints"]
"""Integers of some rows, so that those of all rows need not be held."""
Extra = dict[str, "Ints | Coded | Computed"]


@dataclass(frozen=True)
class Rows:
    """A table to be written: parked rows in their final order, and what linking computed beside them.

    Attributes:
        order: Position of each row in the parked table.
        extra: Computed columns in final order; an integer of -1 is null where the column may be.
        zero_ns: Instant that becomes 0.
    """

    table: Table
    parked: Parked
    order: Ints
    extra: Extra
    zero_ns: int


def write_rows(rows: Rows, path: Path) -> None:
    """Write the table; it has rows."""
    write_groups(rows.table, _groups(rows), path)


def write_groups(table: Table, groups: Iterator[pa.Table], path: Path) -> None:
    """Write row groups of one table, compressed so that a time window can prune them."""
    schema = table.arrow
    text = [column.name for column in table.columns if column.type == TEXT]
    with pq.ParquetWriter(
        path, schema, compression="zstd", compression_level=1, use_dictionary=text
    ) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=ROW_GROUP)


def _groups(rows: Rows) -> Iterator[pa.Table]:
    strings = {
        column.name: rows.parked.strings(column.name)
        for column in rows.table.columns
        if column.type == TEXT and column.name in rows.parked.schema.names and column.name not in rows.extra
    }
    for start in range(0, len(rows.order), ROW_GROUP):
        part = slice(start, min(start + ROW_GROUP, len(rows.order)))
        taken = rows.parked.take(rows.order[part], strings)
        arrays = [_column(column, rows, taken, strings, part) for column in rows.table.columns]
        yield pa.Table.from_arrays(arrays, schema=rows.table.arrow)


def _column(
    column: Column, rows: Rows, taken: dict[str, pa.Array], strings: dict[str, Strings], part: slice
) -> pa.Array:
    extra = rows.extra.get(column.name)
    if isinstance(extra, Coded):
        return compact(extra.codes[part], extra.values)
    if extra is not None:
        return _integers(extra(part) if callable(extra) else extra[part], column)
    if column.name not in taken:
        return pa.nulls(len(rows.order[part]), column.type)
    array = taken[column.name]
    if column.name in strings:
        return compact(array.fill_null(-1).to_numpy(zero_copy_only=False), strings[column.name].values)
    if column.name in _ABSOLUTE:
        return pa.array(array.to_numpy() - rows.zero_ns)
    return array.cast(column.type)


def _integers(values: Ints, column: Column) -> pa.Array:
    return pa.array(values, mask=values < 0 if column.nullable else None).cast(column.type)


def compact(codes: Ints, values: list[str]) -> pa.DictionaryArray:
    """A dictionary array that holds just the values these rows use, since a file stores all it is given.

    Example:
        >>> compact(np.array([2, -1, 2]), ["a", "b", "c"]).to_pylist()
        ['c', None, 'c']
    """
    used = np.zeros(len(values) + 1, np.bool_)
    used[codes] = True  # null marks the place behind the last value
    used[-1] = False
    place = np.cumsum(used, dtype=np.int32) - 1
    kept = [values[code] for code in np.flatnonzero(used)]
    return pa.DictionaryArray.from_arrays(
        pa.array(place[codes], mask=codes < 0, type=pa.int32()), pa.array(kept, pa.string())
    )
