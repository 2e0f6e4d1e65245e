"""Tables of an export, read by column name in chunks; conversions of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.ingest.spool.text_columns import LATEST_NS
from tracekit.schema import C, CopyKind, Memory, ValueType

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

NULL: Final = int(np.iinfo(np.int64).min)
"""Placeholder of null in a column of integers; no time, id or size has this value."""
CHUNK_ROWS: Final = 1 << 17
FEW_ROWS: Final = 4096
"""Limit of rows of a table that describes the capture."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Columns to read of a table; missing ones are null.

    Attributes:
        integers: Integers: times in ns, ids, sizes in bytes.
        reals: Floating point numbers.
        texts: Text.
    """

    integers: Sequence[str] = ()
    reals: Sequence[str] = ()
    texts: Sequence[str] = ()


class Chunk(msgspec.Struct, frozen=True):
    """Rows of a table by column; null is `NULL` in integers and NaN in reals."""

    rows: int
    _integers: dict[str, Ints] = msgspec.field(default_factory=dict)
    _reals: dict[str, Floats] = msgspec.field(default_factory=dict)
    _texts: dict[str, pa.Array] = msgspec.field(default_factory=dict)

    def integers(self, name: str) -> Ints:
        """Return a column of integers, all `NULL` if it is missing."""
        found = self._integers.get(name)
        return np.full(self.rows, NULL, np.int64) if found is None else found

    def replaced(self, name: str, values: Ints) -> Chunk:
        """Return the rows with a replaced column of integers."""
        return Chunk(self.rows, {**self._integers, name: values}, self._reals, self._texts)

    def where(self, mask: npt.NDArray[np.bool_]) -> Chunk:
        """Return the selected rows."""
        chosen = pa.array(mask)
        return Chunk(
            int(mask.sum()),
            {name: values[mask] for name, values in self._integers.items()},
            {name: values[mask] for name, values in self._reals.items()},
            {name: values.filter(chosen) for name, values in self._texts.items()},
        )

    def reals(self, name: str) -> Floats:
        """Return a column of reals, all NaN if it is missing."""
        found = self._reals.get(name)
        return np.full(self.rows, np.nan) if found is None else found

    def texts(self, name: str) -> pa.Array:
        """Return a column of text, all null if it is missing."""
        found = self._texts.get(name)
        return pa.nulls(self.rows, pa.string()) if found is None else found


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

    @property
    def path(self) -> Path:
        """The path of the export."""

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


def nullable(values: Ints, *, above: int | None = None) -> pa.Array:
    """Return an int64 array with nulls; with `above`, values up to it are null too."""
    absent = values == NULL if above is None else values <= above
    return pa.array(values, mask=absent)


def factorize(values: Ints) -> tuple[Ints, np.ndarray[Any, np.dtype[np.int32]]]:
    """Return distinct values, and the index of each row's value."""
    distinct, place = np.unique(values, return_inverse=True)
    return distinct, place.astype(np.int32)


def coded(place: np.ndarray[Any, np.dtype[np.int32]], values: Sequence[str | None]) -> pa.DictionaryArray:
    """Return text by index into values, which may contain duplicates and null."""
    known = sorted({value for value in values if value is not None})
    number = {value: at for at, value in enumerate(known)}
    codes = np.array([number.get(value, -1) if value is not None else -1 for value in values], np.int32)
    indices = codes[place] if len(codes) else np.empty(0, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(known, pa.string()))


def constant(value: str, count: int) -> pa.DictionaryArray:
    """Return a column with the same text in all rows."""
    return coded(np.zeros(count, np.int32), [value])


def named(
    strings: Strings, ids: Ints, change: Callable[[str], str] = str
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str]]:
    """Return the index of each row's name among the distinct ones, and these names, converted."""
    distinct, place = factorize(ids)
    return place, [change(name or "") for name in strings.of(distinct).to_pylist()]


class Spans(msgspec.Struct, frozen=True):
    """Starts and durations, ns.

    Attributes:
        bad: Number of rows whose end is missing or before their start; their duration is 0.
    """

    start: Ints
    duration: Ints
    bad: int

    @property
    def columns(self) -> dict[str, pa.Array]:
        """Return them as columns."""
        return {C.START_NS: pa.array(self.start), C.DUR_NS: pa.array(self.duration)}


