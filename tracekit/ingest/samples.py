"""Samples taken beside a trace: rows of `counters` that the trace itself does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tracekit.ingest.write import write_table
from tracekit.schema import COUNTERS, C

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        t_unix_ns: When, ns since the epoch.
        source: nvml, process or torch.
        device: Device index; None for the host.
        metric: What was sampled.
        unit: Unit of the value.
        value: The value.
    """

    t_unix_ns: int
    source: str
    device: int | None
    metric: str
    unit: str
    value: float


def write_samples(directory: Path, samples: Sequence[Sample], zero_ns: int) -> None:
    """Add samples to the counters of a run being written, in their order of time.

    Args:
        directory: The run.
        samples: Any number, in any order.
        zero_ns: The run's zero, ns since the epoch.
    """
    if not samples:
        return
    path, parts = directory / f"{COUNTERS.name}.parquet", directory / COUNTERS.name
    rows = _rows(sorted(samples, key=lambda sample: sample.t_unix_ns), zero_ns)
    if path.exists():
        import pyarrow.dataset as ds

        recorded = ds.dataset(path, schema=COUNTERS.arrow).to_table()
        rows = pa.concat_tables([recorded, rows]).unify_dictionaries().sort_by(C.T_NS)
    write_table(rows, COUNTERS, parts / "part-samples.parquet" if parts.is_dir() else path)


def _rows(samples: Sequence[Sample], zero_ns: int) -> pa.Table:
    columns = {
        C.T_NS: pa.array([sample.t_unix_ns - zero_ns for sample in samples], pa.int64()),
        C.SOURCE: pa.array([sample.source for sample in samples]).dictionary_encode(),
        C.DEVICE: pa.array([sample.device for sample in samples], pa.int32()),
        C.METRIC: pa.array([sample.metric for sample in samples]).dictionary_encode(),
        C.UNIT: pa.array([sample.unit for sample in samples]).dictionary_encode(),
        C.VALUE: pa.array([sample.value for sample in samples], pa.float64()),
    }
    return pa.table(columns, schema=COUNTERS.arrow)
