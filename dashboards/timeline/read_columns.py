"""Read columns as compact arrays, and classify intervals.

Kernels are classified by name with `tracekit.diff.naming`, other intervals by kind, copies by direction. Idle
intervals have the cause found by the `idle_gaps` analysis; without one (shorter than 1 µs, or not computed
yet) the category is `idle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis.idle_causes import IdleCause, label
from tracekit.diff.naming import Role, role
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import SEPARATOR, C, CopyKind, DeviceKind, HostKind

NULL = -1
STRIPE_ROWS = 1 << 18
"""Rows processed at once, to limit temporary memory."""


@dataclass(frozen=True)
class Text:
    """A dictionary-encoded text column; `NULL` codes are missing values."""

    values: list[str]
    codes: npt.NDArray[np.int32]


def read_integers(run: Run, table: str, column: str, *, dtype: type[np.integer[Any]] = np.int64) -> Any:
    """Read an integer column, with `NULL` for missing values.

    Args:
        run: The run.
        table: Name of the table.
        column: Name of the column.
        dtype: Type of the array, which has shape (rows,).
    """
    column_data = _column(run, table, column)
    filled = np.empty(len(column_data), dtype)
    row = 0
    for chunk in column_data.chunks:
        filled_chunk = chunk.fill_null(NULL) if chunk.null_count else chunk
        filled[row : row + len(chunk)] = filled_chunk.to_numpy(zero_copy_only=False)
        row += len(chunk)
        del filled_chunk, chunk
    del column_data
    pa.default_memory_pool().release_unused()
    return filled


def read_text(run: Run, table: str, column: str) -> Text:
    """Read a text column.

    Args:
        run: The run.
        table: Name of the table.
        column: Name of the column.
    """
    column_data = _column(run, table, column).unify_dictionaries()
    codes = np.empty(len(column_data), np.int32)
    row = 0
    for chunk in column_data.chunks:
        codes[row : row + len(chunk)] = chunk.indices.fill_null(NULL).to_numpy(zero_copy_only=False)
        row += len(chunk)
    return Text(column_data.chunk(0).dictionary.to_pylist() if column_data.num_chunks else [], codes)


def _column(run: Run, table: str, column: str) -> pa.ChunkedArray:
    """Read a column; for runs in parts also the start, which determines the row order."""
    columns = {column: None}
    if run.in_parts(table):
        columns[C.START_NS] = None
    return run.arrow(table, columns=list(columns))[column]


def read_process_groups(run: Run) -> dict[tuple[int, int, int], str]:
    """Return the process groups of the collectives on each stream, by rank, device and stream; only known."""
    named = run.arrow(
        "host_intervals", columns=[C.ROW_ID, C.GROUP_NAME], where=pc.field(C.GROUP_NAME).is_valid()
    ).to_pandas()
    if named.empty:
        return {}
    columns = [C.RANK, C.DEVICE, C.STREAM, C.OP_ROW]
    where = pc.field(C.OP_ROW).is_valid() & pc.field(C.STREAM).is_valid()
    device = run.arrow("device_intervals", columns=columns, where=where).to_pandas()
    groups = named.set_index(C.ROW_ID)[C.GROUP_NAME].astype(object)
    device = device.assign(group=device[C.OP_ROW].map(groups)).dropna(subset=["group"])
    names_by_stream = device.groupby([C.RANK, C.DEVICE, C.STREAM])["group"].agg(
        lambda names: sorted(set(names))
    )
    places = ((*map(int, place), names) for place, names in names_by_stream.items())
    return {(rank, device, stream): SEPARATOR.join(names) for rank, device, stream, names in places}


def group_rows(*columns: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.int32], list[tuple[int, ...]]]:
    """Group rows by distinct combinations of values, of which few are expected.

    Example:
        >>> codes, keys = group_rows(np.array([3, 3, 5]), np.array([0, 1, 0]))
        >>> codes.tolist(), keys
        ([0, 1, 2], [(3, 0), (3, 1), (5, 0)])
    """
    codes = np.empty(len(columns[0]), np.int32)
    number_of_key: dict[tuple[int, ...], int] = {}
    for first in range(0, len(codes), STRIPE_ROWS):
        part = slice(first, first + STRIPE_ROWS)
        # products of codes stay below 2⁶³, since a stripe has at most STRIPE_ROWS distinct keys
        stripe_codes, keys = _group_stripe([column[part] for column in columns])
        codes[part] = np.array([number_of_key.setdefault(key, len(number_of_key)) for key in keys], np.int32)[
            stripe_codes
        ]
    return codes, list(number_of_key)


def _group_stripe(columns: list[npt.NDArray[np.integer[Any]]]) -> tuple[Ints, list[tuple[int, ...]]]:
    codes = np.zeros(len(columns[0]), np.int64)
    keys: list[tuple[int, ...]] = [()]
    for column in columns:
        column_codes, values = pd.factorize(column)
        codes, pairs = pd.factorize(codes * len(values) + column_codes)
        keys = [(*keys[pair // len(values)], int(values[pair % len(values)])) for pair in pairs.tolist()]
    return codes, keys


def order_by_group(codes: npt.NDArray[np.integer[Any]], groups: int) -> npt.NDArray[np.int32]:
    """Return positions sorted by group (stable)."""
    small = np.uint16 if groups <= 1 << 16 else np.int64  # 16-bit keys use a radix sort
    return np.argsort(codes.astype(small), kind="stable").astype(np.int32)


CategoryCodes = npt.NDArray[np.uint8]

IDLE_CATEGORIES: Final = "idle"
COMMUNICATION: Final = "communication"
HOST_CATEGORIES: Final = ("op", "runtime call", "annotation", "python", "overhead")
CATEGORIES: Final = (
    *("gemm", "conv", "attention", "normalization", "elementwise", "reduction"),
    *("copy H2D", "copy D2H", "copy D2D/other", "memset", COMMUNICATION, "other kernel", "graph"),
    *HOST_CATEGORIES,
    "sync",
    *(f"{IDLE_CATEGORIES}: {cause.label}" for cause in IdleCause),
    IDLE_CATEGORIES,
)
"""Names by number. Append new ones at the end, since clients use the numbers."""
NUMBER: Final = {name: number for number, name in enumerate(CATEGORIES)}
_OTHER_COPY = "copy D2D/other"
_OF_ROLE = {
    Role.GEMM: "gemm",
    Role.CONV: "conv",
    Role.ATTENTION: "attention",
    Role.NORM: "normalization",
    Role.ELEMENTWISE: "elementwise",
    Role.FILL: "elementwise",
    Role.COPY: "elementwise",
    Role.OPTIMIZER: "elementwise",
    Role.REDUCTION: "reduction",
    Role.SOFTMAX: "reduction",
    Role.POOL: "reduction",
    Role.COLLECTIVE: COMMUNICATION,
}
"""Kernels that copy or fill are elementwise; the copy categories are for memcpy intervals."""
_OF_KIND: dict[str, str] = {
    DeviceKind.MEMSET: "memset",
    DeviceKind.GRAPH: "graph",
    DeviceKind.SYNC: "sync",
    DeviceKind.IDLE: IDLE_CATEGORIES,
    HostKind.OP: "op",
    HostKind.RUNTIME: "runtime call",
    HostKind.ANNOTATION: "annotation",
    HostKind.PYTHON: "python",
    HostKind.OVERHEAD: "overhead",
}
_OF_COPY: dict[str, str] = {CopyKind.H2D: "copy H2D", CopyKind.D2H: "copy D2H"}


def kernel_category(name: str) -> int:
    """Return the category of a kernel by its name."""
    return NUMBER[_OF_ROLE.get(role(name), "other kernel")]


def cause_category(cause: str) -> int:
    """Return the category of an idle interval by its cause."""
    return NUMBER.get(f"{IDLE_CATEGORIES}: {label(cause)}", NUMBER[IDLE_CATEGORIES])


def kind_categories(kinds: Sequence[str]) -> CategoryCodes:
    """Return the category of each kind; for kernels and copies a placeholder."""
    return np.array([NUMBER[_OF_KIND.get(kind, "sync")] for kind in kinds], np.uint8)


def copy_categories(kinds: Sequence[str]) -> CategoryCodes:
    """Return the category of each copy kind, followed by that of copies of unknown kind."""
    return np.array([NUMBER[_OF_COPY.get(kind, _OTHER_COPY)] for kind in (*kinds, "")], np.uint8)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A time range divided into pixel columns.

    Column `c` of `width` is from `start + c · (end − start) // width` up to the start of the next.
    """

    start: int
    end: int
    width: int

    @property
    def edges(self) -> Ints:
        """Start of each column, and end of the last."""
        span = self.end - self.start
        quotient, rest = divmod(span, self.width)
        column = np.arange(self.width + 1, dtype=np.int64)
        return self.start + column * quotient + column * rest // self.width
