"""Chrome trace of a run for Perfetto, with flows from launches to device work and from forward to backward.

Rows are converted to text with Arrow's compute functions, without Python objects per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from tracekit.export import tracks
from tracekit.export.tables import Source
from tracekit.export.tracks import BACKWARD, FORWARD, Intervals, Ints, Tracks, find_links, find_tracks
from tracekit.registry import VERSION
from tracekit.runs.run import Run
from tracekit.runs.selection import Window
from tracekit.schema import C, DeviceKind, HostKind

Pieces: TypeAlias = Iterator[pa.Array]
_DEVICE_CATEGORIES: Final = {
    DeviceKind.MEMCPY: "gpu_memcpy", DeviceKind.MEMSET: "gpu_memset", DeviceKind.SYNC: "cuda_sync",
}  # fmt: skip
"""Kinds with another name in torch.profiler."""
_HOST_CATEGORIES: Final = {
    HostKind.OP: "cpu_op", HostKind.RUNTIME: "cuda_runtime", HostKind.SYNC: "cuda_runtime",
    HostKind.ANNOTATION: "user_annotation", HostKind.PYTHON: "python_function",
}  # fmt: skip
"""The same for host intervals; torch.profiler writes waits as runtime calls."""
_DEVICE_ARGUMENTS = {
    C.ROW_ID: C.ROW_ID, C.STEP: C.STEP, C.DEVICE: "device", C.STREAM: "stream", C.CONTEXT: "context",
    C.CORRELATION_ID: "correlation", C.LAUNCH_ROW: C.LAUNCH_ROW, C.OP_ROW: C.OP_ROW,
    C.REGISTERS: "registers per thread", C.STATIC_SHARED_BYTES: C.STATIC_SHARED_BYTES,
    C.DYNAMIC_SHARED_BYTES: "shared memory", C.OCCUPANCY_PCT: "est. achieved occupancy %",
    C.BYTES: "bytes", C.GRAPH_ID: "graph id", C.GRAPH_NODE_ID: "graph node id",
    **{
        name: name
        for name in (
            C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY, C.IDLE_CAUSE,
            C.CAPTURED_OP, C.CAPTURED_PATH, C.CAPTURED_MODULE, C.CAPTURED_SHAPES,
        )
    },
}  # fmt: skip
"""Columns and what torch.profiler calls them, where it has them."""
_SHAPES = {"grid": (C.GRID_X, C.GRID_Y, C.GRID_Z), "block": (C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z)}
_HOST_ARGUMENTS = {
    C.ROW_ID: C.ROW_ID, C.STEP: C.STEP, C.CORRELATION_ID: "correlation", C.EXTERNAL_ID: "External id",
    C.SEQUENCE: "Sequence number", C.FWD_TID: "Fwd thread id", C.FLOPS: C.FLOPS,
    C.PHASE: C.PHASE, C.INPUT_SHAPES: C.INPUT_SHAPES, C.INPUT_DTYPES: C.INPUT_DTYPES,
    C.STACK: "Call stack", C.MODULE: C.MODULE,
}  # fmt: skip


HOST: Final = Intervals(
    table="host_intervals",
    placed=tracks.on_host,
    placed_by=[C.RANK, C.PID, C.TID],
    then=C.DEPTH,
    categories=_HOST_CATEGORIES,
    arguments=_HOST_ARGUMENTS,
)
DEVICE: Final = Intervals(
    table="device_intervals",
    placed=tracks.on_device,
    placed_by=[C.RANK, C.DEVICE, C.STREAM, C.KIND],
    then=C.ROW_ID,
    categories=_DEVICE_CATEGORIES,
    arguments=_DEVICE_ARGUMENTS,
    shapes=_SHAPES,
)


def chrome_trace(run: Run, *, window: Window | None = None) -> Iterator[bytes]:
    """Yield the JSON of a run's intervals, steps, counters and launches, piece by piece.

    Categories and arguments have the names that torch.profiler gives them, so that what reads its traces
    reads this one. Times count from the run's `t0`, or from its first event where that is earlier. Intervals
    of one track nest: those that cross another get a track beside it. With a window, only what overlaps it.

    Example:
        >>> import tracekit
        >>> from tracekit.export.chrome import chrome_trace
        >>> b"".join(chrome_trace(tracekit.open("latest")))[:17]  # doctest: +SKIP
        b'{"traceEvents": ['
    """
    source = Source(run, window)
    origin = tracks.origin(source)
    host, device = (find_tracks(source, intervals) for intervals in (HOST, DEVICE))
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
    yield from _intervals(source, HOST, origin, host)
    yield from _intervals(source, DEVICE, origin, device)
    yield from _launches(source, origin, host, device)
    yield from _backward(source, origin, host)
    yield from _counters(source, origin)
    yield from _allocations(source, origin)


def _event(
    category: str | pa.Array, place: tuple[Ints, Ints], batch: pa.RecordBatch, origin: int
) -> tuple[object, ...]:
    """Return the JSON of intervals up to their arguments."""
    process, thread = place
    return (
        '{"ph":"X","name":', quote(batch[C.NAME]), ',"cat":', category,
        ',"pid":', _text(process), ',"tid":', _text(thread),
        ',"ts":', micro(batch[C.START_NS], origin), ',"dur":', micro(batch[C.DUR_NS]), ',"args":{',
    )  # fmt: skip


def _steps(source: Source, origin: int) -> Pieces:
    for batch in source.batches("steps"):
        head = _event('"step"', tracks.on_steps(batch), batch, origin)
        yield _join(*head, '"step":', _text(batch[C.STEP]), "}}")


def _intervals(source: Source, of: Intervals, origin: int, lanes: Tracks) -> Pieces:
    shapes = [axis for axes in of.shapes.values() for axis in axes]
    columns = [C.NAME, C.KIND, C.START_NS, C.DUR_NS, of.then, *of.placed_by, *of.arguments, *shapes]
    for batch in source.nested(of.table, list(dict.fromkeys(columns)), of.then):
        process, thread = of.placed(batch)
        place = process, lanes.thread_of_rows(batch[C.ROW_ID].to_numpy(), thread)
        head = _event(quote(batch[C.KIND], of.categories), place, batch, origin)
        yield _join(*head, *_arguments(batch, of.arguments), *_triples(batch, of.shapes), '"tracekit":1}}')


def _launches(source: Source, origin: int, host: Tracks, device: Tracks) -> Pieces:
    """Yield both ends of every launch whose call was recorded, each in the interval that it belongs to."""
    columns = [C.ROW_ID, C.LAUNCH_ROW, *DEVICE.placed_by, C.START_NS]
    has_launch = pc.field(C.LAUNCH_ROW).is_valid()
    launched = [
        batch[C.LAUNCH_ROW].to_numpy()
        for batch in source.batches("device_intervals", [C.LAUNCH_ROW], where=has_launch)
    ]
    if not launched:
        return
    calls = _calls(source, np.unique(np.concatenate(launched)), host)
    for batch in source.batches("device_intervals", columns, where=has_launch):
        place = calls.index.get_indexer(batch[C.LAUNCH_ROW].to_numpy())
        batch, call = batch.filter(pa.array(place >= 0)), calls.iloc[place[place >= 0]]
        rows = batch[C.ROW_ID].to_numpy()
        process, thread, start = call.to_numpy(np.int64).T
        yield _end(_LAUNCH, "s", rows, (process, thread, start), origin)
        process, thread = tracks.on_device(batch)
        thread = device.thread_of_rows(rows, thread)
        yield _end(_LAUNCH, "f", rows, (process, thread, batch[C.START_NS].to_numpy()), origin)


_LAUNCH, _BACKWARD = "ac2g", "fwdbwd"
"""Names of the flows, as torch.profiler has them."""


def _backward(source: Source, origin: int, host: Tracks) -> Pieces:
    """Yield both ends of the links from forward to backward ops."""
    links = find_links(source)
    if links.empty:
        return
    numbers = np.arange(1, len(links) + 1)
    for phase, name in (("s", FORWARD), ("f", BACKWARD)):
        rows = links[name].to_numpy(np.int64)
        ops = _calls(source, np.unique(rows), host).loc[rows]
        yield _end(_BACKWARD, phase, numbers, tuple(ops.to_numpy(np.int64).T), origin)


def _calls(source: Source, wanted: Ints, host: Tracks) -> pd.DataFrame:
    """Return process, thread and start of the wanted host intervals, by row id; the first of equal ids."""
    parts = [pd.DataFrame({"process": [], "thread": [], "start": []}, index=[], dtype=np.int64)]
    for batch in source.batches("host_intervals", [C.ROW_ID, *HOST.placed_by, C.START_NS]):
        rows = batch[C.ROW_ID].to_numpy()
        place = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
        chosen = batch.filter(pa.array(wanted[place] == rows))
        ids, (process, thread) = chosen[C.ROW_ID].to_numpy(), tracks.on_host(chosen)
        columns = {
            "process": process,
            "thread": host.thread_of_rows(ids, thread),
            "start": chosen[C.START_NS],
        }
        parts.append(pd.DataFrame(columns, index=ids))
    calls = pd.concat(parts)
    return calls[~calls.index.duplicated()]


def _end(flow: str, phase: str, numbers: Ints, place: Sequence[Ints], origin: int) -> pa.Array:
    """Return one end of each flow; the place is process, thread and start."""
    process, thread, start_ns = place
    return _join(
        f'{{"ph":"{phase}","bp":"e","cat":"{flow}","name":"{flow}","id":', _text(numbers),
        ',"pid":', _text(process), ',"tid":', _text(thread), ',"ts":', micro(pa.array(start_ns), origin), "}",
    )  # fmt: skip


def _counters(source: Source, origin: int) -> Pieces:
    for batch in source.batches("counters"):
        label = _join(
            batch[C.SOURCE].cast("string"),
            pc.fill_null(_join(" rank ", _text(batch[C.RANK])), ""),
            pc.fill_null(_join(" device ", _text(batch[C.DEVICE])), ""),
            " ",
            batch[C.METRIC].cast("string"),
        )
        finite = pc.is_finite(batch[C.VALUE])
        samples = _counter(quote(label), batch[C.T_NS], origin, _text(batch[C.VALUE]))
        yield samples.filter(finite)


def _allocations(source: Source, origin: int) -> Pieces:
    columns = [C.T_NS, C.RANK, C.DEVICE, C.TOTAL_ALLOCATED]
    has_total = pc.field(C.TOTAL_ALLOCATED).is_valid()
    for batch in source.batches("allocations", columns, where=has_total):
        ranks, devices = _text(batch[C.RANK]), _text(batch[C.DEVICE])
        label = _join("rank ", ranks, " device ", devices, " allocated bytes")
        yield _counter(quote(label), batch[C.T_NS], origin, _text(batch[C.TOTAL_ALLOCATED]))


def _counter(name: pa.Array, t_ns: pa.Array, origin: int, value: pa.Array) -> pa.Array:
    head = ('{"ph":"C","name":', name, f',"pid":{tracks.COUNTERS},"ts":', micro(t_ns, origin))
    return _join(*head, ',"args":{"value":', value, "}}")


_LIMIT = 2_000  # maximum characters of a text; viewers show no more


def _join(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _text(numbers: Ints | pa.Array) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def micro(ns: pa.Array, origin: int = 0) -> pa.Array:
    """Convert nanoseconds to exact microseconds in text, counted from an origin.

    Example:
        >>> micro(pa.array([1_234_567, 5])).to_pylist()
        ['1234.567', '0.005']
    """
    shifted = pc.subtract(ns, pa.scalar(origin, pa.int64()))
    sign = pc.if_else(pc.less(shifted, 0), "-", "")
    size = pc.abs(shifted)
    micros = pc.divide(size, pa.scalar(1000, pa.int64()))
    rest = pc.subtract(size, pc.multiply(micros, pa.scalar(1000, pa.int64())))
    return _join(sign, _text(micros), ".", pc.utf8_lpad(_text(rest), 3, "0"))


def quote(texts: pa.Array, names: Mapping[Any, str] | None = None) -> pa.Array:
    r"""Convert texts, or the names that replace them, to JSON strings, each distinct text once.

    Example:
        >>> quote(pa.array(['a"b', None])).to_pylist()
        ['"a\\"b"', None]
    """
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    renamed = [(names or {}).get(text, text) for text in coded.dictionary.to_pylist()]
    spelled = [None if text is None else json.dumps(text[:_LIMIT]) for text in renamed]
    return pa.array(spelled, pa.string()).take(coded.indices)


def _arguments(batch: pa.RecordBatch, names: Mapping[str, str]) -> list[pa.Array]:
    """Return a member of an object per column, each followed by a comma; empty for null and NaN."""
    return [
        pc.fill_null(_join(f'"{called}":', _value(batch[name]), ","), "")
        for name, called in names.items()
        if batch[name].null_count < len(batch)
    ]


def _triples(batch: pa.RecordBatch, shapes: Mapping[str, Sequence[str]]) -> list[pa.Array]:
    """Return members that are lists of three columns; empty where one of these is null."""
    members = []
    for name, axes in shapes.items():
        x, y, z = (_value(batch[axis]) for axis in axes)
        members.append(pc.fill_null(_join(f'"{name}":[', x, ",", y, ",", z, "],"), ""))
    return members


def _value(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        return quote(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    return _text(column)


_GZIP = 31  # window bits that ask for a gzip header


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
