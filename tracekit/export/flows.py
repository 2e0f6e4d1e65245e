"""Arrows from the call that launched work to the work on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.export import tracks
from tracekit.export.text import micro
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tracekit.export.lanes import Lanes
    from tracekit.export.reading import Source

    Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class _Calls:
    """Calls that launched something, by rising row id: their process, thread and start."""

    rows: Ints
    process: Ints
    thread: Ints
    start: Ints


def events(source: Source, origin: int, host: Lanes, device: Lanes) -> Iterator[pa.Array]:
    """Both ends of every launch whose call was recorded, each within the interval that it belongs to."""
    columns = [C.ROW_ID, C.LAUNCH_ROW, C.RANK, C.DEVICE, C.STREAM, C.START_NS]
    known = pc.field(C.LAUNCH_ROW).is_valid()
    launched = [
        batch[C.LAUNCH_ROW].to_numpy()
        for batch in source.batches("device_intervals", [C.LAUNCH_ROW], where=known)
    ]
    if not launched:
        return
    calls = _calls(source, np.unique(np.concatenate(launched)), host)
    for batch in source.batches("device_intervals", columns, where=known):
        yield from _arrows(batch, calls, device, origin)


def _calls(source: Source, wanted: Ints, host: Lanes) -> _Calls:
    kept: list[tuple[Ints, ...]] = [tuple(np.empty(0, np.int64) for _ in range(4))]
    for batch in source.batches("host_intervals", [C.ROW_ID, C.RANK, C.PID, C.TID, C.START_NS]):
        rows = batch[C.ROW_ID].to_numpy()
        place = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
        found = batch.filter(pa.array(wanted[place] == rows))
        thread = tracks.thread(found[C.TID]).to_numpy()
        ids = found[C.ROW_ID].to_numpy()
        process = tracks.host_process(found[C.RANK], found[C.PID]).to_numpy()
        kept.append((ids, process, host.moved(ids, thread), found[C.START_NS].to_numpy()))
    columns = [np.concatenate(column) for column in zip(*kept, strict=True)]
    order = np.argsort(columns[0])
    return _Calls(*(column[order] for column in columns))


def _arrows(batch: pa.RecordBatch, calls: _Calls, device: Lanes, origin: int) -> Iterator[pa.Array]:
    launch = batch[C.LAUNCH_ROW].to_numpy()
    place = np.searchsorted(calls.rows, launch)
    known = place < len(calls.rows)
    known[known] = calls.rows[place[known]] == launch[known]
    batch, place = batch.filter(pa.array(known)), place[known]
    rows = batch[C.ROW_ID].to_numpy()
    process, thread, start = (pa.array(one[place]) for one in (calls.process, calls.thread, calls.start))
    yield _end("s", rows, process, thread, start, origin)
    stream = device.moved(rows, tracks.stream(batch[C.STREAM]).to_numpy())
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
