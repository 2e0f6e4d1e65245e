"""Idle intervals: what is left of a device's capture window when everything that occupied it is taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit import intervals
from tracekit.ingest.arrays import numbers, strings
from tracekit.ingest.outline import outlined
from tracekit.ingest.texts import NO_STRINGS
from tracekit.ingest.windows import windows
from tracekit.schema import BUSY_KINDS, C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.spool import Parked

_WANTED = (C.KIND, C.DEVICE, C.START_NS, C.DUR_NS)
_Idle = tuple[int, intervals.Ints, intervals.Ints]
"""A device, starts and ends."""


def idle_batches(parked: Parked) -> Iterator[pa.RecordBatch]:
    """Idle rows with the columns of the parked device table, in batches.

    The window of a device is from the first start to the last end of what occupied it.
    """
    table = outlined(parked, texts=[C.KIND])
    occupying = table.texts.get(C.KIND, NO_STRINGS).among(BUSY_KINDS)
    covered: dict[int, int] = {}
    for window in windows([table]):
        rows = table.read(window.spans[0], _WANTED)
        busy = rows.take(np.flatnonzero(occupying[rows.codes(C.KIND)]))
        start, device = busy.integers(C.START_NS), busy.integers(C.DEVICE)
        end = start + busy.integers(C.DUR_NS)
        found = [
            _gaps(number, start[own], end[own], covered)
            for number in np.unique(device).tolist()
            for own in [device == number]
        ]
        if sum(len(first) for _, first, _ in found):
            yield _batch(found, parked.schema)


def _gaps(device: int, start: intervals.Ints, end: intervals.Ints, covered: dict[int, int]) -> _Idle:
    """Gaps of a device in a window, and behind all that came before it; moves on what is covered."""
    before = covered.get(device)
    if before is not None:  # stands for all that came before: it covers up to there
        start, end = np.append(min(before, int(start.min())), start), np.append(before, end)
    covered[device] = int(end.max())
    return (device, *intervals.gaps(start, end))


def _batch(found: list[_Idle], schema: pa.Schema) -> pa.RecordBatch:
    start = np.concatenate([first for _, first, _ in found])
    count = len(start)
    known = {
        C.KIND: _constant(DeviceKind.IDLE, count),
        C.NAME: _constant(DeviceKind.IDLE, count),
        C.DEVICE: numbers(np.concatenate([np.full(len(first), device) for device, first, _ in found])),
        C.START_NS: numbers(start),
        C.DUR_NS: numbers(np.concatenate([last for _, _, last in found]) - start),
    }
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(numbers(np.zeros(count, np.int32)), strings([value]))
