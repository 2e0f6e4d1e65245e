"""Shared steps from a chunk of the vendor's columns to a batch of the project's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.ingest.limits import LATEST_NS
from tracekit.ingest.nsys.tables import NULL
from tracekit.schema import C, ValueType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.ingest.nsys.strings import Strings
    from tracekit.ingest.nsys.tables import Chunk, Ints

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
