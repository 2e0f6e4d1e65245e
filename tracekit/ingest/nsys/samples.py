"""Device memory the driver gave out, and hardware counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest.nsys import vendor
from tracekit.ingest.nsys.rows import batch, chosen, coded, constant, device_index, nullable, parked, pid
from tracekit.ingest.nsys.tables import NULL, Wanted, whole, words
from tracekit.schema import HOST_DEVICE, C

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.nsys.tables import Chunk, Tables

ALLOCATED = Wanted(
    integers=("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
)
METRICS = Wanted(integers=("timestamp", "typeId", "metricId"), reals=("value",))
_FREED = 1
_DEVICE_BITS = 0xFF
_ALLOCATIONS = parked(texts=(), integers=(C.T_NS, C.PID, C.DEVICE, C.BYTES, C.ADDRESS))
_COUNTERS = parked(texts=(C.SOURCE, C.METRIC, C.UNIT), integers=(C.T_NS, C.DEVICE), reals=(C.VALUE,))


def allocations(chunk: Chunk) -> pa.RecordBatch:
    """What the driver gave out and took back; memory of the host has the host's device number."""
    on_host = np.isin(chunk.integers("memKind"), vendor.ON_HOST)
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
    """Names of the hardware counters by type and number."""
    found = tables.records("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    return {(whole(row["typeId"]), whole(row["metricId"])): words(row["metricName"]) for row in found}


def metrics(chunk: Chunk, names: Mapping[tuple[int | None, int | None], str]) -> pa.RecordBatch:
    """Samples of hardware counters that have a value; those whose name ends in `[...%...]` are percent."""
    chunk = chunk.where(np.isfinite(chunk.reals("value")))
    kind, number = chunk.integers("typeId"), chunk.integers("metricId")
    distinct, place = chosen(kind << 20 | number & 0xF_FFFF)
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
