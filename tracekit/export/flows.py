"""Arrows from the call that launched work to the work on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.export import tracks
from tracekit.export.text import micro
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run


def events(run: Run, origin: int) -> Iterator[pa.Array]:
    """Both ends of every launch whose call was recorded."""
    known = pc.field(C.LAUNCH_ROW).is_valid()
    columns = [C.ROW_ID, C.LAUNCH_ROW, C.RANK, C.DEVICE, C.STREAM, C.START_NS]
    work = run.arrow("device_intervals", columns=columns, where=known).combine_chunks()
    if not len(work):
        return
    rows = run.arrow("host_intervals", columns=[C.ROW_ID])[C.ROW_ID].combine_chunks()
    place = pc.index_in(work[C.LAUNCH_ROW].combine_chunks(), rows)
    work = work.filter(place.is_valid())
    calls = run.arrow("host_intervals", columns=[C.RANK, C.PID, C.TID, C.START_NS])
    calls = calls.take(place.drop_null()).combine_chunks()
    ids = tracks.text(_column(work, C.ROW_ID))
    pid = tracks.host_process(_column(calls, C.RANK), _column(calls, C.PID))
    yield _end("s", ids, pid, tracks.thread(_column(calls, C.TID)), _column(calls, C.START_NS), origin)
    pid = tracks.device_process(_column(work, C.RANK), _column(work, C.DEVICE))
    stream = tracks.stream(_column(work, C.STREAM))
    yield _end("f", ids, pid, stream, _column(work, C.START_NS), origin)


def _column(table: pa.Table, name: str) -> pa.Array:
    chunked = table[name]
    return chunked.combine_chunks() if isinstance(chunked, pa.ChunkedArray) else chunked


def _end(
    phase: str, ids: pa.Array, pid: pa.Array, tid: pa.Array, start_ns: pa.Array, origin: int
) -> pa.Array:
    return pc.binary_join_element_wise(
        f'{{"ph":"{phase}","bp":"e","cat":"launch","name":"launch","id":', ids,
        ',"pid":', tracks.text(pid), ',"tid":', tracks.text(tid), ',"ts":', micro(start_ns, origin), "}", "",
    )  # fmt: skip
