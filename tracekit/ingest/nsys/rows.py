"""The tables of an export, read by column name in bounded chunks, whatever holds them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.ingest.texts import LATEST_NS
from tracekit.schema import C, CopyKind, Memory, ValueType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt


if TYPE_CHECKING:
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for null in a column of integers; no time, id or size has this value."""
CHUNK_ROWS: Final = 1 << 17
FEW_ROWS: Final = 4096
"""Rows at most of a table that describes the capture."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Columns to read of a table; one that the table lacks is null in every row.

    Attributes:
        integers: Whole numbers: times in ns, ids, sizes in bytes.
        reals: Numbers that may have a fraction.
        texts: Text.
    """

    integers: Sequence[str] = ()
    reals: Sequence[str] = ()
    texts: Sequence[str] = ()


class Chunk(msgspec.Struct, frozen=True):
    """Some rows of a table, by column: integers with `NULL` for null, reals with NaN, texts with nulls."""

    rows: int
    _integers: dict[str, Ints] = msgspec.field(default_factory=dict)
    _reals: dict[str, Floats] = msgspec.field(default_factory=dict)
    _texts: dict[str, pa.Array] = msgspec.field(default_factory=dict)

    def integers(self, name: str) -> Ints:
        """A column of whole numbers; all `NULL` where the table lacks it."""
        found = self._integers.get(name)
        return np.full(self.rows, NULL, np.int64) if found is None else found

    def replaced(self, name: str, values: Ints) -> Chunk:
        """The same rows with other whole numbers in one column."""
        return Chunk(self.rows, {**self._integers, name: values}, self._reals, self._texts)

    def where(self, kept: npt.NDArray[np.bool_]) -> Chunk:
        """Only the rows that are kept."""
        chosen = pa.array(kept)
        return Chunk(
            int(kept.sum()),
            {name: values[kept] for name, values in self._integers.items()},
            {name: values[kept] for name, values in self._reals.items()},
            {name: values.filter(chosen) for name, values in self._texts.items()},
        )

    def reals(self, name: str) -> Floats:
        """A column of numbers; all NaN where the table lacks it."""
        found = self._reals.get(name)
        return np.full(self.rows, np.nan) if found is None else found

    def texts(self, name: str) -> pa.Array:
        """A column of text; all null where the table lacks it."""
        found = self._texts.get(name)
        return pa.nulls(self.rows, pa.string()) if found is None else found


def whole(value: Any) -> int | None:
    """A value of a small table as a whole number of 64 bits; None where it is none.

    Example:
        >>> [whole(value) for value in (7, 7.0, "7", None, b"x", 1 << 64)]
        [7, 7, None, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and abs(value) <= np.iinfo(np.int64).max else None


def words(value: Any) -> str:
    """A value of a small table as text; empty where it is none."""
    return value if isinstance(value, str) else ""


class Tables(Protocol):
    """An export: tables by the vendor's names, any of which may be absent."""

    @property
    def path(self) -> Path:
        """What is read."""

    def names(self) -> frozenset[str]:
        """The tables that are there."""

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; none when it is absent."""

    def chunks(self, table: str, wanted: Wanted) -> Iterator[Chunk]:
        """A table's rows, in the order in which they are stored; none when it is absent.

        Raises:
            UnusableInputError: It is damaged.
        """

    def records(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a small table, only these columns; absent ones are None.

        Raises:
            UnusableInputError: It is damaged.
        """


PROCESS_BITS = 24
_MASK = (1 << PROCESS_BITS) - 1


def pid(global_id: Ints) -> Ints:
    """The process in a globalPid or globalTid; 0 where there is none.

    Example:
        >>> pid(np.array([281477392629760 + 7]))
        array([144])
    """
    return np.where(global_id == NULL, 0, (global_id >> PROCESS_BITS) & _MASK)


def tid(global_id: Ints) -> Ints:
    """The thread in a globalTid; 0 where there is none."""
    return np.where(global_id == NULL, 0, global_id & _MASK)


def nullable(values: Ints, *, above: int | None = None) -> pa.Array:
    """int64 with nulls; with `above`, what is not above it is null too."""
    absent = values == NULL if above is None else values <= above
    return pa.array(values, mask=absent)


def chosen(values: Ints) -> tuple[Ints, np.ndarray[Any, np.dtype[np.int32]]]:
    """Distinct values, and the place of each row's among them."""
    distinct, place = np.unique(values, return_inverse=True)
    return distinct, place.astype(np.int32)


def coded(place: np.ndarray[Any, np.dtype[np.int32]], values: Sequence[str | None]) -> pa.DictionaryArray:
    """Text by its place among distinct values, some of which may be the same, or null."""
    known = sorted({value for value in values if value is not None})
    number = {value: at for at, value in enumerate(known)}
    codes = np.array([number.get(value, -1) if value is not None else -1 for value in values], np.int32)
    indices = codes[place] if len(codes) else np.empty(0, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(known, pa.string()))


def constant(value: str, count: int) -> pa.DictionaryArray:
    """One text in every row."""
    return coded(np.zeros(count, np.int32), [value])


def named(
    strings: Strings, ids: Ints, change: Callable[[str], str] = str
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str]]:
    """Place of each row's name among the distinct ones, and those names, changed."""
    distinct, place = chosen(ids)
    return place, [change(name or "") for name in strings.of(distinct).to_pylist()]


class Spans(msgspec.Struct, frozen=True):
    """Starts and durations, ns.

    Attributes:
        bad: Rows whose end is before their start or absent; they last 0 ns.
    """

    start: Ints
    duration: Ints
    bad: int

    @property
    def columns(self) -> dict[str, pa.Array]:
        """As columns."""
        return {C.START_NS: pa.array(self.start), C.DUR_NS: pa.array(self.duration)}


