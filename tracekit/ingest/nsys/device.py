"""Kernels, copies, memsets, graphs and synchronizations as device intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest.nsys import vendor
from tracekit.ingest.nsys.rows import (
    batch,
    chosen,
    coded,
    constant,
    device_index,
    named,
    nullable,
    parked,
    pid,
    spans,
)
from tracekit.ingest.nsys.tables import NULL, Wanted
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from tracekit.ingest.nsys.strings import Strings
    from tracekit.ingest.nsys.tables import Chunk, Ints

SCHEMA = parked(
    texts=(C.KIND, C.NAME, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY),
    integers=(
        C.START_NS,
        C.DUR_NS,
        C.PID,
        C.DEVICE,
        C.STREAM,
        C.CONTEXT,
        C.CORRELATION_ID,
        C.GRID_X,
        C.GRID_Y,
        C.GRID_Z,
        C.BLOCK_X,
        C.BLOCK_Y,
        C.BLOCK_Z,
        C.REGISTERS,
        C.STATIC_SHARED_BYTES,
        C.DYNAMIC_SHARED_BYTES,
        C.GRAPH_ID,
        C.GRAPH_NODE_ID,
        C.BYTES,
        C.SRC_DEVICE,
        C.DST_DEVICE,
    ),
)
_COMMON = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
_NODE = ("graphId", "graphNodeId")
_SHAPE = {
    C.GRID_X: "gridX",
    C.GRID_Y: "gridY",
    C.GRID_Z: "gridZ",
    C.BLOCK_X: "blockX",
    C.BLOCK_Y: "blockY",
    C.BLOCK_Z: "blockZ",
    C.REGISTERS: "registersPerThread",
    C.STATIC_SHARED_BYTES: "staticSharedMemory",
    C.DYNAMIC_SHARED_BYTES: "dynamicSharedMemory",
}
_ENDS = ("copyKind", "srcKind", "dstKind")
_UNKNOWN = 0xFF
WANTED = {
    vendor.KERNEL: Wanted(integers=(*_COMMON, *_NODE, "demangledName", "shortName", *_SHAPE.values())),
    vendor.MEMCPY: Wanted(integers=(*_COMMON, *_NODE, "bytes", *_ENDS, "srcDeviceId", "dstDeviceId")),
    vendor.MEMSET: Wanted(integers=(*_COMMON, *_NODE, "bytes", "memKind")),
    vendor.GRAPH: Wanted(integers=(*_COMMON, "graphId", "graphExecId")),
    vendor.SYNC: Wanted(integers=(*_COMMON, "syncType")),
}


def intervals(table: str, chunk: Chunk, strings: Strings) -> tuple[pa.RecordBatch, int]:
    """A chunk of one of these tables as device rows, and how many had no usable end."""
    found = spans(chunk)
    own = _READERS[table](chunk, strings)
    return batch(SCHEMA, {**found.columns, **_common(chunk), **own}, chunk.rows), found.bad


class Devices:
    """The devices that each process works on."""

    def __init__(self) -> None:
        self._seen: dict[int, set[int]] = {}

    def add(self, chunk: Chunk) -> None:
        """Take note of work on devices."""
        pairs = np.stack((chunk.integers("globalPid"), chunk.integers("deviceId")))
        for process, device in np.unique(pairs, axis=1).T.tolist():
            self._seen.setdefault(process, set()).add(device)

    def corrected(self, chunk: Chunk) -> Chunk:
        """Waits on the device of their process, where it works on one: exports count these from 0."""
        process, device = chunk.integers("globalPid"), chunk.integers("deviceId").copy()
        for number, devices in self._seen.items():
            if len(devices) == 1:
                device[process == number] = next(iter(devices))
        return chunk.replaced("deviceId", device)


def _common(chunk: Chunk) -> dict[str, pa.Array]:
    stream = chunk.integers("streamId")
    return {
        C.PID: pa.array(pid(chunk.integers("globalPid"))),
        C.DEVICE: pa.array(device_index(chunk.integers("deviceId"))),
        C.STREAM: nullable(np.where(stream == vendor.NO_STREAM, -1, stream)),  # as torch.profiler has it
        C.CONTEXT: nullable(chunk.integers("contextId")),
        C.CORRELATION_ID: nullable(chunk.integers("correlationId"), above=0),
        C.GRAPH_ID: nullable(chunk.integers("graphId"), above=0),
        C.GRAPH_NODE_ID: nullable(chunk.integers("graphNodeId"), above=0),
    }


def _kernels(chunk: Chunk, strings: Strings) -> dict[str, pa.Array]:
    full, short = chunk.integers("demangledName"), chunk.integers("shortName")
    place, names = named(strings, np.where(full == NULL, short, full))
    shape = {ours: nullable(chunk.integers(theirs)) for ours, theirs in _SHAPE.items()}
    return {C.KIND: constant(DeviceKind.KERNEL, chunk.rows), C.NAME: coded(place, names), **shape}


def _copies(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    columns = [chunk.integers(name) for name in _ENDS]
    kind, source, target = (np.where(column == NULL, _UNKNOWN, column) & 0xFF for column in columns)
    distinct, place = chosen(kind << 16 | source << 8 | target)
    ends = [vendor.copy(code >> 16, code >> 8 & 0xFF, code & 0xFF) for code in distinct.tolist()]
    texts = zip((C.NAME, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY), zip(*ends, strict=True), strict=True)
    return {
        C.KIND: constant(DeviceKind.MEMCPY, chunk.rows),
        **{column: coded(place, [str(text) for text in values]) for column, values in texts},
        C.BYTES: nullable(chunk.integers("bytes")),
        C.SRC_DEVICE: _end(chunk.integers("srcDeviceId")),
        C.DST_DEVICE: _end(chunk.integers("dstDeviceId")),
    }


def _end(devices: Ints) -> pa.Array:
    """The device at an end of a copy; null where there is none."""
    return nullable(device_index(devices), above=-1)


def _memsets(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    distinct, place = chosen(chunk.integers("memKind"))
    return {
        C.KIND: constant(DeviceKind.MEMSET, chunk.rows),
        C.NAME: coded(place, [f"Memset ({vendor.word(kind)})" for kind in distinct.tolist()]),
        C.BYTES: nullable(chunk.integers("bytes")),
    }


def _graphs(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    return {
        C.KIND: constant(DeviceKind.GRAPH, chunk.rows),
        C.NAME: constant("CUDA graph", chunk.rows),
    }


def _syncs(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    distinct, place = chosen(chunk.integers("syncType"))
    names = [vendor.SYNCS.get(kind, "Sync") for kind in distinct.tolist()]
    return {C.KIND: constant(DeviceKind.SYNC, chunk.rows), C.NAME: coded(place, names)}


_READERS = {
    vendor.KERNEL: _kernels,
    vendor.MEMCPY: _copies,
    vendor.MEMSET: _memsets,
    vendor.GRAPH: _graphs,
    vendor.SYNC: _syncs,
}