def within_limits(chunk: Chunk, time: str, *, earliest: int = 1 - LATEST_NS) -> Chunk:
    """Select the rows with a time within the limits; ends beyond the limits become missing."""
    found = chunk.integers(time)
    mask = (found >= earliest) & (found < LATEST_NS)
    if not mask.all():
        chunk = chunk.where(mask)
    end = chunk.integers("end")
    possible = (end > -LATEST_NS) & (end < LATEST_NS)
    return chunk if possible.all() else chunk.replaced("end", np.where(possible, end, NULL))


def device_index(values: Ints) -> Ints:
    """Return device indices in the range of 32 bits; missing and invalid ones are -1."""
    return np.where((values >= 0) & (values < 1 << 31), values, -1)


def spans(chunk: Chunk, *, open_until: int | None = None) -> Spans:
    """Return the times of a chunk's rows; those without an end last until `open_until`."""
    start, end = chunk.integers("start"), chunk.integers("end")
    if open_until is not None:
        end = np.where(end == NULL, np.maximum(start, open_until), end)
    bad = end < start
    return Spans(start, np.where(bad, 0, end - start), int(bad.sum()))


def batch(schema: pa.Schema, known: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """Return a batch with all columns of the schema; unknown ones are null."""
    columns = []
    for column in schema:
        array = known.get(column.name)
        columns.append(pa.nulls(count, column.type) if array is None else array.cast(column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def spool_schema(*, texts: Sequence[str], integers: Sequence[str], reals: Sequence[str] = ()) -> pa.Schema:
    """Return the schema of a spooled table: every part has all columns."""
    fields = [(name, ValueType.TEXT.arrow) for name in texts] + [(name, pa.int64()) for name in integers]
    return pa.schema(fields + [(name, pa.float64()) for name in reals])


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

_UNKNOWN, _PAGEABLE, _PINNED, _DEVICE = "Unknown", "Pageable", "Pinned", "Device"
_ARRAY, _MANAGED = "Array", "Managed"
MEMORY_WORDS: Final = (_PAGEABLE, _PINNED, _DEVICE, _ARRAY, _MANAGED, _DEVICE, _MANAGED, _UNKNOWN)
"""Names of srcKind, dstKind and memKind, by number."""
_MEMORIES = {
    _PAGEABLE: Memory.PAGEABLE,
    _PINNED: Memory.PINNED,
    _DEVICE: Memory.DEVICE,
    _ARRAY: Memory.ARRAY,
    _MANAGED: Memory.UNIFIED,
    _UNKNOWN: Memory.UNKNOWN,
}
ON_HOST: Final = (0, 1)
"""Kinds of host memory."""

_COPIES: Final = {
    1: ("HtoD", CopyKind.H2D),
    2: ("DtoH", CopyKind.D2H),
    3: ("HtoA", CopyKind.H2D),
    4: ("AtoH", CopyKind.D2H),
    5: ("AtoA", CopyKind.D2D),
    6: ("AtoD", CopyKind.D2D),
    7: ("DtoA", CopyKind.D2D),
    8: ("DtoD", CopyKind.D2D),
    9: ("HtoH", CopyKind.H2H),
    10: ("PtoP", CopyKind.P2P),
    11: ("HtoD", CopyKind.H2D),
    12: ("DtoH", CopyKind.D2H),
    13: ("DtoD", CopyKind.D2D),
}
_MIGRATIONS: Final = (11, 12, 13)
"""Copies of unified memory, whose memory kinds are unknown in the export."""
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


def copy(kind: int, source: int, target: int) -> tuple[str, CopyKind, Memory, Memory]:
    """Return name, direction and memory kinds of a copy; the name as in torch.profiler.

    Example:
        >>> copy(1, 0, 2)[0], copy(12, 7, 7)[0]
        ('Memcpy HtoD (Pageable -> Device)', 'Unified Memory Memcpy DtoH')
    """
    letters, direction = _COPIES.get(kind, (_UNKNOWN, CopyKind.UNKNOWN))
    if kind in _MIGRATIONS:
        return f"Unified Memory Memcpy {letters}", direction, Memory.UNIFIED, Memory.UNIFIED
    ends = [memory_name(source), memory_name(target)]
    return f"Memcpy {letters} ({ends[0]} -> {ends[1]})", direction, _MEMORIES[ends[0]], _MEMORIES[ends[1]]


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

    def of(self, ids: Ints) -> pa.Array:
        """Return the texts of ids; null for unknown ids."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.large_string())
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._texts.take(pa.array(at, mask=self._ids[at] != ids))
