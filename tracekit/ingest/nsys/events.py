"""Convert the event tables of an export: device and host intervals, allocations, and samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.ingest.kineto import flops
from tracekit.ingest.kineto.columns import host_kind
from tracekit.ingest.nsys import rows
from tracekit.ingest.nsys.rows import (
    NULL,
    Chunk,
    Wanted,
    as_integer,
    as_text,
    batch,
    coded,
    constant,
    device_index,
    factorize,
    named,
    nullable,
    pid,
    spans,
    spool_schema,
    tid,
)
from tracekit.schema import HOST_DEVICE, C, DeviceKind, HostKind, is_marker

if TYPE_CHECKING:
    from tracekit.ingest.nsys.rows import Ints, Strings, Tables


DEVICE_SCHEMA = spool_schema(
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
DEVICE_TABLES = {
    rows.KERNEL: Wanted(integers=(*_COMMON, *_NODE, "demangledName", "shortName", *_SHAPE.values())),
    rows.MEMCPY: Wanted(integers=(*_COMMON, *_NODE, "bytes", *_ENDS, "srcDeviceId", "dstDeviceId")),
    rows.MEMSET: Wanted(integers=(*_COMMON, *_NODE, "bytes", "memKind")),
    rows.GRAPH: Wanted(integers=(*_COMMON, "graphId", "graphExecId")),
    rows.SYNC: Wanted(integers=(*_COMMON, "syncType")),
}


def device_intervals(table: str, chunk: Chunk, strings: Strings) -> tuple[pa.RecordBatch, int]:
    """Convert a chunk to device rows; also return the number of rows without a usable end."""
    found = spans(chunk)
    own = _READERS[table](chunk, strings)
    return batch(DEVICE_SCHEMA, {**found.columns, **_common(chunk), **own}, chunk.rows), found.bad


class Devices:
    """The devices that each process uses."""

    def __init__(self) -> None:
        self._seen: dict[int, set[int]] = {}

    def add(self, chunk: Chunk) -> None:
        """Add the devices of some rows."""
        pairs = np.stack((chunk.integers("globalPid"), chunk.integers("deviceId")))
        for process, device in np.unique(pairs, axis=1).T.tolist():
            self._seen.setdefault(process, set()).add(device)

    def corrected(self, chunk: Chunk) -> Chunk:
        """Return the device of waits: that of their process, if it uses one; exports number it from 0."""
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
        C.STREAM: nullable(np.where(stream == rows.NO_STREAM, -1, stream)),  # as in torch.profiler
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
    distinct, place = factorize(kind << 16 | source << 8 | target)
    ends = [rows.copy(code >> 16, code >> 8 & 0xFF, code & 0xFF) for code in distinct.tolist()]
    texts = zip((C.NAME, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY), zip(*ends, strict=True), strict=True)
    return {
        C.KIND: constant(DeviceKind.MEMCPY, chunk.rows),
        **{column: coded(place, [str(text) for text in values]) for column, values in texts},
        C.BYTES: nullable(chunk.integers("bytes")),
        C.SRC_DEVICE: _end(chunk.integers("srcDeviceId")),
        C.DST_DEVICE: _end(chunk.integers("dstDeviceId")),
    }


def _end(devices: Ints) -> pa.Array:
    """Return the device at one end of a copy; null if there is none."""
    return nullable(device_index(devices), above=-1)


def _memsets(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    distinct, place = factorize(chunk.integers("memKind"))
    return {
        C.KIND: constant(DeviceKind.MEMSET, chunk.rows),
        C.NAME: coded(place, [f"Memset ({rows.memory_name(kind)})" for kind in distinct.tolist()]),
        C.BYTES: nullable(chunk.integers("bytes")),
    }


def _graphs(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    return {
        C.KIND: constant(DeviceKind.GRAPH, chunk.rows),
        C.NAME: constant("CUDA graph", chunk.rows),
    }


def _syncs(chunk: Chunk, _strings: Strings) -> dict[str, pa.Array]:
    distinct, place = factorize(chunk.integers("syncType"))
    names = [rows.SYNCS.get(kind, "Sync") for kind in distinct.tolist()]
    return {C.KIND: constant(DeviceKind.SYNC, chunk.rows), C.NAME: coded(place, names)}


_READERS = {
    rows.KERNEL: _kernels,
    rows.MEMCPY: _copies,
    rows.MEMSET: _memsets,
    rows.GRAPH: _graphs,
    rows.SYNC: _syncs,
}


_OP = (
    r"(?s)^(?P<name>.*?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = (?P<op>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)


def decode_text(chunk: Chunk, strings: Strings) -> pa.Array:
    """Return the text of each range: its own, or the referenced one."""
    referred = strings.of(chunk.integers("textId")).cast(pa.string())
    return pc.fill_null(pc.coalesce(chunk.texts("text"), referred), "")


def columns(texts: pa.Array) -> dict[str, pa.Array]:
    """Parse kind, name, ids and shapes of ranges.

    `aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]]` is the op `aten::mm`; a text without these
    fields is an annotation, and so is what torch.profiler would call one.

    Example:
        >>> found = columns(pa.array(["aten::relu, op_id = 7, sizes = [[2, 3]]", "epoch 1"]))
        >>> [found[name].to_pylist() for name in ("kind", "name", "external_id", "input_shapes")]
        [['op', 'annotation'], ['aten::relu', 'epoch 1'], [7, None], ['[[2,3]]', None]]
    """
    distinct = texts.dictionary_encode()
    parts = pc.extract_regex(distinct.dictionary, _OP)
    found = {name: parts.field(name) for name in ("name", "seq", "op", "sizes")}
    found = {name: pc.if_else(pc.equal(part, ""), None, part) for name, part in found.items()}
    is_op = pc.or_(pc.is_valid(found["seq"]), pc.is_valid(found["op"]))
    name = pc.if_else(is_op, pc.fill_null(found["name"], ""), distinct.dictionary)
    shapes = pc.if_else(is_op, pc.replace_substring(found["sizes"], " ", ""), None)
    return {
        C.KIND: _spread(_kinds(name, is_op), distinct),
        C.NAME: _spread(name, distinct),
        C.INPUT_SHAPES: _spread(shapes, distinct),
        C.EXTERNAL_ID: _numbers(found["op"]).take(distinct.indices),
        C.SEQUENCE: _numbers(found["seq"]).take(distinct.indices),
        C.FLOPS: _flops(name, shapes).take(distinct.indices),
    }


def _kinds(names: pa.Array, is_op: pa.Array) -> pa.Array:
    """Return the kinds of ops; those that torch.profiler records as annotations are annotations."""
    once = names.dictionary_encode()
    kinds = pa.array([_kind(name) for name in once.dictionary.to_pylist()], pa.string())
    return pc.if_else(is_op, kinds.take(once.indices), str(HostKind.ANNOTATION))


def _kind(name: str) -> str:
    return str(HostKind.ANNOTATION if is_marker(name) else host_kind(HostKind.OP, name))


def _spread(values: pa.Array, distinct: pa.DictionaryArray) -> pa.DictionaryArray:
    """Expand values of distinct texts to rows."""
    once = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(once.indices.take(distinct.indices), once.dictionary)


def _numbers(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64())


def _flops(names: pa.Array, shapes: pa.Array) -> pa.Array:
    """Return the floating point operations of ops, null if unknown."""
    counted = pc.and_(pc.is_in(names, pa.array(sorted(flops.COUNTED))), pc.is_valid(shapes))
    if not pc.any(counted).as_py():
        return pa.nulls(len(names), pa.int64())
    rows = zip(counted.to_pylist(), names.to_pylist(), shapes.to_pylist(), strict=True)
    return pa.array(
        [flops.count(name, shape.encode(), b"") if asked else None for asked, name, shape in rows], pa.int64()
    )


HOST_SCHEMA = spool_schema(
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
HOST_TABLES = {
    rows.RUNTIME: _CALL,
    rows.OSRT: _OWN,  # correlation ids of another API
    rows.OVERHEAD: _OWN,
    rows.PROFILER: _OWN,
    rows.NVTX: _RANGE,
}


def host_intervals(table: str, chunk: Chunk, strings: Strings, *, end: int) -> tuple[pa.RecordBatch, int]:
    """Convert a chunk to host rows; also return the number of rows without a usable end.

    Args:
        table: Name of the table.
        chunk: Rows of the table.
        strings: Texts of the export.
        end: End of the capture, where NVTX ranges end that were never closed.
    """
    if table == rows.NVTX:
        return _ranges(chunk, strings, end)
    found = spans(chunk)
    own = _calls(chunk, strings) if table == rows.RUNTIME else _others(table, chunk, strings)
    return batch(HOST_SCHEMA, {**found.columns, **_thread(chunk), **own}, chunk.rows), found.bad


def _thread(chunk: Chunk) -> dict[str, pa.Array]:
    both = chunk.integers("globalTid")
    return {C.PID: pa.array(pid(both)), C.TID: pa.array(tid(both))}


def _calls(chunk: Chunk, strings: Strings) -> dict[str, pa.Array]:
    place, names = named(strings, chunk.integers("nameId"), rows.call)
    return {
        C.KIND: coded(place, [str(host_kind(HostKind.RUNTIME, name)) for name in names]),
        C.NAME: coded(place, names),
        C.CORRELATION_ID: nullable(chunk.integers("correlationId"), above=0),
    }


def _others(table: str, chunk: Chunk, strings: Strings) -> dict[str, pa.Array]:
    """Return calls of the operating system, which have no kind of their own, and overhead."""
    place, names = named(strings, chunk.integers("nameId"))
    kind = HostKind.RUNTIME if table == rows.OSRT else HostKind.OVERHEAD
    return {C.KIND: constant(kind, chunk.rows), C.NAME: coded(place, names)}


def _ranges(chunk: Chunk, strings: Strings, end: int) -> tuple[pa.RecordBatch, int]:
    chunk = _only_ranges(chunk)
    marks = chunk.integers("eventType") == rows.NVTX_MARK
    found = spans(chunk, open_until=end)
    duration = np.where(marks, 0, found.duration)
    text = decode_text(chunk, strings)
    known = {
        C.START_NS: pa.array(found.start),
        C.DUR_NS: pa.array(duration),
        **_thread(chunk),
        **columns(text),
    }
    return batch(HOST_SCHEMA, known, chunk.rows), int((chunk.integers("end") == NULL)[~marks].sum())


def _only_ranges(chunk: Chunk) -> Chunk:
    """Keep ranges and marks; other NVTX rows describe domains, categories and threads."""
    wanted = np.isin(chunk.integers("eventType"), (*rows.NVTX_RANGES, rows.NVTX_MARK))
    if wanted.all():
        return chunk
    return chunk.where(wanted)


ALLOCATED = Wanted(
    integers=("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
)
METRICS = Wanted(integers=("timestamp", "typeId", "metricId"), reals=("value",))
_FREED = 1
_DEVICE_BITS = 0xFF
_ALLOCATIONS = spool_schema(texts=(), integers=(C.T_NS, C.PID, C.DEVICE, C.BYTES, C.ADDRESS))
_COUNTERS = spool_schema(texts=(C.SOURCE, C.METRIC, C.UNIT), integers=(C.T_NS, C.DEVICE), reals=(C.VALUE,))


def allocations(chunk: Chunk) -> pa.RecordBatch:
    """Convert allocations of the driver; those in host memory have the host's device number."""
    on_host = np.isin(chunk.integers("memKind"), rows.ON_HOST)
    freed = chunk.integers("memoryOperationType") == _FREED
    size = np.where(chunk.integers("bytes") == NULL, 0, chunk.integers("bytes"))
    known = {
        C.T_NS: pa.array(chunk.integers("start")),
        C.PID: pa.array(pid(chunk.integers("globalPid"))),
        C.DEVICE: pa.array(np.where(on_host, HOST_DEVICE, device_index(chunk.integers("deviceId")))),
        C.BYTES: pa.array(np.where(freed, -size, size)),
        C.ADDRESS: nullable(chunk.integers("address")),
    }
    return batch(_ALLOCATIONS, known, chunk.rows)


