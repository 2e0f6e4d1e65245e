"""Columns of a run's tables as compact arrays, in one order whatever columns are asked for together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

NULL = -1


@dataclass(frozen=True)
class Text:
    """A column of text: the distinct values, and which of them each row has; `NULL` where it has none."""

    values: list[str]
    codes: npt.NDArray[np.int32]


def read(run: Run, table: str, *columns: str) -> dict[str, Any]:
    """Columns by name: int64 with `NULL` for null, or `Text`.

    The start is always read, for a run of several parts is put in order by it.
    """
    found = run.arrow(table, columns=list(dict.fromkeys((C.START_NS, *columns)))).unify_dictionaries()
    return {name: _array(found[name].combine_chunks()) for name in columns}


def _array(column: Any) -> Ints | Text:
    if isinstance(column, pa.ChunkedArray):  # an empty one stays chunked
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        codes = column.indices.fill_null(NULL).to_numpy(zero_copy_only=False)
        return Text(column.dictionary.to_pylist(), codes.astype(np.int32, copy=False))
    filled = column.fill_null(NULL) if column.null_count else column
    integers: Ints = filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return integers


def grouped(*columns: Ints) -> tuple[Ints, list[tuple[int, ...]]]:
    """Which distinct combination of values each row has, and the combinations; few of them are expected.

    Example:
        >>> codes, keys = grouped(np.array([3, 3, 5]), np.array([0, 1, 0]))
        >>> codes.tolist(), keys
        ([0, 1, 2], [(3, 0), (3, 1), (5, 0)])
    """
    codes = np.zeros(len(columns[0]), np.int64)
    keys: list[tuple[int, ...]] = [()]
    for column in columns:
        own, values = pd.factorize(column)
        codes, pairs = pd.factorize(codes * len(values) + own)
        keys = [(*keys[pair // len(values)], int(values[pair % len(values)])) for pair in pairs.tolist()]
    return codes, keys


def order(codes: Ints, groups: int) -> Ints:
    """Positions by group, in their order within each."""
    small = np.uint16 if groups <= 1 << 16 else np.int64  # 16 bits sort in linear time
    return np.argsort(codes.astype(small), kind="stable")
