"""Convert the event tables of an export to batches: device and host intervals, allocations, and samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.ingest.kineto import flops
from tracekit.ingest.kineto.columns import fitting_devices, host_kind
from tracekit.ingest.nsys import rows
from tracekit.ingest.nsys.rows import Chunk, Strings, encode, nullable
from tracekit.ingest.spool.rows import Batch, BatchBuilder, Column
from tracekit.runs.range_names import is_marker
from tracekit.schema import HOST_DEVICE, C, DeviceKind, HostKind

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
    rows.KERNEL: rows.Wanted(integers=(*_COMMON, *_NODE, "demangledName", "shortName", *_SHAPE.values())),
    rows.MEMCPY: rows.Wanted(integers=(*_COMMON, *_NODE, "bytes", *_ENDS, "srcDeviceId", "dstDeviceId")),
    rows.MEMSET: rows.Wanted(integers=(*_COMMON, *_NODE, "bytes", "memKind")),
    rows.GRAPH: rows.Wanted(integers=(*_COMMON, "graphId", "graphExecId")),
    rows.SYNC: rows.Wanted(integers=(*_COMMON, "syncType")),
}


def device_intervals(table: str, chunk: Chunk, strings: Strings) -> tuple[Batch, int]:
    """Convert a chunk to device rows; also return the number of rows without a usable end.

    Args:
        table: Name of the table.
        chunk: Rows of the table.
        strings: Texts of the export.
    """
    stream = chunk.integers("streamId")
    batch = BatchBuilder(chunk.rows)
    bad = rows.add_times(batch, chunk.integers("start"), chunk.integers("end"))
    batch.numbers(C.PID, Column(rows.pid(chunk.integers("globalPid"))))
    batch.numbers(C.DEVICE, Column(fitting_devices(chunk.integers("deviceId"))))
    # torch.profiler writes -1 for no stream, CUPTI and nsys 0xFFFFFFFF
    batch.numbers(C.STREAM, nullable(np.where(stream == rows.NO_STREAM, -1, stream)))
    batch.numbers(C.CONTEXT, nullable(chunk.integers("contextId")))
    batch.numbers(C.CORRELATION_ID, nullable(chunk.integers("correlationId"), above=0))
    batch.numbers(C.GRAPH_ID, nullable(chunk.integers("graphId"), above=0))
    batch.numbers(C.GRAPH_NODE_ID, nullable(chunk.integers("graphNodeId"), above=0))
    kind, add = _KINDS[table]
    batch.constant(C.KIND, kind)
    add(batch, chunk, strings)
    return batch.build(), bad


class Devices:
    """The devices that each process uses."""

    def __init__(self) -> None:
        self._of_process: dict[int, set[int]] = {}

    def add(self, chunk: Chunk) -> None:
        """Add the devices of some rows."""
        pairs = np.stack((chunk.integers("globalPid"), chunk.integers("deviceId")))
        for process, device in np.unique(pairs, axis=1).T.tolist():
            self._of_process.setdefault(process, set()).add(device)

    def correct(self, chunk: Chunk) -> Chunk:
        """Return waits with the device of their process, if it uses one: exports number that from 0."""
        process, device = chunk.integers("globalPid"), chunk.integers("deviceId").copy()
        for number, devices in self._of_process.items():
            if len(devices) == 1:
                device[process == number] = next(iter(devices))
        return chunk.replace("deviceId", device)


def _add_kernels(batch: BatchBuilder, chunk: Chunk, strings: Strings) -> None:
    full, short = chunk.integers("demangledName"), chunk.integers("shortName")
    batch.texts(C.NAME, encode(*rows.read_names(strings, np.where(full == rows.NULL, short, full))))
    for column, name in _SHAPE.items():
        batch.numbers(column, nullable(chunk.integers(name)))


def _add_copies(batch: BatchBuilder, chunk: Chunk, _strings: Strings) -> None:
    columns = [chunk.integers(name) for name in _ENDS]
    kind, source, target = (np.where(column == rows.NULL, _UNKNOWN, column) & 0xFF for column in columns)
    distinct, place = np.unique(kind << 16 | source << 8 | target, return_inverse=True)
    ends = [rows.describe_copy(code >> 16, code >> 8 & 0xFF, code & 0xFF) for code in distinct.tolist()]
    for number, column in enumerate((C.NAME, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)):
        batch.texts(column, encode(place, [str(end[number]) for end in ends]))
    batch.numbers(C.BYTES, nullable(chunk.integers("bytes")))
    for column, name in ((C.SRC_DEVICE, "srcDeviceId"), (C.DST_DEVICE, "dstDeviceId")):
        batch.numbers(column, nullable(fitting_devices(chunk.integers(name)), above=-1))


def _add_memsets(batch: BatchBuilder, chunk: Chunk, _strings: Strings) -> None:
    distinct, place = np.unique(chunk.integers("memKind"), return_inverse=True)
    batch.texts(C.NAME, encode(place, [f"Memset ({rows.memory_name(kind)})" for kind in distinct.tolist()]))
    batch.numbers(C.BYTES, nullable(chunk.integers("bytes")))


def _add_syncs(batch: BatchBuilder, chunk: Chunk, _strings: Strings) -> None:
    distinct, place = np.unique(chunk.integers("syncType"), return_inverse=True)
    batch.texts(C.NAME, encode(place, [rows.SYNCS.get(kind, "Sync") for kind in distinct.tolist()]))


_KINDS: dict[str, tuple[DeviceKind, Callable[[BatchBuilder, Chunk, Strings], None]]] = {
    rows.KERNEL: (DeviceKind.KERNEL, _add_kernels),
    rows.MEMCPY: (DeviceKind.MEMCPY, _add_copies),
    rows.MEMSET: (DeviceKind.MEMSET, _add_memsets),
    rows.GRAPH: (DeviceKind.GRAPH, lambda batch, *_: batch.constant(C.NAME, "CUDA graph")),
    rows.SYNC: (DeviceKind.SYNC, _add_syncs),
}


_OP = (
    r"(?s)^(?P<name>.*?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = (?P<op>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)
"""Text of the range of an op, as `torch.autograd.profiler.emit_nvtx` writes it: `getNvtxStr` in
torch/csrc/profiler/util.cpp."""


def _add_ranges(batch: BatchBuilder, texts: pa.Array) -> None:
    """Add kind, name, ids and shapes of ranges, parsed from their texts."""
    # `aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]]` is the op `aten::mm`; a text without these
    # fields is an annotation, and so is what torch.profiler would call one.
    distinct = texts.dictionary_encode()
    place = distinct.indices.to_numpy()
    parts = pc.extract_regex(distinct.dictionary, _OP)
    fields = {name: parts.field(name).to_pylist() for name in ("name", "seq", "op", "sizes")}
    names, kinds, shapes = [], [], []
    for text, name, seq, op, sizes in zip(distinct.dictionary.to_pylist(), *fields.values(), strict=True):
        is_op = bool(seq or op)
        names.append(name if is_op else text)
        is_annotation = not is_op or is_marker(name)
        kinds.append(HostKind.ANNOTATION if is_annotation else host_kind(HostKind.OP, name))
        shapes.append(sizes.replace(" ", "") if sizes and is_op else None)
    batch.texts(C.KIND, encode(place, kinds))
    batch.texts(C.NAME, encode(place, names))
    batch.texts(C.INPUT_SHAPES, encode(place, shapes))
    work = [
        flops.count(name, shape.encode(), b"") if shape and name in flops.COUNTED else None
        for name, shape in zip(names, shapes, strict=True)
    ]
    numbers = {C.EXTERNAL_ID: fields["op"], C.SEQUENCE: fields["seq"], C.FLOPS: work}
    for column, values in numbers.items():
        integers = np.array([rows.NULL if value in (None, "") else int(value) for value in values], np.int64)
        batch.numbers(column, nullable(integers[place]))


_CALL = rows.Wanted(integers=("start", "end", "globalTid", "correlationId", "nameId"))
_NAMED = rows.Wanted(integers=("start", "end", "globalTid", "nameId"))
_RANGE = rows.Wanted(integers=("start", "end", "eventType", "globalTid", "textId"), texts=("text",))
HOST_TABLES = {
    rows.RUNTIME: _CALL,
    rows.OSRT: _NAMED,  # its correlation ids are those of another API
    rows.OVERHEAD: _NAMED,
    rows.PROFILER: _NAMED,
    rows.NVTX: _RANGE,
}


def host_intervals(table: str, chunk: Chunk, strings: Strings, *, end: int) -> tuple[Batch, int]:
    """Convert a chunk to host rows; also return the number of rows without a usable end.

    Args:
        table: Name of the table.
        chunk: Rows of the table.
        strings: Texts of the export.
        end: End of the capture, where NVTX ranges end that were never closed.
    """
    if table == rows.NVTX:
        return _ranges(chunk, strings, end)
    batch = BatchBuilder(chunk.rows)
    bad = rows.add_times(batch, chunk.integers("start"), chunk.integers("end"))
    _add_thread(batch, chunk)
    if table == rows.RUNTIME:
        place, names = rows.read_names(strings, chunk.integers("nameId"), rows.call)
        batch.texts(C.KIND, encode(place, [host_kind(HostKind.RUNTIME, name) for name in names]))
        batch.numbers(C.CORRELATION_ID, nullable(chunk.integers("correlationId"), above=0))
    else:  # calls of the operating system, which have no kind of their own, and overhead
        place, names = rows.read_names(strings, chunk.integers("nameId"))
        batch.constant(C.KIND, HostKind.RUNTIME if table == rows.OSRT else HostKind.OVERHEAD)
    batch.texts(C.NAME, encode(place, names))
    return batch.build(), bad


def _add_thread(batch: BatchBuilder, chunk: Chunk) -> None:
    thread = chunk.integers("globalTid")
    batch.numbers(C.PID, Column(rows.pid(thread)))
    batch.numbers(C.TID, Column(rows.tid(thread)))


def _ranges(chunk: Chunk, strings: Strings, end: int) -> tuple[Batch, int]:
    # other NVTX rows describe domains, categories and threads
    chunk = chunk.where(np.isin(chunk.integers("eventType"), (*rows.NVTX_RANGES, rows.NVTX_MARK)))
    marks = chunk.integers("eventType") == rows.NVTX_MARK
    start, ends, batch = chunk.integers("start"), chunk.integers("end"), BatchBuilder(chunk.rows)
    until = np.where(ends == rows.NULL, np.maximum(start, end), ends)
    rows.add_times(batch, start, np.where(marks, start, until))
    finished = marks | (ends != rows.NULL) & (ends >= start)
    batch.numbers(C.UNFINISHED, Column(np.ones(chunk.rows, np.int64), finished))
    _add_thread(batch, chunk)
    referred = strings.of(chunk.integers("textId")).cast(pa.string())
    _add_ranges(batch, pc.fill_null(pc.coalesce(chunk.texts("text"), referred), ""))
    return batch.build(), int((~finished).sum())


ALLOCATED = rows.Wanted(
    integers=("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
)
METRICS = rows.Wanted(integers=("timestamp", "typeId", "metricId"), reals=("value",))
_FREED = 1
_DEVICE_BITS = 0xFF
_METRIC_BITS = 20


def allocations(chunk: Chunk) -> Batch:
    """Convert allocations of the driver; those in host memory have the host's device number."""
    on_host = np.isin(chunk.integers("memKind"), rows.ON_HOST)
    freed = chunk.integers("memoryOperationType") == _FREED
    size = np.where(chunk.integers("bytes") == rows.NULL, 0, chunk.integers("bytes"))
    device = np.where(on_host, HOST_DEVICE, fitting_devices(chunk.integers("deviceId")))
    batch = BatchBuilder(chunk.rows)
    batch.numbers(C.T_NS, Column(chunk.integers("start")))
    batch.numbers(C.PID, Column(rows.pid(chunk.integers("globalPid"))))
    batch.numbers(C.DEVICE, Column(device))
    batch.numbers(C.BYTES, Column(np.where(freed, -size, size)))
    batch.numbers(C.ADDRESS, nullable(chunk.integers("address")))
    return batch.build()


