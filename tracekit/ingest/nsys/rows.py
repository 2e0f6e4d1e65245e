"""Tables of an export, read by column name in chunks; conversions of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.ingest.kineto.columns import copy_ends
from tracekit.ingest.spool.rows import NONE, BatchBuilder, Bools, Column, Ints, Words
from tracekit.ingest.spool.text_columns import LATEST_NS
from tracekit.schema import C, CopyKind, Memory

Floats: TypeAlias = npt.NDArray[np.float64]

NULL: Final = int(np.iinfo(np.int64).min)
"""Placeholder of null in a column of integers; no time, id or size has this value."""
CHUNK_ROWS: Final = 1 << 17
FEW_ROWS: Final = 4096
"""Limit of rows of a table that describes the capture."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Columns to read of a table; missing ones are null."""

    integers: Sequence[str] = ()  # integers: times in ns, ids, sizes in bytes
    reals: Sequence[str] = ()  # floating point numbers
    texts: Sequence[str] = ()


class Chunk(msgspec.Struct, frozen=True):
    """Rows of a table by column; null is `NULL` in integers and NaN in reals. Texts are Arrow arrays."""

    rows: int
    columns: dict[str, Any] = msgspec.field(default_factory=dict)

    def integers(self, name: str) -> Ints:
        """Return a column of integers, all `NULL` if it is missing."""
        values: Ints | None = self.columns.get(name)
        return np.full(self.rows, NULL, np.int64) if values is None else values

    def reals(self, name: str) -> Floats:
        """Return a column of reals, all NaN if it is missing."""
        values: Floats | None = self.columns.get(name)
        return np.full(self.rows, np.nan) if values is None else values

    def texts(self, name: str) -> pa.Array:
        """Return a column of text, all null if it is missing."""
        return self.columns[name] if name in self.columns else pa.nulls(self.rows, pa.string())

    def replace(self, name: str, values: Ints) -> Chunk:
        """Return the rows with a replaced column of integers."""
        return Chunk(self.rows, {**self.columns, name: values})

    def where(self, mask: Bools) -> Chunk:
        """Return the selected rows."""
        chosen = pa.array(mask)
        columns = {
            name: values.filter(chosen) if isinstance(values, pa.Array) else values[mask]
            for name, values in self.columns.items()
        }
        return Chunk(int(mask.sum()), columns)


def as_integer(value: Any) -> int | None:
    """Return a value of a small table as a 64-bit integer; None for other values.

    Example:
        >>> [as_integer(value) for value in (7, 7.0, "7", None, b"x", 1 << 64)]
        [7, 7, None, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and abs(value) <= np.iinfo(np.int64).max else None


def as_text(value: Any) -> str:
    """Return a value of a small table as text; empty for other values."""
    return value if isinstance(value, str) else ""


class Tables(Protocol):
    """Interface of an export: tables by the vendor's names, all of them optional."""

    def names(self) -> frozenset[str]:
        """Names of the tables."""

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table, empty if it is absent."""

    def chunks(self, table: str, wanted: Wanted) -> Iterator[Chunk]:
        """Yield the rows of a table, in the stored order; none if it is absent.

        Raises:
            UnusableInputError: The table is damaged.
        """

    def records(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return columns of the rows of a small table; absent ones are None.

        Raises:
            UnusableInputError: The table is damaged.
        """


_NAME_VERSION = re.compile(r"_[vV]?\d+$")
_SAME = {"begin": "start", "stop": "end"}


def find_tables(stored: Iterable[str], has_rows: Callable[[str], bool]) -> dict[str, str]:
    """Return the stored name of each table by its name: other versions of nsys may add a number to it.

    Args:
        stored: The stored names.
        has_rows: Whether a table has rows; asked only where several are versions of one.

    Example:
        >>> find_tables(["NVTX_EVENTS_V2", "OTHER_V2"], lambda _name: True)
        {'OTHER_V2': 'OTHER_V2', 'NVTX_EVENTS': 'NVTX_EVENTS_V2'}
    """
    table_of_role = {name: name for name in stored}
    for name in sorted(table_of_role):
        role = _NAME_VERSION.sub("", name)
        if role == name or role not in TABLES | MARKS:
            continue
        if role not in table_of_role or (not has_rows(table_of_role[role]) and has_rows(name)):
            table_of_role[role] = table_of_role.pop(name)
    return table_of_role


