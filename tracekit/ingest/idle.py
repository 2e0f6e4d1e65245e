"""Idle intervals: what is left of a device's capture window when everything that occupied it is taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit import intervals
from tracekit.ingest.link import flagged
from tracekit.schema import BUSY_KINDS, C, DeviceKind

if TYPE_CHECKING:
    from tracekit.ingest.spool import Parked


def idle_batch(parked: Parked) -> pa.RecordBatch | None:
    """A batch of idle rows with the columns of the parked device table; None without any.

    The window of a device is from the first start to the last end of what occupied it.
    """
    kinds = parked.strings(C.KIND)
    busy = np.isin(parked.codes(C.KIND, kinds), flagged(kinds, BUSY_KINDS))
    start = parked.integers(C.START_NS)[busy]
    end = start + parked.integers(C.DUR_NS)[busy]
    device = parked.integers(C.DEVICE)[busy]
    found = [
        (number, *intervals.gaps(start[device == number], end[device == number]))
        for number in np.unique(device)
    ]
    return _batch(found, parked.schema)


def _batch(
    found: list[tuple[np.int64, intervals.Ints, intervals.Ints]], schema: pa.Schema
) -> pa.RecordBatch | None:
    count = sum(len(start) for _, start, _ in found)
    if not count:
        return None
    start = np.concatenate([start for _, start, _ in found])
    known = {
        C.KIND: _constant(DeviceKind.IDLE, count),
        C.NAME: _constant(DeviceKind.IDLE, count),
        C.DEVICE: pa.array(np.concatenate([np.full(len(start), number) for number, start, _ in found])),
        C.START_NS: pa.array(start),
        C.DUR_NS: pa.array(np.concatenate([end for _, _, end in found]) - start),
    }
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([str(value)]))