def metric_names(tables: rows.Tables) -> dict[tuple[int | None, int | None], str]:
    """Return the names of hardware counters by type and number."""
    records = tables.records("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    return {
        (rows.as_integer(row["typeId"]), rows.as_integer(row["metricId"])): rows.as_text(row["metricName"])
        for row in records
    }


def metrics(chunk: Chunk, names: Mapping[tuple[int | None, int | None], str]) -> Batch:
    """Convert samples of hardware counters; the unit of those named `...[...%...]` is percent."""
    chunk = chunk.where(np.isfinite(chunk.reals("value")))
    kind, number = chunk.integers("typeId"), chunk.integers("metricId")
    mask = (1 << _METRIC_BITS) - 1
    distinct, place = np.unique(kind << _METRIC_BITS | number & mask, return_inverse=True)
    titles = [
        names.get((code >> _METRIC_BITS, code & mask), f"metric {code & mask}") for code in distinct.tolist()
    ]
    batch = BatchBuilder(chunk.rows)
    batch.constant(C.SOURCE, "nsys")
    batch.texts(C.METRIC, encode(place, titles))
    batch.texts(C.UNIT, encode(place, ["%" if "%" in title else "" for title in titles]))
    batch.numbers(C.T_NS, Column(chunk.integers("timestamp")))
    batch.numbers(C.DEVICE, Column(kind & _DEVICE_BITS))
    batch.numbers(C.VALUE, Column(chunk.reals("value")))
    return batch.build()
