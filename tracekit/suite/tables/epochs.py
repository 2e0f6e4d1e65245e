"""One epoch of the MNIST network by device and threads, after the report's Table 2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import Table, filled, why
from tracekit.suite.plan import EPOCH_SAMPLES, THREADS
from tracekit.sweeping.table import NO_GPU

if TYPE_CHECKING:
    from tracekit.suite.model import Kind
    from tracekit.sweeping.table import Row

COLUMNS = (
    Column("device", "", "device"),
    Column("threads", "", "allowed intra-op CPU threads"),
    Column("threads_used", "count", "threads used"),
    Column("batch_size", "", "samples per step"),
    Column("step_ns", "ns", "median step time"),
    Column("epoch_ns", "ns", "step time times the number of steps for 60,000 samples"),
    Column("published_ns", "ns", "time on the report's machine"),
)


def table(kind: Kind) -> Table:
    """Return a row per device and number of threads in the report."""
    known = {(row.settings.device, str(row.settings.threads or "all")): row for row in kind.part(THREADS)}
    return Table(
        name="epochs",
        title="One epoch of MNIST",
        definition=(
            "An epoch is computed from the median training step on random data, not run. Data loading and "
            "evaluation are excluded; the report does not state its batch size."
        ),
        source=f"{published.REPORT}, Table 2",
        columns=COLUMNS,
        rows=tuple(_row(key, known.get(key)) for key in published.EPOCH_S),
    )


def _row(key: tuple[str, str], row: Row | None) -> dict[str, Any]:
    device, threads = key
    known: dict[str, Any] = {"device": device, "threads": threads}
    known["published_ns"] = round(published.EPOCH_S[key] * 1e9)
    if row is not None:
        batch = row.settings.batch_size
        known |= {"batch_size": batch, "threads_used": row.threads_used, "step_ns": row.step_ns}
        if row.step_ns is not None:
            known["epoch_ns"] = row.step_ns * math.ceil(EPOCH_SAMPLES / batch)
    said = NO_GPU if row is None and device == "cuda" else why(row)
    return filled(known, COLUMNS, said)