def find_columns(stored: Iterable[str]) -> dict[str, str]:
    """Return the stored name of each column by its name: `startNs`, `start_ns` and `begin` are `start`.

    Example:
        >>> find_columns(["begin", "end_ns", "GlobalTid", "textId"])
        {'textId': 'textId', 'start': 'begin', 'end': 'end_ns', 'globalTid': 'GlobalTid'}
    """
    names = list(stored)
    column_of_role = {name: name for name in names if name in _COLUMNS.values()}
    for name in names:
        plain = name.lower().replace("_", "")
        role = next(
            (spelling for spelling in (plain, plain.removesuffix("ns")) if spelling in _COLUMNS), plain
        )
        column_of_role.setdefault(_COLUMNS.get(role, name), name)
    return column_of_role


_READ_COLUMNS = (
    *("start", "end", "globalTid", "globalPid", "deviceId", "contextId", "streamId", "correlationId"),
    *("nameId", "textId", "text", "eventType", "demangledName", "shortName", "bytes", "copyKind", "srcKind"),
    *("dstKind", "graphId", "graphNodeId", "id", "value", "timestamp", "syncType", "memKind"),
)
_COLUMNS = {name.lower(): name for name in _READ_COLUMNS} | _SAME
"""Columns of events by their name in lower case, and what else they are called."""

PROCESS_BITS = 24
_MASK = (1 << PROCESS_BITS) - 1


def pid(global_id: Ints) -> Ints:
    """Return the process of a globalPid or globalTid; 0 if there is none.

    Example:
        >>> pid(np.array([281477392629760 + 7]))
        array([144])
    """
    return np.where(global_id == NULL, 0, (global_id >> PROCESS_BITS) & _MASK)


def tid(global_id: Ints) -> Ints:
    """Return the thread of a globalTid; 0 if there is none."""
    return np.where(global_id == NULL, 0, global_id & _MASK)


def nullable(values: Ints, *, above: int | None = None) -> Column:
    """Return a column in which `NULL` is missing; with `above`, values up to it are missing too."""
    return Column(values, values == NULL if above is None else values <= above)


def encode(place: Ints, values: Sequence[str | None]) -> Words:
    """Return texts by index into values, which may contain duplicates and null.

    Example:
        >>> encode(np.array([0, 1, 2, 2]), ["b", None, "a"])
        (array([ 0, -1,  1,  1]), [b'b', b'a'])
    """
    codes: dict[str, int] = {}
    numbers = [NONE if value is None else codes.setdefault(value, len(codes)) for value in values]
    return np.array(numbers, np.int64)[place], [value.encode() for value in codes]


def read_names(strings: Strings, ids: Ints, change: Callable[[str], str] = str) -> tuple[Ints, list[str]]:
    """Return the index of each row's name among the distinct ones, and these names.

    Args:
        strings: Texts of the export.
        ids: Id of each row's name.
        change: Converts a name.
    """
    distinct, place = np.unique(ids, return_inverse=True)
    return place, [change(name or "") for name in strings.of(distinct).to_pylist()]


def within_limits(chunk: Chunk, time: str, *, earliest: int) -> Chunk:
    """Select the rows with a time within the limits; ends beyond the limits become missing.

    Args:
        chunk: Rows of a table.
        time: Column of their times, ns.
        earliest: Earliest time that is kept, ns.
    """
    times = chunk.integers(time)
    mask = (times >= earliest) & (times < LATEST_NS)
    if not mask.all():
        chunk = chunk.where(mask)
    end = chunk.integers("end")
    possible = (end > -LATEST_NS) & (end < LATEST_NS)
    return chunk if possible.all() else chunk.replace("end", np.where(possible, end, NULL))


