"""Chrome trace of a run for Perfetto, with flows from launching calls to device work.

Rows are converted to text with Arrow's compute functions, without Python objects per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from tracekit.export import tracks
from tracekit.export.tables import Source
from tracekit.export.tracks import (
    Tracks,
    find_tracks,
    fragments,
    fragments_of_text,
    micro,
    quote,
    triples,
)
from tracekit.registry import VERSION
from tracekit.runs.run import Run
from tracekit.runs.selection import Window
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class _Calls:
    """Calls that launched something, by rising row id: their process, thread and start."""

    rows: Ints
    process: Ints
    thread: Ints
    start: Ints


def flow_events(source: Source, origin: int, host: Tracks, device: Tracks) -> Iterator[pa.Array]:
    """Yield both ends of every launch whose call was recorded, each in the interval that it belongs to.

    Args:
        source: The run.
        origin: Origin of times, ns since the run's t0.
        host: Tracks of host intervals.
        device: Tracks of device intervals.
    """
    columns = [C.ROW_ID, C.LAUNCH_ROW, C.RANK, C.DEVICE, C.STREAM, C.START_NS]
    has_launch = pc.field(C.LAUNCH_ROW).is_valid()
    launched = [
        batch[C.LAUNCH_ROW].to_numpy()
        for batch in source.batches("device_intervals", [C.LAUNCH_ROW], where=has_launch)
    ]
    if not launched:
        return
    calls = _calls(source, np.unique(np.concatenate(launched)), host)
    for batch in source.batches("device_intervals", columns, where=has_launch):
        yield from _arrows(batch, calls, device, origin)


def _calls(source: Source, wanted: Ints, host: Tracks) -> _Calls:
    parts: list[tuple[Ints, ...]] = [tuple(np.empty(0, np.int64) for _ in range(4))]
    for batch in source.batches("host_intervals", [C.ROW_ID, C.RANK, C.PID, C.TID, C.START_NS]):
        rows = batch[C.ROW_ID].to_numpy()
        place = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
        chosen = batch.filter(pa.array(wanted[place] == rows))
        thread = tracks.thread_id(chosen[C.TID]).to_numpy()
        ids = chosen[C.ROW_ID].to_numpy()
        process = tracks.host_process(chosen[C.RANK], chosen[C.PID]).to_numpy()
        parts.append((ids, process, host.thread_of_rows(ids, thread), chosen[C.START_NS].to_numpy()))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0])
    return _Calls(*(column[order] for column in columns))


def _arrows(batch: pa.RecordBatch, calls: _Calls, device: Tracks, origin: int) -> Iterator[pa.Array]:
    launch = batch[C.LAUNCH_ROW].to_numpy()
    place = np.searchsorted(calls.rows, launch)
    is_found = place < len(calls.rows)
    is_found[is_found] = calls.rows[place[is_found]] == launch[is_found]
    batch, place = batch.filter(pa.array(is_found)), place[is_found]
    rows = batch[C.ROW_ID].to_numpy()
    process, thread, start = (
        pa.array(column[place]) for column in (calls.process, calls.thread, calls.start)
    )
    yield _end("s", rows, process, thread, start, origin)
    stream = device.thread_of_rows(rows, tracks.stream_id(batch[C.STREAM]).to_numpy())
    process = tracks.device_process(batch[C.RANK], batch[C.DEVICE])
    yield _end("f", rows, process, pa.array(stream), batch[C.START_NS], origin)


def _end(
    phase: str, rows: Ints, process: pa.Array, thread: pa.Array, start_ns: pa.Array, origin: int
) -> pa.Array:
    return pc.binary_join_element_wise(
        f'{{"ph":"{phase}","bp":"e","cat":"ac2g","name":"ac2g","id":', tracks.text(pa.array(rows)),
        ',"pid":', tracks.text(process), ',"tid":', tracks.text(thread),
        ',"ts":', micro(start_ns, origin), "}", "",
    )  # fmt: skip


if TYPE_CHECKING:
    Pieces = Iterator[pa.Array]

_DEVICE_CATEGORIES: Final = {
    DeviceKind.MEMCPY: "gpu_memcpy", DeviceKind.MEMSET: "gpu_memset", DeviceKind.SYNC: "cuda_sync",
}  # fmt: skip
"""Kinds with another name in torch.profiler."""
_HOST_CATEGORIES: Final = {
    HostKind.OP: "cpu_op", HostKind.RUNTIME: "cuda_runtime", HostKind.SYNC: "cuda_runtime",
    HostKind.ANNOTATION: "user_annotation", HostKind.PYTHON: "python_function",
}  # fmt: skip
"""The same for host intervals; torch.profiler writes waits as runtime calls."""
_DEVICE_NUMBERS = {
    C.ROW_ID: C.ROW_ID, C.STEP: C.STEP, C.DEVICE: "device", C.STREAM: "stream", C.CONTEXT: "context",
    C.CORRELATION_ID: "correlation", C.LAUNCH_ROW: C.LAUNCH_ROW, C.OP_ROW: C.OP_ROW,
    C.REGISTERS: "registers per thread", C.STATIC_SHARED_BYTES: C.STATIC_SHARED_BYTES,
    C.DYNAMIC_SHARED_BYTES: "shared memory", C.OCCUPANCY_PCT: "est. achieved occupancy %",
    C.BYTES: "bytes", C.GRAPH_ID: "graph id", C.GRAPH_NODE_ID: "graph node id",
}  # fmt: skip
"""Columns of numbers and what torch.profiler calls them, where it has them."""
_SHAPES = {"grid": (C.GRID_X, C.GRID_Y, C.GRID_Z), "block": (C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z)}
_DEVICE_TEXTS = {
    name: name
    for name in (
        C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY, C.IDLE_CAUSE,
        C.CAPTURED_OP, C.CAPTURED_PATH, C.CAPTURED_MODULE, C.CAPTURED_SHAPES,
    )
}  # fmt: skip
_HOST_NUMBERS = {
    C.ROW_ID: C.ROW_ID, C.STEP: C.STEP, C.CORRELATION_ID: "correlation", C.EXTERNAL_ID: "External id",
    C.SEQUENCE: "Sequence number", C.FWD_TID: "Fwd thread id", C.FLOPS: C.FLOPS,
}  # fmt: skip
_HOST_TEXTS = {
    C.PHASE: C.PHASE, C.INPUT_SHAPES: C.INPUT_SHAPES, C.INPUT_DTYPES: C.INPUT_DTYPES,
    C.STACK: "Call stack", C.MODULE: C.MODULE,
}  # fmt: skip


def chrome_trace(run: Run, *, window: Window | None = None) -> Iterator[bytes]:
    """Yield the JSON of a run's intervals, steps, counters and launches, piece by piece.

    Categories and arguments have the names that torch.profiler gives them, so that what reads its traces
    reads this one. Times count from the run's `t0`, or from its first event where that is earlier. Intervals
    of one track nest: those that cross another get a track beside it.

    Args:
        run: The run.
        window: Only what overlaps this time, ns since the run's t0.

    Example:
        >>> import tracekit
        >>> from tracekit.export.chrome import chrome_trace
        >>> b"".join(chrome_trace(tracekit.open("latest")))[:17]  # doctest: +SKIP
        b'{"traceEvents": ['
    """
    source = Source(run, window)
    origin = tracks.origin(source)
    host = find_tracks(source, "host_intervals", _HOST_TRACK, _on_host, then=C.DEPTH)
    device = find_tracks(source, "device_intervals", _DEVICE_TRACK, _on_device, then=C.ROW_ID)
    yield b'{"traceEvents": [\n'
    yield ",\n".join(json.dumps(event) for event in tracks.name_events(source, host, device)).encode()
    for events in _events(source, origin, host, device):
        text = ",\n".join(events.to_pylist())
        if text:
            yield b",\n" + text.encode()
    about = {"run": run.id, "tracekit": VERSION, "t0_unix_ns": run.meta.t0_unix_ns + origin}
    base = f'"displayTimeUnit": "ns", "baseTimeNanoseconds": {about["t0_unix_ns"]}'
    yield f'\n], {base}, "otherData": {json.dumps(about)}}}\n'.encode()


def _events(source: Source, origin: int, host: Tracks, device: Tracks) -> Pieces:
    yield from _steps(source, origin)
    yield from _host(source, origin, host)
    yield from _device(source, origin, device)
    yield from flow_events(source, origin, host, device)
    yield from _counters(source, origin)
    yield from _allocations(source, origin)


def _join(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _category(kinds: pa.Array, called: Mapping[Any, str]) -> pa.Array:
    """Return the categories of kinds, as JSON."""
    coded = kinds if pa.types.is_dictionary(kinds.type) else kinds.dictionary_encode()
    words = [called.get(kind, kind) for kind in coded.dictionary.to_pylist()]
    return pa.array([json.dumps(word) for word in words], pa.string()).take(coded.indices)


def _event(
    name: pa.Array, category: str | pa.Array, pid: pa.Array, tid: pa.Array, batch: pa.RecordBatch, origin: int
) -> tuple[object, ...]:
    """Return the JSON of intervals up to their arguments."""
    return (
        '{"ph":"X","name":', name, ',"cat":', category,
        ',"pid":', tracks.text(pid), ',"tid":', tracks.text(tid),
        ',"ts":', micro(batch[C.START_NS], origin), ',"dur":', micro(batch[C.DUR_NS]), ',"args":{',
    )  # fmt: skip


def _steps(source: Source, origin: int) -> Pieces:
    for batch in source.batches("steps"):
        pid = tracks.steps_process(batch[C.RANK])
        head = _event(quote(batch[C.NAME]), '"step"', pid, batch[C.RANK], batch, origin)
        yield _join(*head, '"step":', tracks.text(batch[C.STEP]), "}}")


_HOST_TRACK = [C.RANK, C.PID, C.TID]


def _on_host(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    process = tracks.host_process(batch[C.RANK], batch[C.PID])
    return process.to_numpy(), tracks.thread_id(batch[C.TID]).to_numpy()


def _host(source: Source, origin: int, lanes: Tracks) -> Pieces:
    columns = [C.NAME, C.KIND, *_HOST_TRACK, C.START_NS, C.DUR_NS, C.DEPTH, *_HOST_NUMBERS, *_HOST_TEXTS]
    for batch in source.nested("host_intervals", columns, C.DEPTH):
        process, thread = _on_host(batch)
        tid = pa.array(lanes.thread_of_rows(batch[C.ROW_ID].to_numpy(), thread))
        kind = _category(batch[C.KIND], _HOST_CATEGORIES)
        head = _event(quote(batch[C.NAME]), kind, pa.array(process), tid, batch, origin)
        arguments = fragments(batch, _HOST_NUMBERS), fragments_of_text(batch, _HOST_TEXTS)
        yield _join(*head, *arguments, '"tracekit":1}}')


_DEVICE_TRACK = [C.RANK, C.DEVICE, C.STREAM, C.KIND]


def _on_device(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    process = tracks.device_process(batch[C.RANK], batch[C.DEVICE])
    idle = pc.equal(batch[C.KIND].cast("string"), str(DeviceKind.IDLE))
    thread = pc.if_else(idle, pa.scalar(tracks.IDLE_THREAD, pa.int64()), tracks.stream_id(batch[C.STREAM]))
    return process.to_numpy(), thread.to_numpy()


def _device(source: Source, origin: int, lanes: Tracks) -> Pieces:
    shapes = [axis for axes in _SHAPES.values() for axis in axes]
    columns = [C.NAME, C.KIND, C.RANK, C.START_NS, C.DUR_NS, *_DEVICE_NUMBERS, *_DEVICE_TEXTS, *shapes]
    for batch in source.nested("device_intervals", columns, C.ROW_ID):
        process, thread = _on_device(batch)
        tid = pa.array(lanes.thread_of_rows(batch[C.ROW_ID].to_numpy(), thread))
        kind = _category(batch[C.KIND], _DEVICE_CATEGORIES)
        head = _event(quote(batch[C.NAME]), kind, pa.array(process), tid, batch, origin)
        arguments = fragments(batch, _DEVICE_NUMBERS), fragments_of_text(batch, _DEVICE_TEXTS)
        yield _join(*head, *arguments, triples(batch, _SHAPES), '"tracekit":1}}')


def _counters(source: Source, origin: int) -> Pieces:
    for batch in source.batches("counters"):
        label = _join(
            batch[C.SOURCE].cast("string"),
            pc.fill_null(_join(" rank ", tracks.text(batch[C.RANK])), ""),
            pc.fill_null(_join(" device ", tracks.text(batch[C.DEVICE])), ""),
            " ",
            batch[C.METRIC].cast("string"),
        )
        finite = pc.is_finite(batch[C.VALUE])
        samples = _counter(quote(label), batch[C.T_NS], origin, tracks.text(batch[C.VALUE]))
        yield samples.filter(finite)


def _allocations(source: Source, origin: int) -> Pieces:
    columns = [C.T_NS, C.RANK, C.DEVICE, C.TOTAL_ALLOCATED]
    has_total = pc.field(C.TOTAL_ALLOCATED).is_valid()
    for batch in source.batches("allocations", columns, where=has_total):
        ranks, devices = tracks.text(batch[C.RANK]), tracks.text(batch[C.DEVICE])
        label = _join("rank ", ranks, " device ", devices, " allocated bytes")
        yield _counter(quote(label), batch[C.T_NS], origin, tracks.text(batch[C.TOTAL_ALLOCATED]))


def _counter(name: pa.Array, t_ns: pa.Array, origin: int, value: pa.Array) -> pa.Array:
    pid = str(tracks.COUNTERS)
    return _join(
        '{"ph":"C","name":',
        name,
        f',"pid":{pid},"ts":',
        micro(t_ns, origin),
        ',"args":{"value":',
        value,
        "}}",
    )


_GZIP = 31
"""Window bits that ask for a gzip header."""


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress pieces to one gzip file.

    Example:
        >>> import gzip
        >>> gzip.decompress(b"".join(compress([b"a", b"b"])))
        b'ab'
    """
    packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP)
    for piece in pieces:
        packed = packer.compress(piece)
        if packed:
            yield packed
    yield packer.flush()
