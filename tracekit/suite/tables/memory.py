"""Peak memory of all workloads, by kind of memory, with geometric means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import GEOMEAN, MODES, Table, filled, geomean, way, why
from tracekit.suite.plan import CHARACTERIZATION

if TYPE_CHECKING:
    from tracekit.suite.model import Kind
    from tracekit.sweeping.table import Row

HOST, DEVICE = "host_peak_bytes", ("allocated_peak_bytes", "reserved_peak_bytes", "used_peak_bytes")
COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("level", "", "execution mode"),
    Column(HOST, "bytes", "peak resident memory of the process"),
    Column(DEVICE[0], "bytes", "peak allocated memory of the device with most"),
    Column(DEVICE[1], "bytes", "peak reserved memory"),
    Column(DEVICE[2], "bytes", "peak memory in use on the device by all processes, from NVML"),
)


def table(kind: Kind) -> Table:
    """Return a row per workload, mode and level, and geometric means per mode and level."""
    own = kind.part(CHARACTERIZATION)
    levels = list(dict.fromkeys(way(row.settings) for row in own))
    means = [_mean(own, mode, level) for level in levels for mode in MODES]
    return Table(
        name="memory",
        title="Memory of the host and the device",
        definition=(
            "Peaks; the host's without a profiler, including compilation. Geometric means by mode and level."
        ),
        source=f"{published.TORCHBENCH}, Fig. 3 and 4",
        columns=COLUMNS,
        rows=(*(_row(row) for row in own), *means),
    )


def _row(row: Row) -> dict[str, Any]:
    reasons = {HOST: why(row), **dict.fromkeys(DEVICE, why(row, device=True))}
    return filled(row.flat() | {"level": way(row.settings)}, COLUMNS, reasons)


def _mean(own: Any, mode: str, level: str) -> dict[str, Any]:
    of = [row for row in own if (row.settings.mode, way(row.settings)) == (mode, level)]
    known: dict[str, Any] = {"workload": GEOMEAN, "mode": mode, "level": level}
    means = {name: geomean(getattr(row, name) for row in of) for name in (HOST, *DEVICE)}
    known |= {name: None if value is None else round(value) for name, value in means.items()}
    first = of[0] if of else None
    reasons = {HOST: why(first), **dict.fromkeys(DEVICE, why(first, device=True))}
    return filled(known, COLUMNS, reasons)