def add_times(batch: BatchBuilder, start: Ints, end: Ints) -> int:
    """Add starts and durations; return the number of rows whose end is missing or before their start.

    The duration of such rows is 0.

    Args:
        batch: The batch to add them to.
        start: Starts, ns, (rows,).
        end: Ends, ns, (rows,).
    """
    batch.numbers(C.START_NS, Column(start))
    return batch.durations(end - start, end < start)


KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
OVERHEAD: Final = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROFILER: Final = "PROFILER_OVERHEAD"
OSRT: Final = "OSRT_API"
NVTX: Final = "NVTX_EVENTS"
MEMORY: Final = "CUDA_GPU_MEMORY_USAGE_EVENTS"
VENDOR_METRICS: Final = "GPU_METRICS"
STRINGS: Final = "StringIds"
TABLES: Final = frozenset(
    {KERNEL, MEMCPY, MEMSET, GRAPH, SYNC, RUNTIME, OVERHEAD, PROFILER, OSRT, NVTX, MEMORY, VENDOR_METRICS}
)
"""Event tables; a file with one of them, or with `MARKS`, is an export."""
MARKS: Final = frozenset({STRINGS, "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"})
SUFFIX: Final = ".parquet"
"""Suffix of a table's file in a folder."""

_UNKNOWN = "Unknown"
MEMORY_WORDS: Final = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed"),
    _UNKNOWN,
)
"""Names of srcKind, dstKind and memKind, by number."""
ON_HOST: Final = (0, 1)
"""Kinds of host memory."""

_COPIES: Final = (
    *(_UNKNOWN, "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("HtoD", "DtoH", "DtoD"),
)
"""Directions of copyKind, by number."""
_MIGRATIONS: Final = (11, 12, 13)  # copies of unified memory, whose memory kinds are unknown in the export
SYNCS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Names by syncType, as in torch.profiler."""
NO_STREAM: Final = 0xFFFF_FFFF
NVTX_MARK: Final = 34
NVTX_RANGES: Final = (59, 60)
WARNING, ERROR = 2, 3
"""Severities of DIAGNOSTIC_EVENT."""

_VERSION = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")


def call(name: str) -> str:
    """Return the name of a runtime or driver call without its version.

    Example:
        >>> call("cudaMemcpyAsync_v3020"), call("cuMemcpyHtoDAsync_v2"), call("cudaLaunchKernel_ptsz_v7000")
        ('cudaMemcpyAsync', 'cuMemcpyHtoDAsync', 'cudaLaunchKernel')
    """
    return _VERSION.sub("", name, count=1)


def describe_copy(kind: int, source: int, target: int) -> tuple[str, CopyKind, Memory, Memory]:
    """Return name, direction and memory kinds of a copy; the name as in torch.profiler.

    Args:
        kind: `copyKind` of the row.
        source: `srcKind` of the row.
        target: `dstKind` of the row.
    """
    letters = _COPIES[kind] if 0 <= kind < len(_COPIES) else _UNKNOWN
    if kind in _MIGRATIONS:
        name = f"Unified Memory Memcpy {letters}"
        return name, copy_ends(name)[0], Memory.UNIFIED, Memory.UNIFIED
    name = f"Memcpy {letters} ({memory_name(source)} -> {memory_name(target)})"
    return name, *copy_ends(name)


def memory_name(memory: int) -> str:
    """Return the name of a memory kind."""
    return MEMORY_WORDS[memory] if 0 <= memory < len(MEMORY_WORDS) else _UNKNOWN


class Strings:
    """Texts of an export by id."""

    def __init__(self, tables: Tables) -> None:
        chunks = list(tables.chunks(STRINGS, Wanted(integers=("id",), texts=("value",))))
        ids = np.concatenate([chunk.integers("id") for chunk in chunks] or [np.empty(0, np.int64)])
        texts = [chunk.texts("value").cast(pa.large_string()) for chunk in chunks]
        order = np.argsort(ids, kind="stable")
        joined = pa.concat_arrays(texts or [pa.nulls(0, pa.large_string())])
        self._ids, self._texts = ids[order], joined.take(pa.array(order))

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, ids: Ints) -> pa.Array:
        """Return the texts of ids; null for unknown ids."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.large_string())
        place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._texts.take(pa.array(place, mask=self._ids[place] != ids))
