"""Read columns as compact arrays, classify intervals, and compute memory levels.

Kernels are classified by name with `tracekit.diff.naming`, other intervals by kind, copies by direction. Idle
intervals have the cause found by the `idle_gaps` analysis; without one (shorter than 1 µs, or not computed
yet) the category is `idle`.

If every event of a device has the allocator's running total, that is used; otherwise the sum of the events
since the start of the capture, which can be negative. A level holds until the next event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis.idle_causes import IdleCause, label
from tracekit.diff.naming import Role, role
from tracekit.render import human
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import HOST_DEVICE, SEPARATOR, C, CopyKind, DeviceKind, HostKind

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


Array: TypeAlias = npt.NDArray[np.generic]
KIND = "memory"
_TABLE = "allocations"


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Bytes allocated over time on a device.

    Attributes:
        rank: The rank.
        device: The device; `HOST_DEVICE` for the host.
        t_ns: Sorted event times.
        bytes: Bytes allocated before the first event, and after each event.
        total: Whether these are the allocator's running totals, not changes since the capture's start.
    """

    rank: int
    device: int
    t_ns: Ints
    bytes: Ints
    total: bool

    @property
    def group(self) -> str:
        """Heading of the lane's group."""
        where = "host" if self.device == HOST_DEVICE else f"GPU {self.device}"
        return f"rank {self.rank} · {where}"

    def describe(self, number: int) -> dict[str, Any]:
        """Return the lane as sent to clients."""
        most = int(self.bytes.max())
        peak = f"peak {human(most, 'bytes')}" if self.total else f"up to +{human(most, 'bytes')}"
        device = None if self.device == HOST_DEVICE else self.device
        head = {"id": number, "group": self.group, "title": f"memory · {peak}", C.KIND: KIND}
        place = {C.RANK: self.rank, C.DEVICE: device, C.STREAM: None, C.PID: None, C.TID: None, C.DEPTH: 0}
        levels = {"low": int(self.bytes.min()), "high": most, "total": self.total}
        return {**head, **place, "rows": len(self.t_ns), **levels}


def read_levels(run: Run) -> tuple[Levels, ...]:
    """Return the levels of each rank's devices, the host last; empty without allocator events.

    Raises:
        UnusableInputError: The table cannot be read.
    """
    if not run.rows(_TABLE):
        return ()
    size, t_ns = (read_integers(run, _TABLE, name) for name in (C.BYTES, C.T_NS))
    rank, device = (read_integers(run, _TABLE, name, dtype=np.int32) for name in (C.RANK, C.DEVICE))
    recorded = read_integers(run, _TABLE, C.TOTAL_ALLOCATED)
    codes, keys = group_rows(rank, device)
    device_levels = []
    for number, (of_rank, of_device) in enumerate(keys):
        events = np.flatnonzero((codes == number) & (size != 0))
        if not len(events):
            continue
        sizes, totals = size[events], recorded[events]
        if total := bool((totals != NULL).all()):
            level = np.concatenate(([totals[0] - sizes[0]], totals))
        else:
            level = np.concatenate(([0], np.cumsum(sizes)))
        device_levels.append(
            Levels(rank=of_rank, device=of_device, t_ns=t_ns[events], bytes=level, total=total)
        )
    return tuple(sorted(device_levels, key=lambda of: (of.rank, of.device == HOST_DEVICE, of.device)))


def render_levels(device_levels: Levels, window: Window) -> dict[str, Array]:
    """Return lowest, highest and last level in the first column and in each column with an event.

    The result is exact. The level before a column's first event counts for the column, unless it is at
    the start of the column. Sums of bytes are below 2⁵³, so f64 represents them exactly.
    """
    edges = window.edges
    event_index = np.searchsorted(device_levels.t_ns, edges)
    column = np.flatnonzero((event_index[1:] > event_index[:-1]) | (np.arange(window.width) == 0))
    first, after = event_index[column], event_index[column + 1]
    before, last = device_levels.bytes[first], device_levels.bytes[after]
    has_events = after > first
    includes_previous = np.ones(len(column), np.bool_)
    includes_previous[has_events] = device_levels.t_ns[first[has_events]] > edges[column[has_events]]
    low, high = before.copy(), before.copy()
    for extreme, of in ((low, np.minimum), (high, np.maximum)):
        extremes = _within(device_levels.bytes, first[has_events] + 1, after[has_events] + 1, of)
        extreme[has_events] = np.where(
            includes_previous[has_events], of(before[has_events], extremes), extremes
        )
    levels = {"low": low, "high": high, "last": last}
    sent = {name: array.astype(np.float64) for name, array in levels.items()}
    return {"column": column.astype(np.uint16), **sent}


def _within(values: Ints, first: Ints, after: Ints, of: np.ufunc) -> Ints:
    """Reduce each range of positions; no range is empty."""
    if not len(first):
        return np.empty(0, np.int64)
    padded = np.append(values[: after[-1]], values[-1])
    reduced: Ints = of.reduceat(padded, np.ravel(np.column_stack((first, after))))[::2]
    return reduced


def insert_memory_lanes(
    lanes: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Insert memory lanes below the other lanes of their group; those without a group come last."""
    merged = list(lanes)
    for lane_added in more:
        same = [place for place, lane in enumerate(merged) if lane["group"] == lane_added["group"]]
        merged.insert(same[-1] + 1 if same else len(merged), lane_added)
    return merged


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