def timely(chunk: Chunk, time: str) -> Chunk:
    """The rows whose time can be reckoned with: it is there, and no difference of two leaves 64 bits.

    An end that cannot be is absent.
    """
    found = chunk.integers(time)
    kept = (found > -LATEST_NS) & (found < LATEST_NS)
    if not kept.all():
        chunk = chunk.where(kept)
    end = chunk.integers("end")
    possible = (end > -LATEST_NS) & (end < LATEST_NS)
    return chunk if possible.all() else chunk.replaced("end", np.where(possible, end, NULL))


def device_index(values: Ints) -> Ints:
    """Device indices that fit 32 bits; an absent or impossible one is -1."""
    return np.where((values >= 0) & (values < 1 << 31), values, -1)


def spans(chunk: Chunk, *, open_until: int | None = None) -> Spans:
    """Times of a chunk's rows; what has no end lasts until `open_until`."""
    start, end = chunk.integers("start"), chunk.integers("end")
    if open_until is not None:
        end = np.where(end == NULL, np.maximum(start, open_until), end)
    bad = end < start
    return Spans(start, np.where(bad, 0, end - start), int(bad.sum()))


def batch(schema: pa.Schema, known: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """A batch of all the schema's columns; what is not known is null."""
    columns = []
    for column in schema:
        array = known.get(column.name)
        columns.append(pa.nulls(count, column.type) if array is None else array.cast(column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def parked(*, texts: Sequence[str], integers: Sequence[str], reals: Sequence[str] = ()) -> pa.Schema:
    """The schema of a parked table: every part has all of its columns."""
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
"""Tables of events; a file with one of them, or with `MARKS`, is an export."""
MARKS: Final = frozenset({STRINGS, "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"})
SUFFIX: Final = ".parquet"
"""What the name of a table's file ends in, in a folder of them."""

_UNKNOWN, _PAGEABLE, _PINNED, _DEVICE = "Unknown", "Pageable", "Pinned", "Device"
_ARRAY, _MANAGED = "Array", "Managed"
MEMORY_WORDS: Final = (_PAGEABLE, _PINNED, _DEVICE, _ARRAY, _MANAGED, _DEVICE, _MANAGED, _UNKNOWN)
"""Words for srcKind, dstKind and memKind, by number."""
_MEMORIES = {
    _PAGEABLE: Memory.PAGEABLE,
    _PINNED: Memory.PINNED,
    _DEVICE: Memory.DEVICE,
    _ARRAY: Memory.ARRAY,
    _MANAGED: Memory.UNIFIED,
    _UNKNOWN: Memory.UNKNOWN,
}
ON_HOST: Final = (0, 1)
"""Memory kinds of the host."""

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
"""Copies of unified memory, whose memory kinds the export calls unknown."""
SYNCS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Names by syncType, as torch.profiler writes them."""
NO_STREAM: Final = 0xFFFF_FFFF
NVTX_MARK: Final = 34
NVTX_RANGES: Final = (59, 60)
WARNING, ERROR = 2, 3
"""Severities of DIAGNOSTIC_EVENT."""

_VERSION = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")


def call(name: str) -> str:
    """The name of a runtime or driver call without the version of its interface.

    Example:
        >>> call("cudaMemcpyAsync_v3020"), call("cuMemcpyHtoDAsync_v2"), call("cudaLaunchKernel_ptsz_v7000")
        ('cudaMemcpyAsync', 'cuMemcpyHtoDAsync', 'cudaLaunchKernel')
    """
    return _VERSION.sub("", name, count=1)


def copy(kind: int, source: int, target: int) -> tuple[str, CopyKind, Memory, Memory]:
    """Name, direction and memories of a copy; named as torch.profiler names it.

    Example:
        >>> copy(1, 0, 2)[0], copy(12, 7, 7)[0]
        ('Memcpy HtoD (Pageable -> Device)', 'Unified Memory Memcpy DtoH')
    """
    letters, direction = _COPIES.get(kind, (_UNKNOWN, CopyKind.UNKNOWN))
    if kind in _MIGRATIONS:
        return f"Unified Memory Memcpy {letters}", direction, Memory.UNIFIED, Memory.UNIFIED
    ends = [word(source), word(target)]
    return f"Memcpy {letters} ({ends[0]} -> {ends[1]})", direction, _MEMORIES[ends[0]], _MEMORIES[ends[1]]


def word(memory: int) -> str:
    """The word for a memory kind."""
    return MEMORY_WORDS[memory] if 0 <= memory < len(MEMORY_WORDS) else _UNKNOWN


class Strings:
    """Texts by id; a text takes memory once, whatever refers to it."""

    def __init__(self, tables: Tables) -> None:
        chunks = list(tables.chunks(STRINGS, Wanted(integers=("id",), texts=("value",))))
        ids = np.concatenate([chunk.integers("id") for chunk in chunks] or [np.empty(0, np.int64)])
        texts = [chunk.texts("value").cast(pa.large_string()) for chunk in chunks]
        order = np.argsort(ids, kind="stable")
        joined = pa.concat_arrays(texts or [pa.nulls(0, pa.large_string())])
        self._ids, self._texts = ids[order], joined.take(pa.array(order))

    def of(self, ids: Ints) -> pa.Array:
        """The texts of ids; null for one that is not there."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.large_string())
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._texts.take(pa.array(at, mask=self._ids[at] != ids))
