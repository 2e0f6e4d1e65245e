"""Read table columns as compact arrays in a consistent row order."""

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
STRIPE = 1 << 18
"""Rows processed at once, to limit temporary memory."""


@dataclass(frozen=True)
class Text:
    """A dictionary-encoded text column; `NULL` codes are missing values."""

    values: list[str]
    codes: npt.NDArray[np.int32]


def integers(run: Run, table: str, column: str, *, dtype: type[np.integer[Any]] = np.int64) -> Any:
    """Read an integer column, with `NULL` for missing values."""
    found = _column(run, table, column)
    filled = np.empty(len(found), dtype)
    at = 0
    for chunk in found.chunks:
        known = chunk.fill_null(NULL) if chunk.null_count else chunk
        filled[at : at + len(chunk)] = known.to_numpy(zero_copy_only=False)
        at += len(chunk)
        del known, chunk
    del found
    pa.default_memory_pool().release_unused()
    return filled


def text(run: Run, table: str, column: str) -> Text:
    """Read a text column."""
    found = _column(run, table, column).unify_dictionaries()
    codes = np.empty(len(found), np.int32)
    at = 0
    for chunk in found.chunks:
        codes[at : at + len(chunk)] = chunk.indices.fill_null(NULL).to_numpy(zero_copy_only=False)
        at += len(chunk)
    return Text(found.chunk(0).dictionary.to_pylist() if found.num_chunks else [], codes)


def _column(run: Run, table: str, column: str) -> pa.ChunkedArray:
    """Read a column; for runs in parts also the start, which determines the row order."""
    columns = {column: None}
    if run.in_parts(table):
        columns[C.START_NS] = None
    return run.arrow(table, columns=list(columns))[column]


def grouped(*columns: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.int32], list[tuple[int, ...]]]:
    """Group rows by distinct combinations of values, of which few are expected.

    Example:
        >>> codes, keys = grouped(np.array([3, 3, 5]), np.array([0, 1, 0]))
        >>> codes.tolist(), keys
        ([0, 1, 2], [(3, 0), (3, 1), (5, 0)])
    """
    codes = np.empty(len(columns[0]), np.int32)
    known: dict[tuple[int, ...], int] = {}
    for first in range(0, len(codes), STRIPE):
        part = slice(first, first + STRIPE)
        own, keys = _combined([column[part] for column in columns])
        codes[part] = np.array([known.setdefault(key, len(known)) for key in keys], np.int32)[own]
    return codes, list(known)


def _combined(columns: list[npt.NDArray[np.integer[Any]]]) -> tuple[Ints, list[tuple[int, ...]]]:
    codes = np.zeros(len(columns[0]), np.int64)
    keys: list[tuple[int, ...]] = [()]
    for column in columns:
        own, values = pd.factorize(column)
        codes, pairs = pd.factorize(codes * len(values) + own)
        keys = [(*keys[pair // len(values)], int(values[pair % len(values)])) for pair in pairs.tolist()]
    return codes, keys


def order(codes: npt.NDArray[np.integer[Any]], groups: int) -> npt.NDArray[np.int32]:
    """Return positions sorted by group (stable)."""
    small = np.uint16 if groups <= 1 << 16 else np.int64  # 16-bit keys use a radix sort
    return np.argsort(codes.astype(small), kind="stable").astype(np.int32)