def metric_names(tables: Tables) -> dict[tuple[int | None, int | None], str]:
    """Return the names of hardware counters by type and number."""
    found = tables.records("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    return {
        (as_integer(row["typeId"]), as_integer(row["metricId"])): as_text(row["metricName"]) for row in found
    }


def metrics(chunk: Chunk, names: Mapping[tuple[int | None, int | None], str]) -> pa.RecordBatch:
    """Convert samples of hardware counters; the unit of those named `...[...%...]` is percent."""
    chunk = chunk.where(np.isfinite(chunk.reals("value")))
    kind, number = chunk.integers("typeId"), chunk.integers("metricId")
    distinct, place = factorize(kind << 20 | number & 0xF_FFFF)
    found = [
        names.get((code >> 20, code & 0xF_FFFF), f"metric {code & 0xF_FFFF}") for code in distinct.tolist()
    ]
    known = {
        C.SOURCE: constant("nsys", chunk.rows),
        C.METRIC: coded(place, found),
        C.UNIT: coded(place, ["%" if "%" in name else "" for name in found]),
        C.T_NS: pa.array(chunk.integers("timestamp")),
        C.DEVICE: pa.array(kind & _DEVICE_BITS),
        C.VALUE: pa.array(chunk.reals("value")),
    }
    return batch(_COUNTERS, known, chunk.rows)
