"""A run as a Chrome trace in JSON, as ui.perfetto.dev opens it: made in pieces, exact to the nanosecond.

Columns become text at once with Arrow's kernels; no row is ever a Python object.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit import __version__
from tracekit.export import flows, tracks
from tracekit.export.text import fragments, fragments_of_text, micro, quoted
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tracekit.run import Run

    Pieces = Iterator[pa.Array]

_BATCH = 65_536
_DEVICE_NUMBERS = (
    C.ROW_ID, C.STEP, C.CORRELATION_ID, C.LAUNCH_ROW, C.OP_ROW, C.GRID_X, C.GRID_Y, C.GRID_Z, C.BLOCK_X,
    C.BLOCK_Y, C.BLOCK_Z, C.REGISTERS, C.STATIC_SHARED_BYTES, C.DYNAMIC_SHARED_BYTES, C.BYTES, C.GRAPH_ID,
)  # fmt: skip
_DEVICE_TEXTS = (C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY, C.IDLE_CAUSE)
_HOST_NUMBERS = (C.ROW_ID, C.STEP, C.CORRELATION_ID, C.SEQUENCE, C.FLOPS)
_HOST_TEXTS = (C.PHASE, C.INPUT_SHAPES, C.INPUT_DTYPES, C.STACK, C.MODULE)


def chrome_trace(run: Run) -> Iterator[bytes]:
    """The JSON of a run's intervals, steps, counters and launches, piece by piece.

    Times count from the run's `t0`, or from its first event where that is earlier.

    Args:
        run: The run.

    Example:
        >>> import tracekit
        >>> from tracekit.export.chrome import chrome_trace
        >>> b"".join(chrome_trace(tracekit.open("latest")))[:17]  # doctest: +SKIP
        b'{"traceEvents": ['
    """
    origin = tracks.origin(run)
    yield b'{"traceEvents": [\n'
    yield ",\n".join(json.dumps(event) for event in tracks.named(run)).encode()
    for events in _events(run, origin):
        text = ",\n".join(events.to_pylist())
        if text:
            yield b",\n" + text.encode()
    about = {"run": run.id, "tracekit": __version__, "t0_unix_ns": run.meta.t0_unix_ns + origin}
    yield f'\n], "displayTimeUnit": "ns", "otherData": {json.dumps(about)}}}\n'.encode()


def _events(run: Run, origin: int) -> Pieces:
    yield from _steps(run, origin)
    yield from _host(run, origin)
    yield from _device(run, origin)
    yield from flows.events(run, origin)
    yield from _counters(run, origin)
    yield from _allocated(run, origin)


def _join(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _event(
    name: pa.Array, kind: str | pa.Array, pid: pa.Array, tid: pa.Array, batch: pa.RecordBatch, origin: int
) -> tuple[object, ...]:
    """An interval up to its arguments."""
    return (
        '{"ph":"X","name":', name, ',"cat":', kind, ',"pid":', tracks.text(pid), ',"tid":', tracks.text(tid),
        ',"ts":', micro(batch[C.START_NS], origin), ',"dur":', micro(batch[C.DUR_NS]), ',"args":{',
    )  # fmt: skip


def _steps(run: Run, origin: int) -> Pieces:
    for batch in run.arrow("steps").to_batches(_BATCH):
        pid = tracks.steps_process(batch[C.RANK])
        head = _event(quoted(batch[C.NAME]), '"step"', pid, batch[C.RANK], batch, origin)
        yield _join(*head, '"step":', tracks.text(batch[C.STEP]), "}}")


def _host(run: Run, origin: int) -> Pieces:
    columns = [C.NAME, C.KIND, C.RANK, C.PID, C.TID, C.START_NS, C.DUR_NS, *_HOST_NUMBERS, *_HOST_TEXTS]
    for batch in run.arrow("host_intervals", columns=columns).to_batches(_BATCH):
        pid, tid = tracks.host_process(batch[C.RANK], batch[C.PID]), tracks.thread(batch[C.TID])
        head = _event(quoted(batch[C.NAME]), quoted(batch[C.KIND]), pid, tid, batch, origin)
        yield _join(
            *head, fragments(batch, _HOST_NUMBERS), fragments_of_text(batch, _HOST_TEXTS), '"tracekit":1}}'
        )


def _device(run: Run, origin: int) -> Pieces:
    columns = [C.NAME, C.KIND, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS]
    table = run.arrow("device_intervals", columns=[*columns, *_DEVICE_NUMBERS, *_DEVICE_TEXTS])
    for batch in table.to_batches(_BATCH):
        pid = tracks.device_process(batch[C.RANK], batch[C.DEVICE])
        idle = pc.equal(batch[C.KIND].cast("string"), str(DeviceKind.IDLE))
        tid = pc.if_else(idle, tracks.IDLE_THREAD, tracks.stream(batch[C.STREAM]))
        head = _event(quoted(batch[C.NAME]), quoted(batch[C.KIND]), pid, tid, batch, origin)
        yield _join(
            *head,
            fragments(batch, _DEVICE_NUMBERS),
            fragments_of_text(batch, _DEVICE_TEXTS),
            '"tracekit":1}}',
        )


def _counters(run: Run, origin: int) -> Pieces:
    for batch in run.arrow("counters").to_batches(_BATCH):
        label = _join(
            batch[C.SOURCE].cast("string"),
            pc.fill_null(_join(" device ", tracks.text(batch[C.DEVICE])), ""),
            " ",
            batch[C.METRIC].cast("string"),
        )
        finite = pc.is_finite(batch[C.VALUE])
        every = _counter(quoted(label), batch[C.T_NS], origin, tracks.text(batch[C.VALUE]))
        yield every.filter(finite)


def _allocated(run: Run, origin: int) -> Pieces:
    columns = [C.T_NS, C.RANK, C.DEVICE, C.TOTAL_ALLOCATED]
    known = pc.field(C.TOTAL_ALLOCATED).is_valid()
    for batch in run.arrow("allocations", columns=columns, where=known).to_batches(_BATCH):
        ranks, devices = tracks.text(batch[C.RANK]), tracks.text(batch[C.DEVICE])
        label = _join("rank ", ranks, " device ", devices, " allocated bytes")
        yield _counter(quoted(label), batch[C.T_NS], origin, tracks.text(batch[C.TOTAL_ALLOCATED]))


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
