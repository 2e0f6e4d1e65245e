"""Calls, the profiler's overhead and NVTX ranges as host intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest.kineto.names import host_kind
from tracekit.ingest.nsys import ranges, vendor
from tracekit.ingest.nsys.rows import batch, coded, constant, named, nullable, parked, pid, spans, tid
from tracekit.ingest.nsys.tables import NULL, Chunk, Wanted
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from tracekit.ingest.nsys.strings import Strings

SCHEMA = parked(
    texts=(C.KIND, C.NAME, C.INPUT_SHAPES),
    integers=(
        C.START_NS,
        C.DUR_NS,
        C.PID,
        C.TID,
        C.CORRELATION_ID,
        C.EXTERNAL_ID,
        C.SEQUENCE,
        C.FWD_TID,
        C.FLOPS,
    ),
)
_CALL = Wanted(integers=("start", "end", "globalTid", "correlationId", "nameId"))
_OWN = Wanted(integers=("start", "end", "globalTid", "nameId"))
_RANGE = Wanted(integers=("start", "end", "eventType", "globalTid", "textId"), texts=("text",))
WANTED = {
    vendor.RUNTIME: _CALL,
    vendor.OSRT: _OWN,  # its correlation ids are not those of CUDA
    vendor.OVERHEAD: _OWN,
    vendor.PROFILER: _OWN,
    vendor.NVTX: _RANGE,
}


def intervals(table: str, chunk: Chunk, strings: Strings, *, end: int) -> tuple[pa.RecordBatch, int]:
    """A chunk of one of these tables as host rows, and how many had no usable end.

    Args:
        table: Which one.
        chunk: Its rows.
        strings: The export's texts.
        end: End of the capture, until which an NVTX range lasts that was never closed.
    """
    if table == vendor.NVTX:
        return _ranges(chunk, strings, end)
    found = spans(chunk)
    own = _calls(chunk, strings) if table == vendor.RUNTIME else _others(table, chunk, strings)
    return batch(SCHEMA, {**found.columns, **_thread(chunk), **own}, chunk.rows), found.bad


def _thread(chunk: Chunk) -> dict[str, pa.Array]:
    both = chunk.integers("globalTid")
    return {C.PID: pa.array(pid(both)), C.TID: pa.array(tid(both))}


def _calls(chunk: Chunk, strings: Strings) -> dict[str, pa.Array]:
    place, names = named(strings, chunk.integers("nameId"), vendor.call)
    return {
        C.KIND: coded(place, [str(host_kind(HostKind.RUNTIME, name)) for name in names]),
        C.NAME: coded(place, names),
        C.CORRELATION_ID: nullable(chunk.integers("correlationId"), above=0),
    }


def _others(table: str, chunk: Chunk, strings: Strings) -> dict[str, pa.Array]:
    """Calls of the operating system, which have no kind of their own, and overhead."""
    place, names = named(strings, chunk.integers("nameId"))
    kind = HostKind.RUNTIME if table == vendor.OSRT else HostKind.OVERHEAD
    return {C.KIND: constant(kind, chunk.rows), C.NAME: coded(place, names)}


def _ranges(chunk: Chunk, strings: Strings, end: int) -> tuple[pa.RecordBatch, int]:
    chunk = _only_ranges(chunk)
    marks = chunk.integers("eventType") == vendor.NVTX_MARK
    found = spans(chunk, open_until=end)
    duration = np.where(marks, 0, found.duration)
    text = ranges.text(chunk, strings)
    known = {
        C.START_NS: pa.array(found.start),
        C.DUR_NS: pa.array(duration),
        **_thread(chunk),
        **ranges.columns(text),
    }
    return batch(SCHEMA, known, chunk.rows), int((chunk.integers("end") == NULL)[~marks].sum())


def _only_ranges(chunk: Chunk) -> Chunk:
    """Ranges and marks; what else NVTX records describes domains, categories and threads."""
    kept = np.isin(chunk.integers("eventType"), (*vendor.NVTX_RANGES, vendor.NVTX_MARK))
    if kept.all():
        return chunk
    return chunk.where(kept)
